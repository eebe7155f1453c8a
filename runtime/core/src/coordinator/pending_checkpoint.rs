//! A checkpoint whose barrier is on its way: who has acknowledged it, and what they reported. Pure.

use std::collections::{BTreeMap, BTreeSet};

use sharestream_base::Instant;
use sharestream_base::ids::{CheckpointId, Offset};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_checkpoints::{EventTimeSnapshot, OperatorSnapshot, StatePart, StatePartKind};

use super::trace::Trace;
use crate::ErrorKind;
use crate::coordinates::RejectCounts;
use crate::decision::{DecidedRange, Decision, Decisions, MemberDecisions, SourcePartition};
use crate::error::{Error, Result};
use crate::sink::SinkReport;
use crate::source::SourceReport;
use crate::state::StateReport;
use crate::task::context::OperatorReport;
use crate::watermark::{EventTimes, Watermark};

/// A subtask that acknowledges barriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subtask {
    Source(usize),
    Operator(usize),
    Sink(usize),
}

impl std::fmt::Display for Subtask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subtask::Source(index) => write!(f, "source-{index}"),
            Subtask::Operator(index) => write!(f, "operator-{index}"),
            Subtask::Sink(index) => write!(f, "sink-{index}"),
        }
    }
}

/// What an epoch holds, for the counts of the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EpochCounts {
    pub(crate) records_in: u64,
    pub(crate) rows_out: u64,
    pub(crate) dead_letters: u64,
    pub(crate) parked: u64,
    pub(crate) rejected: RejectCounts,
    pub(crate) filtered: u64,
    /// State after the epoch, in memory.
    pub(crate) state_bytes: u64,
    pub(crate) state_written_bytes: u64,
    pub(crate) state_compacted_bytes: u64,
    pub(crate) payload_bytes: u64,
}

/// What a subtask reports with its acknowledgement.
#[derive(Debug)]
pub(crate) enum Report {
    Source(SourceReport),
    Operator(OperatorReport),
    Sink(SinkReport),
}

/// Acknowledgements of one barrier.
#[derive(Debug)]
pub(crate) struct PendingCheckpoint {
    pub(crate) checkpoint: CheckpointId,
    pub(crate) triggered_at: Instant,
    pub(crate) trace: Trace,
    waiting: BTreeSet<Subtask>,
    decided: Vec<MemberDecisions>,
    /// Offsets that operators still work on.
    deferred: Decisions,
    rejected: Decisions,
    given_back: Decisions,
    states: Vec<StateReport>,
    times: EventTimes,
    /// The watermark that its barrier carries.
    pub(crate) told: Option<Watermark>,
    counts: EpochCounts,
}

/// A checkpoint that every subtask has acknowledged.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) checkpoint: CheckpointId,
    pub(crate) triggered_at: Instant,
    pub(crate) trace: Trace,
    /// Final decisions, by member.
    pub(crate) decided: Vec<MemberDecisions>,
    /// State of all operators that keep any.
    pub(crate) operators: Vec<OperatorSnapshot>,
    /// Event times of what was handed on.
    pub(crate) times: EventTimes,
    /// Event time as of this checkpoint; `None` for a job without.
    pub(crate) event_time: Option<EventTimeSnapshot>,
    /// Operators that keep state wait for its watermark to be committed.
    pub(crate) raises_watermark: bool,
    pub(crate) counts: EpochCounts,
}

/// What was reported for a checkpoint and is not decided by it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Undecided {
    /// What operators still work on, by member: for the next checkpoint.
    pub(crate) deferred: Vec<MemberDecisions>,
    /// What goes back to the group.
    pub(crate) given_back: Decisions,
}

impl Sealed {
    /// Nothing was decided, nothing written, and no watermark raised. State that changed with a watermark and gave no rows goes with a later
    /// checkpoint, or is told of the watermark again.
    pub(crate) fn is_empty(&self) -> bool {
        self.decided.is_empty() && self.counts.rows_out == 0 && !self.raises_watermark
    }
}

impl PendingCheckpoint {
    /// `carried`: what the checkpoint before has deferred.
    pub(crate) fn new(
        checkpoint: CheckpointId,
        triggered_at: Instant,
        subtasks: impl IntoIterator<Item = Subtask>,
        carried: Vec<MemberDecisions>,
    ) -> Self {
        PendingCheckpoint {
            checkpoint,
            triggered_at,
            trace: Trace::default(),
            waiting: subtasks.into_iter().collect(),
            counts: EpochCounts { records_in: records_of(&carried), ..EpochCounts::default() },
            decided: carried,
            deferred: Decisions::new(),
            rejected: Decisions::new(),
            given_back: Decisions::new(),
            states: Vec::new(),
            times: EventTimes::new(),
            told: None,
        }
    }

    /// Takes the acknowledgement of one subtask; true when it was the last. Errors: `Bug` (a second one, or of
    /// another checkpoint).
    pub(crate) fn acknowledge(
        &mut self,
        subtask: Subtask,
        checkpoint: CheckpointId,
        report: Report,
    ) -> Result<bool> {
        if checkpoint != self.checkpoint {
            return Err(bug(format!(
                "{subtask} acknowledged barrier {checkpoint} while barrier {} is pending",
                self.checkpoint
            )));
        }
        if !self.waiting.remove(&subtask) {
            return Err(bug(format!("{subtask} acknowledged barrier {checkpoint} twice")));
        }
        match report {
            Report::Source(report) => {
                self.counts.records_in += report.record_count;
                self.counts.payload_bytes += report.byte_count;
                for (source, times) in report.event_times {
                    self.times.entry(source).or_default().extend(times);
                }
                for decided in report.decided {
                    self.add_decided(decided);
                }
            }
            Report::Operator(report) => {
                self.counts.filtered += report.filtered_count;
                self.deferred.overlay(&report.deferred);
                self.states.extend(report.state);
            }
            Report::Sink(report) => {
                self.counts.rows_out += report.row_count;
                self.counts.dead_letters += report.dead_letter_count;
                self.counts.parked += report.parked_count;
                self.counts.rejected += report.reject_counts;
                self.rejected.overlay(&report.rejected);
                self.given_back.overlay(&report.given_back);
            }
        }
        Ok(self.waiting.is_empty())
    }

    fn add_decided(&mut self, decided: MemberDecisions) {
        if decided.decisions.is_empty() {
            return;
        }
        let is_same = |known: &&mut MemberDecisions| {
            known.member.member_id == decided.member.member_id
                && known.member.group_id == decided.member.group_id
        };
        match self.decided.iter_mut().find(is_same) {
            Some(known) => {
                // What was carried over was decided under an older epoch of the member, perhaps.
                known.member.member_epoch = known.member.member_epoch.max(decided.member.member_epoch);
                known.decisions.overlay(&decided.decisions);
            }
            None => self.decided.push(decided),
        }
    }

    /// True when only sinks have not acknowledged: the barrier has passed everything in front of them.
    pub(crate) fn is_aligned(&self) -> bool {
        self.waiting.iter().all(|subtask| matches!(subtask, Subtask::Sink(_)))
    }

    /// Names of the subtasks that have not acknowledged.
    pub(crate) fn waiting_for(&self) -> String {
        let names: Vec<String> = self.waiting.iter().map(Subtask::to_string).collect();
        names.join(", ")
    }

    /// Lays the sinks' rejections over the sources' decisions; each offset stays with the member that holds it. What
    /// operators still work on, and what goes back to the group, is taken out: the second value. Errors: `Abort` (two
    /// members decided the same offset), `Bug` (a dead letter of an offset that no source decided, one that is still
    /// worked on, or rows without decisions).
    pub(crate) fn seal(mut self) -> Result<(Sealed, Undecided)> {
        let checkpoint = self.checkpoint;
        check_disjoint(&self.decided).map_err(|error| error.within(&format!("checkpoint {checkpoint}")))?;
        for partition in self.rejected.partitions() {
            let ranges: Vec<DecidedRange> = self.rejected.of(partition).collect();
            overlay_rejections(&mut self.decided, partition, &ranges)
                .map_err(|error| error.within(&format!("checkpoint {checkpoint}")))?;
        }
        let deferred = self.take_deferred()?;
        let back_count = self.take_given_back()?;
        self.counts.records_in = self.counts.records_in.saturating_sub(records_of(&deferred) + back_count);
        let EpochCounts { rows_out, dead_letters, parked, .. } = self.counts;
        // What comes from state at a watermark needs no decision.
        let may_write = !self.decided.is_empty() || (self.told.is_some() && dead_letters == 0 && parked == 0);
        if !may_write && (rows_out > 0 || dead_letters > 0 || parked > 0) {
            return Err(bug(format!(
                "checkpoint {checkpoint} wrote {rows_out} rows and {dead_letters} dead letters and parked {parked} records, but no source \
                 decided"
            )));
        }
        for state in &self.states {
            self.counts.state_bytes += state.state_bytes;
            self.counts.state_written_bytes += state.delta_bytes;
            self.counts.state_compacted_bytes += state.base_bytes;
        }
        let operators = snapshots_of(self.states);
        let PendingCheckpoint { triggered_at, trace, decided, counts, given_back, times, .. } = self;
        let sealed = Sealed {
            checkpoint,
            triggered_at,
            trace,
            decided,
            operators,
            times,
            event_time: None,
            raises_watermark: false,
            counts,
        };
        Ok((sealed, Undecided { deferred, given_back }))
    }

    /// Takes what goes back to the group out of the decisions; gives how many records that are.
    fn take_given_back(&mut self) -> Result<u64> {
        let mut taken_count = 0;
        for member in &mut self.decided {
            for (partition, range) in self.given_back.ranges() {
                let taken = member.decisions.take_within(partition, range.first, range.last);
                taken_count += taken.iter().map(|part| part.first.count_to(part.last)).sum::<u64>();
            }
        }
        self.decided.retain(|member| !member.decisions.is_empty());
        let expected = self.given_back.offset_count();
        if taken_count == expected {
            return Ok(taken_count);
        }
        Err(bug(format!(
            "checkpoint {}: {expected} offsets are given back, of which the sources handed on {taken_count}",
            self.checkpoint
        )))
    }

    /// Takes what is still worked on out of the decisions.
    fn take_deferred(&mut self) -> Result<Vec<MemberDecisions>> {
        if is_planted(Bug::DeferredOffsetsCommitted) {
            return Ok(Vec::new());
        }
        let mut carried = Vec::new();
        let mut taken_count = 0;
        for member in &mut self.decided {
            let mut decisions = Decisions::new();
            for (partition, range) in self.deferred.ranges() {
                for part in member.decisions.take_within(partition, range.first, range.last) {
                    if part.decision != Decision::Accept {
                        let SourcePartition { topic_id, partition } = partition;
                        return Err(bug(format!(
                            "topic {topic_id} partition {partition} offset {} is still worked on and was decided as \
                             {:?}",
                            part.first, part.decision
                        )));
                    }
                    decisions.set(partition, part);
                }
            }
            taken_count += decisions.count(Decision::Accept);
            if !decisions.is_empty() {
                carried.push(MemberDecisions { member: member.member.clone(), decisions });
            }
        }
        self.decided.retain(|member| !member.decisions.is_empty());
        let deferred_count = self.deferred.count(Decision::Accept);
        if taken_count == deferred_count {
            return Ok(carried);
        }
        Err(bug(format!(
            "checkpoint {}: operators work on {deferred_count} offsets, of which the sources handed on {taken_count}",
            self.checkpoint
        )))
    }
}

/// The state of each operator, over its subtasks: bases, then deltas by age. Two subtasks may name one part, when they
/// share the groups of an earlier one.
fn snapshots_of(reports: Vec<StateReport>) -> Vec<OperatorSnapshot> {
    let mut operators: BTreeMap<String, OperatorSnapshot> = BTreeMap::new();
    for StateReport { operator, state_version, key_groups, parts, .. } in reports {
        let snapshot = operators.entry(operator.clone()).or_insert(OperatorSnapshot {
            operator,
            state_version,
            key_groups,
            parts: Vec::new(),
        });
        snapshot.parts.extend(parts);
    }
    let mut snapshots: Vec<OperatorSnapshot> = operators.into_values().collect();
    for snapshot in &mut snapshots {
        let rank = |part: &StatePart| (part.kind == StatePartKind::Delta, part.checkpoint, part.name.clone());
        snapshot.parts.sort_by_cached_key(rank);
        snapshot.parts.dedup_by(|a, b| a.name == b.name);
    }
    snapshots
}

/// Source records among the decisions: gaps are none.
fn records_of(decided: &[MemberDecisions]) -> u64 {
    decided
        .iter()
        .map(|member| member.decisions.count(Decision::Accept) + member.decisions.count(Decision::Reject))
        .sum()
}

/// A record that two subtasks hold was given to the second when the lock of the first had run out unnoticed. Its effects
/// are in the epoch twice, and staging would not tell: a repeated stage of one transaction succeeds whoever asks.
fn check_disjoint(decided: &[MemberDecisions]) -> Result<()> {
    for (index, member) in decided.iter().enumerate() {
        for (partition, range) in member.decisions.ranges() {
            let holds =
                |other: &&MemberDecisions| other.decisions.overlaps(partition, range.first, range.last);
            if let Some(other) = decided[..index].iter().find(holds) {
                let SourcePartition { topic_id, partition } = partition;
                let context = format!(
                    "topic {topic_id} partition {partition} offsets {} to {} were given to member {} and, when its lock \
                     had run out, to member {}",
                    range.first, range.last, other.member.member_id, member.member.member_id
                );
                return Err(Error::new(ErrorKind::Abort, context));
            }
        }
    }
    Ok(())
}

/// Both lists are sorted, so one walk over each member finds what it holds of the rejected offsets.
fn overlay_rejections(
    decided: &mut [MemberDecisions],
    partition: SourcePartition,
    rejected: &[DecidedRange],
) -> Result<()> {
    let mut unfound_count: i64 = rejected.iter().map(|range| range.last.0 - range.first.0 + 1).sum();
    for member in decided.iter_mut() {
        let held: Vec<DecidedRange> = member.decisions.of(partition).collect();
        let (mut a, mut b) = (0, 0);
        while a < held.len() && b < rejected.len() {
            let first = held[a].first.max(rejected[b].first);
            let last = held[a].last.min(rejected[b].last);
            if first <= last {
                check_rejectable(&held[a], partition, first)?;
                unfound_count -= last.0 - first.0 + 1;
                let range = DecidedRange { first, last, decision: rejected[b].decision };
                member.decisions.set(partition, range);
            }
            if held[a].last < rejected[b].last { a += 1 } else { b += 1 }
        }
    }
    if unfound_count == 0 {
        return Ok(());
    }
    let SourcePartition { topic_id, partition } = partition;
    Err(bug(format!(
        "{unfound_count} dead letters of topic {topic_id} partition {partition} have offsets that no source decided"
    )))
}

/// A gap has no record, so nothing of it can become a dead letter.
fn check_rejectable(held: &DecidedRange, partition: SourcePartition, offset: Offset) -> Result<()> {
    match held.decision {
        Decision::Accept | Decision::Reject => Ok(()),
        Decision::Gap => {
            let SourcePartition { topic_id, partition } = partition;
            Err(bug(format!(
                "topic {topic_id} partition {partition} offset {offset} is a gap and became a dead letter"
            )))
        }
    }
}

fn bug(context: String) -> Error {
    Error::new(ErrorKind::Bug, context)
}

#[cfg(test)]
mod tests;
