//! What is checked: configurations in which everything holds, and for each rule one in which its absence shows.

use super::actions::Action;
use super::bounds::{Bounds, Faults};
use super::incarnation::Phase;
use super::names::Process;
use super::properties as property;
use super::rules::Rules;
use super::state::State;
use super::{Transactional, removals};
use crate::check::{self, Case};
use crate::progress::ProgressCheck;
use crate::report::{Expected, Row};

/// States that a default case may have at most.
const STATES_MAX: usize = 6_000_000;
/// States that a large case may have at most: about 6 GB.
const STATES_MAX_LARGE: usize = 80_000_000;

/// What is asked of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Does every state have every `always` property?
    Safety,
    /// From every state, can all records be decided and every transaction be closed without a further fault?
    EverythingDecided,
    /// From every state, can a recovery end while the replica does nothing at all?
    RecoveryEndsAlone,
}

/// Progress: every record can be decided.
pub const CAN_BE_DECIDED: &str = "every record can still be decided, every transaction closed";
/// Progress: a recovery depends on nobody else.
pub const RECOVERS_ALONE: &str = "a recovery ends whatever the replica does";

/// One configuration, with all rules.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// In words.
    pub name: &'static str,
    /// The bounds.
    pub bounds: Bounds,
    /// What is asked.
    pub question: Question,
}

/// One rule and a configuration in which its absence shows.
#[derive(Clone, Copy, Debug)]
pub struct Removal {
    /// Name of the rule: the field of [`Rules`].
    pub rule: &'static str,
    /// Leaves it out.
    pub leave_out: fn(&mut Rules),
    /// The configuration in words.
    pub name: &'static str,
    /// The bounds.
    pub bounds: Bounds,
    /// What is asked.
    pub question: Question,
    /// The property that breaks, or none if the rule proves redundant: the text says why.
    pub breaks: Result<&'static str, &'static str>,
    /// If set, only the property that should break is looked at, because an early sign of it breaks first.
    pub only_that: bool,
}

impl Configuration {
    /// Checks it.
    pub fn run(&self, states_max: usize) -> Row {
        let model = Transactional { bounds: self.bounds, ..Transactional::default() };
        let case = Case {
            model: "transactional",
            configuration: self.name.to_owned(),
            removed: None,
            expected: Expected::Holds,
            states_max,
        };
        run(&model, self.question, case)
    }
}

impl Removal {
    /// Checks it without the rule.
    pub fn run(&self) -> Row {
        let mut rules = Rules::default();
        (self.leave_out)(&mut rules);
        let asked = self.breaks.ok().filter(|_| self.only_that);
        let model = Transactional { rules, bounds: self.bounds, asked };
        let case = Case {
            model: "transactional",
            configuration: self.name.to_owned(),
            removed: Some(self.rule),
            expected: self.breaks.map_or(Expected::Holds, Expected::Broken),
            states_max: STATES_MAX,
        };
        run(&model, self.question, case)
    }

    /// Checks the same configuration with the rule, so that what shows is the rule's absence.
    pub fn run_with_rule(&self) -> Row {
        Configuration { name: self.name, bounds: self.bounds, question: self.question }.run(STATES_MAX)
    }
}

fn run(model: &Transactional, question: Question, case: Case) -> Row {
    match question {
        Question::Safety => check::safety(model, case),
        Question::EverythingDecided => {
            let goal = |state: &State| model.is_all_decided(state);
            let check = ProgressCheck::new(model, goal).relying_on(|_, action: &Action| !action.is_fault());
            check::progress(model, check, CAN_BE_DECIDED, case)
        }
        Question::RecoveryEndsAlone => {
            let is_done = |process: usize, state: &State| {
                !matches!(state.process(Process(process as u8)).phase, Phase::Recovering(_))
            };
            let goal = move |state: &State| (0..3).all(|process| is_done(process, state));
            let relied_on = |_: &State, action: &Action| {
                let is_of_replica = action.actor() == Some(Process::REPLICA)
                    || matches!(action, Action::TimeOutOfDead(id) if id.0 == 4)
                    || matches!(action, Action::EndArrives(request, _) if request.sender.is_replica());
                !action.is_fault() && !is_of_replica
            };
            let check = ProgressCheck::new(model, goal).relying_on(relied_on);
            check::progress(model, check, RECOVERS_ALONE, case)
        }
    }
}

/// The rows of all configurations, default or large.
pub fn configuration_rows(is_large: bool) -> Vec<Row> {
    let states_max = if is_large { STATES_MAX_LARGE } else { STATES_MAX };
    let large = is_large.then(large_configurations).unwrap_or_default();
    configurations().into_iter().chain(large).map(|configuration| configuration.run(states_max)).collect()
}

/// The table of rules: which is left out, what breaks, after how many steps, in how many states.
pub fn rule_rows() -> Vec<Row> {
    removals::all().iter().map(Removal::run).collect()
}

const NONE: Faults = Faults {
    crashes: 0,
    takeovers: 0,
    lost_answers: 0,
    time_outs: 0,
    lost_locks: 0,
    leader_moves: 0,
    sink_failures: 0,
    manifest_faults: 0,
    failed_stage_writes: 0,
};

/// Configurations of the default run.
pub fn configurations() -> Vec<Configuration> {
    let base = Bounds::default();
    let safety = |name, bounds| Configuration { name, bounds, question: Question::Safety };
    let decided = |name, bounds| Configuration { name, bounds, question: Question::EverythingDecided };
    vec![
        safety(
            "2 replicas, 3 records, 3 checkpoints, a transaction time-out",
            Bounds { records: 3, has_replica: true, faults: Faults { time_outs: 1, ..NONE }, ..base },
        ),
        safety(
            "3 incarnations, 2 records, a zombie and a crash",
            Bounds {
                incarnations: 3,
                faults: Faults { takeovers: 1, crashes: 1, ..NONE },
                records: 1,
                ..base
            },
        ),
        safety(
            "2 incarnations, a zombie, a lost EndTxn or stage answer",
            Bounds { incarnations: 2, faults: Faults { takeovers: 1, lost_answers: 1, ..NONE }, ..base },
        ),
        safety(
            "2 incarnations, a crash, 2 lost answers",
            Bounds { incarnations: 2, faults: Faults { crashes: 1, lost_answers: 2, ..NONE }, ..base },
        ),
        safety(
            "2 replicas, a late leader, its move, a time-out",
            Bounds {
                has_replica: true,
                leader_learns_late: true,
                faults: Faults { leader_moves: 1, time_outs: 1, ..NONE },
                ..base
            },
        ),
        safety(
            "2 replicas, a crash, lost locks, a failed stage write",
            Bounds {
                has_replica: true,
                incarnations: 2,
                records: 1,
                faults: Faults { crashes: 1, lost_locks: 1, failed_stage_writes: 1, ..NONE },
                ..base
            },
        ),
        safety(
            "2 source partitions, lost locks, a failing sink, a lost answer, a time-out",
            Bounds {
                partitions: 2,
                faults: Faults { lost_locks: 1, sink_failures: 1, lost_answers: 1, time_outs: 1, ..NONE },
                ..base
            },
        ),
        safety(
            "2 incarnations, a crash, a manifest fault, lost locks",
            Bounds {
                incarnations: 2,
                faults: Faults { crashes: 1, manifest_faults: 1, lost_locks: 1, ..NONE },
                ..base
            },
        ),
        safety(
            "ids change, 2 incarnations, a zombie",
            Bounds { incarnations: 2, ids_change: true, faults: Faults { takeovers: 1, ..NONE }, ..base },
        ),
        decided(
            "2 incarnations, a crash, a lost answer",
            Bounds {
                incarnations: 2,
                checkpoints: 8,
                faults: Faults { crashes: 1, lost_answers: 1, ..NONE },
                ..base
            },
        ),
        decided(
            "2 replicas, 2 incarnations, a crash, a failed stage write, a time-out",
            Bounds {
                has_replica: true,
                incarnations: 2,
                records: 1,
                checkpoints: 8,
                faults: Faults { crashes: 1, failed_stage_writes: 1, time_outs: 1, ..NONE },
                ..base
            },
        ),
        decided(
            "a late leader, its move, lost locks, a lost answer",
            Bounds {
                checkpoints: 8,
                leader_learns_late: true,
                faults: Faults { leader_moves: 1, lost_locks: 1, lost_answers: 1, ..NONE },
                ..base
            },
        ),
        Configuration {
            name: "2 replicas, a crash of either",
            bounds: Bounds {
                has_replica: true,
                incarnations: 2,
                records: 2,
                faults: Faults { crashes: 2, ..NONE },
                ..base
            },
            question: Question::RecoveryEndsAlone,
        },
    ]
}

/// Further configurations of the large run: minutes.
pub fn large_configurations() -> Vec<Configuration> {
    let safety = |name, bounds| Configuration { name, bounds, question: Question::Safety };
    vec![
        safety("large: 3 incarnations, a replica, every fault once", Bounds::large()),
        safety(
            "large: 3 incarnations, 3 records, a zombie, a crash, a lost answer",
            Bounds {
                incarnations: 3,
                records: 3,
                faults: Faults { takeovers: 1, crashes: 1, lost_answers: 1, ..NONE },
                ..Bounds::default()
            },
        ),
    ]
}

/// Names of properties for the cases of [`removals`].
pub(super) use property::{
    ACKNOWLEDGED_HAS_EFFECT, COMMITS_BUILD_ON_COMMITS, EFFECT_IS_ACKNOWLEDGED, FENCED, NEVER_CORRUPT,
    NO_DELIVERY_WASTED, ONE_EFFECT, PENDING_HAS_MARKER, RESTORES_LAST_COMMIT,
};
