//! The view: what the outcome partition says about one group, as far as it was read. Pure: fed batch by batch.
//!
//! ```text
//! claim of producer p --> open --commit marker of p--> committed --floor above all of it--> covered --tombstone--> gone
//!                             \---abort marker of p---> gone
//! ```
//! A marker settles every claim of its producer that lies before it. Under transaction version 2 a commit marker carries the
//! epoch of its transaction plus one; a higher one belongs to a later transaction, and the claim's own marker is gone (F7).
//! Aborted claims are forgotten; so is everything of an older replay generation.

use std::collections::{BTreeMap, BTreeSet};

use sharestream_base::ErrorKind;
use sharestream_base::ids::{Offset, ProducerEpoch, ProducerId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_core::commit::AckMode;
use sharestream_core::decision::{Decisions, SourcePartition};
use sharestream_wire::records::control::{self, ControlMarker};
use sharestream_wire::records::{RawBatch, RecordView};

use crate::error::wire_error;
use crate::outcome::{FloorRecord, GenerationRecord, LogEntry, ModeRecord, OutcomeRecord, ReplayGeneration};
use crate::{Error, Result};

/// What became of a claim that is remembered. An aborted one is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its marker was not read yet.
    Open,
    /// Its transaction committed.
    Committed,
}

/// A claim that may still concern somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) key: String,
    pub(crate) job: String,
    pub(crate) instance: String,
    pub(crate) transactional_id: String,
    pub(crate) producer_id: ProducerId,
    pub(crate) producer_epoch: ProducerEpoch,
    /// Unix milliseconds after which anyone may end its transaction.
    pub(crate) deadline_ms: i64,
    pub(crate) mode: AckMode,
    pub(crate) fate: Fate,
    /// What it decides; of a committed one, what is above the floors.
    pub(crate) decisions: Decisions,
}

/// A committed claim that lies wholly below the floors: only its record is left to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    pub(crate) key: String,
    pub(crate) job: String,
    pub(crate) instance: String,
    pub(crate) transactional_id: String,
    pub(crate) deadline_ms: i64,
}

/// Covered claims that a view keeps, oldest first; a keeper removes them long before.
const COVERED_MAX: usize = 10_000;

/// Where a fetch ended, and what the leader said with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseEnd {
    /// The response's own high watermark.
    pub(crate) high_watermark: Offset,
    /// Its last stable offset.
    pub(crate) last_stable_offset: Offset,
}

/// One group's view of its outcome partition.
#[derive(Clone, Debug)]
pub(crate) struct View {
    group: String,
    next: Offset,
    /// Where the last response ended that ended at its own high watermark (F2).
    caught_up_to: Option<Offset>,
    /// Open, or committed and not wholly below the floors; by position.
    claims: BTreeMap<Offset, Claim>,
    /// Positions of open claims, by producer.
    open: BTreeMap<ProducerId, BTreeSet<Offset>>,
    /// What committed claims decide above the floors.
    committed: Decisions,
    covered: BTreeMap<Offset, Covered>,
    /// Positions of covered claims, by key.
    covered_keys: BTreeMap<String, Offset>,
    /// Covered claims were not kept, for there were too many: what is kept is the oldest of them.
    covered_overflowed: bool,
    /// Position of the newest committed claim of each transactional id (F3).
    newest: BTreeMap<String, Offset>,
    floors: BTreeMap<SourcePartition, FloorRecord>,
    /// Keys of floor records that a higher one of the same partition has overtaken.
    overtaken_floors: BTreeSet<String>,
    generation: ReplayGeneration,
    generation_ready: bool,
    mode: Option<(Offset, ModeRecord)>,
    /// A floor was raised since the claims were last looked through.
    uncovered_floor: bool,
    /// F7: an open claim's marker is gone.
    lost_marker: bool,
    /// F7: so was that of one that a later transaction of its producer has overtaken.
    overtaken_claim: bool,
}

impl View {
    /// A view of `group` that will be read from `start`, the beginning of the partition.
    pub(crate) fn new(group: &str, start: Offset) -> Self {
        View {
            group: group.to_owned(),
            next: start,
            caught_up_to: None,
            claims: BTreeMap::new(),
            open: BTreeMap::new(),
            committed: Decisions::new(),
            covered: BTreeMap::new(),
            covered_keys: BTreeMap::new(),
            covered_overflowed: false,
            newest: BTreeMap::new(),
            floors: BTreeMap::new(),
            overtaken_floors: BTreeSet::new(),
            generation: ReplayGeneration::default(),
            // The first generation needs no reset.
            generation_ready: true,
            mode: None,
            uncovered_floor: false,
            lost_marker: false,
            overtaken_claim: false,
        }
    }

    /// The offset to read on from.
    pub(crate) fn next(&self) -> Offset {
        self.next
    }

    /// End of the last response that ended at its own high watermark: everything below was in the log at that time
    /// and is read, or had been replaced by something that is.
    pub(crate) fn caught_up_to(&self) -> Option<Offset> {
        self.caught_up_to
    }

    /// The newest generation read.
    pub(crate) fn generation(&self) -> ReplayGeneration {
        self.generation
    }

    /// False between the two steps of a reset: nobody follows start offsets then (R6).
    pub(crate) fn is_generation_ready(&self) -> bool {
        self.generation_ready
    }

    /// The newest mode record and its position.
    pub(crate) fn mode(&self) -> Option<(Offset, &ModeRecord)> {
        self.mode.as_ref().map(|(position, mode)| (*position, mode))
    }

    /// How often the mode has changed.
    pub(crate) fn era(&self) -> u32 {
        self.mode.as_ref().map_or(0, |(_, mode)| mode.era)
    }

    /// Claims by position: open ones, and committed ones above the floors.
    pub(crate) fn claims(&self) -> impl DoubleEndedIterator<Item = (Offset, &Claim)> {
        self.claims.iter().map(|(position, claim)| (*position, claim))
    }

    /// The claim at a position, unless it is aborted or covered.
    pub(crate) fn claim(&self, position: Offset) -> Option<&Claim> {
        self.claims.get(&position)
    }

    /// Open claims, by position.
    pub(crate) fn open_claims(&self) -> impl Iterator<Item = (Offset, &Claim)> {
        let mut positions: Vec<Offset> = self.open.values().flatten().copied().collect();
        positions.sort_unstable();
        positions.into_iter().filter_map(|position| Some((position, self.claims.get(&position)?)))
    }

    /// Where the open claim of a transaction lies: how a produce without an answer is found.
    pub(crate) fn position_of(&self, producer: ProducerId, epoch: ProducerEpoch) -> Option<Offset> {
        let positions = self.open.get(&producer)?;
        let is_it =
            |position: &&Offset| self.claims.get(position).is_some_and(|claim| claim.producer_epoch == epoch);
        positions.iter().find(is_it).copied()
    }

    /// What committed claims decide above the floors.
    pub(crate) fn committed(&self) -> &Decisions {
        &self.committed
    }

    /// The floor of a source partition: everything below it is decided.
    pub(crate) fn floor(&self, partition: SourcePartition) -> Option<Offset> {
        self.floors.get(&partition).map(|record| record.floor)
    }

    /// The highest floor records.
    pub(crate) fn floors(&self) -> &BTreeMap<SourcePartition, FloorRecord> {
        &self.floors
    }

    /// Keys of floor records of this generation that a higher one, read back, has overtaken (F1).
    pub(crate) fn overtaken_floors(&self) -> impl Iterator<Item = &str> {
        self.overtaken_floors.iter().map(String::as_str)
    }

    /// Committed claims that a floor, read back, covers wholly; by position.
    pub(crate) fn covered(&self) -> impl Iterator<Item = (Offset, &Covered)> {
        self.covered.iter().map(|(position, covered)| (*position, covered))
    }

    /// Position of the newest committed claim of a transactional id.
    pub(crate) fn newest_of(&self, transactional_id: &str) -> Option<Offset> {
        self.newest.get(transactional_id).copied()
    }

    /// Claims whose records are still in the log, as far as this view knows.
    pub(crate) fn backlog(&self) -> usize {
        self.claims.len() + self.covered.len()
    }

    /// True when the partition must be read from its start once more, for either reason:
    /// - covered claims did not fit, and those that did have been tombstoned;
    /// - F7: an open claim lies below the last stable offset of a response that ended at its own high watermark, and its
    ///   marker was not met: claim and marker were compacted away; or the marker of a later transaction of its producer was
    ///   met first.
    pub(crate) fn must_be_rebuilt(&self) -> bool {
        let lost_marker = self.lost_marker || self.overtaken_claim;
        lost_marker || self.covered_overflowed && self.covered.is_empty()
    }

    /// Takes the next batch; one that was read before is passed over.
    ///
    /// # Errors
    /// `Corrupt` when a record cannot be read, an outcome stands outside a transaction, or a claim is of a generation
    /// that never began.
    pub(crate) fn apply(&mut self, batch: &RawBatch) -> Result<()> {
        let end = Offset(batch.header.next_offset());
        if end <= self.next {
            return Ok(());
        }
        let producer = ProducerId(batch.header.producer_id);
        if batch.header.is_control() {
            let (marker, _coordinator_epoch) =
                control::decode(batch).map_err(wire_error("outcome topic marker"))?;
            let epoch = ProducerEpoch(batch.header.producer_epoch);
            self.settle((producer, epoch), Offset(batch.header.base_offset), marker == ControlMarker::Commit);
        } else {
            let records = batch.records().map_err(wire_error("outcome topic batch"))?;
            for record in &records {
                let record = record.map_err(wire_error("outcome topic record"))?;
                if Offset(record.offset) >= self.next {
                    self.apply_record(&record, producer, batch.header.is_transactional())?;
                }
            }
        }
        self.next = end;
        Ok(())
    }

    /// A response is read to its end.
    pub(crate) fn response_ended(&mut self, end: ResponseEnd) {
        if std::mem::take(&mut self.uncovered_floor) {
            self.cover();
        }
        if self.next < end.high_watermark {
            return;
        }
        self.caught_up_to = Some(self.next);
        let first_open = self.open.values().filter_map(BTreeSet::first).min();
        self.lost_marker = first_open.is_some_and(|open| *open < end.last_stable_offset);
    }

    fn apply_record(
        &mut self,
        record: &RecordView<'_>,
        producer: ProducerId,
        transactional: bool,
    ) -> Result<()> {
        let position = Offset(record.offset);
        let key = record.key.ok_or_else(|| corrupt(position, "no key"))?;
        let Some(value) = record.value else {
            self.bury(key);
            return Ok(());
        };
        match LogEntry::decode(key, value).map_err(|error| corrupt(position, error.to_string()))? {
            LogEntry::Unknown | LogEntry::Owner(_) | LogEntry::NearLimit(_) => Ok(()),
            LogEntry::Mode(mode) => {
                if mode.group == self.group {
                    self.learn_mode(position, mode);
                }
                Ok(())
            }
            LogEntry::Floor(floor) => {
                if floor.group == self.group {
                    self.raise(floor);
                }
                Ok(())
            }
            LogEntry::Generation(generation) => {
                if generation.group == self.group {
                    self.begin(&generation);
                }
                Ok(())
            }
            LogEntry::Outcome(outcome) if outcome.group != self.group => Ok(()),
            LogEntry::Outcome(outcome) => {
                outcome.check_batch(producer, transactional).map_err(|what| corrupt(position, what))?;
                self.take_claim(position, *outcome)
            }
        }
    }

    fn take_claim(&mut self, position: Offset, outcome: OutcomeRecord) -> Result<()> {
        if outcome.generation > self.generation {
            // Its writer had read the record that begins the generation, which is never removed.
            let what = format!("a claim of replay generation {}, which never began", outcome.generation);
            return Err(corrupt(position, what));
        }
        if outcome.generation < self.generation && !is_planted(Bug::GenerationIgnored) {
            // R1: it says nothing about this replay; R2: whoever made it aborts, or had decided before.
            return Ok(());
        }
        self.open.entry(outcome.producer_id).or_default().insert(position);
        let claim = Claim {
            key: outcome.key(),
            decisions: outcome.decisions(),
            job: outcome.job,
            instance: outcome.instance,
            transactional_id: outcome.transactional_id,
            producer_id: outcome.producer_id,
            producer_epoch: outcome.producer_epoch,
            deadline_ms: outcome.deadline_ms,
            mode: outcome.mode,
            fate: Fate::Open,
        };
        self.claims.insert(position, claim);
        Ok(())
    }

    /// A marker: settles the open claims of its producer before it.
    fn settle(&mut self, (producer, epoch): (ProducerId, ProducerEpoch), marker: Offset, committed: bool) {
        let Some(mut positions) = self.open.remove(&producer) else { return };
        let later = positions.split_off(&marker);
        if !later.is_empty() {
            self.open.insert(producer, later);
        }
        for position in positions {
            if !committed {
                self.claims.remove(&position);
                continue;
            }
            let Some(claim) = self.claims.get_mut(&position) else { continue };
            let is_anothers = i32::from(epoch.0) > i32::from(claim.producer_epoch.0) + 1;
            if is_anothers && !is_planted(Bug::LaterMarkerSettles) {
                // It aborted, or a floor covers it: a commit marker stays as long as its claim.
                self.claims.remove(&position);
                self.overtaken_claim = true;
                continue;
            }
            claim.fate = Fate::Committed;
            for floor in self.floors.values() {
                claim.decisions.forget_below(floor.source(), floor.floor);
            }
            self.committed.overlay(&claim.decisions);
            let before = self.newest.insert(claim.transactional_id.clone(), position);
            if claim.decisions.is_empty() {
                self.cover_claim(position);
            }
            if is_planted(Bug::OwnClaimsSkipped)
                && let Some(before) = before
            {
                self.forget_claim(before);
            }
        }
    }

    /// What a mistake would do (rule 6): an earlier claim of a transactional id counts no more.
    fn forget_claim(&mut self, position: Offset) {
        self.claims.remove(&position);
        self.committed = Decisions::new();
        for claim in self.claims.values().filter(|claim| claim.fate == Fate::Committed) {
            self.committed.overlay(&claim.decisions);
        }
    }

    /// A tombstone: the record of that key is, or will be, gone. What a claim decided stays as it is: the floor, read
    /// before the tombstone could be written, says it as well.
    fn bury(&mut self, key: &[u8]) {
        let Ok(key) = std::str::from_utf8(key) else { return };
        // Its floor may have come with the same response.
        if std::mem::take(&mut self.uncovered_floor) {
            self.cover();
        }
        self.overtaken_floors.remove(key);
        if let Some(position) = self.covered_keys.remove(key) {
            self.covered.remove(&position);
        }
    }

    fn learn_mode(&mut self, position: Offset, mode: ModeRecord) {
        // A late record of an earlier era takes nothing back.
        if self.mode.as_ref().is_none_or(|(_, known)| mode.era >= known.era) {
            self.mode = Some((position, mode));
        }
    }

    /// A floor record: the highest counts (F1), and only within its generation (R1).
    fn raise(&mut self, floor: FloorRecord) {
        if floor.generation != self.generation && !is_planted(Bug::GenerationIgnored) {
            return;
        }
        let partition = floor.source();
        let key = floor.key();
        match self.floors.get(&partition) {
            Some(known) if known.floor >= floor.floor && !is_planted(Bug::LastFloorCounts) => {
                if known.floor > floor.floor {
                    self.overtaken_floors.insert(key);
                }
                return;
            }
            Some(lower) => {
                self.overtaken_floors.insert(lower.key());
            }
            None => {}
        }
        self.overtaken_floors.remove(&key);
        self.committed.forget_below(partition, floor.floor);
        self.floors.insert(partition, floor);
        self.uncovered_floor = true;
    }

    /// Looks through the committed claims for those that the floors cover now.
    fn cover(&mut self) {
        let mut done = Vec::new();
        for (position, claim) in &mut self.claims {
            if claim.fate != Fate::Committed {
                continue;
            }
            for floor in self.floors.values() {
                claim.decisions.forget_below(floor.source(), floor.floor);
            }
            if claim.decisions.is_empty() {
                done.push(*position);
            }
        }
        for position in done {
            self.cover_claim(position);
        }
    }

    fn cover_claim(&mut self, position: Offset) {
        let Some(claim) = self.claims.remove(&position) else { return };
        if self.covered.len() >= COVERED_MAX {
            self.covered_overflowed = true;
            return;
        }
        let Claim { key, job, instance, transactional_id, deadline_ms, .. } = claim;
        self.covered_keys.insert(key.clone(), position);
        self.covered.insert(position, Covered { key, job, instance, transactional_id, deadline_ms });
    }

    /// A step of a reset.
    fn begin(&mut self, record: &GenerationRecord) {
        if record.generation < self.generation {
            return;
        }
        if record.generation > self.generation {
            self.generation = record.generation;
            self.generation_ready = false;
            if !is_planted(Bug::GenerationIgnored) {
                self.claims.clear();
                self.open.clear();
                self.committed = Decisions::new();
                self.covered.clear();
                self.covered_keys.clear();
                self.covered_overflowed = false;
                self.newest.clear();
                self.floors.clear();
                self.overtaken_floors.clear();
            }
        }
        if let Some(begins) = record.begins.as_ref().filter(|_| !self.generation_ready) {
            // What a savepoint had decided is decided in this generation, too. Nobody claims before it is ready.
            self.committed = begins.decisions();
        }
        self.generation_ready |= record.ready;
    }
}

fn corrupt(position: Offset, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("outcome topic record at offset {position}: {what}"))
}
