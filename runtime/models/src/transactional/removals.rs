//! For each rule a configuration in which its absence shows, as small as it gets.

use super::bounds::{Bounds, Faults};
use super::cases::{CAN_BE_DECIDED, Question, RECOVERS_ALONE, Removal};
use super::properties::{
    ACKNOWLEDGED_HAS_EFFECT, COMMITS_BUILD_ON_COMMITS, EFFECT_IS_ACKNOWLEDGED, FENCED, NEVER_CORRUPT,
    NO_DELIVERY_WASTED, ONE_EFFECT, PENDING_HAS_MARKER, RESTORES_LAST_COMMIT,
};

/// All of them.
pub fn all() -> Vec<Removal> {
    [
        of_the_order(),
        of_what_is_unknown(),
        of_aborts(),
        of_fencing(),
        of_manifests(),
        of_the_coordinator(),
        of_the_source_leader(),
    ]
    .concat()
}

/// Rules of the order of steps.
fn of_the_order() -> Vec<Removal> {
    vec![
        Removal::new(
            "outputs_before_staging",
            |rules| rules.outputs_before_staging = false,
            "1 incarnation",
            Bounds::default(),
        )
        .breaks_at_last(ACKNOWLEDGED_HAS_EFFECT),
        Removal::new(
            "outputs_before_staging",
            |rules| rules.outputs_before_staging = false,
            "a failing sink",
            Bounds::of_job(1, Faults::SINK_FAILURE),
        )
        .breaks_at_last(NO_DELIVERY_WASTED),
        Removal::new(
            "outcome_before_staging",
            |rules| rules.outcome_before_staging = false,
            "a crash",
            Bounds::of_job(2, Faults::CRASH),
        )
        .breaks(RESTORES_LAST_COMMIT),
        Removal::new(
            "staging_waits_for_predecessor",
            |rules| rules.staging_waits_for_predecessor = false,
            "1 incarnation",
            Bounds::default(),
        )
        .backed_up_by("staging_waits_for_predecessor and manifest_waits_for_predecessor", |rules| {
            rules.manifest_waits_for_predecessor = false
        })
        .breaks(COMMITS_BUILD_ON_COMMITS),
        Removal::new(
            "manifest_waits_for_predecessor",
            |rules| rules.manifest_waits_for_predecessor = false,
            "a crash",
            Bounds::of_job(2, Faults::CRASH),
        )
        .breaks(NEVER_CORRUPT),
    ]
}

/// Rules of a running job that does not know something.
fn of_what_is_unknown() -> Vec<Removal> {
    vec![
        Removal::new(
            "fence_is_checked_with_owner",
            |rules| rules.fence_is_checked_with_owner = false,
            "a time-out",
            Bounds { checkpoints: 8, ..Bounds::of_job(1, Faults::TIME_OUT) },
        )
        .asking(Question::EverythingDecided)
        .breaks(CAN_BE_DECIDED),
        Removal::new(
            "unknown_end_is_not_an_abort",
            |rules| rules.unknown_end_is_not_an_abort = false,
            "a lost answer",
            Bounds::of_job(1, Faults::LOST_ANSWER),
        )
        .breaks(COMMITS_BUILD_ON_COMMITS),
        Removal::new(
            "unknown_end_is_not_a_commit",
            |rules| rules.unknown_end_is_not_a_commit = false,
            "a lost answer, a time-out",
            Bounds::of_job(1, Faults::LOST_ANSWER.and(Faults::TIME_OUT)),
        )
        .breaks(COMMITS_BUILD_ON_COMMITS),
        Removal::new(
            "unknown_end_is_sent_again",
            |rules| rules.unknown_end_is_sent_again = false,
            "a lost answer",
            Bounds::of_job(1, Faults::LOST_ANSWER),
        )
        .breaks(NO_DELIVERY_WASTED),
        Removal::new(
            "refused_end_is_not_an_abort",
            |rules| rules.refused_end_is_not_an_abort = false,
            "a zombie, a lost answer",
            Bounds { checkpoints: 2, ..Bounds::of_job(2, Faults::ZOMBIE.and(Faults::LOST_ANSWER)) },
        )
        .breaks_at_last(COMMITS_BUILD_ON_COMMITS),
        Removal::new(
            "unknown_manifest_write_is_read",
            |rules| rules.unknown_manifest_write_is_read = false,
            "a manifest write that is lost, a crash",
            Bounds::of_job(2, Faults::CRASH.and(Faults::MANIFEST_FAULT)),
        )
        .breaks(NEVER_CORRUPT),
    ]
}

/// Rules of an abort.
fn of_aborts() -> Vec<Removal> {
    vec![
        Removal::new(
            "failed_staging_dooms_epoch",
            |rules| rules.failed_staging_dooms_epoch = false,
            "lost locks",
            Bounds::of_job(1, Faults::LOST_LOCKS),
        )
        .breaks(EFFECT_IS_ACKNOWLEDGED),
        Removal::new(
            "lost_locks_abort_epoch",
            |rules| rules.lost_locks_abort_epoch = false,
            "lost locks",
            Bounds::of_job(1, Faults::LOST_LOCKS),
        )
        .breaks(ONE_EFFECT),
        Removal::new(
            "staged_records_are_forgotten",
            |rules| rules.staged_records_are_forgotten = false,
            "a time-out",
            Bounds::of_job(1, Faults::TIME_OUT),
        )
        .backed_up_by("staged_records_are_forgotten and lost_locks_abort_epoch", |rules| {
            rules.lost_locks_abort_epoch = false
        })
        .breaks(ONE_EFFECT),
    ]
}

/// Rules of a recovery until it knows that everything older is resolved.
fn of_fencing() -> Vec<Removal> {
    vec![
        Removal::new(
            "owner_read_again_after_init",
            |rules| rules.owner_read_again_after_init = false,
            "a zombie",
            Bounds { records: 1, ..Bounds::of_job(2, Faults::ZOMBIE) },
        )
        .breaks(FENCED),
        Removal::new(
            "every_slot_is_fenced",
            |rules| rules.every_slot_is_fenced = false,
            "a zombie",
            Bounds { records: 1, ..Bounds::of_job(2, Faults::ZOMBIE) },
        )
        .backed_up_by("every_slot_is_fenced and ids_of_earlier_owners_are_fenced", |rules| {
            rules.ids_of_earlier_owners_are_fenced = false
        })
        .breaks_at_last(FENCED),
        Removal::new(
            "ids_of_pending_manifests_are_fenced",
            |rules| rules.ids_of_pending_manifests_are_fenced = false,
            "a crash, ids change",
            Bounds { ids_change: true, ..Bounds::of_job(2, Faults::CRASH) },
        )
        .backed_up_by("ids_of_pending_manifests_are_fenced and ids_of_earlier_owners_are_fenced", |rules| {
            rules.ids_of_earlier_owners_are_fenced = false
        })
        .breaks_at_last(FENCED),
        Removal::new(
            "ids_of_earlier_owners_are_fenced",
            |rules| rules.ids_of_earlier_owners_are_fenced = false,
            "a zombie, ids change",
            Bounds { ids_change: true, records: 1, ..Bounds::of_job(2, Faults::ZOMBIE) },
        )
        .breaks_at_last(FENCED),
        Removal::new(
            "recovery_waits_for_init",
            |rules| rules.recovery_waits_for_init = false,
            "a crash",
            Bounds::of_job(2, Faults::CRASH),
        )
        .breaks(RESTORES_LAST_COMMIT),
        Removal::new(
            "high_watermark_after_fencing",
            |rules| rules.high_watermark_after_fencing = false,
            "a crash",
            Bounds::of_job(2, Faults::CRASH),
        )
        .breaks(RESTORES_LAST_COMMIT),
        Removal::new(
            "manifests_listed_after_fencing",
            |rules| rules.manifests_listed_after_fencing = false,
            "a zombie",
            Bounds { records: 1, ..Bounds::of_job(2, Faults::ZOMBIE) },
        )
        .breaks(NEVER_CORRUPT),
        Removal::new(
            "outcomes_read_uncommitted",
            |rules| rules.outcomes_read_uncommitted = false,
            "2 replicas, a crash",
            Bounds { incarnations: 2, ..Bounds::with_replica(2, Faults::CRASH) },
        )
        .asking(Question::RecoveryEndsAlone)
        .breaks(RECOVERS_ALONE),
    ]
}

/// Rules of the decision on manifests.
fn of_manifests() -> Vec<Removal> {
    vec![
        Removal::new(
            "outcome_decides_pending_manifest",
            |rules| rules.outcome_decides_pending_manifest = false,
            "a crash",
            Bounds::of_job(2, Faults::CRASH),
        )
        .breaks(RESTORES_LAST_COMMIT),
        Removal::new(
            "recreated_outcome_topic_is_corrupt",
            |rules| rules.recreated_outcome_topic_is_corrupt = false,
            "a crash, another outcome topic",
            Bounds::of_job(2, Faults::CRASH.and(Faults::OTHER_OUTCOME_TOPIC)),
        )
        .breaks(RESTORES_LAST_COMMIT),
        Removal::new(
            "unexplained_outcome_is_corrupt",
            |rules| rules.unexplained_outcome_is_corrupt = false,
            "a crash, another outcome topic",
            Bounds::of_job(2, Faults::CRASH.and(Faults::OTHER_OUTCOME_TOPIC)),
        )
        .shows_nothing("for an outcome partition that lost its newest records; the model's never does"),
        Removal::new(
            "matched_by_name",
            |rules| rules.matched_by_name = false,
            "a zombie, 3 incarnations",
            Bounds { checkpoints: 1, ..Bounds::of_job(3, Faults::CRASH.and(Faults::ZOMBIE)) },
        )
        .breaks(NEVER_CORRUPT),
        Removal::new(
            "matched_by_hash",
            |rules| rules.matched_by_hash = false,
            "a zombie, 3 incarnations",
            Bounds { checkpoints: 1, ..Bounds::of_job(3, Faults::CRASH.and(Faults::ZOMBIE)) },
        )
        .backed_up_by("matched_by_hash and names_hold_job_epoch", |rules| rules.names_hold_job_epoch = false)
        .breaks_at_last(RESTORES_LAST_COMMIT),
        Removal::new(
            "names_hold_job_epoch",
            |rules| rules.names_hold_job_epoch = false,
            "a zombie, 3 incarnations",
            Bounds { checkpoints: 1, ..Bounds::of_job(3, Faults::CRASH.and(Faults::ZOMBIE)) },
        )
        .breaks(NEVER_CORRUPT),
        Removal::new(
            "checkpoint_ids_never_reused",
            |rules| rules.checkpoint_ids_never_reused = false,
            "a manifest write that lands late, lost locks, a crash",
            Bounds {
                is_pipelined: false,
                ..Bounds::of_job(2, Faults::CRASH.and(Faults::MANIFEST_FAULT).and(Faults::LOST_LOCKS))
            },
        )
        .breaks(NEVER_CORRUPT),
        Removal::new(
            "newer_manifests_are_left_alone",
            |rules| rules.newer_manifests_are_left_alone = false,
            "a zombie, 3 incarnations",
            Bounds { records: 1, ..Bounds::of_job(3, Faults::CRASH.and(Faults::ZOMBIE)) },
        )
        .breaks(NEVER_CORRUPT),
    ]
}

/// Rules of the transaction coordinator and of markers.
fn of_the_coordinator() -> Vec<Removal> {
    vec![
        Removal::new(
            "end_txn_checks_epoch",
            |rules| rules.end_txn_checks_epoch = false,
            "a crash",
            Bounds::of_job(2, Faults::CRASH),
        )
        .breaks(EFFECT_IS_ACKNOWLEDGED),
        Removal::new(
            "end_txn_is_idempotent",
            |rules| rules.end_txn_is_idempotent = false,
            "a crash, a lost answer",
            Bounds::of_job(2, Faults::CRASH.and(Faults::LOST_ANSWER)),
        )
        .shows_nothing("a refused repeat leads to a recovery in place, which finds the commit"),
        Removal::new(
            "transactions_time_out",
            |rules| rules.transactions_time_out = false,
            "2 replicas, a crash",
            Bounds { checkpoints: 8, ..Bounds::with_replica(1, Faults::CRASH) },
        )
        .asking(Question::EverythingDecided)
        .breaks(CAN_BE_DECIDED),
        Removal::new(
            "share_state_joins_transaction",
            |rules| rules.share_state_joins_transaction = false,
            "1 incarnation",
            Bounds::default(),
        )
        .breaks(PENDING_HAS_MARKER),
        Removal::new(
            "staging_checks_epoch",
            |rules| rules.staging_checks_epoch = false,
            "a zombie, a failing sink",
            Bounds::of_job(2, Faults::ZOMBIE.and(Faults::SINK_FAILURE)),
        )
        .breaks_at_last(ACKNOWLEDGED_HAS_EFFECT),
        Removal::new(
            "marker_resolves_older_epochs",
            |rules| rules.marker_resolves_older_epochs = false,
            "1 incarnation",
            Bounds::default(),
        )
        .breaks(EFFECT_IS_ACKNOWLEDGED),
        Removal::new(
            "shard_remembers_markers",
            |rules| rules.shard_remembers_markers = false,
            "a time-out",
            Bounds::of_job(1, Faults::TIME_OUT),
        )
        .breaks_at_last(ACKNOWLEDGED_HAS_EFFECT),
        Removal::new(
            "abort_makes_available",
            |rules| rules.abort_makes_available = false,
            "a time-out",
            Bounds::of_job(1, Faults::TIME_OUT),
        )
        .breaks(ACKNOWLEDGED_HAS_EFFECT),
        Removal::new(
            "acknowledgement_only_by_marker",
            |rules| rules.acknowledgement_only_by_marker = false,
            "1 incarnation",
            Bounds::default(),
        )
        .breaks(ACKNOWLEDGED_HAS_EFFECT),
    ]
}

/// Rules of the source leader and of its writes to the share-state partition.
fn of_the_source_leader() -> Vec<Removal> {
    vec![
        Removal::new(
            "shard_refuses_writes_of_older_leaders",
            |rules| rules.shard_refuses_writes_of_older_leaders = false,
            "2 replicas, a leader that moves",
            Bounds::with_replica(1, Faults::LEADER_MOVE),
        )
        .breaks_at_last(ONE_EFFECT),
        Removal::new(
            "staging_again_is_idempotent",
            |rules| rules.staging_again_is_idempotent = false,
            "a lost answer",
            Bounds::of_job(1, Faults::LOST_ANSWER),
        )
        .breaks(NO_DELIVERY_WASTED),
        Removal::new(
            "locks_do_not_touch_staged_records",
            |rules| rules.locks_do_not_touch_staged_records = false,
            "2 replicas, lost locks",
            Bounds::with_replica(1, Faults::LOST_LOCKS),
        )
        .breaks_at_last(ONE_EFFECT),
        Removal::new(
            "refused_stage_write_restarts_timer",
            |rules| rules.refused_stage_write_restarts_timer = false,
            "a crash, a failed stage write",
            Bounds {
                records: 1,
                checkpoints: 8,
                ..Bounds::of_job(2, Faults::CRASH.and(Faults::FAILED_STAGE_WRITE))
            },
        )
        .asking(Question::EverythingDecided)
        .breaks(CAN_BE_DECIDED),
        Removal::new(
            "no_read_while_a_stage_write_is_out",
            |rules| rules.no_read_while_a_stage_write_is_out = false,
            "2 replicas, a leader that reads late",
            Bounds { leader_learns_late: true, ..Bounds::with_replica(1, Faults::NONE) },
        )
        .breaks_at_last(ONE_EFFECT),
        Removal::new(
            "new_leader_loads_pending",
            |rules| rules.new_leader_loads_pending = false,
            "2 replicas, a leader that moves",
            Bounds::with_replica(1, Faults::LEADER_MOVE),
        )
        .breaks_at_last(ONE_EFFECT),
    ]
}
