//! Breadth-first search over the reachable states of a model, from which shortest paths can be told.
//!
//! The search keeps a fingerprint, the number of the parent and a table entry for each state (about 45
//! bytes); the states themselves live only while they wait for their turn. A path is found again by taking,
//! from the initial state on, a step whose result has the wanted fingerprint. `stateright`'s own search is
//! not used for counterexamples, because it looks at blocks of states and may tell a longer one;
//! `tests/engine.rs` compares both.

use std::collections::VecDeque;
use std::hash::Hash;
use std::ops::ControlFlow;

use stateright::Model;

use crate::fingerprint::{FingerprintMap, fingerprint};

/// Number of a state in the order of discovery, from 0. Numbers never go down along levels of the search, so
/// of two states the one with the lower number has the shorter shortest path, or an equally long one.
pub type StateId = u32;

/// Marks an initial state, which has no parent.
const NO_PARENT: StateId = StateId::MAX;

/// Watches a search.
pub trait Observer<M: Model> {
    /// A state was found for the first time. `Break` ends the search.
    fn found(&mut self, id: StateId, state: &M::State) -> ControlFlow<()>;

    /// Whether [`edge`](Self::edge) wants to hear of this step. Called before the step is taken.
    fn wants(&mut self, _state: &M::State, _action: &M::Action) -> bool {
        false
    }

    /// A wanted step leads from one state to another. Steps come in the order of `from`.
    fn edge(&mut self, _from: StateId, _to: StateId) {}
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every reachable state within the model's boundary was seen.
    Exhausted,
    /// The observer had enough.
    Stopped,
    /// There are more states than the limit allows; nothing may be concluded from what was not found.
    LimitReached,
}

/// All that is kept of a search.
#[derive(Debug)]
pub struct Exploration {
    fingerprints: Vec<u64>,
    parents: Vec<StateId>,
    /// Why the search ended.
    pub end: End,
    /// Steps taken, those to known states included.
    pub transitions: u64,
    /// Length of the longest of all shortest paths.
    pub depth: u32,
}

impl Exploration {
    /// Searches breadth first until all states are seen, the observer stops, or `states_max` states are
    /// known.
    pub fn run<M>(model: &M, states_max: usize, observer: &mut impl Observer<M>) -> Self
    where
        M: Model,
        M::State: Hash,
    {
        let mut search = Search {
            ids: FingerprintMap::default(),
            waiting: VecDeque::new(),
            states_max: states_max.min(NO_PARENT as usize),
            kept: Exploration {
                fingerprints: Vec::new(),
                parents: Vec::new(),
                end: End::Exhausted,
                transitions: 0,
                depth: 0,
            },
        };
        if let ControlFlow::Break(end) = search.run(model, observer) {
            search.kept.end = end;
        }
        search.kept
    }

    /// States found.
    pub fn state_count(&self) -> usize {
        self.fingerprints.len()
    }

    /// Actions of a shortest path to a state, and the state. Actions are those of `model`, which must be the
    /// one that was searched.
    pub fn path_to<M>(&self, model: &M, id: StateId) -> (Vec<M::Action>, M::State)
    where
        M: Model,
        M::State: Hash,
    {
        let mut wanted = vec![];
        let mut at = id;
        while at != NO_PARENT {
            wanted.push(self.fingerprints[at as usize]);
            at = self.parents[at as usize];
        }
        let first = wanted.pop().expect("a path has at least its initial state");
        let mut state = model
            .init_states()
            .into_iter()
            .find(|state| fingerprint(state) == first)
            .expect("the model has the same initial states as when it was searched");
        let mut path = vec![];
        for next in wanted.into_iter().rev() {
            let (action, following) = model
                .next_steps(&state)
                .into_iter()
                .find(|(_, following)| fingerprint(following) == next)
                .expect("the model takes the same steps as when it was searched");
            path.push(action);
            state = following;
        }
        (path, state)
    }
}

/// A search under way.
struct Search<S> {
    ids: FingerprintMap<StateId>,
    waiting: VecDeque<S>,
    states_max: usize,
    kept: Exploration,
}

impl<S: Hash> Search<S> {
    fn run<M: Model<State = S>>(&mut self, model: &M, observer: &mut impl Observer<M>) -> ControlFlow<End> {
        for state in model.init_states() {
            self.reach(NO_PARENT, state, observer)?;
        }
        let mut actions = vec![];
        let mut level_end = self.kept.state_count();
        let mut id: StateId = 0;
        while let Some(state) = self.waiting.pop_front() {
            if id as usize == level_end {
                self.kept.depth += 1;
                level_end = self.kept.state_count();
            }
            model.actions(&state, &mut actions);
            for action in actions.drain(..) {
                let wanted = observer.wants(&state, &action);
                let Some(next) = model.next_state(&state, action) else { continue };
                if !model.within_boundary(&next) {
                    continue;
                }
                self.kept.transitions += 1;
                let to = self.reach(id, next, observer)?;
                if wanted {
                    observer.edge(id, to);
                }
            }
            id += 1;
        }
        ControlFlow::Continue(())
    }

    /// Number of a state, which is told to the observer and queued if it is new.
    fn reach<M: Model<State = S>>(
        &mut self,
        parent: StateId,
        state: S,
        observer: &mut impl Observer<M>,
    ) -> ControlFlow<End, StateId> {
        let print = fingerprint(&state);
        let next_id = self.kept.fingerprints.len();
        let id = *self.ids.entry(print).or_insert(next_id as StateId);
        if id as usize != next_id {
            return ControlFlow::Continue(id);
        }
        self.kept.fingerprints.push(print);
        self.kept.parents.push(parent);
        if observer.found(id, &state).is_break() {
            return ControlFlow::Break(End::Stopped);
        }
        if next_id + 1 >= self.states_max {
            return ControlFlow::Break(End::LimitReached);
        }
        self.waiting.push_back(state);
        ControlFlow::Continue(id)
    }
}
