//! The one partition of the outcome topic: outcome records of all transactions and their markers.

use super::manifests::ManifestRef;
use super::names::{Checkpoint, Process, ProducerEpoch, TransactionalId};
use super::transaction::Verdict;

/// An entry of the outcome partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogEntry {
    /// An outcome record.
    Outcome {
        /// The transaction that it is part of.
        id: TransactionalId,
        /// Who wrote it.
        writer: Process,
        /// The checkpoint.
        checkpoint: Checkpoint,
        /// The manifest that it names; the stateless replica has none.
        manifest: Option<ManifestRef>,
    },
    /// A control batch.
    Marker {
        /// The transactional id whose transaction ended.
        id: TransactionalId,
        /// The raised producer epoch.
        epoch: ProducerEpoch,
        /// How it ended.
        verdict: Verdict,
    },
}

/// What recovery finds in the outcome partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutcomesRead {
    /// The manifest that the job's last committed outcome names.
    pub last_committed: Option<ManifestRef>,
    /// The highest checkpoint of any outcome of the job, committed or not.
    pub highest_seen: Checkpoint,
}

/// Reads `entries`, which end at the high watermark, uncommitted, and judges the job's records by their
/// markers: the first marker of the same id that follows. A record without one counts as not committed.
pub(super) fn read(entries: &[LogEntry]) -> OutcomesRead {
    let mut found = OutcomesRead { last_committed: None, highest_seen: Checkpoint(0) };
    for (position, entry) in entries.iter().enumerate() {
        let LogEntry::Outcome { id, checkpoint, manifest: Some(manifest), .. } = *entry else { continue };
        found.highest_seen = found.highest_seen.max(checkpoint);
        if verdict_of(id, &entries[position..]) == Some(Verdict::Commit) {
            found.last_committed = Some(manifest);
        }
    }
    found
}

/// Whether some transaction, of whomever, has a record in `entries` and no marker yet: a reader of committed
/// records would not get past it.
pub(super) fn is_held_up(entries: &[LogEntry]) -> bool {
    entries.iter().enumerate().any(|(position, entry)| match *entry {
        LogEntry::Outcome { id, .. } => verdict_of(id, &entries[position..]).is_none(),
        LogEntry::Marker { .. } => false,
    })
}

fn verdict_of(id: TransactionalId, following: &[LogEntry]) -> Option<Verdict> {
    following.iter().find_map(|entry| match *entry {
        LogEntry::Marker { id: of, verdict, .. } if of == id => Some(verdict),
        LogEntry::Marker { .. } | LogEntry::Outcome { .. } => None,
    })
}
