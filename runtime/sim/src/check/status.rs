//! G5: a job says what it guarantees, and what it counts has happened.

use std::collections::BTreeMap;

use sharestream_core::JobStatus;
use sharestream_core::commit::AckMode;

use super::{Checker, Counts, Finding};
use crate::network::Host;
use crate::plan::Plan;

/// What all incarnations have stated.
#[derive(Debug)]
pub(crate) struct StatusWatch {
    expected: AckMode,
    /// Of single incarnations, where it differs in a run.
    told: BTreeMap<Host, AckMode>,
    stated: BTreeMap<Host, Stated>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stated {
    mode: Option<AckMode>,
    commits: u64,
    records_in: u64,
    rows_out: u64,
    dead_letters: u64,
}

impl Stated {
    fn of(status: &JobStatus) -> Self {
        Stated {
            mode: status.mode,
            commits: status.commits,
            records_in: status.records_in,
            rows_out: status.rows_out,
            dead_letters: status.dead_letters,
        }
    }

    fn numbers(&self) -> [(&'static str, u64); 4] {
        [
            ("commits", self.commits),
            ("records_in", self.records_in),
            ("rows_out", self.rows_out),
            ("dead_letters", self.dead_letters),
        ]
    }
}

impl StatusWatch {
    /// Nobody has stated anything.
    pub(crate) fn new(plan: &Plan) -> Self {
        StatusWatch { expected: plan.mode(), told: BTreeMap::new(), stated: BTreeMap::new() }
    }

    /// An incarnation is told to run in a mode.
    pub(crate) fn told(&mut self, host: &Host, mode: AckMode) {
        self.told.insert(host.clone(), mode);
    }

    /// The status of an incarnation, while it runs or when it has ended. Counts of one that was killed are the last
    /// that were looked at: whatever it has counted it knew to be committed.
    pub(crate) fn look(&mut self, host: &Host, status: &JobStatus) -> Vec<Finding> {
        let now = Stated::of(status);
        let mut found = Vec::new();
        let before = self.stated.insert(host.clone(), now).unwrap_or_default();
        let expected = self.told.get(host).copied().unwrap_or(self.expected);
        if now.mode != before.mode && now.mode != Some(expected) {
            let text = format!("{host} states mode {:?}, and was told to run {expected:?}", now.mode);
            found.push(Finding::new(Checker::Status, text));
        }
        for ((what, before), (_, now)) in before.numbers().into_iter().zip(now.numbers()) {
            if now < before {
                let text = format!("the count {what} of {host} went back from {before} to {now}");
                found.push(Finding::new(Checker::Status, text));
            }
        }
        found
    }

    /// Nothing is counted that the logs do not show.
    pub(crate) fn check(&self, logged: &Counts) -> Vec<Finding> {
        let logged = Stated {
            mode: None,
            commits: logged.commits,
            records_in: logged.decided,
            rows_out: logged.outputs,
            dead_letters: logged.dead_letters,
        };
        let mut found = Vec::new();
        for (index, (what, logged)) in logged.numbers().into_iter().enumerate() {
            let stated: u64 = self.stated.values().map(|stated| stated.numbers()[index].1).sum();
            if stated > logged {
                let text = format!("all incarnations count {what} {stated}, and the logs show {logged}");
                found.push(Finding::new(Checker::Status, text));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
