//! Everything that can be known about a job before it starts, at once: `sharestream check`.
//!
//! ```text
//! brokers, group, topics, transactional ids --collect--> facts --brokers, group, members, topics, ...--> findings
//! checkpoint store -----------------------------probe--> facts --store, clock--------------------------> findings
//! ```
//! The facts are plain values and the findings pure functions of them; `collect` alone asks. Nothing is joined, created or
//! changed: what brokers tell is read, what they would refuse is asked with `validate_only`, and the checkpoint store gets one
//! object that is taken away again. What cannot be looked at is a finding as well, with the reason.
//!
//! A start uses the same functions for what it refuses: [`crate::fit`], the mode, the settings of the outcome topic.

mod brokers;
mod collect;
pub(crate) mod finding;
mod group;
mod members;
mod store;
mod topics;
mod transactions;

#[cfg(test)]
mod tests;

use std::time::Duration;

use sharestream_core::commit::AckMode;

pub(crate) use brokers::reason as mode_reason;
pub use collect::job;
pub use finding::{Area, Finding, Weight};
pub(crate) use members::client_id;
pub use store::store;

use crate::fit::{ClusterLimits, Times};
use brokers::BrokerFacts;
use finding::{Asked, Found};
use group::GroupFacts;
use members::MemberFacts;
use topics::{Cluster, Role, TopicFacts};
use transactions::TransactionFacts;

/// What was found out about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The mode that it would run in; `None` where it would not.
    pub mode: Option<AckMode>,
    /// In the order in which things were looked at.
    pub findings: Vec<Finding>,
}

/// All that was asked of the brokers.
#[derive(Clone, Debug)]
struct Facts {
    choice: crate::AckModeChoice,
    support: crate::config::ModeSupport,
    brokers: Vec<BrokerFacts>,
    times: Times,
    limits: ClusterLimits,
    group: GroupFacts,
    group_operations: Asked<Option<sharestream_client::Operations>>,
    members: MemberFacts,
    topics: Vec<TopicFacts>,
    batch_bytes_max: u64,
    record_bytes_max: u64,
    transactions: Vec<TransactionFacts>,
    /// Who we are to the brokers' ACLs, where that is known.
    principal: Option<String>,
    now_ms: i64,
}

/// Every finding that these facts give.
fn findings(facts: &Facts) -> Report {
    let mut list = brokers::brokers(&facts.brokers);
    let (mode, of_mode) = brokers::mode(facts.choice, &facts.support, facts.group.share_version);
    list.extend(of_mode);
    list.extend(times(&facts.times, &facts.limits));
    list.extend(group::group(&facts.group));
    list.extend(members::members(&facts.members));
    let node_count = facts.brokers.len();
    let cluster = Cluster {
        node_count,
        brokers: facts.group.brokers.as_ref().ok(),
        batch_bytes_max: facts.batch_bytes_max,
        record_bytes_max: facts.record_bytes_max,
    };
    list.extend(topics::topics(&facts.topics, &cluster));
    for topic in facts.topics.iter().filter(|topic| topic.role == Role::Outcomes) {
        list.extend(outcomes(topic, node_count, mode));
    }
    let mut rights = Found::of(Area::Rights);
    topics::rights(&facts.topics, facts.principal.as_deref(), &mut rights);
    group::rights(&facts.group_operations, &facts.group, facts.principal.as_deref(), &mut rights);
    transactions::rights(&facts.transactions, facts.principal.as_deref(), &mut rights);
    list.extend(rights.list);
    list.extend(transactions::transactions(&facts.transactions, facts.now_ms));
    Report { mode, findings: list }
}

/// The relations of [`crate::fit`], and a word where all of them hold.
fn times(times: &Times, limits: &ClusterLimits) -> Vec<Finding> {
    let mut found = Found::of(Area::Times);
    found.list = crate::fit::fit(times, limits);
    if let (Some(lock), true) =
        (limits.lock_duration, found.list.iter().all(|finding| finding.weight < Weight::Warning))
    {
        let longest = times.longest_transaction();
        let Times { goal, transaction_timeout, .. } = *times;
        let allowed = |max: Duration| format!(", the brokers allow {max:?}");
        let allowed = limits.transaction_timeout_max.map(allowed).unwrap_or_default();
        found.ok(
            "fit",
            format!(
                "goal {goal:?} within locks of {lock:?}; a transaction lasts {longest:?} at most, its time-out is \
                 {transaction_timeout:?}{allowed}"
            ),
        );
    }
    found.list
}

/// The settings of the outcome topic.
fn outcomes(topic: &TopicFacts, node_count: usize, mode: Option<AckMode>) -> Vec<Finding> {
    let Ok(Some(_)) = &topic.described else { return Vec::new() };
    // Not telling is a finding of the topic already.
    let Ok(settings) = &topic.settings else { return Vec::new() };
    let mut found = Found::of(Area::Outcomes);
    found.list =
        crate::outcome_topic::faults(&topic.name, settings, node_count, mode == Some(AckMode::Ledger));
    if found.list.is_empty() {
        found.ok("settings", format!("the settings of outcome topic '{}' are right", topic.name));
    }
    found.list
}
