//! One test for each rule: without it, the expected property breaks, and the test prints in how many steps.
//!
//! To read a counterexample: `cargo run -p sharestream-models -- ledger rollout waits --rules --steps`.

use sharestream_models::catalog::{Check, removals};
use sharestream_models::rules::Rule;

/// Runs every removal of `rule` and requires the counterexample that the catalog announces.
fn breaks_without(rule: Rule) {
    let mut checks = removals();
    checks.retain(|check| check.removed == Some(rule));
    assert!(!checks.is_empty(), "no configuration leaves out {rule:?}");
    for check in checks {
        let row = check.run();
        println!("{}", row.summary());
        assert!(row.is_as_expected(), "{}\n{}", row.summary(), row.counterexample());
    }
}

/// States of a configuration with all rules that are looked at: more than most counterexamples take.
const TWIN_STATES_MAX: usize = 400_000;

/// A configuration that is broken anyway would show nothing. Large ones are looked at in part.
#[test]
fn configurations_that_break_without_a_rule_do_not_break_with_all() {
    let mut checks: Vec<_> = removals().into_iter().map(Check::with_all_rules).collect();
    checks.sort_by_key(Check::configuration);
    checks.dedup_by_key(|check| check.configuration());
    for check in checks {
        let row = check.run_within(TWIN_STATES_MAX);
        println!("{}", row.summary());
        assert!(row.step_count().is_none(), "{}\n{}", row.summary(), row.counterexample());
    }
}

#[test]
fn every_rule_is_left_out_somewhere() {
    let checks = removals();
    for rule in Rule::ALL {
        assert!(checks.iter().any(|check| check.removed == Some(rule)), "{rule:?}");
    }
}

#[test]
fn names_of_rules_are_unique() {
    for (index, rule) in Rule::ALL.iter().enumerate() {
        assert!(Rule::ALL[..index].iter().all(|other| other.name() != rule.name() && other != rule));
    }
}

#[test]
fn rule_1_who_does_not_read_up_to_its_claim_commits_beside_another() {
    breaks_without(Rule::ReadOwnPosition);
}

#[test]
fn rule_2_who_ignores_an_open_claim_commits_beside_it() {
    breaks_without(Rule::RespectOpenClaims);
}

#[test]
fn rule_3_who_ignores_a_committed_claim_commits_again() {
    breaks_without(Rule::AbortOnCommittedClaim);
}

#[test]
fn rule_4_a_presumed_dead_owner_still_commits() {
    breaks_without(Rule::EndBeforePresumingDead);
}

#[test]
fn rule_5_success_of_init_producer_id_hides_a_commit() {
    breaks_without(Rule::MarkerTellsOutcome);
}

#[test]
fn rule_6_an_own_earlier_claim_is_committed_again() {
    breaks_without(Rule::OwnEarlierClaimsCount);
}

#[test]
fn rule_7_who_reads_from_the_end_after_a_restart_misses_a_claim() {
    breaks_without(Rule::ReadFromStart);
}

#[test]
fn rule_8_an_acknowledgement_on_a_lost_answer_loses_the_record() {
    breaks_without(Rule::NoAckOnLostAnswer);
}

#[test]
fn rule_9a_a_floor_over_a_gap_loses_a_record() {
    breaks_without(Rule::FloorOverPrefix);
}

#[test]
fn rule_9b_a_floor_over_an_open_claim_loses_a_record() {
    breaks_without(Rule::FloorNotOverOpen);
}

#[test]
fn rule_10a_a_tombstone_before_the_floor_forgets_a_commit() {
    breaks_without(Rule::TombstoneAfterFloor);
}

#[test]
fn rule_10b_a_tombstone_of_a_partly_covered_claim_forgets_a_commit() {
    breaks_without(Rule::TombstoneWhollyCovered);
}

#[test]
fn rule_10c_a_floor_that_is_not_consulted_forgets_a_commit() {
    breaks_without(Rule::ConsultFloor);
}

#[test]
fn rule_11_a_key_used_again_compacts_a_commit_away() {
    breaks_without(Rule::UniqueKeys);
}

#[test]
fn rule_12_who_stops_at_its_claim_misses_a_floor() {
    breaks_without(Rule::ReadPastOwnPosition);
}

#[test]
fn rule_13_a_dead_owner_blocks_a_record_for_ever() {
    breaks_without(Rule::EndDeadOwners);
}

#[test]
fn rule_f1a_one_key_for_all_floors_lets_the_floor_regress() {
    breaks_without(Rule::FloorValueInKey);
}

#[test]
fn rule_f1b_the_last_floor_instead_of_the_highest_regresses() {
    breaks_without(Rule::FloorIsMaximum);
}

#[test]
fn rule_f1c_a_lower_floor_tombstoned_early_leaves_none() {
    breaks_without(Rule::LowerFloorStays);
}

#[test]
fn rule_f2_a_fixed_high_watermark_misses_a_floor() {
    breaks_without(Rule::ReadUntilCaughtUp);
}

#[test]
fn rule_f3_a_tombstoned_newest_claim_misleads_recovery() {
    breaks_without(Rule::NewestClaimStays);
}

#[test]
fn rule_f4_an_unfenced_old_id_commits_after_recovery() {
    breaks_without(Rule::FenceManifestOwner);
}

#[test]
fn rule_f5a_several_claim_records_wait_in_a_cycle() {
    breaks_without(Rule::OneClaimRecord);
}

#[test]
fn rule_f5b_claims_out_of_order_wait_in_a_cycle() {
    breaks_without(Rule::ClaimInOrder);
}

#[test]
fn rule_f5c_a_younger_claim_left_open_waits_in_a_cycle() {
    breaks_without(Rule::AbortCascades);
}

#[test]
fn rule_f6a_who_stops_arbitrating_before_markers_commits_again() {
    breaks_without(Rule::ArbitrateUntilResolved);
}

#[test]
fn rule_f6b_who_stops_arbitrating_before_the_start_offset_commits_again() {
    breaks_without(Rule::ArbitrateUntilPassed);
}

#[test]
fn rule_f6c_who_stops_arbitrating_before_the_floor_commits_again() {
    breaks_without(Rule::ArbitrateUntilCaughtUp);
}

#[test]
fn rule_f7_a_compacted_marker_is_waited_for_for_ever() {
    breaks_without(Rule::RebuildView);
}

#[test]
fn rule_r1_a_claim_of_an_older_generation_loses_a_replay() {
    breaks_without(Rule::GenerationsApart);
}

#[test]
fn rule_r2_a_claim_of_an_older_generation_commits_beside_a_replay() {
    breaks_without(Rule::AbortOlderGeneration);
}

#[test]
fn rule_r3_offsets_reset_before_the_generation_record_lose_a_replay() {
    breaks_without(Rule::GenerationBeforeOffsets);
}

#[test]
fn rule_r4_a_member_that_lags_loses_a_replay() {
    breaks_without(Rule::CatchUpAfterJoining);
}

#[test]
fn rule_r5_a_member_from_before_the_reset_loses_a_replay() {
    breaks_without(Rule::ResetEmptyGroup);
}

#[test]
fn rule_r6_a_floor_from_before_the_reset_loses_a_replay() {
    breaks_without(Rule::WaitForReset);
}

#[test]
fn rule_m1_a_ledger_claim_above_the_mode_record_commits_again() {
    breaks_without(Rule::LedgerObeysMode);
}

#[test]
fn rule_m2_a_running_transactional_replica_commits_after_the_way_back() {
    breaks_without(Rule::StopBeforeWayBack);
}
