//! One source partition of the share group: what its leader holds in memory, and what its share-state
//! partition holds durably (KIP-932, KIP-1289).
//!
//! ```text
//! leader:   available --acquire--> acquired --stage request--> staging --stage write accepted--> pending
//!               ^                    |   ^                        |                                 |
//!               \--lock lost---------/   \--stage write refused---/                                 |
//!               \<-------------------------- durable state read after the marker ------------------/--> done
//! durable:  available --stage write--> pending --commit marker--> acknowledged (end)
//!               ^                         |
//!               \------abort marker-------/
//! ```
//! Only the durable half survives a move of the leader. Whether the shard or the new leader is slow does not
//! matter: a stage write carries the leader epoch under which it was sent.

use super::names::{
    Process, ProducerEpoch, RECORDS_MAX, Record, RecordSet, TRANSACTIONAL_IDS, TransactionalId,
};
use super::rules::Rules;
use super::transaction::Verdict;

/// The transaction under which a record is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StagedBy {
    /// Whose transaction.
    pub id: TransactionalId,
    /// The producer epoch at the time of staging.
    pub epoch: ProducerEpoch,
}

/// A record in the memory of the source leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaderRecord {
    /// Anyone may have it.
    Available,
    /// Handed to a member; `has_timer` is false if nothing but the member itself ends the lock.
    Acquired {
        /// The member.
        by: Process,
        /// Whether the acquisition lock will expire.
        has_timer: bool,
    },
    /// A stage request was accepted and its write to the share-state partition is under way. The timer is
    /// off.
    Staging {
        /// The member.
        by: Process,
        /// The transaction.
        staged: StagedBy,
    },
    /// TX_PENDING.
    Pending(StagedBy),
    /// Acknowledged.
    Done,
}

/// A record in the share-state partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DurableRecord {
    /// Not decided. ACQUIRED is never written.
    Available,
    /// TX_PENDING under a transaction.
    Pending(StagedBy),
    /// Terminal.
    Acknowledged,
}

/// A source partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharePartition {
    /// Epoch of the current leader; the shard knows it, since a new leader reads from it first.
    pub leader_epoch: u8,
    /// The leader's memory.
    pub leader: [LeaderRecord; RECORDS_MAX],
    /// The share-state partition.
    pub durable: [DurableRecord; RECORDS_MAX],
    /// For each transactional id the epoch of the newest marker; part of the durable state.
    pub remembered_markers: [ProducerEpoch; TRANSACTIONAL_IDS],
}

/// A leader's write of TX_PENDING on its way to the share-state partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StageWrite {
    /// Index of the source partition.
    pub partition: u8,
    /// The leader that sent it.
    pub leader_epoch: u8,
    /// The transaction.
    pub staged: StagedBy,
    /// The records.
    pub records: RecordSet,
    /// The member that waits for the answer.
    pub by: Process,
}

/// How a leader judges a stage request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageRequest {
    /// The member holds every lock: write.
    MayStage,
    /// The same request was accepted before and its write is still under way.
    UnderWay,
    /// The same records are staged under the same transaction.
    AlreadyStaged,
    /// INVALID_RECORD_STATE: some lock is not held.
    LockLost,
}

impl SharePartition {
    /// A partition of which nothing has been consumed.
    pub fn new() -> SharePartition {
        SharePartition {
            leader_epoch: 0,
            leader: [LeaderRecord::Available; RECORDS_MAX],
            durable: [DurableRecord::Available; RECORDS_MAX],
            remembered_markers: [ProducerEpoch(0); TRANSACTIONAL_IDS],
        }
    }

    /// Whether `member` holds the lock of `record`.
    pub fn is_acquired_by(&self, record: Record, member: Process) -> bool {
        matches!(self.leader[record.index()], LeaderRecord::Acquired { by, .. } if by == member)
    }

    /// Hands a record out.
    pub fn acquire(&mut self, record: Record, member: Process) {
        self.leader[record.index()] = LeaderRecord::Acquired { by: member, has_timer: true };
    }

    /// Gives back what `member` holds, except `kept`: its session was closed, or it released them.
    pub fn release(&mut self, member: Process, kept: RecordSet) {
        for index in 0..RECORDS_MAX {
            let record = Record(index as u8);
            if self.is_acquired_by(record, member) && !kept.contains(record) {
                self.leader[index] = LeaderRecord::Available;
            }
        }
    }

    /// The locks of `member` run out, or its connection is closed.
    pub fn lose_locks(&mut self, member: Process, own_ids: [TransactionalId; 2], rules: &Rules) {
        for record in &mut self.leader {
            let is_lost = match *record {
                LeaderRecord::Acquired { by, has_timer } => by == member && has_timer,
                LeaderRecord::Staging { by, .. } => by == member && !rules.locks_do_not_touch_staged_records,
                LeaderRecord::Pending(staged) => {
                    own_ids.contains(&staged.id) && !rules.locks_do_not_touch_staged_records
                }
                LeaderRecord::Available | LeaderRecord::Done => false,
            };
            if is_lost {
                *record = LeaderRecord::Available;
            }
        }
    }

    /// Judges a stage request for `records`, all of this partition.
    pub fn judge(
        &self,
        records: RecordSet,
        member: Process,
        by_txn: StagedBy,
        rules: &Rules,
    ) -> StageRequest {
        let all = |is: &dyn Fn(LeaderRecord) -> bool| records.iter().all(|r| is(self.leader[r.index()]));
        if all(&|record| matches!(record, LeaderRecord::Acquired { by, .. } if by == member)) {
            return StageRequest::MayStage;
        }
        if rules.staging_again_is_idempotent {
            if all(&|record| matches!(record, LeaderRecord::Staging { staged, .. } if staged == by_txn)) {
                return StageRequest::UnderWay;
            }
            if all(&|record| record == LeaderRecord::Pending(by_txn)) {
                return StageRequest::AlreadyStaged;
            }
        }
        StageRequest::LockLost
    }

    /// The leader accepts a stage request; its write goes out.
    pub fn begin_staging(&mut self, records: RecordSet, by: Process, staged: StagedBy) {
        for record in records.iter() {
            self.leader[record.index()] = LeaderRecord::Staging { by, staged };
        }
    }

    /// A stage write arrives at the shard. Returns whether it was accepted; the leader learns it at once.
    pub fn stage_write_arrives(&mut self, write: StageWrite, rules: &Rules) -> bool {
        let is_of_old_leader = write.leader_epoch != self.leader_epoch;
        let is_after_marker = write.staged.epoch < self.remembered_markers[write.staged.id.index()];
        let is_refused = is_of_old_leader && rules.shard_refuses_writes_of_older_leaders
            || is_after_marker && rules.shard_remembers_markers;
        if is_refused {
            self.stage_write_fails(write, rules);
            return false;
        }
        for record in write.records.iter() {
            self.durable[record.index()] = match rules.acknowledgement_only_by_marker {
                true => DurableRecord::Pending(write.staged),
                false => DurableRecord::Acknowledged,
            };
            if self.waits_for(write, record) {
                self.leader[record.index()] = LeaderRecord::Pending(write.staged);
            }
        }
        true
    }

    /// A stage write was refused or failed: the member has its locks back.
    pub fn stage_write_fails(&mut self, write: StageWrite, rules: &Rules) {
        for record in write.records.iter().filter(|record| self.waits_for(write, *record)).collect::<Vec<_>>()
        {
            let has_timer = rules.refused_stage_write_restarts_timer;
            self.leader[record.index()] = LeaderRecord::Acquired { by: write.by, has_timer };
        }
    }

    /// Whether the current leader sent this write and still waits for it.
    fn waits_for(&self, write: StageWrite, record: Record) -> bool {
        let in_memory = self.leader[record.index()];
        let is_waiting = matches!(in_memory, LeaderRecord::Staging { staged, .. } if staged == write.staged);
        is_waiting && write.leader_epoch == self.leader_epoch
    }

    /// The marker of a transaction, which carries the raised producer epoch, arrives at the shard.
    pub fn marker_arrives(
        &mut self,
        id: TransactionalId,
        marker: ProducerEpoch,
        verdict: Verdict,
        rules: &Rules,
    ) {
        for record in &mut self.durable {
            let DurableRecord::Pending(staged) = *record else { continue };
            let is_resolved = match rules.marker_resolves_older_epochs {
                true => staged.epoch < marker,
                false => staged.epoch == marker,
            };
            if staged.id == id && is_resolved {
                *record = match verdict {
                    Verdict::Abort if rules.abort_makes_available => DurableRecord::Available,
                    Verdict::Abort | Verdict::Commit => DurableRecord::Acknowledged,
                };
            }
        }
        let remembered = &mut self.remembered_markers[id.index()];
        *remembered = marker.max(*remembered);
    }

    /// The leader reads the durable state and resolves what it holds as pending. Returns whether that changed
    /// anything.
    pub fn leader_learns(&mut self, rules: &Rules) -> bool {
        let before = self.leader;
        for (record, durable) in self.leader.iter_mut().zip(self.durable) {
            let is_asked = match *record {
                LeaderRecord::Pending(_) => true,
                LeaderRecord::Staging { .. } => !rules.no_read_while_a_stage_write_is_out,
                LeaderRecord::Available | LeaderRecord::Acquired { .. } | LeaderRecord::Done => false,
            };
            match durable {
                DurableRecord::Available if is_asked => *record = LeaderRecord::Available,
                DurableRecord::Acknowledged if is_asked => *record = LeaderRecord::Done,
                DurableRecord::Available | DurableRecord::Acknowledged | DurableRecord::Pending(_) => {}
            }
        }
        self.leader != before
    }

    /// Leadership moves; the new leader knows only what is durable.
    pub fn move_leader(&mut self, rules: &Rules) {
        self.leader_epoch += 1;
        for (record, durable) in self.leader.iter_mut().zip(self.durable) {
            *record = match durable {
                DurableRecord::Pending(staged) if rules.new_leader_loads_pending => {
                    LeaderRecord::Pending(staged)
                }
                DurableRecord::Available | DurableRecord::Pending(_) => LeaderRecord::Available,
                DurableRecord::Acknowledged => LeaderRecord::Done,
            };
        }
    }
}

impl Default for SharePartition {
    fn default() -> Self {
        SharePartition::new()
    }
}
