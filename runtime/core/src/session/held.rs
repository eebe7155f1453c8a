//! What a session has handed out since the last commit, and what became of it. Pure.

use arrow_array::RecordBatch;
use sharestream_base::ids::Offset;

use crate::ErrorKind;
use crate::coordinates::{COLUMNS, Coordinates};
use crate::decision::{DecidedRange, Decision, Decisions, SourcePartition};
use crate::error::{Error, Result};

/// Offsets that were handed out as rows, and the outcome of those that have one.
#[derive(Debug, Default)]
pub(super) struct Held {
    handed_out: Decisions,
    /// ACCEPT: written. REJECT: rejected.
    outcome: Decisions,
}

/// What somebody wants to do with rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Write,
    Reject,
    Release,
}

impl Held {
    /// Rows that the source gives.
    pub(super) fn hand_out(&mut self, rows: &RecordBatch) -> Result<()> {
        for (partition, range) in runs_of(rows)? {
            self.handed_out.set(partition, range);
        }
        Ok(())
    }

    /// Whether `rows` may be used so. Gives their offsets. Errors: `InvalidInput`; nothing has changed.
    pub(super) fn check(&self, rows: &RecordBatch, what: Use) -> Result<Decisions> {
        let mut offsets = Decisions::new();
        for (partition, run) in runs_of(rows)? {
            let DecidedRange { first, last, .. } = run;
            let named = |problem: &str| {
                let SourcePartition { topic_id, partition } = partition;
                let context =
                    format!("offsets {first} to {last} of topic {topic_id} partition {partition} {problem}");
                Error::new(ErrorKind::InvalidInput, context)
            };
            let held: i64 = self.handed_out.within(partition, first, last).map(length).sum();
            if held != length(run) {
                return Err(named(
                    "were not handed out since the last commit, or were released: keep no rows over a commit",
                ));
            }
            let mut outcomes = self.outcome.within(partition, first, last).map(|part| part.decision);
            match what {
                Use::Write if outcomes.any(|outcome| outcome == Decision::Reject) => {
                    return Err(named("are rejected and cannot be written, too"));
                }
                Use::Write => {}
                Use::Reject if outcomes.next().is_some() || offsets.overlaps(partition, first, last) => {
                    return Err(named("are written or rejected already: a record has one outcome"));
                }
                Use::Release if outcomes.next().is_some() => {
                    return Err(named("are written or rejected and cannot be released any more"));
                }
                Use::Reject | Use::Release => {}
            }
            let decision = if what == Use::Reject { Decision::Reject } else { Decision::Accept };
            offsets.set(partition, DecidedRange { first, last, decision });
        }
        if what == Use::Reject && offsets.count(Decision::Reject) != rows.num_rows() as u64 {
            let context =
                "several rows of one record are rejected: a record has one outcome, give one of them";
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        Ok(offsets)
    }

    /// The offsets that a check has let pass are written or rejected.
    pub(super) fn decide(&mut self, offsets: &Decisions) {
        self.outcome.overlay(offsets);
    }

    /// They are given back.
    pub(super) fn release(&mut self, offsets: &Decisions) {
        for (partition, range) in offsets.ranges() {
            self.handed_out.take_within(partition, range.first, range.last);
        }
    }

    /// All is committed.
    pub(super) fn clear(&mut self) {
        *self = Held::default();
    }
}

fn length(range: DecidedRange) -> i64 {
    range.last.0 - range.first.0 + 1
}

/// The offsets of rows, as ranges of rows that follow each other. Rows of one offset that follow each other count once.
/// Errors: `InvalidInput`, rows without the hidden columns.
fn runs_of(rows: &RecordBatch) -> Result<Vec<(SourcePartition, DecidedRange)>> {
    let mut runs: Vec<(SourcePartition, DecidedRange)> = Vec::new();
    let hidden = Coordinates::of(rows).map_err(|_bug| {
        let context = format!("rows of a session must end with the hidden columns {}", COLUMNS.join(", "));
        Error::new(ErrorKind::InvalidInput, context)
    })?;
    // Topic ids are text: parsed once for each run of a topic.
    let mut last_topic = None;
    for row in 0..rows.num_rows() {
        let (topic, partition) = (hidden.topic_ids.number(row), hidden.partitions.value(row));
        let offset = Offset(hidden.offsets.value(row));
        if last_topic == Some((topic, partition))
            && let Some((_, run)) = runs.last_mut()
            && (run.last == offset || run.last.next() == offset)
        {
            run.last = offset;
            continue;
        }
        last_topic = Some((topic, partition));
        let (source, _) = hidden.source(row)?;
        runs.push((source, DecidedRange { first: offset, last: offset, decision: Decision::Accept }));
    }
    Ok(runs)
}
