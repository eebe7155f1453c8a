//! The rules of the protocol. Each can be left out.

/// Which rules are obeyed. All of them by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Outputs are durable before anything is staged.
    pub outputs_before_staging: bool,
    /// The outcome record is durable before anything is staged.
    pub outcome_before_staging: bool,
    /// Staging of n+1 waits until the commit of n is known.
    pub staging_waits_for_predecessor: bool,
    /// Manifest n+1 is not created before the outcome of n is known.
    pub manifest_waits_for_predecessor: bool,
    /// The owner is read again after InitProducerId; not me: `Fenced`.
    pub owner_read_again_after_init: bool,
    /// A process that the broker fences reads the owner; if it is still the owner, it recovers in place.
    pub fence_is_checked_with_owner: bool,
    /// InitProducerId for both slots, not only for one.
    pub every_slot_is_fenced: bool,
    /// InitProducerId also for the transactional ids that pending manifests name.
    pub ids_of_pending_manifests_are_fenced: bool,
    /// InitProducerId also for all transactional ids of earlier owners, which their owner records would have
    /// to name. DESIGN lacks this rule; it matters only where the naming of ids changes between two
    /// incarnations.
    pub ids_of_earlier_owners_are_fenced: bool,
    /// Recovery repeats InitProducerId until it succeeds, that is until the older transaction is resolved.
    pub recovery_waits_for_init: bool,
    /// The high watermark of the outcome partition is taken after fencing.
    pub high_watermark_after_fencing: bool,
    /// Manifests are listed (again) after fencing.
    pub manifests_listed_after_fencing: bool,
    /// The outcome partition is read uncommitted, own records judged by own markers.
    pub outcomes_read_uncommitted: bool,
    /// The committed outcome decides on a pending manifest; without it, pending means that it never happened.
    pub outcome_decides_pending_manifest: bool,
    /// An outcome topic other than the one that the job began with is `Corrupt`: absence proves nothing. The
    /// id must be kept where it does not get lost with the topic.
    pub recreated_outcome_topic_is_corrupt: bool,
    /// A last outcome that is neither that of the newest manifest nor that of its predecessor is `Corrupt`.
    pub unexplained_outcome_is_corrupt: bool,
    /// The outcome and the manifest are matched by name, not by checkpoint id alone.
    pub matched_by_name: bool,
    /// The outcome and the manifest are matched by content hash.
    pub matched_by_hash: bool,
    /// Names of manifests hold the job epoch.
    pub names_hold_job_epoch: bool,
    /// Checkpoint ids are never used again.
    pub checkpoint_ids_never_reused: bool,
    /// Recovery deletes only manifests of its own or an older job epoch. DESIGN does not name this rule.
    pub newer_manifests_are_left_alone: bool,
    /// An EndTxn of unknown outcome is not taken for aborted.
    pub unknown_end_is_not_an_abort: bool,
    /// An EndTxn of unknown outcome is not taken for committed.
    pub unknown_end_is_not_a_commit: bool,
    /// An EndTxn of unknown outcome is sent again, before anything else.
    pub unknown_end_is_sent_again: bool,
    /// A refused EndTxn is not taken for aborted: the outcome record is read first.
    pub refused_end_is_not_an_abort: bool,
    /// A manifest write of unknown outcome is settled by reading.
    pub unknown_manifest_write_is_read: bool,
    /// The coordinator checks the producer epoch of EndTxn.
    pub end_txn_checks_epoch: bool,
    /// The coordinator answers a repeated EndTxn like the first.
    pub end_txn_is_idempotent: bool,
    /// The source leader registers the share-state partition with the transaction before it writes.
    pub share_state_joins_transaction: bool,
    /// That registration is refused under any but the current producer epoch.
    pub staging_checks_epoch: bool,
    /// A marker resolves every pending record with an older staged epoch, not those with its own epoch.
    pub marker_resolves_older_epochs: bool,
    /// The shard remembers the marker and refuses stage writes below it.
    pub shard_remembers_markers: bool,
    /// The shard refuses stage writes of an older source leader.
    pub shard_refuses_writes_of_older_leaders: bool,
    /// Staging the same records again under the same transaction succeeds.
    pub staging_again_is_idempotent: bool,
    /// A failed stage request dooms the epoch.
    pub failed_staging_dooms_epoch: bool,
    /// Lock timers and closed sessions do not touch staged records.
    pub locks_do_not_touch_staged_records: bool,
    /// A refused stage write starts the lock timer again.
    pub refused_stage_write_restarts_timer: bool,
    /// The leader does not take a durable AVAILABLE for an abort while its stage write is out.
    pub no_read_while_a_stage_write_is_out: bool,
    /// A new source leader loads pending records as pending.
    pub new_leader_loads_pending: bool,
    /// An abort marker makes its records AVAILABLE.
    pub abort_makes_available: bool,
    /// A record is acknowledged by the commit marker only, not when it is staged.
    pub acknowledgement_only_by_marker: bool,
    /// Lost locks abort the epoch.
    pub lost_locks_abort_epoch: bool,
    /// Records of a staged epoch that was aborted are forgotten.
    pub staged_records_are_forgotten: bool,
    /// The coordinator aborts a transaction whose owner is gone when its time-out has passed.
    pub transactions_time_out: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            outputs_before_staging: true,
            outcome_before_staging: true,
            staging_waits_for_predecessor: true,
            manifest_waits_for_predecessor: true,
            owner_read_again_after_init: true,
            fence_is_checked_with_owner: true,
            every_slot_is_fenced: true,
            ids_of_pending_manifests_are_fenced: true,
            ids_of_earlier_owners_are_fenced: true,
            recovery_waits_for_init: true,
            high_watermark_after_fencing: true,
            manifests_listed_after_fencing: true,
            outcomes_read_uncommitted: true,
            outcome_decides_pending_manifest: true,
            recreated_outcome_topic_is_corrupt: true,
            unexplained_outcome_is_corrupt: true,
            matched_by_name: true,
            matched_by_hash: true,
            names_hold_job_epoch: true,
            checkpoint_ids_never_reused: true,
            newer_manifests_are_left_alone: true,
            unknown_end_is_not_an_abort: true,
            unknown_end_is_not_a_commit: true,
            unknown_end_is_sent_again: true,
            refused_end_is_not_an_abort: true,
            unknown_manifest_write_is_read: true,
            end_txn_checks_epoch: true,
            end_txn_is_idempotent: true,
            share_state_joins_transaction: true,
            staging_checks_epoch: true,
            marker_resolves_older_epochs: true,
            shard_remembers_markers: true,
            shard_refuses_writes_of_older_leaders: true,
            staging_again_is_idempotent: true,
            failed_staging_dooms_epoch: true,
            locks_do_not_touch_staged_records: true,
            refused_stage_write_restarts_timer: true,
            no_read_while_a_stage_write_is_out: true,
            new_leader_loads_pending: true,
            abort_makes_available: true,
            acknowledgement_only_by_marker: true,
            lost_locks_abort_epoch: true,
            staged_records_are_forgotten: true,
            transactions_time_out: true,
        }
    }
}
