//! Runs one question about one configuration and tells the answer as a [`Row`].

use std::fmt::Debug;
use std::hash::Hash;
use std::ops::ControlFlow;

use sharestream_base::{Clock, Instant};
use stateright::{Expectation, Model, Property};

use crate::explore::{End, Exploration, Observer, StateId};
use crate::progress::{ProgressCheck, ProgressVerdict};
use crate::report::{Expected, Row, Verdict};

/// What is asked, apart from the model itself.
#[derive(Clone, Debug)]
pub struct Case {
    /// Which model: `transactional`, `ledger`, `rollout`, `waits`.
    pub model: &'static str,
    /// The configuration in words.
    pub configuration: String,
    /// Name of the rule that the configuration leaves out, if one.
    pub removed: Option<&'static str>,
    /// What should come out.
    pub expected: Expected,
    /// Most states that the search may keep; beyond, the row says `unfinished`.
    pub states_max: usize,
}

impl Case {
    /// The answer: `size` is the number of states found and the depth reached, `start` when the search began.
    fn row(self, property: &str, verdict: Verdict, size: (usize, u32), start: Instant) -> Row {
        let (states, depth) = size;
        Row {
            model: self.model,
            configuration: self.configuration,
            removed: self.removed,
            property: property.to_owned(),
            expected: self.expected,
            verdict,
            states,
            depth,
            duration: Clock::system().now() - start,
        }
    }
}

/// Looks for the shortest path to a state that violates an `always` property of the model, and at the end for
/// `sometimes` properties that no state has: those are reported as broken, too, so that a model which can do
/// nothing does not pass.
///
/// # Panics
/// If the model has an `eventually` property: use [`progress`] for those.
pub fn safety<M>(model: &M, case: Case) -> Row
where
    M: Model,
    M::State: Hash + Debug,
    M::Action: Debug,
{
    let start = Clock::system().now();
    let properties = model.properties();
    assert!(properties.iter().all(|property| property.expectation != Expectation::Eventually));
    let mut judge = Judge { model, seen: vec![false; properties.len()], properties, violation: None };
    let exploration = Exploration::run(model, case.states_max, &mut judge);
    let unseen = judge.unseen();
    let (property, verdict) = match (judge.violation, exploration.end, unseen) {
        (Some((property, id)), _, _) => {
            let (actions, state) = exploration.path_to(model, id);
            (property, broken(model, actions, &state))
        }
        (None, End::LimitReached, _) => ("all", Verdict::Unfinished),
        (None, _, Some(property)) => {
            (property, Verdict::Broken { steps: vec![], end: "never seen".to_owned() })
        }
        (None, _, None) => ("all", Verdict::Holds),
    };
    let size = (exploration.state_count(), exploration.depth);
    case.row(property, verdict, size, start)
}

/// Runs a check of progress; `property` names it.
pub fn progress<M>(model: &M, check: ProgressCheck<'_, M>, property: &'static str, case: Case) -> Row
where
    M: Model,
    M::State: Hash + Eq + Clone + Debug,
    M::Action: Debug,
{
    let start = Clock::system().now();
    let answer = check.states_max(case.states_max).run();
    let verdict = match answer.verdict {
        ProgressVerdict::Holds => Verdict::Holds,
        ProgressVerdict::Stuck { path, state, .. } => broken(model, path, &state),
        ProgressVerdict::Unfinished => Verdict::Unfinished,
    };
    case.row(property, verdict, (answer.states, answer.depth), start)
}

fn broken<M>(model: &M, actions: Vec<M::Action>, end: &M::State) -> Verdict
where
    M: Model,
    M::State: Debug,
    M::Action: Debug,
{
    let steps = actions.iter().map(|action| model.format_action(action)).collect();
    Verdict::Broken { steps, end: format!("{end:?}") }
}

/// Evaluates the properties of every state.
struct Judge<'a, M: Model> {
    model: &'a M,
    properties: Vec<Property<M>>,
    /// For each `sometimes` property, whether a state with it was met.
    seen: Vec<bool>,
    violation: Option<(&'static str, StateId)>,
}

impl<M: Model> Judge<'_, M> {
    fn unseen(&self) -> Option<&'static str> {
        let unseen = |(index, property): &(usize, &Property<M>)| {
            property.expectation == Expectation::Sometimes && !self.seen[*index]
        };
        self.properties.iter().enumerate().find(unseen).map(|(_, property)| property.name)
    }
}

impl<M: Model> Observer<M> for Judge<'_, M> {
    fn found(&mut self, id: StateId, state: &M::State) -> ControlFlow<()> {
        for (index, property) in self.properties.iter().enumerate() {
            match property.expectation {
                Expectation::Always => {
                    if !(property.condition)(self.model, state) {
                        self.violation = Some((property.name, id));
                        return ControlFlow::Break(());
                    }
                }
                Expectation::Sometimes => {
                    if !self.seen[index] && (property.condition)(self.model, state) {
                        self.seen[index] = true;
                    }
                }
                Expectation::Eventually => unreachable!("refused by `safety`"),
            }
        }
        ControlFlow::Continue(())
    }
}
