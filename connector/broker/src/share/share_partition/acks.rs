//! What members ask for: acknowledgements, and acknowledgements that are staged into transactions. A request is cut
//! into runs of one type, checked as a whole and then applied as a whole.

use sharestream_base::Instant;
use sharestream_base::ids::{Offset, ProducerEpoch, ProducerId};
use sharestream_wire::messages::AcknowledgementBatch;

use super::{PendingWrite, SharePartition};
use crate::share::durable::OffsetRange;
use crate::share::record_state::{
    Acknowledgement, Event, Intent, InvalidRecordState, MemberId, Staged, WriteId,
};

/// One acknowledgement batch of a request: one type for the whole range, or one for each offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckBatch<'a> {
    /// First offset.
    pub(crate) first: Offset,
    /// Last offset, inclusive.
    pub(crate) last: Offset,
    /// Acknowledge types as on the wire.
    pub(crate) types: &'a [i8],
}

impl<'a> From<&'a AcknowledgementBatch> for AckBatch<'a> {
    fn from(batch: &'a AcknowledgementBatch) -> Self {
        AckBatch {
            first: Offset(batch.first_offset),
            last: Offset(batch.last_offset),
            types: &batch.acknowledge_types,
        }
    }
}

/// Why acknowledgements of a partition were refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AckError {
    /// INVALID_RECORD_STATE.
    #[error(transparent)]
    RecordState(#[from] InvalidRecordState),
    /// INVALID_REQUEST.
    #[error("{0}")]
    Request(&'static str),
    /// INVALID_PRODUCER_EPOCH: the transaction has already been ended by a marker.
    #[error("the transaction of this producer epoch has ended")]
    ProducerEpoch,
}

/// What one run of equal acknowledge types asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Final(Acknowledgement),
    Renew,
}

impl SharePartition {
    /// Applies ordinary acknowledgements of `member`, all or none. Offsets below the start offset are done already
    /// and ignored, as in Kafka. None when nothing has to be written (renewals only).
    pub(crate) fn acknowledge(
        &mut self,
        member: &MemberId,
        acks: &[AckBatch<'_>],
        now: Instant,
    ) -> Result<Option<PendingWrite>, AckError> {
        let lock_deadline = now + self.limits.lock_duration;
        let write = self.new_write();
        let asks = self.runs_of(acks, |kind| match kind {
            0 => Some(Ask::Final(Acknowledgement::Gap)),
            1 => Some(Ask::Final(Acknowledgement::Accept)),
            2 => Some(Ask::Final(Acknowledgement::Release)),
            3 => Some(Ask::Final(Acknowledgement::Reject)),
            4 => Some(Ask::Renew),
            _ => None,
        })?;
        let asks: Vec<(OffsetRange, Event<'_>)> = asks
            .into_iter()
            .filter_map(|(range, ask)| {
                let range = OffsetRange::new(range.first.max(self.window.start()), range.last)?;
                Some((
                    range,
                    match ask {
                        Ask::Final(ack) => Event::Acknowledge { member, ack, write },
                        Ask::Renew => Event::Renew { member, lock_deadline },
                    },
                ))
            })
            .collect();
        self.check_all(&asks)?;
        let mut batches = Vec::new();
        for (range, event) in &asks {
            self.change(*range, event, &mut batches);
        }
        Ok((!batches.is_empty()).then_some(PendingWrite { id: write, batches }))
    }

    /// Stages acknowledgements of `member` into a transaction, all or none. None when every one of them is already
    /// durably staged with the same transaction and intent: a repeat is a success.
    pub(crate) fn stage(
        &mut self,
        member: &MemberId,
        producer: (ProducerId, ProducerEpoch),
        acks: &[AckBatch<'_>],
    ) -> Result<Option<PendingWrite>, AckError> {
        let write = self.new_write();
        let asks = self.plan_stage(member, producer, acks, write)?;
        let mut batches = Vec::new();
        for (range, event) in &asks {
            self.change(*range, event, &mut batches);
        }
        Ok((!batches.is_empty()).then_some(PendingWrite { id: write, batches }))
    }

    /// Checks what [`SharePartition::stage`] would do, without doing it.
    pub(crate) fn check_stage(
        &self,
        member: &MemberId,
        producer: (ProducerId, ProducerEpoch),
        acks: &[AckBatch<'_>],
    ) -> Result<(), AckError> {
        self.plan_stage(member, producer, acks, WriteId(0)).map(|_| ())
    }

    fn plan_stage<'m>(
        &self,
        member: &'m MemberId,
        producer: (ProducerId, ProducerEpoch),
        acks: &[AckBatch<'_>],
        write: WriteId,
    ) -> Result<Vec<(OffsetRange, Event<'m>)>, AckError> {
        let (producer_id, producer_epoch) = producer;
        if self.markers.get(&producer_id).is_some_and(|marker_epoch| producer_epoch < *marker_epoch) {
            return Err(AckError::ProducerEpoch);
        }
        let intents = self.runs_of(acks, |kind| match kind {
            0 => Some(Intent::Gap),
            1 => Some(Intent::Accept),
            3 if self.limits.dead_letters => Some(Intent::DeadLetter),
            3 => Some(Intent::Reject),
            _ => None,
        })?;
        let asks: Vec<(OffsetRange, Event<'_>)> = intents
            .into_iter()
            .map(|(range, intent)| {
                let staged = Staged { producer_id, producer_epoch, intent };
                (range, Event::Stage { member, staged, write })
            })
            .collect();
        if asks.iter().any(|(range, _)| range.first < self.window.start()) {
            return Err(InvalidRecordState.into());
        }
        self.check_all(&asks)?;
        Ok(asks)
    }

    /// Cuts batches into runs of one type and checks their shape, without allocating for each record.
    fn runs_of<T: Copy + PartialEq>(
        &self,
        acks: &[AckBatch<'_>],
        kind: impl Fn(i8) -> Option<T>,
    ) -> Result<Vec<(OffsetRange, T)>, AckError> {
        let unknown = AckError::Request("an acknowledge type is not allowed here");
        let mut runs: Vec<(OffsetRange, T)> = Vec::with_capacity(acks.len());
        let mut previous: Option<Offset> = None;
        for ack in acks {
            let range = OffsetRange::new(ack.first, ack.last)
                .ok_or(AckError::Request("the first offset is above the last"))?;
            if range.first.0 < 0 {
                return Err(AckError::Request("an offset is negative"));
            }
            if previous.is_some_and(|last| range.first <= last) {
                return Err(AckError::Request("acknowledgement batches overlap or are out of order"));
            }
            if range.last >= self.window.end() {
                return Err(AckError::Request("offsets beyond what was ever acquired"));
            }
            previous = Some(range.last);
            if let [single] = ack.types {
                runs.push((range, kind(*single).ok_or(unknown)?));
                continue;
            }
            if i64::try_from(ack.types.len()) != Ok(range.count()) {
                return Err(AckError::Request("one acknowledge type for the batch or one for each offset"));
            }
            let mut first = range.first;
            for chunk in ack.types.chunk_by(|a, b| a == b) {
                let last = first.plus(chunk.len() as i64 - 1);
                runs.push((OffsetRange { first, last }, kind(chunk[0]).ok_or(unknown)?));
                first = last.next();
            }
        }
        Ok(runs)
    }

    fn check_all(&self, asks: &[(OffsetRange, Event<'_>)]) -> Result<(), InvalidRecordState> {
        for (range, event) in asks {
            for (_, run) in self.window.overlapping(*range) {
                run.state.apply(event, self.limits.attempts(run.delivery_count))?;
            }
        }
        Ok(())
    }
}
