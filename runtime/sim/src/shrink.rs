//! Fewer faults that cause the same failure.

use sharestream_base::planted::Bug;

use crate::check::{Checker, Finding};
use crate::plan::{Plan, TimedFault};
use crate::world::{RunOptions, run};

/// A plan that still fails, with the numbers of the faults that are left.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The plan.
    pub plan: Plan,
    /// Which faults of the first plan it keeps.
    pub kept: Vec<usize>,
    /// What it fails with.
    pub findings: Vec<Finding>,
}

/// Leaves out one fault after another as long as the same checker still finds something. A plan has few faults, so each
/// is tried; another schedule may fail for another reason, which is as good.
pub fn shrink(plan: &Plan, findings: Vec<Finding>, bug: Option<Bug>) -> Shrunk {
    let checkers: Vec<Checker> = findings.iter().map(|finding| finding.checker).collect();
    let mut shrunk = Shrunk { plan: plan.clone(), kept: (0..plan.faults.len()).collect(), findings };
    for index in (0..plan.faults.len()).rev() {
        let Some(position) = shrunk.kept.iter().position(|kept| *kept == index) else { continue };
        let mut smaller = shrunk.clone();
        smaller.kept.remove(position);
        smaller.plan.faults = keep(&plan.faults, &smaller.kept);
        let report = run(&smaller.plan, RunOptions { recording: false, bug });
        if report.findings.iter().any(|finding| checkers.contains(&finding.checker)) {
            smaller.findings = report.findings;
            shrunk = smaller;
        }
    }
    shrunk
}

/// The faults with these numbers.
pub fn keep(faults: &[TimedFault], kept: &[usize]) -> Vec<TimedFault> {
    kept.iter().filter_map(|index| faults.get(*index).cloned()).collect()
}
