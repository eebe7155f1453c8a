//! What a check knows: plain values collected from the topics and the share state, nothing from the job itself.

use std::fmt;
use std::sync::Arc;

use sharestream_core::decision::{Decision, SourcePartition};

/// Where a record stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Topic.
    pub(crate) topic: Arc<str>,
    /// Partition.
    pub(crate) partition: i32,
    /// Offset.
    pub(crate) offset: i64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]@{}", self.topic, self.partition, self.offset)
    }
}

/// What one input offset must have become, by recomputing the transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// No deliverable record: a control record, an aborted one, a compaction hole, or beyond what is kept.
    NoRecord,
    /// A record that does not decode, or whose SQL fails: a dead letter.
    Rejected,
    /// The same where the policy for such errors keeps no dead letter.
    RejectedUnkept,
    /// A record that becomes `count` rows (none: it is filtered), whose digests add up to `digest`.
    Rows {
        /// Number of output records.
        count: u32,
        /// Wrapping sum of their [`digest`]s; `None`: services that were called decide what is in them.
        digest: Option<u64>,
    },
}

/// One source partition.
#[derive(Clone, Debug)]
pub(crate) struct PartitionFacts {
    /// Topic name.
    pub(crate) topic: Arc<str>,
    /// Topic id and partition.
    pub(crate) source: SourcePartition,
    /// First offset that the group was to process.
    pub(crate) initial: i64,
    /// Ledger mode: everything below is decided, and the claims that decided it may have been removed; else 0.
    pub(crate) floor: i64,
    /// Share-partition start offset, read *before* the outcome topic: everything below it is final.
    pub(crate) start_offset: i64,
    /// The same, read *after* the outcome topic and after waiting for it: every decided prefix is below it.
    pub(crate) start_offset_after: i64,
    /// Times that the group began anew, so that records were wanted again.
    pub(crate) replays: Vec<Replay>,
    /// By offset from `initial`.
    pub(crate) expected: Vec<Expected>,
}

/// A reset of the group, or its return to a savepoint, in one source partition: every offset from `start` on was wanted once
/// more, but for what stayed decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    /// Where the group began again.
    pub(crate) start: i64,
    /// What the savepoint had decided above: first and last offset.
    pub(crate) decided: Vec<(i64, i64)>,
}

impl Replay {
    /// Whether the record at this offset was wanted once more.
    pub(crate) fn wants(&self, offset: i64) -> bool {
        let stays_decided = |(first, last): &(i64, i64)| (*first..=*last).contains(&offset);
        offset >= self.start && !self.decided.iter().any(stays_decided)
    }
}

impl PartitionFacts {
    /// How often an effect of this offset may be there.
    pub(crate) fn copies_wanted(&self, offset: i64) -> usize {
        1 + self.replays.iter().filter(|replay| replay.wants(offset)).count()
    }
}

/// One committed record of the output or dead letter topic.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    /// Where it stands.
    pub(crate) at: Place,
    /// Partition of the record that it was made of: a source partition, or one of the parking topic.
    pub(crate) source: SourcePartition,
    /// Offset of that record.
    pub(crate) offset: i64,
    /// The record as it was at first, where it was parked, too.
    pub(crate) origin: (SourcePartition, i64),
    /// Of a copy: the partition that it stands in, which is a source, too.
    pub(crate) stands_in: Option<SourcePartition>,
    /// Which of the rows of that offset it is.
    pub(crate) ordinal: i32,
    /// [`digest`] of key and value.
    pub(crate) digest: u64,
}

/// One decided range of one committed outcome record.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// Where the outcome record stands.
    pub(crate) at: Place,
    /// Checkpoint of the record.
    pub(crate) checkpoint: u64,
    /// Source partition decided on.
    pub(crate) source: SourcePartition,
    /// First offset.
    pub(crate) first: i64,
    /// Last offset, inclusive.
    pub(crate) last: i64,
    /// The decision.
    pub(crate) decision: Decision,
    /// Committed after the effects were read: it explains effects, but its own may not have been seen yet.
    pub(crate) late: bool,
}

/// A transaction that is neither committed nor aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenTransaction {
    /// Transactional id.
    pub(crate) transactional_id: String,
    /// State, as the coordinator names it.
    pub(crate) state: String,
    /// Open longer than its own time-out allows: nobody will end it. A younger one belongs to a job that runs, or
    /// ends with its time-out.
    pub(crate) overdue: bool,
}

/// Everything a check looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// True when the job promises exactly once; then deciding an offset twice is a fault of its own.
    pub(crate) exactly_once: bool,
    /// True when outcomes were committed in ledger mode: there an acknowledgement may come later than its commit.
    pub(crate) has_ledger: bool,
    /// True when every rejected record has a dead letter, but for those whose policy keeps none: no policy rejects records
    /// that the decoder and the transform would take.
    pub(crate) rejects_leave_letters: bool,
    /// True when the broker keeps dead letters of its own (KIP-1191): ours are accepted there, not rejected, or it would
    /// keep them as well.
    pub(crate) broker_dead_letters: bool,
    /// Source partitions.
    pub(crate) partitions: Vec<PartitionFacts>,
    /// Committed outcome ranges, in the order of the outcome topic.
    pub(crate) claims: Vec<Claim>,
    /// Committed output.
    pub(crate) outputs: Vec<Effect>,
    /// Committed dead letters.
    pub(crate) dead_letters: Vec<Effect>,
    /// Committed copies of parked records: effects of what was copied, and sources themselves.
    pub(crate) parked: Vec<Effect>,
    /// What is still open.
    pub(crate) open_transactions: Vec<OpenTransaction>,
}

/// Digest of one output record, the same on every machine (FNV-1a over ordinal, key and value with their lengths).
pub(crate) fn digest(ordinal: i32, key: Option<&[u8]>, value: Option<&[u8]>) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut feed = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    };
    feed(&ordinal.to_le_bytes());
    for part in [key, value] {
        let length = part.map_or(-1, |part| i64::try_from(part.len()).unwrap_or(i64::MAX));
        feed(&length.to_le_bytes());
        feed(part.unwrap_or_default());
    }
    hash
}
