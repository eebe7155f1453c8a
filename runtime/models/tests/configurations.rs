//! With all rules every property holds, in every configuration of default size.

use sharestream_models::catalog::configurations;

/// Runs the configurations of one model whose words begin with `subject`.
fn hold(model: &str, subject: &str) {
    let mut checks = configurations();
    checks.retain(|check| {
        check.model == model && !check.is_large && check.configuration().starts_with(subject)
    });
    assert!(!checks.is_empty(), "no configuration of {model} begins with {subject}");
    for check in checks {
        let row = check.run();
        println!("{}", row.summary());
        assert!(row.is_as_expected(), "{}\n{}", row.summary(), row.counterexample());
    }
}

#[test]
fn claims_leave_one_effect() {
    hold("ledger", "claims");
}

#[test]
fn a_zombie_on_the_same_id_leaves_one_effect() {
    hold("ledger", "zombie pair");
}

#[test]
fn floors_and_tombstones_forget_no_commit() {
    hold("ledger", "floor");
}

#[test]
fn recovery_judges_its_manifest_rightly() {
    hold("ledger", "manifests");
}

#[test]
fn a_reset_replays_each_record_once() {
    hold("ledger", "replay");
}

#[test]
fn every_record_can_be_decided_in_ledger_mode() {
    hold("ledger", "progress");
}

#[test]
fn ledger_and_transactional_replicas_leave_one_effect() {
    hold("rollout", "mixed");
}

#[test]
fn the_way_to_transactional_mode_leaves_one_effect() {
    hold("rollout", "to transactional");
}

#[test]
fn the_way_back_to_ledger_mode_leaves_one_effect() {
    hold("rollout", "and back");
}

#[test]
fn every_record_can_be_decided_during_the_roll_out() {
    hold("rollout", "progress");
}

#[test]
fn nobody_waits_for_ever() {
    hold("waits", "waits");
}
