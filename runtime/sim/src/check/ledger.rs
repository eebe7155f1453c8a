//! Ledger mode as the outcome partition shows it (ADR 0012): who claims what under which key, what floors cover and what
//! tombstones remove. Read from the partition alone, with nothing of the code that reads it in a job.

use std::collections::{BTreeMap, BTreeSet};

use sharestream_base::ids::{Offset, PartitionIndex, ProducerId, TopicId};
use sharestream_broker::inspect::Fate;
use sharestream_core::commit::AckMode;
use sharestream_kafka::outcome::{FloorRecord, LogEntry, OutcomeRecord, ReplayGeneration};

use super::effects::is_shown;
use super::logs::Logs;
use super::watch::{Said, SeenOutcome, Watch};
use super::{Checker, Finding, Place};
use crate::plan::Plan;
use crate::workload::SOURCE;

/// Findings that are kept: what follows is their echo.
const FINDINGS_MAX: usize = 8;

/// Clocks of two replicas are at most so far apart where none of them jumps.
const CLOCKS_DIFFER_MS: i64 = 4_000;
/// Claims of one replica that may meet the open claim of a late owner: one that ends it, and one whose attempt to do so
/// was in vain.
const MET_MAX: u32 = 2;

/// A claim, and when its transaction is known to have ended.
struct Claim<'a> {
    at: Offset,
    record: &'a OutcomeRecord,
    is_committed: bool,
    /// Offset of its marker, if that was seen.
    marker: Option<Offset>,
}

impl Claim<'_> {
    /// Whether it had committed below `offset`; taken for true where its marker was not seen.
    fn has_committed_below(&self, offset: Offset) -> bool {
        self.is_committed && self.at < offset && self.marker.is_none_or(|marker| marker < offset)
    }
}

/// What one outcome partition said.
#[derive(Default)]
struct Ledger<'a> {
    claims: Vec<Claim<'a>>,
    floors: Vec<(Offset, &'a FloorRecord)>,
    /// Keys by place.
    tombstones: Vec<(Offset, &'a str)>,
    modes: Vec<(Offset, AckMode)>,
    generations: Vec<(Offset, ReplayGeneration)>,
}

/// Applies the rules that can be seen in the outcome topic of a job in ledger mode.
pub(super) fn check(logs: &Logs, plan: &Plan, watch: &Watch) -> Vec<Finding> {
    if plan.ledger.is_none() {
        return Vec::new();
    }
    let seen = watch.outcome_topic();
    let partitions: BTreeSet<PartitionIndex> = seen.iter().map(|seen| seen.partition).collect();
    let mut found = Vec::new();
    for partition in partitions {
        let ledger = Ledger::of(seen.iter().filter(|seen| seen.partition == partition));
        found.extend(ledger.keys());
        found.extend(ledger.late_claims());
        found.extend(ledger.late_owners(plan));
        found.extend(ledger.uncovered_tombstones());
        found.extend(ledger.floors_over_undecided(logs, plan));
    }
    found.truncate(FINDINGS_MAX);
    found
}

fn find(text: String) -> Finding {
    Finding::new(Checker::Ledger, text)
}

fn name_of(claim: &Claim<'_>) -> String {
    let OutcomeRecord { instance, checkpoint, .. } = claim.record;
    format!("the claim of {instance} checkpoint {checkpoint} at offset {}", claim.at)
}

fn has_some_of(one: &OutcomeRecord, other: &OutcomeRecord) -> bool {
    one.generation == other.generation
        && one.partitions.iter().any(|part| {
            let same = other
                .partitions
                .iter()
                .filter(|it| (it.topic_id, it.partition) == (part.topic_id, part.partition));
            same.flat_map(|it| &it.ranges).any(|theirs| {
                part.ranges.iter().any(|ours| ours.first <= theirs.last && theirs.first <= ours.last)
            })
        })
}

impl<'a> Ledger<'a> {
    fn of(seen: impl Iterator<Item = &'a SeenOutcome<'a>>) -> Self {
        let mut ledger = Ledger::default();
        let mut open: BTreeMap<ProducerId, Vec<usize>> = BTreeMap::new();
        for seen in seen {
            match &seen.entry.said {
                Said::Tombstone => ledger.tombstones.push((seen.offset, seen.entry.key.as_str())),
                Said::Marker { producer } => {
                    for index in open.remove(producer).unwrap_or_default() {
                        ledger.claims[index].marker = Some(seen.offset);
                    }
                }
                Said::Entry(LogEntry::Outcome(record)) => {
                    open.entry(record.producer_id).or_default().push(ledger.claims.len());
                    let is_committed = matches!(seen.fate, Fate::Committed | Fate::Plain);
                    ledger.claims.push(Claim { at: seen.offset, record, is_committed, marker: None });
                }
                Said::Entry(LogEntry::Floor(floor)) => ledger.floors.push((seen.offset, floor)),
                Said::Entry(LogEntry::Mode(mode)) => ledger.modes.push((seen.offset, mode.mode)),
                Said::Entry(LogEntry::Generation(record)) => {
                    ledger.generations.push((seen.offset, record.generation));
                }
                Said::Entry(LogEntry::Owner(_) | LogEntry::NearLimit(_) | LogEntry::Unknown) => {}
            }
        }
        ledger
    }

    /// Rule 11: a key is used once.
    fn keys(&self) -> Vec<Finding> {
        let mut used: BTreeMap<String, Offset> = BTreeMap::new();
        let mut found = Vec::new();
        for claim in &self.claims {
            if let Some(before) = used.insert(claim.record.key(), claim.at) {
                let key = claim.record.key();
                found.push(find(format!("{} has the key {key} of that at {before}", name_of(claim))));
            }
        }
        found
    }

    /// M1, R2: who claims after the group's mode or generation has changed does not commit by the old one.
    fn late_claims(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for claim in self.claims.iter().filter(|claim| claim.is_committed) {
            let before = |at: Offset| at < claim.at;
            let mode = self.modes.iter().rev().find(|(at, _)| before(*at)).map(|(_, mode)| *mode);
            if claim.record.mode == AckMode::Ledger && mode.is_some_and(|mode| mode != AckMode::Ledger) {
                found.push(find(format!("{} committed in ledger mode under {mode:?}", name_of(claim))));
            }
            let begun = self.generations.iter().filter(|(at, _)| before(*at)).map(|(_, it)| *it).max();
            if begun.is_some_and(|begun| begun > claim.record.generation) {
                let generation = claim.record.generation;
                found.push(find(format!(
                    "{} committed in replay generation {generation}, and {begun:?} had begun",
                    name_of(claim)
                )));
            }
        }
        found
    }

    /// Rule 13: whoever meets the open claim of an owner that is late ends its transaction, and does not come back to it
    /// again and again. Where something keeps the brokers from serving, that may fail.
    fn late_owners(&self, plan: &Plan) -> Vec<Finding> {
        let Some(settings) = plan.ledger.as_ref().filter(|_| !plan.has_outages()) else { return Vec::new() };
        let half_ms = i64::try_from((settings.commit_deadline / 2).as_millis()).unwrap_or(0);
        let mut found = Vec::new();
        for (index, claim) in self.claims.iter().enumerate() {
            let late_ms = claim.record.deadline_ms.saturating_add(CLOCKS_DIFFER_MS);
            let end = claim.marker.unwrap_or(Offset(i64::MAX));
            let met = self.claims[index + 1..].iter().filter(|other| {
                other.at < end
                    && other.record.instance != claim.record.instance
                    && other.record.deadline_ms.saturating_sub(half_ms) > late_ms
                    && has_some_of(other.record, claim.record)
            });
            let mut by_instance: BTreeMap<&str, u32> = BTreeMap::new();
            for other in met {
                *by_instance.entry(&other.record.instance).or_default() += 1;
            }
            if let Some((instance, count)) = by_instance.into_iter().find(|(_, count)| *count > MET_MAX) {
                found.push(find(format!(
                    "{} was open and its owner late, and {instance} claimed some of its records {count} times without \
                     ending its transaction",
                    name_of(claim)
                )));
            }
        }
        found
    }

    /// Rule 10, F1, F3: what a tombstone removes is covered by a floor that was there before, and is not the newest of its
    /// kind.
    fn uncovered_tombstones(&self) -> Vec<Finding> {
        let claims: BTreeMap<String, &Claim<'_>> =
            self.claims.iter().map(|claim| (claim.record.key(), claim)).collect();
        let floors: BTreeMap<String, &FloorRecord> =
            self.floors.iter().map(|(_, floor)| (floor.key(), *floor)).collect();
        let mut found = Vec::new();
        for (at, key) in &self.tombstones {
            if let Some(floor) = floors.get(*key) {
                let is_overtaken = self.floors_below(*at, floor.generation, floor.topic_id, floor.partition);
                if is_overtaken.is_none_or(|highest| highest <= floor.floor) {
                    found.push(find(format!("the tombstone at offset {at} removes the highest floor {key}")));
                }
            }
            let Some(claim) = claims.get(*key) else { continue };
            if !claim.has_committed_below(*at) {
                found.push(find(format!(
                    "the tombstone at offset {at} removes {}, not committed",
                    name_of(claim)
                )));
            }
            if let Some(uncovered) = self.uncovered(claim, *at) {
                found.push(find(format!(
                    "the tombstone at offset {at} removes {}, and no floor before it covers {uncovered}",
                    name_of(claim)
                )));
            }
            let is_newer = |other: &&Claim<'_>| {
                other.record.transactional_id == claim.record.transactional_id
                    && other.at > claim.at
                    && other.has_committed_below(*at)
            };
            if !self.claims.iter().any(|other| is_newer(&other)) {
                found.push(find(format!(
                    "the tombstone at offset {at} removes {}, the newest of {}",
                    name_of(claim),
                    claim.record.transactional_id
                )));
            }
        }
        found
    }

    /// A range of a claim that no floor below `at` covers.
    fn uncovered(&self, claim: &Claim<'_>, at: Offset) -> Option<String> {
        for part in &claim.record.partitions {
            let floor = self.floors_below(at, claim.record.generation, part.topic_id, part.partition);
            let over = |last: Offset| floor.is_none_or(|floor| last >= floor);
            if let Some(range) = part.ranges.iter().find(|range| over(range.last)) {
                return Some(format!("{}/{} to {}", part.partition, range.first, range.last));
            }
        }
        None
    }

    /// The highest floor of a source partition below an offset.
    fn floors_below(
        &self,
        at: Offset,
        generation: ReplayGeneration,
        topic_id: TopicId,
        partition: PartitionIndex,
    ) -> Option<Offset> {
        let of_it = |floor: &FloorRecord| {
            (floor.generation, floor.topic_id, floor.partition) == (generation, topic_id, partition)
        };
        let below = self.floors.iter().filter(|(place, floor)| *place < at && of_it(floor));
        below.map(|(_, floor)| floor.floor).max()
    }

    /// Rule 9: below a floor every record is decided by a claim that had committed before the floor was written.
    fn floors_over_undecided(&self, logs: &Logs, plan: &Plan) -> Vec<Finding> {
        let mut decided: BTreeMap<(ReplayGeneration, Place), Offset> = BTreeMap::new();
        for claim in self.claims.iter().filter(|claim| claim.is_committed) {
            for part in &claim.record.partitions {
                for offset in part.ranges.iter().flat_map(|range| range.first.0..=range.last.0) {
                    let place = Place { partition: part.partition.0, offset };
                    let since = claim.marker.unwrap_or(claim.at);
                    let known = decided.entry((claim.record.generation, place)).or_insert(since);
                    *known = since.min(*known);
                }
            }
        }
        let mut found = Vec::new();
        let mut passed: BTreeSet<(ReplayGeneration, Place)> = BTreeSet::new();
        for (at, floor) in &self.floors {
            let shown = logs.of(SOURCE).iter().filter(|record| is_shown(record, plan));
            let below =
                shown.filter(|record| record.partition == floor.partition && record.offset < floor.floor);
            for record in below {
                let place = Place { partition: record.partition.0, offset: record.offset.0 };
                let key = (floor.generation, place);
                if !passed.insert(key) || decided.get(&key).is_some_and(|since| since < at) {
                    continue;
                }
                let text = format!(
                    "the floor {} at offset {at} is above it, and no claim had decided it",
                    floor.floor
                );
                found.push(Finding::about(Checker::Ledger, place, text));
            }
        }
        found
    }
}
