//! For each rule a configuration in which its absence shows, as small as it gets.

use super::bounds::{Bounds, Faults};
use super::cases::{CAN_BE_DECIDED, Question, RECOVERS_ALONE, Removal};
use super::properties::{
    ACKNOWLEDGED_HAS_EFFECT, COMMITS_BUILD_ON_COMMITS, EFFECT_IS_ACKNOWLEDGED, FENCED, NEVER_CORRUPT,
    NO_DELIVERY_WASTED, ONE_EFFECT, PENDING_HAS_MARKER, RESTORES_LAST_COMMIT,
};

const NONE: Faults = Faults::NONE;

/// All of them.
pub fn all() -> Vec<Removal> {
    [of_the_job(), of_fencing(), of_manifests(), of_the_coordinator(), of_the_source_leader()].concat()
}

/// Rules of a running job.
fn of_the_job() -> Vec<Removal> {
    let base = Bounds::default();
    vec![
        Removal::new(
            "outputs_before_staging",
            |rules| rules.outputs_before_staging = false,
            "1 incarnation",
            base,
        )
        .breaks_at_last(ACKNOWLEDGED_HAS_EFFECT),
        Removal::new(
            "outcome_before_staging",
            |rules| rules.outcome_before_staging = false,
            "a crash",
            Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
        )
        .breaks(RESTORES_LAST_COMMIT),
        Removal::new(
            "staging_waits_for_predecessor",
            |rules| rules.staging_waits_for_predecessor = false,
            "1 incarnation",
            base,
        )
        .backed_up_by("staging_waits_for_predecessor and manifest_waits_for_predecessor", |rules| {
            rules.manifest_waits_for_predecessor = false
        })
        .breaks(COMMITS_BUILD_ON_COMMITS),
        Removal::new(
            "manifest_waits_for_predecessor",
            |rules| rules.manifest_waits_for_predecessor = false,
            "a crash",
            Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
        )
        .breaks(NEVER_CORRUPT),
        Removal::new(
            "fence_is_checked_with_owner",
            |rules| rules.fence_is_checked_with_owner = false,
            "a time-out",
            Bounds { checkpoints: 8, faults: Faults { time_outs: 1, ..NONE }, ..base },
        )
        .asking(Question::EverythingDecided)
        .breaks(CAN_BE_DECIDED),
        Removal::new(
            "unknown_end_is_not_an_abort",
            |rules| rules.unknown_end_is_not_an_abort = false,
            "a lost answer",
            Bounds { faults: Faults { lost_answers: 1, ..NONE }, ..base },
        )
        .breaks(COMMITS_BUILD_ON_COMMITS),
        Removal::new(
            "unknown_end_is_not_a_commit",
            |rules| rules.unknown_end_is_not_a_commit = false,
            "a lost answer, a time-out",
            Bounds { faults: Faults { lost_answers: 1, time_outs: 1, ..NONE }, ..base },
        )
        .breaks(COMMITS_BUILD_ON_COMMITS),
        Removal::new(
            "unknown_end_is_sent_again",
            |rules| rules.unknown_end_is_sent_again = false,
            "a lost answer",
            Bounds { faults: Faults { lost_answers: 1, ..NONE }, ..base },
        )
        .breaks(NO_DELIVERY_WASTED),
        Removal::new(
            "refused_end_is_not_an_abort",
            |rules| rules.refused_end_is_not_an_abort = false,
            "a zombie, a lost answer",
            Bounds {
                incarnations: 2,
                checkpoints: 2,
                faults: Faults { takeovers: 1, lost_answers: 1, ..NONE },
                ..base
            },
        )
        .breaks_at_last(COMMITS_BUILD_ON_COMMITS),
        Removal::new(
            "unknown_manifest_write_is_read",
            |rules| rules.unknown_manifest_write_is_read = false,
            "a manifest write that is lost, a crash",
            Bounds { incarnations: 2, faults: Faults { crashes: 1, manifest_faults: 1, ..NONE }, ..base },
        )
        .breaks(NEVER_CORRUPT),
        Removal::new(
            "failed_staging_dooms_epoch",
            |rules| rules.failed_staging_dooms_epoch = false,
            "lost locks",
            Bounds { faults: Faults { lost_locks: 1, ..NONE }, ..base },
        )
        .breaks(EFFECT_IS_ACKNOWLEDGED),
        Removal::new(
            "lost_locks_abort_epoch",
            |rules| rules.lost_locks_abort_epoch = false,
            "lost locks",
            Bounds { faults: Faults { lost_locks: 1, ..NONE }, ..base },
        )
        .breaks(ONE_EFFECT),
        Removal::new(
            "staged_records_are_forgotten",
            |rules| rules.staged_records_are_forgotten = false,
            "a time-out",
            Bounds { faults: Faults { time_outs: 1, ..NONE }, ..base },
        )
        .backed_up_by("staged_records_are_forgotten and lost_locks_abort_epoch", |rules| {
            rules.lost_locks_abort_epoch = false
        })
        .breaks(ONE_EFFECT),
    ]
}

/// Rules of a recovery until it knows that everything older is resolved.
fn of_fencing() -> Vec<Removal> {
    let base = Bounds::default();
    vec![
        Removal::new(
            "owner_read_again_after_init",
            |rules| rules.owner_read_again_after_init = false,
            "a zombie",
            Bounds { incarnations: 2, records: 1, faults: Faults { takeovers: 1, ..NONE }, ..base },
        )
        .breaks(FENCED),
        Removal::new(
            "every_slot_is_fenced",
            |rules| rules.every_slot_is_fenced = false,
            "a zombie",
            Bounds { incarnations: 2, records: 1, faults: Faults { takeovers: 1, ..NONE }, ..base },
        )
        .backed_up_by("every_slot_is_fenced and ids_of_earlier_owners_are_fenced", |rules| {
            rules.ids_of_earlier_owners_are_fenced = false
        })
        .breaks_at_last(FENCED),
        Removal::new(
            "ids_of_pending_manifests_are_fenced",
            |rules| rules.ids_of_pending_manifests_are_fenced = false,
            "a crash, ids change",
            Bounds { ids_change: true, incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
        )
        .backed_up_by("ids_of_pending_manifests_are_fenced and ids_of_earlier_owners_are_fenced", |rules| {
            rules.ids_of_earlier_owners_are_fenced = false
        })
        .breaks_at_last(FENCED),
        Removal::new(
            "ids_of_earlier_owners_are_fenced",
            |rules| rules.ids_of_earlier_owners_are_fenced = false,
            "a zombie, ids change",
            Bounds {
                ids_change: true,
                incarnations: 2,
                records: 1,
                faults: Faults { takeovers: 1, ..NONE },
                ..base
            },
        )
        .breaks_at_last(FENCED),
        Removal::new(
            "recovery_waits_for_init",
            |rules| rules.recovery_waits_for_init = false,
            "a crash",
            Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
        )
        .breaks(RESTORES_LAST_COMMIT),
        Removal::new(
            "high_watermark_after_fencing",
            |rules| rules.high_watermark_after_fencing = false,
            "a crash",
            Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
        )
        .breaks(RESTORES_LAST_COMMIT),
        Removal::new(
            "manifests_listed_after_fencing",
            |rules| rules.manifests_listed_after_fencing = false,
            "a zombie",
            Bounds { incarnations: 2, records: 1, faults: Faults { takeovers: 1, ..NONE }, ..base },
        )
        .breaks(NEVER_CORRUPT),
        Removal::new(
            "outcomes_read_uncommitted",
            |rules| rules.outcomes_read_uncommitted = false,
            "2 replicas, a crash",
            Bounds { has_replica: true, incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
        )
        .asking(Question::RecoveryEndsAlone)
        .breaks(RECOVERS_ALONE),
    ]
}

/// Rules of the decision on manifests.
fn of_manifests() -> Vec<Removal> {
    let base = Bounds::default();
    vec![
        Removal::new(
            "outcome_decides_pending_manifest",
            |rules| rules.outcome_decides_pending_manifest = false,
            "a crash",
            Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base },
        )
        .breaks(RESTORES_LAST_COMMIT),
        Removal::new(
            "recreated_outcome_topic_is_corrupt",
            |rules| rules.recreated_outcome_topic_is_corrupt = false,
            "a crash, another outcome topic",
            Bounds {
                incarnations: 2,
                faults: Faults { crashes: 1, outcome_topic_losses: 1, ..NONE },
                ..base
            },
        )
        .breaks(RESTORES_LAST_COMMIT),
        Removal::new(
            "unexplained_outcome_is_corrupt",
            |rules| rules.unexplained_outcome_is_corrupt = false,
            "a crash, another outcome topic",
            Bounds {
                incarnations: 2,
                faults: Faults { crashes: 1, outcome_topic_losses: 1, ..NONE },
                ..base
            },
        )
        .shows_nothing(
            "it is for an outcome partition that lost only its newest records, which the model's never does",
        ),
        Removal::new(
            "matched_by_name",
            |rules| rules.matched_by_name = false,
            "a zombie, 3 incarnations",
            Bounds {
                incarnations: 3,
                checkpoints: 1,
                faults: Faults { crashes: 1, takeovers: 1, ..NONE },
                ..base
            },
        )
        .breaks(NEVER_CORRUPT),
        Removal::new(
            "matched_by_hash",
            |rules| rules.matched_by_hash = false,
            "a zombie, 3 incarnations",
            Bounds {
                incarnations: 3,
                checkpoints: 1,
                faults: Faults { crashes: 1, takeovers: 1, ..NONE },
                ..base
            },
        )
        .backed_up_by("matched_by_hash and names_hold_job_epoch", |rules| rules.names_hold_job_epoch = false)
        .breaks_at_last(RESTORES_LAST_COMMIT),
        Removal::new(
            "names_hold_job_epoch",
            |rules| rules.names_hold_job_epoch = false,
            "a zombie, 3 incarnations",
            Bounds {
                incarnations: 3,
                checkpoints: 1,
                faults: Faults { crashes: 1, takeovers: 1, ..NONE },
                ..base
            },
        )
        .breaks(NEVER_CORRUPT),
        Removal::new(
            "checkpoint_ids_never_reused",
            |rules| rules.checkpoint_ids_never_reused = false,
            "a manifest write that lands late, lost locks, a crash",
            Bounds {
                incarnations: 2,
                is_pipelined: false,
                faults: Faults { crashes: 1, manifest_faults: 1, lost_locks: 1, ..NONE },
                ..base
            },
        )
        .breaks(NEVER_CORRUPT),
        Removal::new(
            "newer_manifests_are_left_alone",
            |rules| rules.newer_manifests_are_left_alone = false,
            "a zombie, 3 incarnations",
            Bounds {
                incarnations: 3,
                records: 1,
                faults: Faults { crashes: 1, takeovers: 1, ..NONE },
                ..base
            },
        )
        .breaks(NEVER_CORRUPT),
    ]
}

/// Rules of the transaction coordinator and of markers.
fn of_the_coordinator() -> Vec<Removal> {
    let base = Bounds::default();
    vec![
        Removal::new("end_txn_checks_epoch", |rules| rules.end_txn_checks_epoch = false, "a crash", Bounds { incarnations: 2, faults: Faults { crashes: 1, ..NONE }, ..base }).breaks(EFFECT_IS_ACKNOWLEDGED),
        Removal::new("end_txn_is_idempotent", |rules| rules.end_txn_is_idempotent = false, "a crash, a lost answer", Bounds { incarnations: 2, faults: Faults { crashes: 1, lost_answers: 1, ..NONE }, ..base }).shows_nothing("a refused repeat leads to a recovery in place, which finds the commit: it costs time, not records"),
        Removal::new("transactions_time_out", |rules| rules.transactions_time_out = false, "2 replicas, a crash", Bounds { has_replica: true, records: 1, checkpoints: 8, faults: Faults { crashes: 1, ..NONE }, ..base }).asking(Question::EverythingDecided).breaks(CAN_BE_DECIDED),
        Removal::new("share_state_joins_transaction", |rules| rules.share_state_joins_transaction = false, "1 incarnation", base).breaks(PENDING_HAS_MARKER),
        Removal::new("staging_checks_epoch", |rules| rules.staging_checks_epoch = false, "a zombie, a failing sink", Bounds { incarnations: 2, faults: Faults { takeovers: 1, sink_failures: 1, ..NONE }, ..base }).breaks_at_last(ACKNOWLEDGED_HAS_EFFECT),
        Removal::new("marker_resolves_older_epochs", |rules| rules.marker_resolves_older_epochs = false, "1 incarnation", base).breaks(EFFECT_IS_ACKNOWLEDGED),
        Removal::new("shard_remembers_markers", |rules| rules.shard_remembers_markers = false, "a time-out", Bounds { faults: Faults { time_outs: 1, ..NONE }, ..base }).breaks_at_last(ACKNOWLEDGED_HAS_EFFECT),
        Removal::new("abort_makes_available", |rules| rules.abort_makes_available = false, "a time-out", Bounds { faults: Faults { time_outs: 1, ..NONE }, ..base }).breaks(ACKNOWLEDGED_HAS_EFFECT),
        Removal::new("acknowledgement_only_by_marker", |rules| rules.acknowledgement_only_by_marker = false, "1 incarnation", base).breaks(ACKNOWLEDGED_HAS_EFFECT),
    ]
}

/// Rules of the source leader and of its writes to the share-state partition.
fn of_the_source_leader() -> Vec<Removal> {
    let base = Bounds::default();
    vec![
        Removal::new(
            "shard_refuses_writes_of_older_leaders",
            |rules| rules.shard_refuses_writes_of_older_leaders = false,
            "2 replicas, a leader that moves",
            Bounds { has_replica: true, records: 1, faults: Faults { leader_moves: 1, ..NONE }, ..base },
        )
        .breaks_at_last(ONE_EFFECT),
        Removal::new(
            "staging_again_is_idempotent",
            |rules| rules.staging_again_is_idempotent = false,
            "a lost answer",
            Bounds { faults: Faults { lost_answers: 1, ..NONE }, ..base },
        )
        .breaks(NO_DELIVERY_WASTED),
        Removal::new(
            "locks_do_not_touch_staged_records",
            |rules| rules.locks_do_not_touch_staged_records = false,
            "2 replicas, lost locks",
            Bounds { has_replica: true, records: 1, faults: Faults { lost_locks: 1, ..NONE }, ..base },
        )
        .breaks_at_last(ONE_EFFECT),
        Removal::new(
            "refused_stage_write_restarts_timer",
            |rules| rules.refused_stage_write_restarts_timer = false,
            "a crash, a failed stage write",
            Bounds {
                incarnations: 2,
                records: 1,
                checkpoints: 8,
                faults: Faults { crashes: 1, failed_stage_writes: 1, ..NONE },
                ..base
            },
        )
        .asking(Question::EverythingDecided)
        .breaks(CAN_BE_DECIDED),
        Removal::new(
            "no_read_while_a_stage_write_is_out",
            |rules| rules.no_read_while_a_stage_write_is_out = false,
            "2 replicas, a leader that reads late",
            Bounds { has_replica: true, records: 1, leader_learns_late: true, ..base },
        )
        .breaks_at_last(ONE_EFFECT),
        Removal::new(
            "new_leader_loads_pending",
            |rules| rules.new_leader_loads_pending = false,
            "2 replicas, a leader that moves",
            Bounds { has_replica: true, records: 1, faults: Faults { leader_moves: 1, ..NONE }, ..base },
        )
        .breaks_at_last(ONE_EFFECT),
    ]
}
