//! What a check found.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// Violations kept for printing; the counts go on.
const KEPT_MAX: usize = 1_000;

/// What is wrong with an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// The share group is past the record, and no committed outcome tells what became of it.
    PassedWithoutOutcome,
    /// Decided ACCEPT, but an output that the transform makes of it is missing.
    OutputMissing,
    /// Decided REJECT, but there is no dead letter.
    DeadLetterMissing,
    /// A real record was acknowledged as a gap.
    RecordAsGap,
    /// A record that cannot be processed was accepted and left no dead letter.
    FaultyRecordAccepted,
    /// The same output more than once.
    OutputDoubled,
    /// The same dead letter more than once.
    DeadLetterDoubled,
    /// An output whose record no committed outcome accepts.
    OutputWithoutOutcome,
    /// A dead letter whose record no committed outcome rejects.
    DeadLetterWithoutOutcome,
    /// A committed outcome decided on the record, but the share group still holds it.
    OutcomeNotAcknowledged,
    /// Two committed outcomes decided on the record.
    DecidedTwice,
    /// There is more than one copy of it in the parking topic.
    ParkedTwice,
    /// There is a copy of it in the parking topic, but no committed outcome accepts it.
    ParkedWithoutOutcome,
    /// It was parked, and has an output or a dead letter of its own as well.
    ParkedAndProcessed,
    /// What was made of a copy names another record than the copy.
    ChainBroken,
    /// The outputs are not what the transform makes of the record.
    OutputDiffers,
}

/// The column of the demo's table that a fault counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// An effect is missing.
    Lost,
    /// An effect is there too often.
    Doubled,
    /// Effect and acknowledgement disagree.
    Torn,
    /// The effect is there and wrong.
    Wrong,
}

impl Fault {
    /// Its class.
    pub(crate) fn class(self) -> Class {
        match self {
            Fault::PassedWithoutOutcome
            | Fault::OutputMissing
            | Fault::DeadLetterMissing
            | Fault::RecordAsGap
            | Fault::FaultyRecordAccepted => Class::Lost,
            Fault::OutputDoubled
            | Fault::DeadLetterDoubled
            | Fault::ParkedTwice
            | Fault::ParkedAndProcessed => Class::Doubled,
            Fault::OutputWithoutOutcome
            | Fault::DeadLetterWithoutOutcome
            | Fault::ParkedWithoutOutcome
            | Fault::OutcomeNotAcknowledged => Class::Torn,
            Fault::DecidedTwice | Fault::OutputDiffers | Fault::ChainBroken => Class::Wrong,
        }
    }

    /// What it means, for people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Fault::PassedWithoutOutcome => {
                "lost: the group is past it, but no committed outcome decided on it"
            }
            Fault::OutputMissing => "lost: accepted, but its output is missing",
            Fault::DeadLetterMissing => "lost: rejected, but its dead letter is missing",
            Fault::RecordAsGap => "lost: a record was acknowledged as a gap",
            Fault::FaultyRecordAccepted => {
                "lost: it cannot be processed, yet was accepted without a dead letter"
            }
            Fault::OutputDoubled => "doubled: its output is there more than once",
            Fault::DeadLetterDoubled => "doubled: its dead letter is there more than once",
            Fault::OutputWithoutOutcome => "torn: it has an output, but no committed outcome accepts it",
            Fault::DeadLetterWithoutOutcome => {
                "torn: it has a dead letter, but no committed outcome rejects it"
            }
            Fault::OutcomeNotAcknowledged => "torn: an outcome decided on it, but the group still holds it",
            Fault::DecidedTwice => "decided twice: two committed outcomes claim it",
            Fault::ParkedTwice => "doubled: it was parked more than once",
            Fault::ParkedWithoutOutcome => "torn: it was parked, but no committed outcome accepts it",
            Fault::ParkedAndProcessed => "doubled: it was parked, and processed as well",
            Fault::ChainBroken => "wrong: what was made of its parked copy names another record",
            Fault::OutputDiffers => "wrong: its output is not what the transform makes of it",
        }
    }
}

/// Neighbouring offsets with the same fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Violation {
    /// What is wrong.
    pub(crate) fault: Fault,
    /// Source topic.
    #[serde(serialize_with = "topic_name")]
    pub(crate) topic: Arc<str>,
    /// Source partition.
    pub(crate) partition: i32,
    /// First source offset.
    pub(crate) first: i64,
    /// Last source offset, inclusive.
    pub(crate) last: i64,
    /// Where to look: the outputs or outcome records concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

fn topic_name<S: Serializer>(name: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name)
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}] ", self.topic, self.partition)?;
        if self.first == self.last {
            write!(f, "offset {}: {}", self.first, self.fault.text())?;
        } else {
            let count = self.last - self.first + 1;
            write!(f, "offsets {} to {} ({count}): {}", self.first, self.last, self.fault.text())?;
        }
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

/// Counts and violations of one check.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    /// Input records with a decided fate.
    pub(crate) records_in: u64,
    /// Committed output records, doubled ones included.
    pub(crate) records_out: u64,
    /// Records accepted without any output.
    pub(crate) filtered: u64,
    /// Committed dead letters, doubled ones included.
    pub(crate) dead_lettered: u64,
    /// Committed copies in the parking topic. Records in count them again.
    pub(crate) parked: u64,
    /// Input records still available to the group.
    pub(crate) remaining: u64,
    /// Offsets or effects lost.
    pub(crate) lost: u64,
    /// Effects too many.
    pub(crate) doubled: u64,
    /// Offsets whose effects and acknowledgement disagree.
    pub(crate) torn: u64,
    /// Offsets whose output differs from the recomputed one.
    pub(crate) wrong: u64,
    /// Offsets that more than one committed outcome decided on; a violation only where exactly once is promised.
    pub(crate) decided_twice: u64,
    /// Offsets below the floors of a ledger, whose claims may be gone: their effects alone tell what was decided.
    pub(crate) below_floor: u64,
    /// Offsets at the start offset that a committed outcome decided on and the group still holds; in ledger mode no
    /// violation: whoever gets them next acknowledges them as decided.
    pub(crate) unacknowledged: u64,
    /// Transactions of the job neither committed nor aborted.
    pub(crate) open_transactions: u64,
    /// Those of them that are open longer than their time-out allows; only these are a violation.
    pub(crate) overdue_transactions: u64,
    /// Records dead-lettered although they can be processed (for example near the delivery limit); no violation.
    pub(crate) dead_letters_without_fault: u64,
    /// True when outputs were compared with the recomputed transform.
    pub(crate) recomputed: bool,
    /// Number of violations found, printed or not.
    pub(crate) violation_count: u64,
    /// The first of them.
    pub(crate) violations: Vec<Violation>,
    /// What a reader of the report should know.
    pub(crate) notes: Vec<String>,
}

impl Report {
    /// True when nothing is violated.
    pub(crate) fn is_right(&self) -> bool {
        self.violation_count == 0 && self.overdue_transactions == 0
    }

    /// Counts a violation on one source offset and keeps it, joined to its neighbour where it can be.
    pub(crate) fn violated(&mut self, violation: Violation, count: u64) {
        match violation.fault.class() {
            Class::Lost => self.lost += count,
            Class::Doubled => self.doubled += count,
            Class::Torn => self.torn += count,
            Class::Wrong if violation.fault == Fault::DecidedTwice => self.decided_twice += count,
            Class::Wrong => self.wrong += count,
        }
        self.violation_count += count;
        // Faults of different kinds alternate on neighbouring offsets, so look a little further back.
        let room = self.violations.len() < KEPT_MAX;
        let joined = self.violations.iter_mut().rev().take(4).find(|last| {
            last.fault == violation.fault
                && last.partition == violation.partition
                && last.topic == violation.topic
                && last.last + 1 == violation.first
                && last.detail.is_none()
                && violation.detail.is_none()
        });
        match joined {
            Some(last) => last.last = violation.last,
            None if room => self.violations.push(violation),
            None => {}
        }
    }
}
