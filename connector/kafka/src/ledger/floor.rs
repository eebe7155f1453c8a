//! Floors and tombstones: which floors may be raised, which records may go, and what a start offset reveals. Pure.
//!
//! A floor follows the group's durable start offset: everything below that is finished at the broker, whatever decided
//! it. So a start offset that is found below a floor was moved back by hand, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use sharestream_base::ids::Offset;
use sharestream_base::planted::{Bug, is_planted};
use sharestream_core::decision::{Decision, SourcePartition};

use super::view::{Claim, Fate, View};
use crate::outcome::{FORMAT_VERSION, FloorRecord, OutcomeCounts};

/// Tombstones of one round, at most.
const TOMBSTONES_MAX: usize = 2_000;

/// Durable start offsets of the group, by source partition.
pub(super) type StartOffsets = BTreeMap<SourcePartition, Offset>;

/// What is wrong with a start offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It is below the floor: somebody moved it back without a replay generation.
    MovedBack {
        /// Where the group starts.
        start: Offset,
        /// Everything below is decided.
        floor: Offset,
    },
    /// It has passed these offsets, which no claim decides.
    PassedUndecided {
        /// First offset.
        first: Offset,
        /// Last one, inclusive.
        last: Offset,
    },
}

/// The floors of a view.
pub(super) fn floors_of(view: &View) -> StartOffsets {
    view.floors().values().map(|record| (record.source(), record.floor)).collect()
}

/// Compares the start offsets with what is decided. `floors_before` were read before the start offsets were asked for: a
/// later one may follow a later start offset. The view must have been caught up after that: whoever acknowledges has
/// claimed before.
pub(super) fn examine(
    view: &View,
    floors_before: &StartOffsets,
    starts: &StartOffsets,
) -> Vec<(SourcePartition, Finding)> {
    let mut findings = Vec::new();
    for (partition, start) in starts {
        if let Some(floor) = floors_before.get(partition).copied().filter(|floor| start < floor) {
            findings.push((*partition, Finding::MovedBack { start: *start, floor }));
        }
        // Without a floor nobody knows where the group began.
        let Some(floor) = view.floor(*partition) else { continue };
        for (first, last) in undecided(view, *partition, floor, *start) {
            findings.push((*partition, Finding::PassedUndecided { first, last }));
        }
    }
    findings
}

/// Runs of undecided offsets that are told of a partition; the rest follows when the floor has passed them.
const UNDECIDED_MAX: usize = 16;

/// The first runs of offsets in `from..end` without a claim, open ones included: an acknowledgement may be seen before
/// the marker of its transaction.
fn undecided(view: &View, partition: SourcePartition, from: Offset, end: Offset) -> Vec<(Offset, Offset)> {
    let last = end.plus(-1);
    let committed = view.committed().within(partition, from, last);
    let mut known: Vec<(Offset, Offset)> = committed.map(|part| (part.first, part.last)).collect();
    for (_, claim) in view.open_claims() {
        known.extend(claim.decisions.within(partition, from, last).map(|part| (part.first, part.last)));
    }
    known.sort_unstable();
    known.push((end, end));
    let mut next = from;
    let mut runs = Vec::new();
    for (first, last) in known {
        if first > next && runs.len() < UNDECIDED_MAX {
            runs.push((next, first.plus(-1)));
        }
        next = next.max(last.next());
    }
    runs
}

/// The floors that may be raised now (rule 9): to the durable start offset, but not over an open claim.
fn floors_to_raise(
    view: &View,
    group: &str,
    starts: &StartOffsets,
    topic_name: impl Fn(SourcePartition) -> String,
) -> Vec<FloorRecord> {
    // R6: between the two steps of a reset nobody knows whether a start offset is old or new.
    if !view.is_generation_ready() {
        return Vec::new();
    }
    let mut raised = Vec::new();
    for (partition, start) in starts {
        let mut end = *start;
        if is_planted(Bug::FloorOverHole) {
            let committed = view.committed().of(*partition).last();
            end = committed.map_or(end, |range| end.max(range.last.next()));
        }
        for range in view.open_claims().flat_map(|(_, claim)| claim.decisions.of(*partition)) {
            if is_planted(Bug::FloorOverOpenClaim) {
                end = end.max(range.last.next());
            } else {
                end = end.min(range.first);
            }
        }
        let known = view.floors().get(partition);
        if end.0 < 0 || known.is_some_and(|known| known.floor >= end) {
            continue;
        }
        raised.push(floor_at(view, group, *partition, end, known, topic_name(*partition)));
    }
    raised
}

fn floor_at(
    view: &View,
    group: &str,
    partition: SourcePartition,
    end: Offset,
    known: Option<&FloorRecord>,
    topic: String,
) -> FloorRecord {
    // The first floor counts from where the claims that reach up to it begin.
    let first_claimed = || view.committed().of(partition).next().map_or(end, |range| range.first.min(end));
    let (from, initial) =
        known.map_or_else(|| (first_claimed(), first_claimed()), |known| (known.floor, known.initial));
    let mut counts = known.map(|known| known.counts).unwrap_or_default();
    let mut passed = known.map_or(0, |known| known.passed) + (end.0 - from.0).unsigned_abs();
    for part in view.committed().within(partition, from, end.plus(-1)) {
        let length = part.first.count_to(part.last);
        passed = passed.saturating_sub(length);
        let OutcomeCounts { accept, reject, gap } = &mut counts;
        match part.decision {
            Decision::Accept => *accept += length,
            Decision::Reject => *reject += length,
            Decision::Gap => *gap += length,
        }
    }
    FloorRecord {
        format_version: FORMAT_VERSION,
        group: group.to_owned(),
        generation: view.generation(),
        topic,
        topic_id: partition.topic_id,
        partition: partition.partition,
        floor: end,
        initial,
        counts,
        passed,
    }
}

/// Whose keeper asks, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeeperIs<'a> {
    pub(super) group: &'a str,
    pub(super) job: &'a str,
    pub(super) instance: &'a str,
    pub(super) now_ms: i64,
}

/// What is to be written now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) floors: Vec<FloorRecord>,
    /// Keys.
    pub(super) tombstones: Vec<String>,
}

/// The plan of one round.
pub(super) fn plan(
    view: &View,
    keeper: KeeperIs<'_>,
    starts: &StartOffsets,
    topic_name: impl Fn(SourcePartition) -> String,
) -> Plan {
    let mut floors = floors_to_raise(view, keeper.group, starts, topic_name);
    let tombstones = tombstones(view, keeper, &floors, TOMBSTONES_MAX);
    if is_planted(Bug::TombstoneBeforeFloorReadBack) && !tombstones.is_empty() {
        // They come with the next round.
        floors.clear();
    }
    Plan { floors, tombstones }
}

/// Keys of records that may be tombstoned now, at most `limit`: floor records that a higher one has overtaken (F1), and
/// committed claims wholly below floors that were read back (rule 10), except
/// - the newest one of each transactional id (F3): recovery judges a manifest by it;
/// - those behind an earlier one of the same replica that stays: what is left of a replica's outcomes is a chain without
///   a hole, which recovery checks;
/// - those of others, until their deadline has passed: their own keepers come first.
///
/// `raised`: floors that are written at the same time.
fn tombstones(view: &View, keeper: KeeperIs<'_>, raised: &[FloorRecord], limit: usize) -> Vec<String> {
    let mut keys: Vec<String> = view.overtaken_floors().take(limit).map(str::to_owned).collect();
    let stays =
        view.claims().filter(|(_, claim)| claim.fate == Fate::Committed && !is_covered_by(claim, raised));
    let mut claims: Vec<(Offset, Option<&str>, &str, &str)> =
        stays.map(|(at, claim)| (at, None, claim.job.as_str(), claim.instance.as_str())).collect();
    claims.extend(view.covered().map(|(at, covered)| {
        let is_newest = view.newest_of(&covered.transactional_id) == Some(at);
        let is_ours = covered.job == keeper.job && covered.instance == keeper.instance;
        let may_go = (is_ours || covered.deadline_ms < keeper.now_ms)
            && (!is_newest || is_planted(Bug::NewestClaimTombstoned));
        (at, may_go.then_some(covered.key.as_str()), covered.job.as_str(), covered.instance.as_str())
    }));
    if is_planted(Bug::TombstoneBeforeFloorReadBack) {
        let early =
            view.claims().filter(|(_, claim)| claim.fate == Fate::Committed && is_covered_by(claim, raised));
        claims.extend(
            early.map(|(at, claim)| {
                (at, Some(claim.key.as_str()), claim.job.as_str(), claim.instance.as_str())
            }),
        );
    }
    claims.sort_unstable();
    let mut chained = BTreeSet::new();
    for (_, key, job, instance) in claims {
        if keys.len() >= limit {
            break;
        }
        match key {
            Some(key) if !chained.contains(&(job, instance)) => keys.push(key.to_owned()),
            Some(_) => {}
            None => {
                chained.insert((job, instance));
            }
        }
    }
    keys
}

/// Whether floors that are only about to be written cover a claim. They count for nothing (rule 10).
fn is_covered_by(claim: &Claim, raised: &[FloorRecord]) -> bool {
    is_planted(Bug::TombstoneBeforeFloorReadBack)
        && claim.decisions.ranges().all(|(partition, range)| {
            raised.iter().any(|floor| floor.source() == partition && range.last < floor.floor)
        })
}
