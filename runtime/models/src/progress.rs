//! Progress: from every reachable state, can the goal still be reached?
//!
//! All states within the model's bounds are explored; the steps that may be *relied on* are kept as a graph,
//! reversed, and followed back from the goal states. A state that is not met is stuck: whatever happens from
//! there by such steps, the goal is never reached. In the words of temporal logic the check is `AG EF goal`;
//! "never for ever" is what a weakly fair system makes of it.
//!
//! A model with bounds (so many claims, so many crashes) is always stuck once its bounds are used up. Hence
//! [`ProgressCheck::judging`]: only the states with some room left are asked for.
//!
//! ```
//! use sharestream_models::progress::{ProgressCheck, ProgressVerdict};
//! # use stateright::Model;
//! /// Counts to three, and may fall into a hole at two.
//! struct Counter;
//! # #[derive(Clone, Copy, Debug, PartialEq)]
//! enum Step { Up, Fall }
//! impl Model for Counter {
//!     type State = Option<u8>;
//!     type Action = Step;
//!     fn init_states(&self) -> Vec<Option<u8>> { vec![Some(0)] }
//!     fn actions(&self, state: &Option<u8>, out: &mut Vec<Step>) {
//!         match state { Some(3) | None => {} Some(2) => out.extend([Step::Up, Step::Fall]), _ =>
//! out.push(Step::Up) }
//!     }
//!     fn next_state(&self, state: &Option<u8>, step: Step) -> Option<Option<u8>> {
//!         Some(match step { Step::Up => state.map(|n| n + 1), Step::Fall => None })
//!     }
//! }
//! let progress = ProgressCheck::new(&Counter, |state| *state == Some(3)).run();
//! let ProgressVerdict::Stuck { path, .. } = progress.verdict else { panic!("a hole was missed") };
//! assert_eq!(path, [Step::Up, Step::Up, Step::Fall]);
//! ```

use std::hash::Hash;
use std::ops::ControlFlow;

use stateright::Model;

use crate::explore::{End, Exploration, Observer, StateId};

/// States after which a check gives up unless told otherwise: about one gigabyte for ten steps from each.
const STATES_MAX_DEFAULT: usize = 12_000_000;

/// A question about progress. See the [module](self) for what it asks.
pub struct ProgressCheck<'a, M: Model> {
    model: &'a M,
    goal: Predicate<'a, M>,
    judged: Predicate<'a, M>,
    relied_on: StepPredicate<'a, M>,
    states_max: usize,
}

type StepPredicate<'a, M> = Box<dyn Fn(&<M as Model>::State, &<M as Model>::Action) -> bool + 'a>;
type Predicate<'a, M> = Box<dyn Fn(&<M as Model>::State) -> bool + 'a>;

/// The answer, and how much was looked at.
#[derive(Clone, Debug)]
pub struct Progress<S, A> {
    /// Holds, stuck, or not known.
    pub verdict: ProgressVerdict<S, A>,
    /// Distinct states found.
    pub states: usize,
    /// Steps that were relied on.
    pub edges: usize,
    /// Length of the longest of all shortest paths.
    pub depth: u32,
}

/// Whether the goal can be reached from everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgressVerdict<S, A> {
    /// From every judged state the goal can be reached.
    Holds,
    /// There are judged states from which the goal cannot be reached.
    Stuck {
        /// A shortest path to one of them, no judged stuck state being nearer.
        path: Vec<A>,
        /// The state at the end of `path`.
        state: S,
        /// How many such states there are.
        stuck_count: usize,
    },
    /// The model has more states than the limit: nothing is known.
    Unfinished,
}

impl<'a, M> ProgressCheck<'a, M>
where
    M: Model,
    M::State: Hash + Eq + Clone,
{
    /// Asks whether a state with `goal` can be reached from every reachable state by any steps.
    pub fn new(model: &'a M, goal: impl Fn(&M::State) -> bool + 'a) -> Self {
        ProgressCheck {
            model,
            goal: Box::new(goal),
            judged: Box::new(|_| true),
            relied_on: Box::new(|_, _| true),
            states_max: STATES_MAX_DEFAULT,
        }
    }

    /// Counts only on steps for which `relied_on` is true, given the state before. Others are explored (they
    /// may happen) but do not help: crashes, lost answers, fences.
    pub fn relying_on(mut self, relied_on: impl Fn(&M::State, &M::Action) -> bool + 'a) -> Self {
        self.relied_on = Box::new(relied_on);
        self
    }

    /// Reports only stuck states for which `judged` is true: those that have room left within the model's
    /// bounds.
    pub fn judging(mut self, judged: impl Fn(&M::State) -> bool + 'a) -> Self {
        self.judged = Box::new(judged);
        self
    }

    /// Gives up beyond so many states. Memory is about 45 bytes for each state and 8 for each relied-on step,
    /// at its peak, and the states that wait for their turn.
    pub fn states_max(mut self, states_max: usize) -> Self {
        self.states_max = states_max;
        self
    }

    /// Explores, and follows the reversed steps from the goal.
    pub fn run(self) -> Progress<M::State, M::Action> {
        let mut graph = Graph { check: &self, marks: vec![], edges_begin: vec![], targets: vec![] };
        let exploration = Exploration::run(self.model, self.states_max, &mut graph);
        let (mut marks, edges) = (std::mem::take(&mut graph.marks), graph.targets.len());
        let verdict = if exploration.end == End::LimitReached {
            ProgressVerdict::Unfinished
        } else {
            mark_backwards(&mut marks, &graph.reversed());
            let stuck = |mark: &&Mark| mark.judged && !mark.can_reach_goal;
            match marks.iter().position(|mark| stuck(&mark)) {
                None => ProgressVerdict::Holds,
                Some(first) => {
                    let (path, state) = exploration.path_to(self.model, first as StateId);
                    ProgressVerdict::Stuck { path, state, stuck_count: marks.iter().filter(stuck).count() }
                }
            }
        };
        Progress { verdict, states: exploration.state_count(), edges, depth: exploration.depth }
    }
}

/// What is known of one state.
#[derive(Clone, Copy)]
struct Mark {
    judged: bool,
    can_reach_goal: bool,
}

/// The steps that are relied on. `targets[edges_begin[s]..edges_begin[s + 1]]` are the successors of state
/// `s`.
struct Graph<'a, M: Model> {
    check: &'a ProgressCheck<'a, M>,
    marks: Vec<Mark>,
    edges_begin: Vec<usize>,
    targets: Vec<StateId>,
}

impl<M: Model> Observer<M> for Graph<'_, M> {
    fn found(&mut self, _: StateId, state: &M::State) -> ControlFlow<()> {
        self.marks
            .push(Mark { judged: (self.check.judged)(state), can_reach_goal: (self.check.goal)(state) });
        ControlFlow::Continue(())
    }

    fn wants(&mut self, state: &M::State, action: &M::Action) -> bool {
        (self.check.relied_on)(state, action)
    }

    fn edge(&mut self, from: StateId, to: StateId) {
        self.edges_begin.resize(from as usize + 1, self.targets.len());
        self.targets.push(to);
    }
}

impl<M: Model> Graph<'_, M> {
    /// Turns every step round. Consumes the forward graph, so that both exist only while one is copied.
    fn reversed(self) -> Reversed {
        let state_count = self.targets.iter().map(|to| *to as usize + 1).max().unwrap_or(0);
        let mut begin = vec![0_usize; state_count + 1];
        for to in &self.targets {
            begin[*to as usize + 1] += 1;
        }
        for at in 1..begin.len() {
            begin[at] += begin[at - 1];
        }
        let mut free = begin.clone();
        let mut sources = vec![0; self.targets.len()];
        for from in 0..self.edges_begin.len() {
            let end = self.edges_begin.get(from + 1).copied().unwrap_or(self.targets.len());
            for to in &self.targets[self.edges_begin[from]..end] {
                sources[free[*to as usize]] = from as StateId;
                free[*to as usize] += 1;
            }
        }
        Reversed { begin, sources }
    }
}

/// The graph turned round. `sources[begin[s]..begin[s + 1]]` are the predecessors of state `s`; states beyond
/// `begin` have none.
struct Reversed {
    begin: Vec<usize>,
    sources: Vec<StateId>,
}

/// Marks every state from which a marked one can be reached.
fn mark_backwards(marks: &mut [Mark], reversed: &Reversed) {
    let mut waiting: Vec<usize> = (0..marks.len()).filter(|id| marks[*id].can_reach_goal).collect();
    while let Some(id) = waiting.pop() {
        let Some(end) = reversed.begin.get(id + 1) else { continue };
        for source in &reversed.sources[reversed.begin[id]..*end] {
            let source = *source as usize;
            if !marks[source].can_reach_goal {
                marks[source].can_reach_goal = true;
                waiting.push(source);
            }
        }
    }
}
