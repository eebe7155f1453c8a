//! One shard of the share coordinator: the durable states of the share partitions of one `__share_group_state`
//! partition, as a pure machine. Decisions give records; only replaying records changes the state, live and at
//! recovery alike.
//!
//! Sources: KIP-932 (state and leader epochs), KIP-1289 steps 11, 16 and 17, DESIGN section 8: a marker `(pid, m)`
//! resolves every pending run of `pid` staged below `m`, and the shard remembers `m` and refuses later stages below it.

use std::collections::BTreeMap;

use sharestream_base::ids::{LeaderEpoch, Offset, ProducerId, StateEpoch};
use sharestream_base::planted::{Bug, is_planted};

use super::records::Record;
use crate::error::ErrorCode;
use crate::share::durable::{DurableShare, DurableState, OffsetRange, ShareKey, StateBatch, complete_count};
use crate::share::record_state::{Marker, TxnOutcome};

/// Updates between two snapshots of a shard (Kafka: `share.coordinator.snapshot.update.records.per.snapshot`).
pub(super) const UPDATES_PER_SNAPSHOT: usize = 500;

/// What a leader wants to make durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// Incarnation of the state that the leader knows.
    pub(crate) state_epoch: StateEpoch,
    /// The leader's epoch.
    pub(crate) leader_epoch: LeaderEpoch,
    /// A higher start offset.
    pub(crate) start_offset: Option<Offset>,
    /// Changed runs.
    pub(crate) batches: Vec<StateBatch>,
}

/// Durable state of one share partition with its runs by first offset.
#[derive(Clone, Debug, Default)]
struct Share {
    state_epoch: i32,
    leader_epoch: i32,
    start_offset: Option<Offset>,
    runs: BTreeMap<Offset, StateBatch>,
}

/// The shard.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    shares: BTreeMap<ShareKey, Share>,
    /// Highest marker of each producer id, and when it came, in Unix milliseconds.
    markers: BTreeMap<ProducerId, (Marker, Option<i64>)>,
    updates_since_snapshot: usize,
}

/// Result of a decision: what to append, then to replay.
pub(crate) type Decided = Result<Vec<Record>, ErrorCode>;

impl Shard {
    /// Checks a leader's write. Errors: FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH; INVALID_PRODUCER_EPOCH (a stage of
    /// a transaction that has ended); INVALID_RECORD_STATE (the runs are pending in a transaction: only its marker
    /// may move them).
    pub(crate) fn decide_write(&self, key: &ShareKey, write: Write) -> Decided {
        if let Some(share) = self.shares.get(key) {
            if write.state_epoch.0 != share.state_epoch {
                return Err(ErrorCode::FencedStateEpoch);
            }
            if write.leader_epoch.0 < share.leader_epoch {
                return Err(ErrorCode::FencedLeaderEpoch);
            }
            for batch in &write.batches {
                if share.conflicts_with(batch) {
                    return Err(ErrorCode::InvalidRecordState);
                }
            }
        }
        for batch in &write.batches {
            if let DurableState::TxnPending(staged) = batch.state
                && self.markers.get(&staged.producer_id).is_some_and(|(marker, _)| marker.resolves(&staged))
                && !is_planted(Bug::StageAfterMarker)
            {
                return Err(ErrorCode::InvalidProducerEpoch);
            }
        }
        let record = match self.shares.get(key) {
            Some(share) => share.update(key, write.leader_epoch, write.start_offset, write.batches),
            None => Record::Snapshot {
                key: key.clone(),
                share: DurableShare {
                    state_epoch: write.state_epoch,
                    leader_epoch: write.leader_epoch,
                    start_offset: write.start_offset,
                    batches: write.batches,
                },
            },
        };
        Ok(vec![record])
    }

    /// Creates or resets a share partition. Errors: FENCED_STATE_EPOCH (older than what is there),
    /// CONCURRENT_TRANSACTIONS (an open transaction holds records: its outcome would be lost).
    pub(crate) fn decide_initialize(
        &self,
        key: &ShareKey,
        state_epoch: StateEpoch,
        start_offset: Option<Offset>,
    ) -> Decided {
        let known = self.shares.get(key);
        if known.is_some_and(|share| state_epoch.0 < share.state_epoch) {
            return Err(ErrorCode::FencedStateEpoch);
        }
        if known.is_some_and(Share::has_pending) {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        let leader_epoch = LeaderEpoch(known.map_or(0, |share| share.leader_epoch));
        let share = DurableShare { state_epoch, leader_epoch, start_offset, batches: Vec::new() };
        Ok(vec![Record::Snapshot { key: key.clone(), share }])
    }

    /// Forgets a share partition; one that is not there is a success without a record. Errors:
    /// CONCURRENT_TRANSACTIONS.
    pub(crate) fn decide_remove(&self, key: &ShareKey) -> Decided {
        match self.shares.get(key) {
            Some(share) if share.has_pending() => Err(ErrorCode::ConcurrentTransactions),
            Some(_) => Ok(vec![Record::Removed { key: key.clone() }]),
            None => Ok(Vec::new()),
        }
    }

    /// A leader takes over: older leaders are fenced from now on, also where there is no state yet, which then begins
    /// to exist. Errors: FENCED_LEADER_EPOCH.
    pub(crate) fn decide_read(&self, key: &ShareKey, leader_epoch: LeaderEpoch) -> Decided {
        match self.shares.get(key) {
            Some(share) if leader_epoch.0 >= 0 && leader_epoch.0 < share.leader_epoch => {
                Err(ErrorCode::FencedLeaderEpoch)
            }
            Some(share) if leader_epoch.0 > share.leader_epoch => {
                Ok(vec![share.update(key, leader_epoch, None, Vec::new())])
            }
            None if leader_epoch.0 >= 0 => {
                let (state_epoch, batches) = (StateEpoch(0), Vec::new());
                let share = DurableShare { state_epoch, leader_epoch, start_offset: None, batches };
                Ok(vec![Record::Snapshot { key: key.clone(), share }])
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// A transaction ended. A repeat needs no record.
    pub(crate) fn decide_complete(&self, marker: Marker, now_ms: i64) -> Vec<Record> {
        match self.markers.get(&marker.producer_id) {
            Some((known, _)) if known.producer_epoch >= marker.producer_epoch => Vec::new(),
            Some(_) | None => vec![Record::Ended { marker, ended_ms: Some(now_ms) }],
        }
    }

    /// Share partitions with runs that `marker` resolves, with their state epochs.
    pub(crate) fn awaiting(&self, marker: &Marker) -> Vec<(ShareKey, StateEpoch)> {
        let resolves = |batch: &StateBatch| match &batch.state {
            DurableState::TxnPending(staged) => marker.resolves(staged),
            DurableState::Available
            | DurableState::Acknowledged
            | DurableState::Archiving
            | DurableState::Archived => false,
        };
        self.shares
            .iter()
            .filter(|(_, share)| share.runs.values().any(resolves))
            .map(|(key, share)| (key.clone(), StateEpoch(share.state_epoch)))
            .collect()
    }

    /// The durable state of every share partition.
    pub(crate) fn all(&self) -> Vec<(ShareKey, DurableShare)> {
        self.shares.iter().map(|(key, share)| (key.clone(), share.durable())).collect()
    }

    /// The durable state of a share partition.
    pub(crate) fn read(&self, key: &ShareKey) -> Option<DurableShare> {
        self.shares.get(key).map(Share::durable)
    }

    /// Applies a record. Cannot fail.
    pub(crate) fn replay(&mut self, record: Record) {
        match record {
            Record::Snapshot { key, share: durable } => {
                let mut share = Share {
                    state_epoch: durable.state_epoch.0,
                    leader_epoch: durable.leader_epoch.0,
                    start_offset: durable.start_offset,
                    runs: BTreeMap::new(),
                };
                share.overlay(None, durable.batches);
                self.shares.insert(key, share);
            }
            // What is complete follows from the runs.
            Record::Update { key, leader_epoch, start_offset, batches, complete_count: _ } => {
                self.updates_since_snapshot += 1;
                let share = self.shares.entry(key).or_default();
                share.leader_epoch = share.leader_epoch.max(leader_epoch.0);
                share.overlay(start_offset, batches);
            }
            Record::Removed { key } => {
                self.shares.remove(&key);
            }
            Record::Ended { marker, ended_ms } => {
                self.updates_since_snapshot += 1;
                if is_planted(Bug::MarkerForgotten) {
                    self.markers.retain(|producer_id, _| *producer_id == marker.producer_id);
                }
                let known = self.markers.entry(marker.producer_id).or_insert((marker, ended_ms));
                // The same again is from a snapshot, which may have given it a time.
                if known.0.producer_epoch <= marker.producer_epoch {
                    *known = (marker, ended_ms);
                }
                for share in self.shares.values_mut() {
                    share.resolve(marker);
                }
            }
        }
    }

    /// True when the log is worth a snapshot.
    pub(crate) fn wants_snapshot(&self) -> bool {
        self.updates_since_snapshot >= UPDATES_PER_SNAPSHOT
    }

    /// Records that say everything; what lies before them in the log is not needed any more. Markers that came more
    /// than `remember_ms` ago are forgotten (B-FORGET): a stage that late is not on its way any more, and its producer
    /// is fenced or expired at the transaction coordinator, which every new stage asks first.
    pub(crate) fn snapshot(&mut self, now_ms: i64, remember_ms: i64) -> Vec<Record> {
        self.updates_since_snapshot = 0;
        // One of an older build counts from now on.
        self.markers.values_mut().for_each(|(_, ended_ms)| *ended_ms = ended_ms.or(Some(now_ms)));
        self.markers.retain(|_, (_, ended_ms)| {
            ended_ms.is_none_or(|ended_ms| now_ms.saturating_sub(ended_ms) <= remember_ms)
        });
        let shares = self.shares.iter();
        let shares = shares.map(|(key, share)| Record::Snapshot { key: key.clone(), share: share.durable() });
        let markers = self.markers.values();
        let markers =
            markers.map(|(marker, ended_ms)| Record::Ended { marker: *marker, ended_ms: *ended_ms });
        shares.chain(markers).collect()
    }

    /// Markers that are remembered.
    pub(crate) fn marker_count(&self) -> u64 {
        self.markers.len() as u64
    }

    /// Marker epoch remembered for a producer.
    #[cfg(test)]
    pub(crate) fn marker_epoch(
        &self,
        producer_id: ProducerId,
    ) -> Option<sharestream_base::ids::ProducerEpoch> {
        self.markers.get(&producer_id).map(|(marker, _)| marker.producer_epoch)
    }
}

impl Share {
    /// The record of a change. It says what comes of it, so that a Kafka that reads the log knows the lag: that one
    /// moves no start offset by itself.
    fn update(
        &self,
        key: &ShareKey,
        leader_epoch: LeaderEpoch,
        start_offset: Option<Offset>,
        batches: Vec<StateBatch>,
    ) -> Record {
        let mut after = self.clone();
        after.overlay(start_offset, batches.clone());
        let complete_count = complete_count(after.start_offset, after.runs.values());
        let (key, start_offset) = (key.clone(), after.start_offset);
        Record::Update { key, leader_epoch, start_offset, complete_count, batches }
    }

    fn durable(&self) -> DurableShare {
        DurableShare {
            state_epoch: StateEpoch(self.state_epoch),
            leader_epoch: LeaderEpoch(self.leader_epoch),
            start_offset: self.start_offset,
            batches: self.runs.values().copied().collect(),
        }
    }

    fn has_pending(&self) -> bool {
        self.runs.values().any(|run| matches!(run.state, DurableState::TxnPending(_)))
    }

    /// True when `batch` would move runs that another transaction, or this one otherwise, holds pending, or would open
    /// again what is done: a write that was late, and overtaken by another of its leader.
    fn conflicts_with(&self, batch: &StateBatch) -> bool {
        let reopens = match batch.state {
            DurableState::Available | DurableState::Archiving | DurableState::TxnPending(_) => true,
            DurableState::Acknowledged | DurableState::Archived => false,
        };
        if reopens && self.start_offset.is_some_and(|start| batch.range.first < start) {
            return true;
        }
        self.overlapping(batch.range).any(|run| match run.state {
            DurableState::TxnPending(_) => run.state != batch.state,
            DurableState::Acknowledged | DurableState::Archived => reopens,
            // Its dead letter may be written already; the same again is a repeat.
            DurableState::Archiving => reopens && batch.state != DurableState::Archiving,
            DurableState::Available => false,
        })
    }

    fn overlapping(&self, range: OffsetRange) -> impl Iterator<Item = &StateBatch> {
        let before = self.runs.range(..range.first).next_back().map(|(_, run)| run);
        before
            .filter(move |run| run.range.last >= range.first)
            .into_iter()
            .chain(self.runs.range(range.first..=range.last).map(|(_, run)| run))
    }

    /// Lets `batches` replace what they cover, then passes the finished prefix.
    fn overlay(&mut self, start_offset: Option<Offset>, batches: Vec<StateBatch>) {
        for batch in batches {
            self.clear(batch.range);
            self.runs.insert(batch.range.first, batch);
        }
        if let Some(start) = start_offset {
            self.start_offset = Some(self.start_offset.map_or(start, |known| known.max(start)));
        }
        self.tidy();
    }

    fn clear(&mut self, range: OffsetRange) {
        let cut: Vec<StateBatch> = self.overlapping(range).copied().collect();
        for run in cut {
            self.runs.remove(&run.range.first);
            if let Some(left) = OffsetRange::new(run.range.first, Offset(range.first.0 - 1)) {
                self.runs.insert(left.first, StateBatch { range: left, ..run });
            }
            if let Some(right) = OffsetRange::new(range.last.next(), run.range.last) {
                self.runs.insert(right.first, StateBatch { range: right, ..run });
            }
        }
    }

    fn resolve(&mut self, marker: Marker) {
        for run in self.runs.values_mut() {
            if let DurableState::TxnPending(staged) = run.state
                && marker.resolves(&staged)
            {
                run.state = match marker.outcome {
                    TxnOutcome::Commit => staged.intent.committed().into(),
                    TxnOutcome::Abort => DurableState::Available,
                };
            }
        }
        self.tidy();
    }

    /// Merges equal neighbours, drops what lies below the start offset and moves it over finished runs.
    fn tidy(&mut self) {
        let mut merged: BTreeMap<Offset, StateBatch> = BTreeMap::new();
        let mut last: Option<StateBatch> = None;
        for run in std::mem::take(&mut self.runs).into_values() {
            match &mut last {
                Some(left)
                    if left.range.last.next() == run.range.first
                        && left.state == run.state
                        && left.delivery_count == run.delivery_count =>
                {
                    left.range.last = run.range.last;
                }
                Some(left) => {
                    merged.insert(left.range.first, *left);
                    last = Some(run);
                }
                None => last = Some(run),
            }
        }
        if let Some(left) = last {
            merged.insert(left.range.first, left);
        }
        self.runs = merged;
        let Some(mut start) = self.start_offset else { return };
        while let Some(front) = self.runs.first_entry() {
            let run = *front.get();
            if run.range.first > start || (run.range.last >= start && !run.state.is_terminal()) {
                break;
            }
            front.remove();
            start = start.max(run.range.last.next());
        }
        if let Some(front) = self.runs.first_entry()
            && front.get().range.first < start
        {
            let run = front.remove();
            if let Some(range) = OffsetRange::new(start, run.range.last) {
                self.runs.insert(start, StateBatch { range, ..run });
            }
        }
        self.start_offset = Some(start);
    }
}

#[cfg(test)]
mod tests;
