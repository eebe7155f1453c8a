//! For each rule a configuration in which its absence shows, as small as it gets.

use super::bounds::{Bounds, Faults};
use super::cases::*;

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

/// All of them, in the order of [`Rules`](super::Rules).
pub fn all() -> Vec<Removal> {
    let base = Bounds::default();
    vec![
        Removal {
            rule: "outputs_before_staging",
            leave_out: |rules| {
                rules.outputs_before_staging = false;
            },
            name: "1 incarnation",
            bounds: base,
            question: Question::Safety,
            breaks: Ok(ACKNOWLEDGED_HAS_EFFECT),
            only_that: false,
        },
        Removal {
            rule: "outcome_before_staging",
            leave_out: |rules| {
                rules.outcome_before_staging = false;
            },
            name: "a crash",
            bounds: Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(RESTORES_LAST_COMMIT),
            only_that: false,
        },
        Removal {
            rule: "staging_waits_for_predecessor",
            leave_out: |rules| {
                rules.staging_waits_for_predecessor = false;
            },
            name: "1 incarnation",
            bounds: base,
            question: Question::Safety,
            breaks: Ok(COMMITS_BUILD_ON_COMMITS),
            only_that: false,
        },
        Removal {
            rule: "manifest_waits_for_predecessor",
            leave_out: |rules| {
                rules.manifest_waits_for_predecessor = false;
            },
            name: "a crash",
            bounds: Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(NEVER_CORRUPT),
            only_that: false,
        },
        Removal {
            rule: "owner_read_again_after_init",
            leave_out: |rules| {
                rules.owner_read_again_after_init = false;
            },
            name: "a zombie",
            bounds: Bounds { incarnations: 2, faults: Faults { takeovers: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(FENCED),
            only_that: false,
        },
        Removal {
            rule: "every_slot_is_fenced",
            leave_out: |rules| {
                rules.every_slot_is_fenced = false;
            },
            name: "a crash",
            bounds: Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(RESTORES_LAST_COMMIT),
            only_that: false,
        },
        Removal {
            rule: "ids_of_pending_manifests_are_fenced",
            leave_out: |rules| {
                rules.ids_of_pending_manifests_are_fenced = false;
                rules.ids_of_earlier_owners_are_fenced = false;
            },
            name: "a crash, ids change",
            bounds: Bounds {
                ids_change: true,
                incarnations: 2,
                faults: Faults { crashes: 1, ..NONE },
                ..base
            },
            question: Question::Safety,
            breaks: Ok(RESTORES_LAST_COMMIT),
            only_that: false,
        },
        Removal {
            rule: "ids_of_earlier_owners_are_fenced",
            leave_out: |rules| {
                rules.ids_of_earlier_owners_are_fenced = false;
            },
            name: "a zombie, ids change",
            bounds: Bounds {
                ids_change: true,
                incarnations: 2,
                faults: Faults { takeovers: 1, ..NONE },
                ..base
            },
            question: Question::Safety,
            breaks: Ok(FENCED),
            only_that: false,
        },
        Removal {
            rule: "recovery_waits_for_init",
            leave_out: |rules| {
                rules.recovery_waits_for_init = false;
            },
            name: "a crash",
            bounds: Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(RESTORES_LAST_COMMIT),
            only_that: false,
        },
        Removal {
            rule: "high_watermark_after_fencing",
            leave_out: |rules| {
                rules.high_watermark_after_fencing = false;
            },
            name: "a zombie",
            bounds: Bounds { incarnations: 2, faults: Faults { takeovers: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(RESTORES_LAST_COMMIT),
            only_that: false,
        },
        Removal {
            rule: "manifests_listed_after_fencing",
            leave_out: |rules| {
                rules.manifests_listed_after_fencing = false;
            },
            name: "a zombie",
            bounds: Bounds { incarnations: 2, faults: Faults { takeovers: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(NEVER_CORRUPT),
            only_that: false,
        },
        Removal {
            rule: "outcomes_read_uncommitted",
            leave_out: |rules| {
                rules.outcomes_read_uncommitted = false;
            },
            name: "2 replicas, a crash",
            bounds: Bounds {
                has_replica: true,
                incarnations: 2,
                faults: Faults { crashes: 1, ..NONE },
                ..base
            },
            question: Question::RecoveryEndsAlone,
            breaks: Ok(RECOVERS_ALONE),
            only_that: false,
        },
        Removal {
            rule: "outcome_decides_pending_manifest",
            leave_out: |rules| {
                rules.outcome_decides_pending_manifest = false;
            },
            name: "a crash",
            bounds: Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(RESTORES_LAST_COMMIT),
            only_that: false,
        },
        Removal {
            rule: "matched_by_name",
            leave_out: |rules| {
                rules.matched_by_name = false;
            },
            name: "a zombie, 3 incarnations",
            bounds: Bounds { incarnations: 3, faults: Faults { takeovers: 1, crashes: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(RESTORES_LAST_COMMIT),
            only_that: false,
        },
        Removal {
            rule: "matched_by_hash",
            leave_out: |rules| {
                rules.matched_by_hash = false;
            },
            name: "a zombie, 3 incarnations",
            bounds: Bounds { incarnations: 3, faults: Faults { takeovers: 1, crashes: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(RESTORES_LAST_COMMIT),
            only_that: false,
        },
        Removal {
            rule: "names_hold_job_epoch",
            leave_out: |rules| {
                rules.names_hold_job_epoch = false;
            },
            name: "a zombie, 3 incarnations",
            bounds: Bounds { incarnations: 3, faults: Faults { takeovers: 1, crashes: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(NEVER_CORRUPT),
            only_that: false,
        },
        Removal {
            rule: "checkpoint_ids_never_reused",
            leave_out: |rules| {
                rules.checkpoint_ids_never_reused = false;
            },
            name: "a manifest write that lands late, lost locks, a crash",
            bounds: Bounds {
                incarnations: 2,
                faults: Faults { crashes: 1, manifest_faults: 1, lost_locks: 1, ..NONE },
                ..base
            },
            question: Question::Safety,
            breaks: Ok(NEVER_CORRUPT),
            only_that: false,
        },
        Removal {
            rule: "newer_manifests_are_left_alone",
            leave_out: |rules| {
                rules.newer_manifests_are_left_alone = false;
            },
            name: "a zombie, 3 incarnations",
            bounds: Bounds { incarnations: 3, faults: Faults { takeovers: 1, crashes: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(NEVER_CORRUPT),
            only_that: false,
        },
        Removal {
            rule: "unknown_end_is_not_an_abort",
            leave_out: |rules| {
                rules.unknown_end_is_not_an_abort = false;
            },
            name: "a lost answer",
            bounds: Bounds { faults: Faults { lost_answers: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(COMMITS_BUILD_ON_COMMITS),
            only_that: false,
        },
        Removal {
            rule: "unknown_end_is_not_a_commit",
            leave_out: |rules| {
                rules.unknown_end_is_not_a_commit = false;
            },
            name: "a lost answer, a time-out",
            bounds: Bounds { faults: Faults { lost_answers: 1, time_outs: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(COMMITS_BUILD_ON_COMMITS),
            only_that: false,
        },
        Removal {
            rule: "refused_end_is_not_an_abort",
            leave_out: |rules| {
                rules.refused_end_is_not_an_abort = false;
            },
            name: "a zombie, a lost answer",
            bounds: Bounds {
                incarnations: 2,
                faults: Faults { takeovers: 1, lost_answers: 1, ..NONE },
                ..base
            },
            question: Question::Safety,
            breaks: Ok(COMMITS_BUILD_ON_COMMITS),
            only_that: false,
        },
        Removal {
            rule: "unknown_manifest_write_is_read",
            leave_out: |rules| {
                rules.unknown_manifest_write_is_read = false;
            },
            name: "a manifest write that is lost, a crash",
            bounds: Bounds {
                incarnations: 2,
                faults: Faults { crashes: 1, manifest_faults: 1, ..NONE },
                ..base
            },
            question: Question::Safety,
            breaks: Ok(NEVER_CORRUPT),
            only_that: false,
        },
        Removal {
            rule: "end_txn_checks_epoch",
            leave_out: |rules| {
                rules.end_txn_checks_epoch = false;
            },
            name: "a crash",
            bounds: Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(EFFECT_IS_ACKNOWLEDGED),
            only_that: false,
        },
        Removal {
            rule: "share_state_joins_transaction",
            leave_out: |rules| {
                rules.share_state_joins_transaction = false;
            },
            name: "1 incarnation",
            bounds: base,
            question: Question::Safety,
            breaks: Ok(EFFECT_IS_ACKNOWLEDGED),
            only_that: false,
        },
        Removal {
            rule: "marker_resolves_older_epochs",
            leave_out: |rules| {
                rules.marker_resolves_older_epochs = false;
            },
            name: "1 incarnation",
            bounds: base,
            question: Question::Safety,
            breaks: Ok(EFFECT_IS_ACKNOWLEDGED),
            only_that: false,
        },
        Removal {
            rule: "shard_remembers_markers",
            leave_out: |rules| {
                rules.shard_remembers_markers = false;
            },
            name: "a time-out",
            bounds: Bounds { faults: Faults { time_outs: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(ACKNOWLEDGED_HAS_EFFECT),
            only_that: true,
        },
        Removal {
            rule: "shard_refuses_writes_of_older_leaders",
            leave_out: |rules| {
                rules.shard_refuses_writes_of_older_leaders = false;
            },
            name: "2 replicas, a leader that moves",
            bounds: Bounds {
                has_replica: true,
                records: 1,
                faults: Faults { leader_moves: 1, ..NONE },
                ..base
            },
            question: Question::Safety,
            breaks: Ok(ONE_EFFECT),
            only_that: false,
        },
        Removal {
            rule: "staging_again_is_idempotent",
            leave_out: |rules| {
                rules.staging_again_is_idempotent = false;
            },
            name: "a lost answer",
            bounds: Bounds { faults: Faults { lost_answers: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(NO_DELIVERY_WASTED),
            only_that: false,
        },
        Removal {
            rule: "failed_staging_dooms_epoch",
            leave_out: |rules| {
                rules.failed_staging_dooms_epoch = false;
            },
            name: "lost locks",
            bounds: Bounds { faults: Faults { lost_locks: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(EFFECT_IS_ACKNOWLEDGED),
            only_that: false,
        },
        Removal {
            rule: "locks_do_not_touch_staged_records",
            leave_out: |rules| {
                rules.locks_do_not_touch_staged_records = false;
            },
            name: "2 replicas, lost locks",
            bounds: Bounds {
                has_replica: true,
                records: 1,
                faults: Faults { lost_locks: 1, ..NONE },
                ..base
            },
            question: Question::Safety,
            breaks: Ok(ONE_EFFECT),
            only_that: true,
        },
        Removal {
            rule: "refused_stage_write_restarts_timer",
            leave_out: |rules| {
                rules.refused_stage_write_restarts_timer = false;
            },
            name: "a crash, a failed stage write",
            bounds: Bounds {
                incarnations: 2,
                records: 1,
                checkpoints: 8,
                faults: Faults { crashes: 1, failed_stage_writes: 1, ..NONE },
                ..base
            },
            question: Question::EverythingDecided,
            breaks: Ok(CAN_BE_DECIDED),
            only_that: false,
        },
        Removal {
            rule: "no_read_while_a_stage_write_is_out",
            leave_out: |rules| {
                rules.no_read_while_a_stage_write_is_out = false;
            },
            name: "2 replicas, a leader that reads late",
            bounds: Bounds { has_replica: true, records: 1, leader_learns_late: true, ..base },
            question: Question::Safety,
            breaks: Ok(ONE_EFFECT),
            only_that: true,
        },
        Removal {
            rule: "new_leader_loads_pending",
            leave_out: |rules| {
                rules.new_leader_loads_pending = false;
            },
            name: "2 replicas, a leader that moves",
            bounds: Bounds {
                has_replica: true,
                records: 1,
                faults: Faults { leader_moves: 1, ..NONE },
                ..base
            },
            question: Question::Safety,
            breaks: Ok(ONE_EFFECT),
            only_that: true,
        },
        Removal {
            rule: "abort_makes_available",
            leave_out: |rules| {
                rules.abort_makes_available = false;
            },
            name: "a time-out",
            bounds: Bounds { faults: Faults { time_outs: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(ACKNOWLEDGED_HAS_EFFECT),
            only_that: false,
        },
        Removal {
            rule: "acknowledgement_only_by_marker",
            leave_out: |rules| {
                rules.acknowledgement_only_by_marker = false;
            },
            name: "1 incarnation",
            bounds: base,
            question: Question::Safety,
            breaks: Ok(ACKNOWLEDGED_HAS_EFFECT),
            only_that: false,
        },
        Removal {
            rule: "lost_locks_abort_epoch",
            leave_out: |rules| {
                rules.lost_locks_abort_epoch = false;
            },
            name: "lost locks",
            bounds: Bounds { faults: Faults { lost_locks: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(ONE_EFFECT),
            only_that: false,
        },
        Removal {
            rule: "staged_records_are_forgotten",
            leave_out: |rules| {
                rules.staged_records_are_forgotten = false;
            },
            name: "a time-out",
            bounds: Bounds { faults: Faults { time_outs: 1, ..NONE }, ..base },
            question: Question::Safety,
            breaks: Ok(ONE_EFFECT),
            only_that: false,
        },
        Removal {
            rule: "transactions_time_out",
            leave_out: |rules| {
                rules.transactions_time_out = false;
            },
            name: "2 replicas, a crash",
            bounds: Bounds {
                has_replica: true,
                records: 1,
                checkpoints: 8,
                faults: Faults { crashes: 1, ..NONE },
                ..base
            },
            question: Question::EverythingDecided,
            breaks: Ok(CAN_BE_DECIDED),
            only_that: false,
        },
    ]
}
