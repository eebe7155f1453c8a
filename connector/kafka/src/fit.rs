//! Whether the times of a job fit together, and under what the brokers allow (DESIGN section 2, Clocks).
//!
//! ```text
//! first write   barrier              last acknowledgement          EndTxn answered
//!   |-- interval --|-- barrier time-out --|-- commit deadline -----------|
//!   |                                     |             |-- EndTxn again -|
//!   |============== must end within the transaction time-out ============|  <= transaction.max.timeout.ms
//!
//! acquired         renewal      once more         lost
//!   |--- 2/3 of the lock ---|--- 1/6 ---|--- 1/6 ---|      the goal ends within the first third
//! ```
//! [`fit`] is pure and gives every finding at once; [`findings`] asks the brokers for the rest and may be called before
//! anything is joined or created, as [`KafkaJob::connect_for`](crate::KafkaJob::connect_for) does.

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_client::Client;
use sharestream_core::JobOptions;

use crate::Result;
use crate::check::finding::{Area, Found};
pub use crate::check::finding::{Finding, Weight};
use crate::config::{AckModeChoice, KafkaJobConfig};
use crate::error::invalid_input;
use crate::group::{LOCK_DURATION_MS, RECORD_LOCKS_MAX, RENEWAL_ENABLED};
use crate::job::transactional_support;

/// A lock lasts at least so many latency goals: an epoch is open for one, waits for the commit before it for as long, and
/// in the last third its locks are renewed.
pub const GOALS_PER_LOCK: u32 = 3;
/// Renewal begins with a third of the lock left and is tried once more in half of that: each try has a sixth.
const TRIES_PER_LOCK: u32 = 6;
/// The least that a try needs: a round trip through a busy task to a busy broker.
const RENEWAL_TRY_MIN: Duration = Duration::from_millis(250);
/// A transaction time-out of more than so many times what is needed only keeps readers waiting for a dead job.
const TIMEOUT_SLACK: u32 = 4;
/// Kafka: `transaction.max.timeout.ms`.
const TRANSACTION_TIMEOUT_MAX_MS: &str = "transaction.max.timeout.ms";

/// The times of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// [`JobOptions::goal`].
    pub goal: Duration,
    /// [`JobOptions::interval`]: the longest that an epoch is open.
    pub interval: Duration,
    /// [`JobOptions::barrier_alignment_timeout`].
    pub barrier: Duration,
    /// [`JobOptions::commit_deadline`]: everything from the last barrier acknowledgement on.
    pub commit: Duration,
    /// [`KafkaJobConfig::commit_deadline`]: the part of it in which an unanswered EndTxn is sent again.
    pub end_txn: Duration,
    /// [`KafkaJobConfig::transaction_timeout`].
    pub transaction_timeout: Duration,
    /// Claims of other replicas may have to be waited for.
    pub is_ledger: bool,
}

impl Times {
    /// The times that these settings ask for. `is_ledger`: the mode that the job will run in.
    pub fn new(config: &KafkaJobConfig, options: &JobOptions, is_ledger: bool) -> Self {
        Times {
            goal: options.goal(),
            interval: options.interval(),
            barrier: options.barrier_alignment_timeout,
            commit: options.commit_deadline,
            end_txn: config.commit_deadline,
            transaction_timeout: config.transaction_timeout,
            is_ledger,
        }
    }

    /// The longest life of a transaction of which nothing has missed its deadline.
    pub(crate) fn longest_transaction(&self) -> Duration {
        self.interval.saturating_add(self.barrier).saturating_add(self.commit)
    }
}

/// What the cluster says. `None`: it does not tell, or not us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterLimits {
    /// Kafka: `transaction.max.timeout.ms` of the brokers.
    pub transaction_timeout_max: Option<Duration>,
    /// Kafka: `share.record.lock.duration.ms` of the group, once the job's settings are applied.
    pub lock_duration: Option<Duration>,
    /// Kafka: `share.renew.acknowledge.enable` of the group.
    pub renews_locks: bool,
    /// Kafka: `share.partition.max.record.locks` of the group.
    pub record_locks_max: Option<u64>,
}

impl ClusterLimits {
    /// From the settings that the job file gives the group (`wanted`), those that it has, and those of the brokers; the
    /// first that says something holds.
    pub fn of(
        wanted: &BTreeMap<String, String>,
        group: &BTreeMap<String, String>,
        brokers: &BTreeMap<String, String>,
    ) -> Self {
        let told = |name: &str| {
            let given = wanted.get(name).or_else(|| group.get(name));
            given.or_else(|| brokers.get(&format!("group.{name}")))
        };
        let number = |text: Option<&String>| text.and_then(|text| text.parse::<u64>().ok());
        let millis = |text| number(text).filter(|ms| *ms > 0).map(Duration::from_millis);
        ClusterLimits {
            transaction_timeout_max: millis(brokers.get(TRANSACTION_TIMEOUT_MAX_MS)),
            lock_duration: millis(told(LOCK_DURATION_MS)),
            renews_locks: told(RENEWAL_ENABLED).is_none_or(|text| text != "false"),
            record_locks_max: number(told(RECORD_LOCKS_MAX)),
        }
    }
}

/// Every relation that does not hold, each with its numbers and what to set.
pub fn fit(times: &Times, limits: &ClusterLimits) -> Vec<Finding> {
    let mut findings = Found::of(Area::Times);
    fit_transaction(times, limits, &mut findings);
    match limits.lock_duration {
        Some(lock) => fit_lock(times, limits, lock, &mut findings),
        None => findings.warning(
            "lock",
            format!("{LOCK_DURATION_MS} of the group is not known, so nobody can say whether locks last"),
            "allow the job to DescribeConfigs of the group, or set it in the job file",
        ),
    }
    if let Some(locks) = limits.record_locks_max {
        let rate = locks as f64 / times.goal.as_secs_f64().max(0.001);
        let message = format!(
            "a goal of {:?} and {locks} record locks bound a partition to {rate:.0} records/s, unless commits are faster than \
             the goal",
            times.goal
        );
        findings.hint("record-locks", message, format!("more: a shorter goal, or {RECORD_LOCKS_MAX} raised"));
    }
    findings.list
}

fn fit_transaction(times: &Times, limits: &ClusterLimits, findings: &mut Found) {
    let Times { interval, barrier, commit, end_txn, transaction_timeout, .. } = *times;
    let longest = times.longest_transaction();
    if transaction_timeout <= longest {
        let message = format!(
            "transaction-timeout {transaction_timeout:?} is not above {longest:?}: an epoch may be open for {interval:?}, its \
             barrier may take {barrier:?} and its commit {commit:?}, and then the broker would have aborted it"
        );
        let fix = "raise transaction-timeout above that, or lower the goal, barrier_alignment_timeout or commit_deadline";
        findings.refused("transaction-timeout", message, fix);
    } else if transaction_timeout > longest.saturating_mul(TIMEOUT_SLACK) {
        let message = format!(
            "transaction-timeout {transaction_timeout:?} is more than {TIMEOUT_SLACK} times the {longest:?} that are needed: \
             for so long a dead job's transaction holds up its readers"
        );
        findings.hint("transaction-timeout", message, "lower transaction-timeout");
    }
    match limits.transaction_timeout_max {
        Some(max) if transaction_timeout > max => {
            let message = format!(
                "transaction-timeout {transaction_timeout:?} is above the {max:?} that the brokers allow \
                 ({TRANSACTION_TIMEOUT_MAX_MS})"
            );
            let fix = format!(
                "set {TRANSACTION_TIMEOUT_MAX_MS} of the brokers to at least {}, or lower transaction-timeout and with it the \
                 deadlines of barrier and commit",
                transaction_timeout.as_millis()
            );
            findings.refused("transaction-timeout-max", message, fix);
        }
        Some(_) => {}
        None => findings.warning(
            "transaction-timeout-max",
            format!(
                "{TRANSACTION_TIMEOUT_MAX_MS} of the brokers is not known; a transaction-timeout of {transaction_timeout:?} is \
                 refused if it is above it"
            ),
            "allow the job to DescribeConfigs of the cluster to have it checked",
        ),
    }
    if end_txn >= commit {
        let message = format!(
            "commit-deadline {end_txn:?}, in which an unanswered EndTxn is sent again, is not below the {commit:?} of the whole \
             commit (commit_deadline of the job options)"
        );
        findings.refused("commit-deadline", message, "lower the first or raise the second");
    } else if times.is_ledger && commit < end_txn + end_txn / 2 {
        let message = format!(
            "in ledger mode a commit may wait {:?} for the claim of another replica, and then needs up to {end_txn:?}; it has \
             {commit:?}",
            end_txn / 2
        );
        findings.warning(
            "commit-deadline",
            message,
            "lower commit-deadline or raise commit_deadline of the job options",
        );
    }
}

fn fit_lock(times: &Times, limits: &ClusterLimits, lock: Duration, findings: &mut Found) {
    if times.goal.saturating_mul(GOALS_PER_LOCK) > lock {
        let message = format!(
            "a latency goal of {:?} is too long for record locks of {lock:?} ({LOCK_DURATION_MS})",
            times.goal
        );
        let fix = format!(
            "set the goal to at most a third, {:?}, or the lock to at least {}",
            lock / GOALS_PER_LOCK,
            times.goal.saturating_mul(GOALS_PER_LOCK).as_millis()
        );
        findings.refused("goal", message, fix);
    }
    if limits.renews_locks {
        let try_has = lock / TRIES_PER_LOCK;
        if try_has < RENEWAL_TRY_MIN {
            let message = format!(
                "record locks of {lock:?} ({LOCK_DURATION_MS}) leave {try_has:?} for a renewal and as much for a second try; each \
                 needs {RENEWAL_TRY_MIN:?}"
            );
            let least = RENEWAL_TRY_MIN * TRIES_PER_LOCK;
            findings.refused("renewal-time", message, format!("set it to at least {}", least.as_millis()));
        }
        return;
    }
    let longest = times.longest_transaction();
    if lock <= longest {
        let message = format!(
            "locks cannot be renewed ({RENEWAL_ENABLED} is false), and {lock:?} ({LOCK_DURATION_MS}) is not above the {longest:?} \
             that a record may be held: open {:?}, barrier {:?}, commit {:?}",
            times.interval, times.barrier, times.commit
        );
        let fix = format!(
            "set {RENEWAL_ENABLED} to true, or the lock above {} ms, or lower the deadlines",
            longest.as_millis()
        );
        findings.refused("lock", message, fix);
    }
}

/// Asks the brokers, and gives every finding about the times of a job. Nothing is joined, created or changed. What cannot
/// be read is a finding, too. Cancel safe.
pub async fn findings(client: &Client, config: &KafkaJobConfig, options: &JobOptions) -> Vec<Finding> {
    let admin = client.admin();
    let group = admin.describe_group_config(&config.group).await.unwrap_or_else(|error| {
        tracing::debug!(%error, group = %config.group, "group configs cannot be read");
        BTreeMap::new()
    });
    let brokers = admin.describe_broker_config().await.unwrap_or_else(|error| {
        tracing::debug!(%error, "settings of the brokers cannot be read");
        BTreeMap::new()
    });
    let is_ledger = match config.mode {
        AckModeChoice::Ledger => true,
        AckModeChoice::Auto => transactional_support(client).is_err(),
        AckModeChoice::Transactional | AckModeChoice::AtLeastOnce => false,
    };
    let limits = ClusterLimits::of(&config.group_configs, &group, &brokers);
    fit(&Times::new(config, options, is_ledger), &limits)
}

/// As [`findings`]; warnings go to the log.
///
/// # Errors
/// `InvalidInput` with every finding that a job cannot run with.
pub async fn check(client: &Client, config: &KafkaJobConfig, options: &JobOptions) -> Result<()> {
    let mut refused = Vec::new();
    for finding in findings(client, config, options).await {
        match finding.weight {
            Weight::Refused => refused.push(finding.to_string()),
            Weight::Warning => tracing::warn!(job = %config.job, %finding, "times of the job"),
            Weight::Hint | Weight::NotChecked | Weight::Ok => {
                tracing::debug!(job = %config.job, %finding, "times of the job")
            }
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(invalid_input(format!("the times of the job do not fit: {}", refused.join("; "))))
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
