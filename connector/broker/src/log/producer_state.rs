//! What one partition knows of the producers that write to it (KIP-98, KIP-890): epochs, the sequence numbers of
//! the last batches, open transactions.
//!
//! Decide and replay are apart: [`ProducerStates::check`] and [`ProducerStates::check_marker`] change nothing,
//! [`ProducerStates::appended`] and [`ProducerStates::marked`] cannot fail.

use std::collections::{BTreeMap, VecDeque};

use sharestream_base::ids::{Offset, ProducerEpoch, ProducerId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_wire::records::BatchHeader;

use super::partition_log::{Marker, TransactionVersion};
use crate::error::ErrorCode;

mod snapshot;

/// Batches whose repetition is recognised; clients keep at most five requests in flight.
const DEDUP_WINDOW: usize = 5;

/// Shows that nothing ended the producer's transaction on this partition since the guard was given.
///
/// A leader asks the transaction coordinator before it appends the first batch of a transaction. While it waits,
/// the marker of that transaction may pass; the guard then no longer fits and the append is refused. The marker of the
/// transaction before may pass as well, and under version 2 it can be told apart: it carries the guarded epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VerificationGuard {
    number: u64,
    epoch: ProducerEpoch,
    version: TransactionVersion,
}

impl VerificationGuard {
    fn survives(&self, marker: &Marker) -> bool {
        match self.version {
            TransactionVersion::V1 => false,
            TransactionVersion::V2 => marker.producer_epoch <= self.epoch,
        }
    }
}

/// One batch in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Appended {
    first_sequence: i32,
    last_sequence: i32,
    base_offset: Offset,
    last_offset: Offset,
}

/// A transaction that has records here and no marker yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    first_offset: Offset,
    version: TransactionVersion,
}

/// The last marker of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastMarker {
    epoch: ProducerEpoch,
    commit: bool,
    offset: Offset,
    /// Version of the transaction that it ended; without one, what we must assume.
    version: TransactionVersion,
}

#[derive(Debug, PartialEq, Eq)]
struct Producer {
    epoch: ProducerEpoch,
    window: VecDeque<Appended>,
    open: Option<Open>,
    last_marker: Option<LastMarker>,
    coordinator_epoch: i32,
    last_timestamp_ms: i64,
}

/// Producers of one partition.
#[derive(Debug, Default)]
pub(crate) struct ProducerStates {
    producers: BTreeMap<ProducerId, Producer>,
    open: BTreeMap<Offset, ProducerId>,
    guards: BTreeMap<ProducerId, VerificationGuard>,
    last_guard: u64,
}

/// What to do with a batch that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is new.
    Append,
    /// It is in the log already, here.
    Duplicate {
        /// Offset of its first record.
        base_offset: Offset,
        /// Offset of its last record.
        last_offset: Offset,
    },
}

/// What to do with a marker that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkerVerdict {
    /// It is new.
    Append,
    /// It was written before, here.
    Duplicate(Offset),
}

/// One producer as DescribeProducers shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProducerSummary {
    /// Its id.
    pub(crate) producer_id: ProducerId,
    /// Its epoch.
    pub(crate) producer_epoch: ProducerEpoch,
    /// Last sequence number, -1 when none is known.
    pub(crate) last_sequence: i32,
    /// Wall time of its last batch or marker.
    pub(crate) last_timestamp_ms: i64,
    /// Coordinator epoch of its last marker, -1 when there was none.
    pub(crate) coordinator_epoch: i32,
    /// First offset of its open transaction.
    pub(crate) open_from: Option<Offset>,
}

fn epoch_of(header: &BatchHeader) -> ProducerEpoch {
    ProducerEpoch(header.producer_epoch)
}

/// Sequence numbers run through the non-negative half of i32 and start again at 0.
fn sequence_after(sequence: i32, count: i32) -> i32 {
    let sum = (i64::from(sequence) + i64::from(count)) % (i64::from(i32::MAX) + 1);
    i32::try_from(sum).unwrap_or(0)
}

impl ProducerStates {
    /// Decides on a batch of a producer (`producer_id >= 0`). `guard` is needed for the first batch of a
    /// transaction on this partition. Only what is written `in_sequence` is checked for repeats and gaps.
    ///
    /// Errors: INVALID_PRODUCER_EPOCH (an older incarnation, or one that a marker has ended), OUT_OF_ORDER_SEQUENCE,
    /// INVALID_TXN_STATE (transactional without a fitting guard, or not transactional amid a transaction).
    pub(crate) fn check(
        &self,
        header: &BatchHeader,
        guard: Option<VerificationGuard>,
        in_sequence: bool,
    ) -> Result<Verdict, ErrorCode> {
        let producer_id = ProducerId(header.producer_id);
        let known = self.producers.get(&producer_id);
        if let Some(known) = known {
            if epoch_of(header) < known.epoch {
                return Err(ErrorCode::InvalidProducerEpoch);
            }
            if let Some(duplicate) = known.duplicate_of(header).filter(|_| in_sequence) {
                if is_planted(Bug::RepeatedBatchAppended) {
                    return Ok(Verdict::Append);
                }
                let Appended { base_offset, last_offset, .. } = duplicate;
                return Ok(Verdict::Duplicate { base_offset, last_offset });
            }
            if in_sequence {
                known.check_sequence(header)?;
            }
        }
        let open = known.is_some_and(|known| known.open.is_some() && known.epoch == epoch_of(header));
        let verified = guard.is_some() && guard == self.guards.get(&producer_id).copied();
        match (header.is_transactional(), open) {
            (true, true) | (false, false) => Ok(Verdict::Append),
            (true, false) if verified => Ok(Verdict::Append),
            (true, false) | (false, true) => Err(ErrorCode::InvalidTxnState),
        }
    }

    /// True when the next transactional batch of this header's producer needs the coordinator's word first: its
    /// transaction has no record here yet. A repeated or fenced batch needs none.
    pub(crate) fn needs_verification(&self, header: &BatchHeader) -> bool {
        self.producers.get(&ProducerId(header.producer_id)).is_none_or(|known| {
            let repeated = known.duplicate_of(header).is_some();
            let fenced = epoch_of(header) < known.epoch;
            let open = known.open.is_some() && known.epoch == epoch_of(header);
            !(repeated || fenced || open)
        })
    }

    /// The guard for a batch that is about to be verified; the same one until a marker ends it.
    pub(crate) fn guard(&mut self, header: &BatchHeader, version: TransactionVersion) -> VerificationGuard {
        self.guard_of(ProducerId(header.producer_id), epoch_of(header), version)
    }

    /// The guard for offsets that a producer stages through its group's coordinator; `None` when they need no word of
    /// the transaction coordinator: the transaction is open here, or its producer is fenced.
    pub(crate) fn staging_guard(
        &mut self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        version: TransactionVersion,
    ) -> Option<VerificationGuard> {
        let needed = self.producers.get(&producer_id).is_none_or(|known| {
            let open = known.open.is_some() && known.epoch == epoch;
            !(open || epoch < known.epoch)
        });
        needed.then(|| self.guard_of(producer_id, epoch, version))
    }

    fn guard_of(
        &mut self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        version: TransactionVersion,
    ) -> VerificationGuard {
        match self.guards.get(&producer_id) {
            Some(guard) if guard.epoch == epoch && guard.version == version => *guard,
            Some(_) | None => {
                self.last_guard += 1;
                let guard = VerificationGuard { number: self.last_guard, epoch, version };
                self.guards.insert(producer_id, guard);
                guard
            }
        }
    }

    /// Forgets every guard: a new leader asks the coordinator itself.
    pub(crate) fn forget_guards(&mut self) {
        self.guards.clear();
    }

    /// Takes in a batch that was appended at `base_offset`.
    pub(crate) fn appended(
        &mut self,
        header: &BatchHeader,
        base_offset: Offset,
        version: TransactionVersion,
    ) {
        let producer_id = ProducerId(header.producer_id);
        let known = self.producers.entry(producer_id).or_insert_with(|| Producer::new(epoch_of(header)));
        known.move_to(epoch_of(header));
        if known.window.len() == DEDUP_WINDOW {
            known.window.pop_front();
        }
        known.window.push_back(Appended {
            first_sequence: header.base_sequence,
            last_sequence: sequence_after(header.base_sequence, header.last_offset_delta),
            base_offset,
            last_offset: base_offset.plus(i64::from(header.last_offset_delta)),
        });
        known.last_timestamp_ms = header.max_timestamp;
        if header.is_transactional() && known.open.is_none() {
            known.open = Some(Open { first_offset: base_offset, version });
            self.open.insert(base_offset, producer_id);
            self.guards.remove(&producer_id);
        }
    }

    /// Decides on a marker.
    ///
    /// Errors: TRANSACTION_COORDINATOR_FENCED (an older coordinator), INVALID_PRODUCER_EPOCH (an older incarnation,
    /// or a marker of an earlier transaction that came too late).
    pub(crate) fn check_marker(&self, marker: &Marker) -> Result<MarkerVerdict, ErrorCode> {
        let Some(known) = self.producers.get(&marker.producer_id) else {
            return Ok(MarkerVerdict::Append);
        };
        if marker.coordinator_epoch < known.coordinator_epoch {
            return Err(ErrorCode::TransactionCoordinatorFenced);
        }
        if marker.producer_epoch < known.epoch {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        match (known.open, known.last_marker) {
            // Under version 2 the marker of a transaction is one epoch ahead of its batches: an equal epoch is a
            // late repetition of the marker before (KIP-1228).
            (Some(Open { version: TransactionVersion::V2, .. }), _)
                if marker.producer_epoch == known.epoch =>
            {
                Err(ErrorCode::InvalidProducerEpoch)
            }
            (None, Some(last))
                if last.version == TransactionVersion::V2
                    && last.epoch == marker.producer_epoch
                    && last.commit == marker.commit =>
            {
                Ok(MarkerVerdict::Duplicate(last.offset))
            }
            (Some(_) | None, _) => Ok(MarkerVerdict::Append),
        }
    }

    /// Takes in a marker that was appended at `offset`; gives the first offset of the transaction that it ended.
    pub(crate) fn marked(&mut self, marker: &Marker, offset: Offset, now_ms: i64) -> Option<Offset> {
        if self.guards.get(&marker.producer_id).is_some_and(|guard| !guard.survives(marker)) {
            self.guards.remove(&marker.producer_id);
        }
        let known =
            self.producers.entry(marker.producer_id).or_insert_with(|| Producer::new(marker.producer_epoch));
        let ended = known.open.take();
        // An epoch above the batches' is the sign of version 2, also where nothing was open.
        let version = match ended {
            Some(open) => open.version,
            None if marker.producer_epoch > known.epoch => TransactionVersion::V2,
            None => TransactionVersion::V1,
        };
        known.move_to(marker.producer_epoch);
        known.coordinator_epoch = marker.coordinator_epoch;
        known.last_timestamp_ms = now_ms;
        known.last_marker =
            Some(LastMarker { epoch: marker.producer_epoch, commit: marker.commit, offset, version });
        let first_offset = ended.map(|open| open.first_offset);
        if let Some(first_offset) = first_offset {
            self.open.remove(&first_offset);
        }
        first_offset
    }

    /// First offset of the oldest open transaction.
    pub(crate) fn first_open_offset(&self) -> Option<Offset> {
        self.open.keys().next().copied()
    }

    /// Every producer, by id.
    pub(crate) fn summaries(&self) -> Vec<ProducerSummary> {
        self.producers
            .iter()
            .map(|(id, known)| ProducerSummary {
                producer_id: *id,
                producer_epoch: known.epoch,
                last_sequence: known.window.back().map_or(-1, |last| last.last_sequence),
                last_timestamp_ms: known.last_timestamp_ms,
                coordinator_epoch: known.coordinator_epoch,
                open_from: known.open.map(|open| open.first_offset),
            })
            .collect()
    }
}

impl Producer {
    fn new(epoch: ProducerEpoch) -> Self {
        Producer {
            epoch,
            window: VecDeque::with_capacity(DEDUP_WINDOW),
            open: None,
            last_marker: None,
            coordinator_epoch: -1,
            last_timestamp_ms: -1,
        }
    }

    /// Sequence numbers restart with the epoch.
    fn move_to(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.window.clear();
        }
    }

    fn duplicate_of(&self, header: &BatchHeader) -> Option<Appended> {
        let last_sequence = sequence_after(header.base_sequence, header.last_offset_delta);
        let same = |one: &&Appended| {
            one.first_sequence == header.base_sequence && one.last_sequence == last_sequence
        };
        (epoch_of(header) == self.epoch).then(|| self.window.iter().find(same).copied()).flatten()
    }

    fn check_sequence(&self, header: &BatchHeader) -> Result<(), ErrorCode> {
        let last = (epoch_of(header) == self.epoch).then(|| self.window.back()).flatten();
        let expected = last.map_or(0, |last| sequence_after(last.last_sequence, 1));
        if header.base_sequence == expected { Ok(()) } else { Err(ErrorCode::OutOfOrderSequenceNumber) }
    }
}
