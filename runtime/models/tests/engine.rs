//! The search and the progress check themselves: against `stateright`'s checker, and on graphs that are
//! known.

use std::ops::ControlFlow;

use sharestream_models::check::{Case, safety};
use sharestream_models::explore::{End, Exploration, Observer, StateId};
use sharestream_models::fingerprint::fingerprint;
use sharestream_models::ledger::{Ledger, Scope};
use sharestream_models::progress::{ProgressCheck, ProgressVerdict};
use sharestream_models::report::{Expected, Row, Verdict, json, markdown_table, table};
use sharestream_models::rules::{Rule, Rules};
use stateright::{Checker, Model, Property};

/// A graph given by its edges; state 0 is the initial one, and the action is the target.
struct Graph(&'static [(u8, u8)]);

impl Model for Graph {
    type State = u8;
    type Action = u8;

    fn init_states(&self) -> Vec<u8> {
        vec![0]
    }

    fn actions(&self, state: &u8, out: &mut Vec<u8>) {
        out.extend(self.0.iter().filter(|(from, _)| from == state).map(|(_, to)| *to));
    }

    fn next_state(&self, _: &u8, to: u8) -> Option<u8> {
        Some(to)
    }

    fn within_boundary(&self, state: &u8) -> bool {
        *state < 100
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no nine", |_: &Graph, state: &u8| *state != 9),
            Property::sometimes("a one", |_: &Graph, state: &u8| *state == 1),
        ]
    }
}

struct Count(usize);

impl<M: Model> Observer<M> for Count {
    fn found(&mut self, _: StateId, _: &M::State) -> ControlFlow<()> {
        self.0 += 1;
        ControlFlow::Continue(())
    }
}

fn case(expected: Expected) -> Case {
    Case { model: "engine", configuration: "a graph".to_owned(), removed: None, expected, states_max: 1000 }
}

#[test]
fn the_search_finds_as_many_states_as_stateright() {
    let scope = Scope { records: 1, fences: 1, crashes: 1, claims: 2, ..Scope::SMALL };
    let model = Ledger { scope, rules: Rules::ALL };
    let mut count = Count(0);
    let exploration = Exploration::run(&model, usize::MAX, &mut count);
    let checker = model.checker().threads(1).spawn_bfs().join();
    assert_eq!(exploration.end, End::Exhausted);
    assert_eq!(exploration.state_count(), checker.unique_state_count());
    assert_eq!(count.0, checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn the_search_and_stateright_agree_on_a_broken_rule() {
    let scope = Scope { records: 1, claims: 2, ..Scope::SMALL };
    let model = Ledger { scope, rules: Rules::ALL.without(Rule::RespectOpenClaims) };
    let property = sharestream_models::ledger::ONE_EFFECT;
    let row = safety(&model, Case { states_max: 1_000_000, ..case(Expected::Broken(property)) });
    let checker = model.checker().threads(1).spawn_bfs().join();
    let path = checker.discovery(property).expect("stateright finds it, too").into_actions();
    assert!(row.is_as_expected());
    assert!(row.step_count().is_some_and(|steps| steps <= path.len()), "{row:?} is not shortest");
}

#[test]
fn a_counterexample_is_the_shortest() {
    let graph = Graph(&[(0, 1), (1, 2), (2, 9), (0, 3), (3, 9)]);
    let row = safety(&graph, case(Expected::Broken("no nine")));
    assert_eq!(
        row.verdict,
        Verdict::Broken { steps: vec!["3".to_owned(), "9".to_owned()], end: "9".to_owned() }
    );
    assert!(row.is_as_expected());
}

#[test]
fn a_model_in_which_nothing_happens_does_not_pass() {
    let row = safety(&Graph(&[(0, 2)]), case(Expected::Holds));
    assert_eq!((row.property.as_str(), row.is_as_expected()), ("a one", false));
}

#[test]
fn too_many_states_prove_nothing() {
    let graph = Graph(&[(0, 1), (1, 2), (2, 3)]);
    let row = safety(&graph, Case { states_max: 2, ..case(Expected::Holds) });
    assert_eq!((row.verdict.clone(), row.is_as_expected()), (Verdict::Unfinished, false));
    let progress = ProgressCheck::new(&graph, |state| *state == 3).states_max(2).run();
    assert_eq!(progress.verdict, ProgressVerdict::Unfinished);
}

#[test]
fn a_cycle_that_avoids_the_goal_is_not_stuck_while_it_can_be_left() {
    let graph = Graph(&[(0, 1), (1, 0), (1, 2)]);
    assert_eq!(ProgressCheck::new(&graph, |state| *state == 2).run().verdict, ProgressVerdict::Holds);
}

#[test]
fn a_cycle_without_a_way_out_is_stuck() {
    let graph = Graph(&[(0, 5), (0, 1), (1, 2), (2, 1)]);
    let progress = ProgressCheck::new(&graph, |state| *state == 5).run();
    assert_eq!(progress.verdict, ProgressVerdict::Stuck { path: vec![1], state: 1, stuck_count: 2 });
}

#[test]
fn steps_that_are_not_relied_on_do_not_help() {
    let graph = Graph(&[(0, 1), (1, 5)]);
    let check = ProgressCheck::new(&graph, |state| *state == 5).relying_on(|_, to| *to != 5);
    assert_eq!(check.run().verdict, ProgressVerdict::Stuck { path: vec![], state: 0, stuck_count: 2 });
}

#[test]
fn states_without_room_are_not_judged() {
    let graph = Graph(&[(0, 1), (0, 2)]);
    let check = ProgressCheck::new(&graph, |state| *state == 2).judging(|state| *state != 1);
    assert_eq!(check.run().verdict, ProgressVerdict::Holds);
}

#[test]
fn states_beyond_the_boundary_are_not_entered() {
    let graph = Graph(&[(0, 100), (0, 1)]);
    let mut count = Count(0);
    let exploration = Exploration::run(&graph, usize::MAX, &mut count);
    assert_eq!((exploration.state_count(), exploration.transitions, exploration.depth), (2, 1, 1));
}

#[test]
fn fingerprints_tell_neighbours_apart() {
    let mut prints: Vec<u64> = (0..=u16::MAX).map(|n| fingerprint(&[n as u8, (n >> 8) as u8, 0])).collect();
    prints.push(fingerprint(&[0_u8, 0]));
    prints.push(fingerprint(&0_usize));
    prints.push(fingerprint(&255_usize));
    let count = prints.len();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), count);
}

#[test]
fn reports_are_aligned_and_quoted() {
    let graph = Graph(&[(0, 9)]);
    let broken = safety(&graph, case(Expected::Broken("no nine")));
    let removed = Row { removed: Some("a \"rule\""), ..broken.clone() };
    let holds = safety(&Graph(&[(0, 1)]), case(Expected::Holds));
    let text = table(&[holds.clone(), broken]);
    let column = |line: &str| line.find("holds").or_else(|| line.find("broken"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(column(lines[1]), column(lines[2]), "{text}");
    assert!(removed.to_json().contains(r#""removed":"a \"rule\"""#));
    assert!(removed.counterexample().starts_with("   1. 9\n"));
    assert_eq!(json(std::slice::from_ref(&holds)).lines().count(), 3);
    assert!(
        markdown_table(&[holds])
            .starts_with("| model | configuration | verdict | states | depth |\n|---|---|")
    );
}
