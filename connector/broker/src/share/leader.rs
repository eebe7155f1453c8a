//! One share partition at its leader, as tasks see it: the machine behind a short lock, its log, and a watch on what
//! becomes available. No lock is held while anything is awaited.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use sharestream_base::ids::{Offset, StateEpoch};
use sharestream_base::{Instant, watch};
use sharestream_wire::records::RawBatch;

use super::durable::{OffsetRange, ShareKey};
use super::record_state::MemberId;
use super::share_partition::{AcquireMode, AcquiredRange, Limits, LogBatch, PendingWrite, SharePartition};
use crate::error::ErrorCode;
use crate::group::config::GroupSettings;
use crate::log::{AbortedTransaction, Isolation, Led};
use crate::share_coordinator::{StateWrite, Write};

/// Bytes of the log that one acquisition looks at: more is read by the next fetch.
const ACQUIRE_BYTES_MAX: usize = 1024 * 1024;

/// What one fetch wants of one share partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want<'a> {
    /// Who fetches.
    pub(crate) member: &'a MemberId,
    /// Most records.
    pub(crate) records_max: i64,
    /// Most bytes; one batch may pass it.
    pub(crate) bytes_max: usize,
    /// How to cut.
    pub(crate) mode: AcquireMode,
    /// Settings of the group.
    pub(crate) settings: &'a GroupSettings,
}

/// What one fetch got of one share partition.
#[derive(Debug, Default)]
pub(crate) struct Got {
    /// Whole batches that hold the acquired offsets.
    pub(crate) records: Bytes,
    /// The acquired offsets.
    pub(crate) acquired: Vec<AcquiredRange>,
    /// Writes that nobody waits for: skipped aborted data, records that retention removed.
    pub(crate) writes: Vec<LeaderWrite>,
}

/// What a leader wants to be written.
#[derive(Clone, Debug)]
pub(crate) enum LeaderWrite {
    /// State of runs.
    Runs(PendingWrite),
    /// The start offset only.
    StartOffset(Offset),
}

/// A share partition that this node leads.
#[derive(Debug)]
pub(crate) struct ShareLeader {
    /// Which.
    pub(crate) key: ShareKey,
    /// The source partition, led in the incarnation that loaded the state. When that ends, so does all use of this.
    pub(crate) log: Led,
    /// Incarnation of the durable state that was loaded.
    pub(crate) state_epoch: StateEpoch,
    machine: Mutex<Machine>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Machine {
    partition: SharePartition,
    /// Dropped from the node: fenced, or idle and without sessions. Whoever still holds it must look again.
    closed: bool,
}

impl ShareLeader {
    /// Around a loaded machine.
    pub(crate) fn new(key: ShareKey, log: Led, state_epoch: StateEpoch, partition: SharePartition) -> Self {
        let machine = Mutex::new(Machine { partition, closed: false });
        ShareLeader { key, log, state_epoch, machine, changed: watch::Sender::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        // A panic under the lock is a defect of ours; refusing the partition for ever would only hide it.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine, while it may decide. Errors: NOT_LEADER_OR_FOLLOWER (closed or deposed: the caller's peer will
    /// look again).
    fn usable(&self) -> Result<MutexGuard<'_, Machine>, ErrorCode> {
        let machine = self.lock();
        if machine.closed || !self.log.is_current() {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        Ok(machine)
    }

    /// Uses the machine. Errors: NOT_LEADER_OR_FOLLOWER.
    pub(crate) fn with<T>(&self, use_it: impl FnOnce(&mut SharePartition) -> T) -> Result<T, ErrorCode> {
        Ok(use_it(&mut self.usable()?.partition))
    }

    /// True when it must be loaded anew, here or at another node.
    pub(crate) fn is_closed(&self) -> bool {
        self.usable().is_err()
    }

    /// Ends its use: the durable state has moved on without it.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.notify();
    }

    /// Ends its use when nothing but the durable state would be lost.
    pub(crate) fn close_if_idle(&self) -> bool {
        let mut machine = self.lock();
        machine.closed |= machine.partition.is_idle();
        machine.closed
    }

    /// Wakes fetches that wait.
    pub(crate) fn notify(&self) {
        self.changed.send_replace(());
    }

    /// Told when records may have become available or the window has moved.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The write to the share coordinator.
    pub(crate) fn state_write(&self, write: &LeaderWrite) -> StateWrite {
        let (start_offset, batches) = match write {
            LeaderWrite::Runs(pending) => (None, pending.batches.clone()),
            LeaderWrite::StartOffset(start) => (Some(*start), Vec::new()),
        };
        let (state_epoch, leader_epoch) = (self.state_epoch, self.log.epoch());
        StateWrite {
            key: self.key.clone(),
            write: Write { state_epoch, leader_epoch, start_offset, batches },
        }
    }

    /// Reports the end of a write.
    pub(crate) fn finish(&self, write: &LeaderWrite, result: Result<(), ErrorCode>, now: Instant) {
        {
            let mut machine = self.lock();
            if let LeaderWrite::Runs(pending) = write {
                match result {
                    Ok(()) => machine.partition.written(pending),
                    Err(_) => machine.partition.write_failed(pending, now),
                }
            }
            // A conflict says that an earlier write of unknown outcome did happen: what is in memory is wrong.
            if let Err(
                ErrorCode::FencedStateEpoch | ErrorCode::FencedLeaderEpoch | ErrorCode::InvalidRecordState,
            ) = result
            {
                machine.closed = true;
            }
        }
        self.notify();
    }

    /// True when a fetch may find something, or that it must look elsewhere: cheap, and may be wrong the optimistic
    /// way.
    pub(crate) fn is_ready(&self, settings: &GroupSettings) -> bool {
        let end = self.log.ends().readable_end(isolation(settings));
        let Ok(machine) = self.usable() else { return true };
        machine.partition.next_fetch_offset().is_some_and(|from| from < end)
    }

    /// Acquires what is there. Reads from the log under the machine's lock: both are memory and short.
    pub(crate) fn acquire(&self, want: &Want<'_>, now: Instant) -> Result<Got, ErrorCode> {
        let mut machine = self.usable()?;
        let partition = &mut machine.partition;
        partition.set_limits(limits_of(want.settings));
        let mut got = Got::default();
        let log_start = self.log.ends().log_start;
        if partition.start_offset() < log_start && partition.drop_below(log_start) {
            got.writes.push(LeaderWrite::StartOffset(log_start));
        }
        let bytes_max = want.bytes_max.min(ACQUIRE_BYTES_MAX);
        // Each round either acquires or moves on over aborted data.
        while got.acquired.is_empty() {
            let Some(from) = partition.next_fetch_offset() else { break };
            // Looking at batches that this fetch cannot take has a price too.
            let enough = partition.behind_available(from, want.records_max);
            let read = match self.log.read_until(from, enough, bytes_max, isolation(want.settings)) {
                Ok(read) => read,
                // Retention has passed by meanwhile, or the log is shorter than the start offset: nothing is there.
                Err(ErrorCode::OffsetOutOfRange) => break,
                Err(code) => return Err(code),
            };
            if read.batches.is_empty() {
                break;
            }
            let batches = log_batches(&read.batches, &read.aborted);
            let acquisition = partition.acquire(want.member, &batches, want.records_max, want.mode, now);
            let moved = acquisition.write.is_some();
            got.writes.extend(acquisition.write.map(LeaderWrite::Runs));
            if !acquisition.acquired.is_empty() {
                got.records = holding(&read.batches, &acquisition.acquired);
                got.acquired = acquisition.acquired;
            } else if !moved {
                break;
            }
        }
        Ok(got)
    }
}

/// Limits of a share partition under its group's settings.
pub(crate) fn limits_of(settings: &GroupSettings) -> Limits {
    Limits {
        max_record_locks: settings.max_record_locks,
        delivery_count_limit: settings.delivery_count_limit,
        lock_duration: settings.lock_duration,
        dead_letters: settings.dead_letters,
    }
}

/// Isolation level of a group.
pub(crate) fn isolation(settings: &GroupSettings) -> Isolation {
    if settings.read_committed { Isolation::ReadCommitted } else { Isolation::ReadUncommitted }
}

fn range_of(batch: &RawBatch) -> Option<OffsetRange> {
    OffsetRange::new(Offset(batch.header.base_offset), Offset(batch.header.last_offset()))
}

fn log_batches(batches: &[RawBatch], aborted: &[AbortedTransaction]) -> Vec<LogBatch> {
    let is_aborted = |batch: &RawBatch| {
        let header = &batch.header;
        header.is_transactional()
            && !header.is_control()
            && aborted.iter().any(|transaction| {
                transaction.producer_id.0 == header.producer_id
                    && transaction.first_offset.0 <= header.base_offset
                    && header.last_offset() < transaction.marker_offset.0
            })
    };
    let log_batch = |batch: &RawBatch| Some(LogBatch { range: range_of(batch)?, aborted: is_aborted(batch) });
    batches.iter().filter_map(log_batch).collect()
}

/// The batches that hold an acquired offset, in one piece. One batch is a slice of the log.
fn holding(batches: &[RawBatch], acquired: &[AcquiredRange]) -> Bytes {
    let holds = |batch: &&RawBatch| {
        let range = range_of(batch);
        range.is_some_and(|range| acquired.iter().any(|got| got.range.intersect(range).is_some()))
    };
    let held: Vec<&RawBatch> = batches.iter().filter(holds).collect();
    if let [one] = held.as_slice() {
        return one.bytes.clone();
    }
    let mut all = BytesMut::with_capacity(held.iter().map(|batch| batch.bytes.len()).sum());
    for batch in held {
        all.extend_from_slice(&batch.bytes);
    }
    all.freeze()
}
