//! Every check of the ledger, roll-out and waits models: the configurations that must hold, and for each rule
//! the smallest configuration that breaks without it. Tests, command and documentation all run this list.

mod configurations;
mod removals;

use std::fmt::Write as _;

pub use configurations::configurations;
pub use removals::removals;

use crate::check::{Case, progress, safety};
use crate::ledger::{Compaction, DECIDABLE, Ledger, Scope};
use crate::report::{Expected, Row};
use crate::rules::{Rule, Rules};
use crate::waits::{DRAINS, Waits};

/// Most states of a check: at 45 bytes each, and what waits for its turn, within 12 GB.
const STATES_MAX: usize = 220_000_000;

/// One question about one configuration.
#[derive(Clone, Debug)]
pub struct Check {
    /// `ledger`, `rollout` or `waits`.
    pub model: &'static str,
    /// What it is about, in two or three words; the bounds follow in the row.
    pub subject: &'static str,
    /// The rule that is left out, if one.
    pub removed: Option<Rule>,
    /// What should come out.
    pub expected: Expected,
    /// Whether it takes too long for every test run.
    pub is_large: bool,
    question: Question,
}

#[derive(Clone, Debug)]
enum Question {
    Safety(Ledger),
    Decidable(Ledger),
    Waits(Waits),
}

impl Check {
    /// Asks whether every safety property holds with all rules.
    fn holds(model: &'static str, subject: &'static str, scope: Scope) -> Check {
        let question = Question::Safety(Ledger { scope, rules: Rules::ALL });
        Check { model, subject, removed: None, expected: Expected::Holds, is_large: false, question }
    }

    /// Asks whether every record can be decided from everywhere, with all rules.
    fn progresses(model: &'static str, subject: &'static str, scope: Scope) -> Check {
        let question = Question::Decidable(Ledger { scope, rules: Rules::ALL });
        Check { model, subject, removed: None, expected: Expected::Holds, is_large: false, question }
    }

    /// Asks whether nobody waits for ever, with all rules.
    fn waits(subject: &'static str, waits: Waits) -> Check {
        let question = Question::Waits(waits);
        Check { model: "waits", subject, removed: None, expected: Expected::Holds, is_large: false, question }
    }

    /// The same for runs with time.
    fn large(self) -> Check {
        Check { is_large: true, ..self }
    }

    /// The same without a rule: `property` must be found violated.
    fn without(mut self, rule: Rule, property: &'static str) -> Check {
        match &mut self.question {
            Question::Safety(ledger) | Question::Decidable(ledger) => {
                ledger.rules = ledger.rules.without(rule)
            }
            Question::Waits(waits) => waits.rules = waits.rules.without(rule),
        }
        Check { removed: Some(rule), expected: Expected::Broken(property), ..self }
    }

    /// The same with all rules, which must hold: what a removal shows is then the rule's absence.
    pub fn with_all_rules(mut self) -> Check {
        match &mut self.question {
            Question::Safety(ledger) | Question::Decidable(ledger) => ledger.rules = Rules::ALL,
            Question::Waits(waits) => waits.rules = Rules::ALL,
        }
        Check { removed: None, expected: Expected::Holds, ..self }
    }

    /// Runs the check in this thread.
    pub fn run(&self) -> Row {
        self.run_within(STATES_MAX)
    }

    /// The same, giving up beyond so many states.
    pub fn run_within(&self, states_max: usize) -> Row {
        let case = Case {
            model: self.model,
            configuration: self.configuration(),
            removed: self.removed.map(Rule::name),
            expected: self.expected,
            states_max,
        };
        match &self.question {
            Question::Safety(ledger) => safety(ledger, case),
            Question::Decidable(ledger) => progress(ledger, ledger.decidable(), DECIDABLE, case),
            Question::Waits(waits) => progress(waits, waits.drains(), DRAINS, case),
        }
    }

    /// Subject and bounds in words.
    pub fn configuration(&self) -> String {
        match &self.question {
            Question::Safety(ledger) => format!("{}: {}", self.subject, describe(&ledger.scope)),
            Question::Decidable(ledger) => format!("progress, {}: {}", self.subject, describe(&ledger.scope)),
            Question::Waits(waits) => {
                let distinct = if waits.distinct { ", distinct sets" } else { "" };
                let faults = if waits.faults { ", faults" } else { "" };
                let (replicas, slots, records) = (waits.replicas, waits.slots, waits.records);
                format!(
                    "{}: {replicas} replicas x {slots} slots, {records} records{distinct}{faults}",
                    self.subject
                )
            }
        }
    }
}

/// The bounds of a scope in words; what is absent is not mentioned.
fn describe(scope: &Scope) -> String {
    let mut text = format!("{} replicas, {}", scope.replicas, counted(scope.records, "record"));
    let _ = write!(text, ", {} {}", scope.claims, if scope.wide_claims { "claims" } else { "single claims" });
    for (count, noun) in [
        (scope.crashes, "crash"),
        (scope.fences, "fence"),
        (scope.floors, "floor"),
        (scope.tombstones, "tombstone"),
        (scope.stops, "stop"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {}", counted(count, noun));
        }
    }
    if scope.keepers.count_ones() == 1 && scope.floors > 0 {
        text.push_str(", one keeper");
    }
    if scope.patient {
        text.push_str(", patient");
    }
    if scope.reset {
        text.push_str(", reset");
    }
    if scope.archiving {
        text.push_str(", archiving");
    }
    match scope.compaction {
        Compaction::Off => {}
        Compaction::Kafka => text.push_str(", Kafka's compaction"),
        Compaction::Anywhere => text.push_str(", any compaction"),
    }
    text
}

fn counted(count: u8, noun: &str) -> String {
    match (count, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "crash") => format!("{count} crashes"),
        (_, _) => format!("{count} {noun}s"),
    }
}
