//! Transactional mode: what holds with all rules, and what breaks without each.
//!
//! Redundant in this model, with the reason in `transactional::removals`:
//! - alone: `staging_waits_for_predecessor` (the manifest waits already, and comes before), `every_slot_is_fenced` and
//!   `ids_of_pending_manifests_are_fenced` (if the ids of all earlier owners are fenced), `matched_by_hash` (if names
//!   are unique), `staged_records_are_forgotten` (if a record that comes again while it is held counts as a lost lock);
//! - altogether: `end_txn_is_idempotent` and `unexplained_outcome_is_corrupt`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use sharestream_models::report::{Row, markdown_table};
use sharestream_models::transactional::cases::{Configuration, Question, Removal, STATES_MAX, Shows};
use sharestream_models::transactional::{Bounds, Faults, Rules, configurations, removals};

fn assert_as_expected(row: &Row) {
    println!("{}", row.summary());
    assert!(row.is_as_expected(), "{}\n{}", row.summary(), row.counterexample());
}

fn check_all(question: Question) {
    let asked = configurations::all().into_iter().filter(|configuration| configuration.question == question);
    for configuration in asked {
        assert_as_expected(&configuration.run(STATES_MAX));
    }
}

#[test]
fn no_state_violates_a_guarantee_when_all_rules_are_kept() {
    check_all(Question::Safety);
}

#[test]
fn from_every_state_all_records_can_be_decided_and_all_transactions_closed() {
    check_all(Question::EverythingDecided);
}

#[test]
fn a_recovery_waits_for_no_other_replica() {
    check_all(Question::RecoveryEndsAlone);
}

#[test]
fn each_rule_shows_a_counterexample_when_it_is_left_out() {
    let rows: Vec<_> = removals::all().iter().map(Removal::run).collect();
    rows.iter().for_each(assert_as_expected);
    let table = markdown_table(&rows);
    println!("{table}");
    assert_eq!(table.lines().count(), rows.len() + 2);
}

#[test]
fn what_breaks_without_a_rule_holds_with_it() {
    let mut seen = Vec::new();
    for removal in removals::all() {
        // Many rules share a configuration.
        let asked = (removal.bounds, removal.question, removal.checked_with_rule());
        if !seen.contains(&asked) {
            seen.push(asked);
            assert_as_expected(&removal.run_with_rule());
        }
    }
}

#[test]
fn a_rule_that_another_backs_up_is_redundant_alone() {
    let rows: Vec<_> = removals::all().iter().filter_map(Removal::run_with_back_up).collect();
    assert!(!rows.is_empty());
    rows.iter().for_each(assert_as_expected);
}

#[test]
fn every_rule_has_a_case() {
    // The fields of a struct cannot be enumerated; their names can be read off its debug form.
    let described = format!("{:?}", Rules::default());
    let fields = described.split(['{', ',', '}']).filter_map(|field| field.split_once(':'));
    let fields: BTreeSet<_> = fields.map(|(name, _)| name.trim()).collect();
    let cases: BTreeSet<_> = removals::all().iter().map(|removal| removal.rule).collect();
    assert_eq!(fields, cases);
}

#[test]
fn only_rules_with_a_stated_reason_show_nothing() {
    let silent: Vec<_> = removals::all()
        .into_iter()
        .filter_map(|removal| match removal.shows {
            Shows::Nothing(why) => Some((removal.rule, why)),
            Shows::Broken(_) | Shows::BrokenAtLast(_) => None,
        })
        .collect();
    assert_eq!(
        silent.iter().map(|(rule, _)| *rule).collect::<Vec<_>>(),
        ["unexplained_outcome_is_corrupt", "end_txn_is_idempotent",]
    );
    assert!(silent.iter().all(|(_, why)| !why.is_empty()));
}

#[test]
fn a_check_that_meets_its_limit_does_not_pass() {
    let bounds = Bounds::of_job(2, Faults::ZOMBIE);
    let row = Configuration { name: "cut off", bounds, question: Question::Safety }.run(1000);
    assert_eq!(row.verdict_word(), "unfinished");
    assert!(!row.is_as_expected());
}
