//! What is checked: configurations in which everything holds, and for each rule one in which its absence
//! shows.

use super::actions::Action;
use super::bounds::Bounds;
use super::incarnation::Phase;
use super::names::Process;
use super::rules::Rules;
use super::state::State;
use super::{Transactional, configurations, removals};
use crate::check::{self, Case};
use crate::progress::ProgressCheck;
use crate::report::{Expected, Row};

/// States that a default case may have at most.
pub const STATES_MAX: usize = 6_000_000;
/// States that a large case may have at most: about 6 GB.
pub const STATES_MAX_LARGE: usize = 80_000_000;

/// What is asked of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    leave_out: fn(&mut Rules),
    /// Other rules that would catch the mistake.
    back_up: Option<BackUp>,
    /// The configuration in words.
    pub name: &'static str,
    /// The bounds.
    pub bounds: Bounds,
    /// What is asked.
    pub question: Question,
    /// What should come out.
    pub shows: Shows,
}

/// What the absence of a rule shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// This property breaks, and none before it.
    Broken(&'static str),
    /// This property breaks. Early signs, which break other properties before, are not looked at.
    BrokenAtLast(&'static str),
    /// Nothing, and why not.
    Nothing(&'static str),
}

/// Rules that make another one redundant, as far as the model goes.
#[derive(Clone, Copy, Debug)]
struct BackUp {
    /// The rule and its back-up, as the table shows them.
    label: &'static str,
    /// Leaves the back-up out.
    leave_out: fn(&mut Rules),
}

impl Configuration {
    /// Checks it, giving up beyond so many states.
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
    /// A rule, how it is left out, and where.
    pub(super) fn new(
        rule: &'static str,
        leave_out: fn(&mut Rules),
        name: &'static str,
        bounds: Bounds,
    ) -> Self {
        let (back_up, question, shows) = (None, Question::Safety, Shows::Nothing(""));
        Removal { rule, leave_out, back_up, name, bounds, question, shows }
    }

    /// The question, if it is not that for safety.
    pub(super) fn asking(self, question: Question) -> Self {
        Removal { question, ..self }
    }

    /// Another rule that catches the mistake; `label` names both.
    pub(super) fn backed_up_by(self, label: &'static str, leave_out: fn(&mut Rules)) -> Self {
        Removal { back_up: Some(BackUp { label, leave_out }), ..self }
    }

    /// The property that breaks.
    pub(super) fn breaks(self, property: &'static str) -> Self {
        Removal { shows: Shows::Broken(property), ..self }
    }

    /// The property that breaks after others have shown early signs.
    pub(super) fn breaks_at_last(self, property: &'static str) -> Self {
        Removal { shows: Shows::BrokenAtLast(property), ..self }
    }

    /// Why nothing breaks.
    pub(super) fn shows_nothing(self, why: &'static str) -> Self {
        Removal { shows: Shows::Nothing(why), ..self }
    }

    /// Checks it without the rule and without those that back it up.
    pub fn run(&self) -> Row {
        let removed = self.back_up.map_or(self.rule, |others| others.label);
        let expected = match self.shows {
            Shows::Broken(property) | Shows::BrokenAtLast(property) => Expected::Broken(property),
            Shows::Nothing(_) => Expected::Holds,
        };
        self.run_without(true, true, Some(removed), expected)
    }

    /// Checks it with the rule, but without those that back it up: what shows in [`run`](Self::run) is the
    /// rule's absence.
    pub fn run_with_rule(&self) -> Row {
        self.run_without(false, true, None, Expected::Holds)
    }

    /// What [`run_with_rule`](Self::run_with_rule) leaves out and asks for, besides bounds and question.
    pub fn checked_with_rule(&self) -> (Option<&'static str>, Option<&'static str>) {
        (self.back_up.map(|others| others.label), self.asked())
    }

    fn asked(&self) -> Option<&'static str> {
        match self.shows {
            Shows::BrokenAtLast(property) => Some(property),
            Shows::Broken(_) | Shows::Nothing(_) => None,
        }
    }

    /// Checks it without the rule, but with those that back it up, if there are any.
    pub fn run_with_back_up(&self) -> Option<Row> {
        self.back_up.map(|_| self.run_without(true, false, Some(self.rule), Expected::Holds))
    }

    fn run_without(
        &self,
        rule: bool,
        back_up: bool,
        removed: Option<&'static str>,
        expected: Expected,
    ) -> Row {
        let mut rules = Rules::default();
        if rule {
            (self.leave_out)(&mut rules);
        }
        if let Some(others) = self.back_up.filter(|_| back_up) {
            (others.leave_out)(&mut rules);
        }
        let model = Transactional { rules, bounds: self.bounds, asked: self.asked() };
        let configuration = self.name.to_owned();
        let case = Case { model: "transactional", configuration, removed, expected, states_max: STATES_MAX };
        run(&model, self.question, case)
    }
}

fn run(model: &Transactional, question: Question, case: Case) -> Row {
    match question {
        Question::Safety => check::safety(model, case),
        Question::EverythingDecided => {
            let goal = |state: &State| model.is_all_decided(state);
            let check = ProgressCheck::new(model, goal)
                .relying_on(|_, action: &Action| !action.is_fault())
                .judging(|state| model.has_room(state));
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

/// The rows of all configurations; with `is_large` those that take minutes, too.
pub fn configuration_rows(is_large: bool) -> Vec<Row> {
    let states_max = if is_large { STATES_MAX_LARGE } else { STATES_MAX };
    let large = is_large.then(configurations::large).unwrap_or_default();
    configurations::all()
        .into_iter()
        .chain(large)
        .map(|configuration| configuration.run(states_max))
        .collect()
}

/// The table of rules: which is left out, what breaks, after how many steps, in how many states. Ten seconds.
///
/// ```
/// use sharestream_models::report::table;
/// use sharestream_models::transactional::removals;
///
/// let rows: Vec<_> = removals::all().iter().take(4).map(|removal| removal.run()).collect();
/// println!("{}", table(&rows));
/// assert!(rows.iter().all(|row| row.is_as_expected()));
/// ```
pub fn rule_rows() -> Vec<Row> {
    removals::all().iter().map(Removal::run).collect()
}
