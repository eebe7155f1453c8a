//! What is decided of a group's records at one place of its outcome partition. Pure: fed batch by batch.
//!
//! ```text
//! start offsets read --> | outcomes ... end reached: sealed | markers of what was open there --> settled
//! ```
//! Exact, for these reasons:
//! - the start offsets are read first: whatever let them pass had its outcome in the partition by then, below the end;
//! - an outcome below the end counts if it committed, wherever its marker is, so nothing that the start offsets have passed
//!   is missing;
//! - an outcome from the end on never counts, so nothing that was decided later is in it;
//! - a floor is counted only from below the end: it follows start offsets of before.
//!
//! Outcomes of one replica commit in their order, so what counts of each is a prefix of its commits: the last of them is
//! the checkpoint of the savepoint.

use std::collections::BTreeMap;

use sharestream_base::ErrorKind;
use sharestream_base::ids::{CheckpointId, JobEpoch, Offset, ProducerEpoch, ProducerId};
use sharestream_checkpoints::ManifestRef;
use sharestream_core::decision::{Decisions, SourcePartition};
use sharestream_wire::records::control::{self, ControlMarker};
use sharestream_wire::records::{RawBatch, RecordView};

use crate::error::wire_error;
use crate::outcome::{FloorRecord, GenerationRecord, GroupGeneration, LogEntry, OutcomeRecord};
use crate::{Error, Result};

/// Start offsets, by source partition.
pub(crate) type Starts = BTreeMap<SourcePartition, Offset>;

/// The last committed checkpoint of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) position: Offset,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) job_epoch: JobEpoch,
    pub(crate) manifest: Option<ManifestRef>,
}

/// An outcome without a marker yet.
#[derive(Clone, Debug)]
struct OpenOutcome {
    position: Offset,
    record: OutcomeRecord,
}

/// What was read so far.
#[derive(Debug)]
pub(crate) struct Cut {
    group: String,
    starts: Starts,
    floors: Starts,
    decided: Decisions,
    open: BTreeMap<ProducerId, Vec<OpenOutcome>>,
    generation: GroupGeneration,
    last: BTreeMap<(String, String), Committed>,
    /// Position of the last committed outcome of anybody.
    last_position: Option<Offset>,
    /// Whether an outcome of this generation decided anything.
    decides: bool,
    end: Option<Offset>,
}

/// Where a group stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Everything below is decided; the offset itself is not.
    pub(crate) starts: Starts,
    /// What is decided above.
    pub(crate) decided: Decisions,
    /// Replay generation; the first is ready without a record.
    pub(crate) generation: GroupGeneration,
    /// The last committed checkpoint of each (job, instance).
    pub(crate) last: BTreeMap<(String, String), Committed>,
    /// Position of the last committed outcome of anybody in the group.
    pub(crate) last_position: Option<Offset>,
    /// Whether anything was decided since this generation began.
    pub(crate) decides: bool,
    /// Outcomes below count.
    pub(crate) end: Offset,
    /// Transactional ids of outcomes below the end that have no marker yet.
    pub(crate) open: Vec<String>,
}

impl Standing {
    /// False between the steps of a reset or a rewind.
    pub(crate) fn is_ready(&self) -> bool {
        self.generation == GroupGeneration::default() || self.generation.is_ready
    }
}

impl Cut {
    /// A cut of `group`; `starts` were read before anything of the outcome partition was.
    pub(crate) fn new(group: &str, starts: Starts) -> Self {
        Cut {
            group: group.to_owned(),
            starts,
            floors: Starts::new(),
            decided: Decisions::new(),
            open: BTreeMap::new(),
            generation: GroupGeneration::default(),
            last: BTreeMap::new(),
            last_position: None,
            decides: false,
            end: None,
        }
    }

    /// Takes the next batch. Errors: `Corrupt`; `Retry` when the partition was compacted while it was read.
    pub(crate) fn apply(&mut self, batch: &RawBatch) -> Result<()> {
        let producer = ProducerId(batch.header.producer_id);
        if batch.header.is_control() {
            let (marker, _coordinator_epoch) =
                control::decode(batch).map_err(wire_error("outcome topic marker"))?;
            let epoch = ProducerEpoch(batch.header.producer_epoch);
            let position = Offset(batch.header.base_offset);
            return self.marker(producer, epoch, position, marker == ControlMarker::Commit);
        }
        let records = batch.records().map_err(wire_error("outcome topic batch"))?;
        for record in &records {
            let record = record.map_err(wire_error("outcome topic record"))?;
            self.apply_record(&record, producer, batch.header.is_transactional())?;
        }
        Ok(())
    }

    fn apply_record(
        &mut self,
        record: &RecordView<'_>,
        producer: ProducerId,
        transactional: bool,
    ) -> Result<()> {
        let position = Offset(record.offset);
        let corrupt = |what: String| {
            Error::new(ErrorKind::Corrupt, format!("outcome topic record at offset {position}: {what}"))
        };
        let (Some(key), Some(value)) = (record.key, record.value) else { return Ok(()) };
        match LogEntry::decode(key, value).map_err(|error| corrupt(error.to_string()))? {
            LogEntry::Outcome(outcome) => {
                outcome.check_batch(producer, transactional).map_err(corrupt)?;
                self.outcome(position, *outcome);
            }
            LogEntry::Floor(floor) => self.floor(position, &floor),
            LogEntry::Generation(generation) => self.generation(position, &generation),
            LogEntry::Mode(_) | LogEntry::Owner(_) | LogEntry::NearLimit(_) | LogEntry::Unknown => {}
        }
        Ok(())
    }

    fn counts(&self, position: Offset, group: &str) -> bool {
        group == self.group && self.end.is_none_or(|end| position < end)
    }

    fn outcome(&mut self, position: Offset, record: OutcomeRecord) {
        if self.counts(position, &record.group) {
            self.open.entry(record.producer_id).or_default().push(OpenOutcome { position, record });
        }
    }

    fn marker(
        &mut self,
        producer: ProducerId,
        epoch: ProducerEpoch,
        position: Offset,
        committed: bool,
    ) -> Result<()> {
        let Some(outcomes) = self.open.remove(&producer) else { return Ok(()) };
        let (before, later) = outcomes.into_iter().partition(|outcome| outcome.position < position);
        let later: Vec<OpenOutcome> = later;
        if !later.is_empty() {
            self.open.insert(producer, later);
        }
        let before: Vec<OpenOutcome> = before;
        for OpenOutcome { position, record } in before {
            // Under transaction version 2 a commit marker carries the epoch of its transaction plus one.
            if committed && i32::from(epoch.0) > i32::from(record.producer_epoch.0) + 1 {
                return Err(Error::new(
                    ErrorKind::Retry,
                    format!(
                        "the outcome topic was compacted while it was read: the marker of the outcome at offset \
                         {position} is gone"
                    ),
                ));
            }
            if committed {
                self.commit(position, record);
            }
        }
        Ok(())
    }

    fn commit(&mut self, position: Offset, record: OutcomeRecord) {
        self.last_position = self.last_position.max(Some(position));
        let current = self.generation.generation;
        if record.generation == current {
            let mut decisions = record.decisions();
            self.decides |= !decisions.is_empty();
            for (partition, start) in &self.starts {
                // Most of a long log is below.
                decisions.forget_below(*partition, *start);
            }
            self.decided.overlay(&decisions);
        }
        let OutcomeRecord { job, instance, checkpoint, job_epoch, manifest, .. } = record;
        let committed = Committed { position, checkpoint, job_epoch, manifest };
        // Markers of different producers may come in another order than their outcomes.
        match self.last.entry((job, instance)) {
            std::collections::btree_map::Entry::Occupied(known) if known.get().position > position => {}
            std::collections::btree_map::Entry::Occupied(mut known) => {
                known.insert(committed);
            }
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(committed);
            }
        }
    }

    fn floor(&mut self, position: Offset, floor: &FloorRecord) {
        if self.counts(position, &floor.group) && floor.generation == self.generation.generation {
            let known = self.floors.entry(floor.source()).or_insert(floor.floor);
            *known = floor.floor.max(*known);
        }
    }

    fn generation(&mut self, position: Offset, record: &GenerationRecord) {
        if !self.counts(position, &record.group) {
            return;
        }
        if self.generation.take(record) {
            self.floors.clear();
            self.decided = Decisions::new();
            self.decides = false;
        }
        if let Some(begins) = self.generation.begins.as_ref().filter(|_| !self.generation.is_ready) {
            self.decided = begins.decisions();
        }
    }

    /// The partition was read to its end: outcomes from there on do not count.
    pub(crate) fn seal(&mut self, end: Offset) {
        self.end = Some(end);
    }

    /// Whether every outcome that counts has its marker.
    pub(crate) fn is_settled(&self) -> bool {
        self.end.is_some() && self.open.values().all(Vec::is_empty)
    }

    /// Where the group stands, as far as it is settled.
    pub(crate) fn standing(&self) -> Standing {
        let (mut starts, mut decided) = (self.starts.clone(), self.decided.clone());
        for (partition, floor) in &self.floors {
            let start = starts.entry(*partition).or_insert(*floor);
            *start = (*floor).max(*start);
        }
        for (partition, start) in &mut starts {
            decided.forget_below(*partition, *start);
            // Neighbours with another decision are ranges of their own.
            for range in decided.of(*partition) {
                if range.first > *start {
                    break;
                }
                *start = range.last.next();
            }
            decided.forget_below(*partition, *start);
        }
        let open = self.open.values().flatten().map(|outcome| outcome.record.transactional_id.clone());
        Standing {
            starts,
            decided,
            generation: self.generation.clone(),
            last: self.last.clone(),
            last_position: self.last_position,
            decides: self.decides,
            end: self.end.unwrap_or(Offset(0)),
            open: open.collect(),
        }
    }
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;
