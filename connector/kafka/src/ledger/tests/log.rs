//! An outcome partition under construction: one record to a batch, as ledger mode writes it, and Kafka's compaction.

use sharestream_base::ids::{
    CheckpointId, JobEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};
use sharestream_core::commit::AckMode;
use sharestream_core::decision::{DecidedRange, Decision, Decisions, SourcePartition};
use sharestream_wire::records::control::{self, ControlMarker, MarkerMeta};
use sharestream_wire::records::{BatchBuilder, BatchMeta, RawBatch};

use crate::ledger::arbiter::OwnClaim;
use crate::ledger::view::{ResponseEnd, View};
use crate::outcome::{
    FORMAT_VERSION, FloorRecord, GenerationRecord, ModeRecord, OutcomeCounts, OutcomePartition,
    OutcomeRecord, ReplayGeneration,
};

pub(super) const GROUP: &str = "g";

pub(super) fn partition(index: i32) -> SourcePartition {
    SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(index) }
}

/// ACCEPT of these offsets, by partition, ends inclusive.
pub(super) fn decisions(ranges: &[(i32, i64, i64)]) -> Decisions {
    let mut all = Decisions::new();
    for (index, first, last) in ranges {
        let range = DecidedRange { first: Offset(*first), last: Offset(*last), decision: Decision::Accept };
        all.set(partition(*index), range);
    }
    all
}

/// Who claims: replica `instance` of one job, with transactional and producer ids by its number.
#[derive(Clone, Debug)]
pub(super) struct Claimer {
    pub(super) instance: u8,
    pub(super) epoch: i16,
    pub(super) generation: u32,
    pub(super) mode: AckMode,
    pub(super) deadline_ms: i64,
}

impl Claimer {
    pub(super) fn new(instance: u8, epoch: i16) -> Self {
        Claimer { instance, epoch, generation: 0, mode: AckMode::Ledger, deadline_ms: 100 }
    }

    pub(super) fn producer(&self) -> ProducerId {
        ProducerId(i64::from(self.instance))
    }

    pub(super) fn transactional_id(&self) -> String {
        format!("j.{}.0", self.instance)
    }

    /// The own claim as its replica remembers it.
    pub(super) fn own(&self, position: Offset, decisions: Decisions) -> OwnClaim {
        OwnClaim {
            position,
            decisions,
            generation: ReplayGeneration(self.generation),
            era: 0,
            mode: self.mode,
            deadline_ms: self.deadline_ms,
        }
    }

    fn record(&self, decisions: &Decisions) -> OutcomeRecord {
        OutcomeRecord {
            format_version: FORMAT_VERSION,
            job: "j".to_owned(),
            instance: self.instance.to_string(),
            job_epoch: JobEpoch(1),
            checkpoint: CheckpointId(1),
            predecessor: None,
            manifest: None,
            mode: self.mode,
            group: GROUP.to_owned(),
            partitions: OutcomePartition::of(decisions, |_| "t".to_owned()),
            transactional_id: self.transactional_id(),
            producer_id: self.producer(),
            producer_epoch: ProducerEpoch(self.epoch),
            deadline_ms: self.deadline_ms,
            counts: OutcomeCounts::of(decisions),
            generation: ReplayGeneration(self.generation),
        }
    }
}

/// What a place of the log holds, for compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Claim { key: String, producer: ProducerId, epoch: i16 },
    Marker { claim: usize, committed: bool },
    Value { key: String },
    Tombstone { key: String },
    Hole,
}

/// The partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    places: Vec<Place>,
    batches: Vec<Option<RawBatch>>,
}

impl Log {
    pub(super) fn end(&self) -> Offset {
        Offset(self.batches.len() as i64)
    }

    /// First offset of the oldest transaction without a marker.
    pub(super) fn stable(&self) -> Offset {
        let open = (0..self.places.len())
            .find(|at| matches!(self.places[*at], Place::Claim { .. }) && self.marker_of(*at).is_none());
        open.map_or(self.end(), |at| Offset(at as i64))
    }

    fn marker_of(&self, at: usize) -> Option<bool> {
        self.places.iter().find_map(|place| match place {
            Place::Marker { claim, committed } if *claim == at => Some(*committed),
            _ => None,
        })
    }

    fn push(
        &mut self,
        place: Place,
        key: &str,
        value: Option<&[u8]>,
        producer: ProducerId,
        transactional: bool,
    ) -> Offset {
        let position = self.end();
        let mut builder = BatchBuilder::new();
        builder.append(0, Some(key.as_bytes()), value, &[]).unwrap();
        let meta = BatchMeta {
            producer_id: producer.0,
            transactional,
            base_offset: position.0,
            ..BatchMeta::default()
        };
        let batch = RawBatch::from_bytes(builder.build(&meta).unwrap()).unwrap();
        self.places.push(place);
        self.batches.push(Some(batch));
        position
    }

    pub(super) fn claim(&mut self, claimer: &Claimer, decisions: &Decisions) -> Offset {
        let record = claimer.record(decisions);
        let place = Place::Claim { key: record.key(), producer: record.producer_id, epoch: claimer.epoch };
        self.push(place, &record.key(), Some(&record.encode().unwrap()), record.producer_id, true)
    }

    /// The same with a key of the caller's (rule 11).
    pub(super) fn claim_as(&mut self, claimer: &Claimer, decisions: &Decisions, key: &str) -> Offset {
        let record = claimer.record(decisions);
        let place = Place::Claim { key: key.to_owned(), producer: record.producer_id, epoch: claimer.epoch };
        self.push(place, key, Some(&record.encode().unwrap()), record.producer_id, true)
    }

    /// The marker of the last claim of a replica, with the bumped epoch of transaction version 2.
    pub(super) fn marker(&mut self, instance: u8, committed: bool) -> Offset {
        let position = self.end();
        let producer = ProducerId(i64::from(instance));
        let is_its =
            |place: &Place| matches!(place, Place::Claim { producer: other, .. } if *other == producer);
        let claim = self.places.iter().rposition(is_its).unwrap_or(usize::MAX);
        let epoch = match self.places.get(claim) {
            Some(Place::Claim { epoch, .. }) => *epoch,
            Some(_) | None => 0,
        };
        let meta = MarkerMeta {
            coordinator_epoch: 0,
            producer_id: producer.0,
            producer_epoch: epoch + 1,
            timestamp_ms: 0,
            base_offset: position.0,
            leader_epoch: 0,
        };
        let marker = if committed { ControlMarker::Commit } else { ControlMarker::Abort };
        let bytes = control::encode(marker, &meta).unwrap();
        self.places.push(Place::Marker { claim, committed });
        self.batches.push(Some(RawBatch::from_bytes(bytes).unwrap()));
        position
    }

    fn value(&mut self, key: &str, value: &[u8]) -> Offset {
        self.push(Place::Value { key: key.to_owned() }, key, Some(value), ProducerId(-1), false)
    }

    pub(super) fn floor(&mut self, floor: &FloorRecord) -> Offset {
        self.value(&floor.key(), &floor.encode().unwrap())
    }

    /// A floor of generation 0.
    pub(super) fn floor_at(&mut self, index: i32, end: i64) -> Offset {
        self.floor(&floor_record(index, end, 0))
    }

    pub(super) fn tombstone(&mut self, key: &str) -> Offset {
        self.push(Place::Tombstone { key: key.to_owned() }, key, None, ProducerId(-1), false)
    }

    pub(super) fn generation(&mut self, generation: u32, ready: bool) -> Offset {
        let record = GenerationRecord {
            format_version: FORMAT_VERSION,
            group: GROUP.to_owned(),
            generation: ReplayGeneration(generation),
            ready,
            begins: None,
        };
        self.value(&record.key(), &record.encode().unwrap())
    }

    pub(super) fn mode(&mut self, mode: AckMode, era: u32) -> Offset {
        let record = ModeRecord {
            format_version: FORMAT_VERSION,
            group: GROUP.to_owned(),
            mode,
            topic_id: TopicId::default(),
            partition_count: 1,
            era,
        };
        self.value(&record.key(), &record.encode().unwrap())
    }

    /// Places that Kafka's cleaner may empty now: never at or beyond the last stable offset, nor the last one.
    pub(super) fn removable(&self) -> Vec<usize> {
        let reach = usize::try_from(self.stable().0).unwrap().min(self.places.len().saturating_sub(1));
        (0..reach).filter(|at| self.may_go(*at, reach)).collect()
    }

    fn may_go(&self, at: usize, reach: usize) -> bool {
        let behind = &self.places[at + 1..reach.max(at + 1)];
        let is_replaced = |key: &String| {
            behind.iter().any(|place| match place {
                Place::Tombstone { key: other } | Place::Value { key: other } => other == key,
                Place::Claim { .. } | Place::Marker { .. } | Place::Hole => false,
            })
        };
        let has_later_claim = |key: &String| {
            (at + 1..reach).any(|later| {
                matches!(&self.places[later], Place::Claim { key: other, .. } if other == key)
                    && self.marker_of(later) == Some(true)
            })
        };
        match &self.places[at] {
            Place::Claim { key, .. } => {
                is_replaced(key) || has_later_claim(key) || self.marker_of(at) == Some(false)
            }
            Place::Value { key } => is_replaced(key),
            Place::Marker { claim, .. } => {
                self.places.get(*claim).is_none_or(|place| matches!(place, Place::Hole))
            }
            // As if delete.retention.ms were over at once.
            Place::Tombstone { key } => !self.places[..at].iter().any(|place| match place {
                Place::Claim { key: other, .. } | Place::Value { key: other } => other == key,
                Place::Marker { .. } | Place::Tombstone { .. } | Place::Hole => false,
            }),
            Place::Hole => false,
        }
    }

    pub(super) fn remove(&mut self, at: usize) {
        // Who looks for the marker of a claim that is gone finds it by place, so a marker outlives its claim here.
        self.places[at] = Place::Hole;
        self.batches[at] = None;
    }

    pub(super) fn is_hole(&self, at: Offset) -> bool {
        self.batches[usize::try_from(at.0).unwrap()].is_none()
    }

    /// One response of at most `count` batches.
    pub(super) fn read(&self, view: &mut View, count: usize) {
        let from = usize::try_from(view.next().0).unwrap();
        for batch in self.batches[from.min(self.batches.len())..].iter().flatten().take(count) {
            view.apply(batch).unwrap();
        }
        view.response_ended(ResponseEnd { high_watermark: self.end(), last_stable_offset: self.stable() });
    }

    /// A view that has read everything.
    pub(super) fn view(&self) -> View {
        let mut view = View::new(GROUP, Offset(0));
        self.read(&mut view, usize::MAX);
        view
    }
}

pub(super) fn floor_record(index: i32, end: i64, generation: u32) -> FloorRecord {
    let SourcePartition { topic_id, partition } = partition(index);
    FloorRecord {
        format_version: FORMAT_VERSION,
        group: GROUP.to_owned(),
        generation: ReplayGeneration(generation),
        topic: "t".to_owned(),
        topic_id,
        partition,
        floor: Offset(end),
        initial: Offset(0),
        counts: OutcomeCounts::default(),
        passed: 0,
    }
}
