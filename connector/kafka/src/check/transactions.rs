//! The job's transactional ids: whether somebody uses them at the moment, and whether we may.

use sharestream_client::{AclResource, TransactionDescription, acl_advice};

use super::finding::{Area, Asked, Finding, Found};

/// One transactional id of the job.
#[derive(Clone, Debug)]
pub(crate) struct TransactionFacts {
    pub(crate) id: String,
    /// As its coordinator knows it; `None`: not yet.
    pub(crate) described: Asked<Option<TransactionDescription>>,
    /// Whether our user may write with it.
    pub(crate) may_write: Asked<bool>,
}

/// What is open under the ids of the job. `now_ms`: Unix milliseconds of this machine.
pub(crate) fn transactions(ids: &[TransactionFacts], now_ms: i64) -> Vec<Finding> {
    let mut found = Found::of(Area::Transactions);
    let mut closed = Vec::new();
    for TransactionFacts { id, described, .. } in ids {
        match described {
            Ok(Some(described)) if described.is_open() => {
                let age = described.start_ms.map_or_else(String::new, |start| {
                    let seconds = (now_ms - start).max(0) / 1_000;
                    format!(" since {seconds} s")
                });
                let message = format!(
                    "{id} has an open transaction ({}{age}, {} partitions, time-out {:?}): the job runs, or died less than its \
                     time-out ago",
                    described.state,
                    described.partitions.len(),
                    described.timeout
                );
                let fix = "is a copy of the job running? Then stop it first; a start ends the transaction";
                found.warning("open", message, fix);
            }
            Ok(Some(_) | None) => closed.push(id.as_str()),
            Err(why) => found.not_checked("open", &format!("whether {id} has an open transaction"), why),
        }
    }
    if !closed.is_empty() && closed.len() == ids.len() {
        found.ok("open", format!("no transaction is open under {}", closed.join(" and ")));
    }
    found.list
}

/// Whether the job may write with its ids.
pub(crate) fn rights(ids: &[TransactionFacts], principal: Option<&str>, found: &mut Found) {
    let mut allowed = Vec::new();
    for TransactionFacts { id, may_write, .. } in ids {
        match may_write {
            Ok(true) => allowed.push(id.as_str()),
            Ok(false) => {
                let message = format!("transactional id '{id}' may not be written with");
                let fix = acl_advice("Write", AclResource::TransactionalId(id), principal);
                found.refused("transactional-id", message, fix);
            }
            Err(no) if no.is_refusal => found.refused("transactional-id", no.why.as_str(), ""),
            Err(why) => {
                found.not_checked("transactional-id", &format!("Write on transactional id '{id}'"), why)
            }
        }
    }
    if !allowed.is_empty() && allowed.len() == ids.len() {
        found.ok("transactional-id", format!("Write on transactional ids {}", allowed.join(", ")));
    }
}
