//! Planted bugs: mistakes that can be switched on, one at a time, to see whether the simulation finds them.
//!
//! Each [`Bug`] sits at exactly one place, next to the right code: `if is_planted(Bug::X) { wrong } else { right }`.
//! Without the feature `planted-bugs`, which only the simulation turns on, [`is_planted`] is a constant `false`
//! and the compiler removes the wrong branch; the names are not compiled in: a shipped binary holds no trace of it.
//!
//! With the feature the choice lies in a thread-local, although the house bans task-local globals: most bugs sit in
//! pure state machines, which have no `Env` to carry it, and an argument through all of them would make every
//! signature speak of tests. It cannot leak: a simulation runs all its tasks on one thread, the guard restores what
//! was there before, and nothing but [`is_planted`] reads it. See `docs/adr/0008-planted-bugs.md`.

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal;)+) => {
        /// A mistake that can be planted. Each variant says where it is and what it breaks.
        #[non_exhaustive]
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[cfg_attr(any(test, feature = "planted-bugs"), derive(Debug, Hash, PartialOrd, Ord))]
        pub enum Bug {
            $($(#[$doc])* $bug,)+
        }

        #[cfg(any(test, feature = "planted-bugs"))]
        impl Bug {
            /// Every bug, in the order of the enum.
            pub const ALL: &'static [Bug] = &[$(Bug::$bug,)+];

            /// Its name on the command line and in tables, in kebab case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => $name,)+
                }
            }
        }
    };
}

bugs! {
    // Client.

    /// Client: the next transaction keeps the epoch of the last one instead of taking that of EndTxn's answer. A write
    /// that comes before the marker lands in the committed transaction (KIP-890): an effect of an epoch that may abort.
    ReusedProducerEpoch = "reused-producer-epoch";
    /// Client: EndTxn without an answer counts as committed. A request that never arrived is then a commit that never
    /// happened: acknowledged without effects (at least once), or a chain of outcomes with a hole.
    LostEndTxnAnswerIsSuccess = "lost-end-txn-answer-is-success";
    /// Client: a request to stage acknowledgements whose answer is lost counts as staged. The transaction commits
    /// without them, and the records are processed again.
    LostStageAnswerIsSuccess = "lost-stage-answer-is-success";
    /// Client: a flush in a transaction returns when the batches are sent, not when they are acknowledged.
    /// EndTxn overtakes them, and acknowledged records have no effect.
    FlushDoesNotWait = "flush-does-not-wait";

    // Source, sink and commit protocols.

    /// Source: records are acknowledged, finally, at the barrier instead of after EndTxn. A crash between the two
    /// loses them. Only in mode at-least-once.
    AcknowledgedBeforeEndTxn = "acknowledged-before-end-txn";
    /// Source: lost locks (connection, leader or member gone, lock expired) are counted as held. The same member gets
    /// the records again within one epoch, whose transaction then holds their effects twice.
    LostLockCountedAsHeld = "lost-lock-counted-as-held";
    /// Source: locks are renewed one lock duration too late, when they have run out. What takes longer than a lock is
    /// processed again and again.
    RenewalTooLate = "renewal-too-late";
    /// Source: the locks of offsets that an epoch deferred are forgotten when it commits, and not renewed. The record comes
    /// again while it is still being worked on.
    DeferredLockForgotten = "deferred-lock-forgotten";
    /// Source: after a failed attempt the open epoch outlives the rewind: its decisions stay, and its records are not handed
    /// on again. They are acknowledged without effects.
    OpenEpochOutlivesRewind = "open-epoch-outlives-rewind";
    /// Source: a rewind forgets what earlier epochs have deferred, with all that they have decided. Nobody works on those
    /// records any more, and their locks are renewed.
    RewindForgetsDeferred = "rewind-forgets-deferred";
    /// Source: a stop gives back records near their delivery limit, too. At the limit that archives them.
    ProtectedReleasedAtStop = "protected-released-at-stop";
    /// Commit: gaps (control records, compaction holes) are decided but not staged. They come back until they are
    /// out of deliveries, and the start offset stands still.
    GapNotStaged = "gap-not-staged";
    /// Commit: the last offset of a decided range is not staged. It is processed again.
    LastOffsetNotStaged = "last-offset-not-staged";
    /// Recovery: the owner record is not read again after InitProducerId. An incarnation that is late takes the job
    /// from the one that was started after it.
    OwnerNotReadAgain = "owner-not-read-again";
    /// Recovery: outcomes are read before the transactional ids are taken. An EndTxn under way commits what recovery
    /// believes never happened.
    OutcomesReadBeforeFencing = "outcomes-read-before-fencing";
    /// Recovery: outcomes are read only up to the last stable offset. Behind an open transaction of another replica the
    /// own last outcome is not seen.
    OutcomesReadToStableOffset = "outcomes-read-to-stable-offset";

    // Ledger mode. The numbers are those of the rules in `runtime/models`.

    /// Ledger, rule 1: a replica decides on its claim before it has read the log up to it. Two claims of one record
    /// commit, neither of which has seen the other.
    ClaimPositionNotAwaited = "claim-position-not-awaited";
    /// Ledger, rule 2: an earlier claim that is still open is not waited for. Its EndTxn may be under way.
    OpenClaimIgnored = "open-claim-ignored";
    /// Ledger, rule 3: an earlier committed claim of the same records is no reason to abort.
    CommittedClaimIgnored = "committed-claim-ignored";
    /// Ledger, rule 4: after its deadline an open claim counts as aborted, though nobody has ended its transaction.
    DeadOwnerPresumedAborted = "dead-owner-presumed-aborted";
    /// Ledger, rule 5: success of InitProducerId on another's transaction counts as its abort. Its commit marker may be
    /// written and not yet read.
    FenceCountedAsAbort = "fence-counted-as-abort";
    /// Ledger, rule 6: of each transactional id only the newest committed claim counts. A record of an earlier one that
    /// comes again is committed again.
    OwnClaimsSkipped = "own-claims-skipped";
    /// Ledger, rule 7: after a start the outcome partition is read from its end. What was decided before is not known.
    LedgerReadFromEnd = "ledger-read-from-end";
    /// Ledger, rule 8: records are acknowledged though EndTxn was not answered. Its transaction may have aborted.
    LostCommitAnswerAcknowledged = "lost-commit-answer-acknowledged";
    /// Ledger, rule 9: the floor is raised to the end of the last committed claim, over whatever is undecided before it.
    FloorOverHole = "floor-over-hole";
    /// Ledger, rule 9: the floor is raised over claims that are still open.
    FloorOverOpenClaim = "floor-over-open-claim";
    /// Ledger, rule 10: claims are tombstoned with the floor that covers them, before it was read back.
    TombstoneBeforeFloorReadBack = "tombstone-before-floor-read-back";
    /// Ledger, rule 10: arbitration does not look at the floor. Claims below it are gone.
    FloorNotConsulted = "floor-not-consulted";
    /// Ledger, rule 11: every claim of a transactional id has the same key, so that compaction keeps the last one only.
    ClaimKeyReused = "claim-key-reused";
    /// Ledger, rule 13: nobody ends the transaction of a dead owner. Who waits for its claim waits for the time-out.
    DeadOwnersNotEnded = "dead-owners-not-ended";
    /// Ledger, F1: the floor is the last one read, not the highest. A lagging replica takes it back.
    LastFloorCounts = "last-floor-counts";
    /// Ledger, F3: the newest claim of a transactional id is tombstoned, too. Recovery takes what it committed for
    /// something that never happened.
    NewestClaimTombstoned = "newest-claim-tombstoned";
    /// Ledger, F7: the marker of a later transaction of the same producer settles an open claim whose own marker was
    /// compacted away; the view is not read anew. An aborted claim counts as committed, and its records are dropped.
    LaterMarkerSettles = "later-marker-settles";
    /// Ledger, R1: claims and floors of an earlier replay generation still count. A wanted replay is dropped.
    GenerationIgnored = "generation-ignored";
    /// Ledger, R2: a claim of an earlier replay generation may commit.
    OlderGenerationCommits = "older-generation-commits";
    /// Ledger, R4: a member drops decided records before it has caught up after joining. It may not know of a reset.
    DroppedBeforeCaughtUp = "dropped-before-caught-up";

    // Runtime.

    /// Coordinator: a checkpoint is noted as completed before EndTxn. After a crash between the two the
    /// store says more than the outcome topic, and recovery refuses.
    CompletedBeforeEndTxn = "completed-before-end-txn";
    /// Coordinator: the epoch after one of unknown outcome is committed all the same. Its manifest and outcome
    /// name a predecessor that may not be the last committed one.
    ManifestBeforeOutcome = "manifest-before-outcome";

    /// Coordinator: offsets that an operator still works on stay decided in the epoch whose barrier passed them. Their
    /// acknowledgement is committed before their effects, which a crash then loses.
    DeferredOffsetsCommitted = "deferred-offsets-committed";
    /// Coordinator: offsets that an epoch has deferred join no later one. Their effects are committed, their
    /// acknowledgement never is, and they come again.
    CarriedOffsetsForgotten = "carried-offsets-forgotten";
    /// Planner: a barrier passes calls although a record may be several rows. The operator sees two rows of one deferred
    /// offset and refuses, so the job ends.
    BarrierPassesAwaitedCalls = "barrier-passes-awaited-calls";
    /// Three processes: a sink writes into the newest transaction that it has heard of, whatever epoch its rows are of. Rows
    /// that come late commit with other acknowledgements than their own.
    IdentityNotAwaited = "identity-not-awaited";
    /// Three processes: the sinks take a broken connection for the end of its rows.
    BrokenConnectionIsEnd = "broken-connection-is-end";
    /// State: what changed since the barrier before is not written. A restart goes on with older values.
    StateChangesNotWritten = "state-changes-not-written";
    /// State: a start reads the bases and not the deltas behind them. Likewise.
    DeltasNotRestored = "deltas-not-restored";

    // Checkpoint store.

    /// Checkpoints: a conditional put without an answer counts as written. The committed outcome may name a
    /// manifest that does not exist.
    UnansweredPutIsSuccess = "unanswered-put-is-success";
    /// Checkpoints: recovery takes a committed manifest without a note of its completion for a leftover and deletes it.
    CommittedManifestDeleted = "committed-manifest-deleted";
    /// Checkpoints: an owner with a newer one behind it still counts as owner. Two incarnations fence each other for
    /// ever.
    FencedOwnerGoesOn = "fenced-owner-goes-on";

    // Broker.

    /// Broker: a marker resolves what was staged under its own epoch, not what was staged below it. Under transaction
    /// version 2 no staged record is ever resolved.
    MarkerMatchedToStagedEpoch = "marker-matched-to-staged-epoch";
    /// Broker: the share coordinator accepts a stage of a transaction whose marker it has seen. A later
    /// transaction of the producer acknowledges the records, without their effects.
    StageAfterMarker = "stage-after-marker";
    /// Broker: the share coordinator remembers only the last marker of its shard, so that the end of one producer's
    /// transaction makes it forget the others. A stage that is late is then accepted, as in the bug before, though only
    /// where somebody else's transaction has ended meanwhile.
    MarkerForgotten = "marker-forgotten";
    /// Broker: the lock timer is not cancelled by staging: staged records become available when it fires.
    LockExpiresStaged = "lock-expires-staged";
    /// Broker: the end of a share session gives back staged records, too.
    SessionCloseReleasesStaged = "session-close-releases-staged";
    /// Broker: an abort archives what was staged instead of making it available. The records are lost.
    AbortMarkerArchives = "abort-marker-archives";
    /// Broker: a new share-partition leader takes durably staged records for available.
    StagedNotReloaded = "staged-not-reloaded";
    /// Broker: reads leave out the list of aborted transactions. Readers of committed records see aborted ones.
    AbortedListIgnored = "aborted-list-ignored";
    /// Broker: a repeated batch is appended again.
    RepeatedBatchAppended = "repeated-batch-appended";
    /// Broker: InitProducerId does not raise the epoch where no transaction is open. A zombie writes into, and ends,
    /// the transactions of its successor.
    InitKeepsEpoch = "init-keeps-epoch";
    /// Broker: the transaction time-out aborts a transaction whose commit is decided. Partitions that have the marker
    /// keep the effects, the others drop them.
    TimeOutAfterPrepare = "time-out-after-prepare";
    /// Broker: markers that a participant did not take are not sent again. Its part of the transaction stays
    /// open, and ends with the next one.
    MarkersNotRepeated = "markers-not-repeated";
    /// Broker: a transaction coordinator that takes over does not go on with decided transactions.
    DecidedTransactionForgotten = "decided-transaction-forgotten";
}

#[cfg(any(test, feature = "planted-bugs"))]
pub use names::UnknownBug;

/// Names and their reading: only where bugs can be planted, so that a shipped binary does not even hold the names.
#[cfg(any(test, feature = "planted-bugs"))]
mod names {
    use std::fmt;
    use std::str::FromStr;

    use super::Bug;

    impl fmt::Display for Bug {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.name())
        }
    }

    /// The text is the name of no bug.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[error("there is no planted bug '{name}'")]
    pub struct UnknownBug {
        /// What was given.
        pub name: String,
    }

    impl FromStr for Bug {
        type Err = UnknownBug;

        fn from_str(name: &str) -> Result<Self, UnknownBug> {
            let found = Bug::ALL.iter().copied().find(|bug| bug.name() == name);
            found.ok_or_else(|| UnknownBug { name: name.to_owned() })
        }
    }
}

/// True when `bug` is planted on this thread; always false without the feature `planted-bugs`.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn is_planted(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "planted-bugs")]
pub use switch::{Planting, asked_count, is_planted, plant, with};

#[cfg(feature = "planted-bugs")]
mod switch {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
        static ASKED: Cell<u64> = const { Cell::new(0) };
    }

    /// True when `bug` is planted on this thread.
    pub fn is_planted(bug: Bug) -> bool {
        let planted = PLANTED.get() == Some(bug);
        if planted {
            ASKED.set(ASKED.get() + 1);
        }
        planted
    }

    /// How often the bug that is planted on this thread has been asked for since it was planted. Zero after a run: the
    /// run never came to its place, so that it was not found says nothing.
    pub fn asked_count() -> u64 {
        ASKED.get()
    }

    /// Keeps a bug planted; dropped, it restores what was planted before. Stays on its thread.
    #[derive(Debug)]
    #[must_use = "the bug is planted only as long as this lives"]
    pub struct Planting {
        before: Option<Bug>,
        stays_on_its_thread: PhantomData<*const ()>,
    }

    /// Plants `bug`, or none, on this thread; the guard ends it. Work on other threads does not see it.
    pub fn plant(bug: Option<Bug>) -> Planting {
        ASKED.set(0);
        Planting { before: PLANTED.replace(bug), stays_on_its_thread: PhantomData }
    }

    impl Drop for Planting {
        fn drop(&mut self) {
            PLANTED.set(self.before);
        }
    }

    /// Runs `work` with `bug`, or none, planted: the `block_on` of a current-thread runtime, for example.
    pub fn with<T>(bug: Option<Bug>, work: impl FnOnce() -> T) -> T {
        let _planting = plant(bug);
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kebab_case_unique_and_read_back() {
        for (index, bug) in Bug::ALL.iter().enumerate() {
            let name = bug.name();
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{name}");
            assert_eq!(name.parse(), Ok(*bug));
            assert_eq!(Bug::ALL.iter().position(|other| other.name() == name), Some(index), "{name} twice");
        }
        assert!("no-such-bug".parse::<Bug>().is_err());
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[test]
    fn without_the_feature_nothing_is_planted_at_compile_time() {
        const { assert!(!is_planted(Bug::ReusedProducerEpoch)) };
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_bug_is_planted_on_its_thread_until_the_guard_goes() {
        let (one, other) = (Bug::ReusedProducerEpoch, Bug::FlushDoesNotWait);
        assert!(!is_planted(one));
        with(Some(one), || {
            assert!(is_planted(one) && !is_planted(other));
            with(Some(other), || assert!(is_planted(other) && !is_planted(one)));
            assert!(is_planted(one), "restored");
        });
        assert!(!is_planted(one));
    }
}
