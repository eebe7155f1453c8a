//! Identities of transactional ids only rise, and a decided transaction stays decided.

use std::collections::{BTreeMap, BTreeSet};

use sharestream_base::ids::{ProducerEpoch, ProducerId};
use sharestream_broker::inspect::TransactionView;

use crate::check::{Checker, Finding};

/// What was seen of all transactional ids.
#[derive(Debug, Default)]
pub(super) struct TransactionWatch {
    ids: BTreeMap<String, Known>,
}

#[derive(Debug)]
struct Known {
    identity: (ProducerId, ProducerEpoch),
    state: &'static str,
    /// Producer ids that it had before this one.
    earlier: BTreeSet<ProducerId>,
}

/// What a state says of the last transaction: true when it was committed.
fn verdict(state: &str) -> Option<bool> {
    match state {
        "PrepareCommit" | "CompleteCommit" => Some(true),
        "PrepareAbort" | "CompleteAbort" => Some(false),
        _ => None,
    }
}

impl TransactionWatch {
    /// Compares with the look before.
    pub(super) fn look(&mut self, transactions: &[TransactionView]) -> Vec<Finding> {
        let mut found = Vec::new();
        for view in transactions {
            let identity = (view.producer_id, view.producer_epoch);
            let Some(known) = self.ids.get_mut(&view.transactional_id) else {
                let known = Known { identity, state: view.state, earlier: BTreeSet::new() };
                self.ids.insert(view.transactional_id.clone(), known);
                continue;
            };
            let (producer_id, producer_epoch) = known.identity;
            let name = format!("transactional id {}", view.transactional_id);
            if producer_id == view.producer_id && view.producer_epoch < producer_epoch {
                let text = format!(
                    "the producer epoch of {name} went back from {producer_epoch} to {}",
                    view.producer_epoch
                );
                found.push(Finding::new(Checker::Watch, text));
            }
            if known.earlier.contains(&view.producer_id) {
                let text = format!("{name} has its earlier producer id {} again", view.producer_id);
                found.push(Finding::new(Checker::Watch, text));
            }
            // Each end of a transaction bumps the epoch, so one identity has one verdict.
            if identity == known.identity
                && let (Some(before), Some(now)) = (verdict(known.state), verdict(view.state))
                && before != now
            {
                let text = format!(
                    "{name} was {} at epoch {producer_epoch} and is {} there",
                    known.state, view.state
                );
                found.push(Finding::new(Checker::Watch, text));
            }
            if producer_id != view.producer_id {
                known.earlier.insert(producer_id);
            }
            (known.identity, known.state) = (identity, view.state);
        }
        found
    }
}
