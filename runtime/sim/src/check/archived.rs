//! G3: the broker gives no record up. A record that is archived without a committed decision to reject it ran out of
//! deliveries: the job was shown it too often and never decided.

use super::effects::is_shown;
use super::logs::{Logged, Logs};
use super::outcomes::DecidedBy;
use super::watch::{Done, LastSeen};
use super::{Checker, Finding, Place};
use crate::plan::Plan;
use crate::workload::SOURCE;

/// `last_seen` tells what the group's durable state said of a record. Aborted data that the group is not shown, and
/// control records, are archived by right and not among the shown records.
pub(super) fn check(
    logs: &Logs,
    plan: &Plan,
    decided: &DecidedBy,
    last_seen: impl Fn(Place) -> LastSeen,
) -> Vec<Finding> {
    let shown = logs.of(SOURCE).iter().filter(|record| is_shown(record, plan));
    shown.filter_map(|record| judge(record, plan, decided, &last_seen)).collect()
}

fn judge(
    record: &Logged,
    plan: &Plan,
    decided: &DecidedBy,
    last_seen: &impl Fn(Place) -> LastSeen,
) -> Option<Finding> {
    let place = Place { partition: record.partition.0, offset: record.offset.0 };
    let seen = last_seen(place);
    let limit = plan.group.delivery_limit;
    let text = match seen.done? {
        // Decided already, it may run out of deliveries while its acknowledgements are lost.
        Done::Archived if plan.ledger.is_some() && decided.is_decided(place) => return None,
        Done::Archived if !decided.is_given_up(place) => {
            "the broker archived it, and no committed outcome rejects it"
        }
        // How it ended was not seen; whatever is decided ended by that.
        Done::Below if !decided.is_decided(place) => {
            "the group has passed it, and no committed outcome decides it"
        }
        Done::Acknowledged | Done::Archived | Done::Below => return None,
    };
    let text = format!("{text}: lost, with delivery count {} of at most {limit}", seen.delivery_count);
    // Whoever gives a record up before its deliveries are used up makes a mistake of another kind.
    let is_out = seen.delivery_count >= limit;
    let checker = if is_out { Checker::DeliveryLimit } else { Checker::Archived };
    Some(Finding::about(checker, place, text))
}

#[cfg(test)]
mod tests;
