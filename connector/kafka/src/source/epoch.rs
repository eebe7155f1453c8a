//! What a source has handed on since the last barrier.

use sharestream_core::decision::{DecidedRange, Decisions, MemberDecisions, ShareMember, SourcePartition};
use sharestream_core::source::SourceReport;

/// Decisions and counts of the open epoch.
#[derive(Debug, Default)]
pub(super) struct OpenEpoch {
    decisions: Decisions,
    pub(super) record_count: u64,
    pub(super) byte_count: u64,
}

impl OpenEpoch {
    /// Takes the decisions of a chunk that is handed on.
    pub(super) fn hand_on(
        &mut self,
        decided: &[(SourcePartition, DecidedRange)],
        record_count: u64,
        byte_count: u64,
    ) {
        for (partition, range) in decided {
            self.decisions.set(*partition, *range);
        }
        self.record_count += record_count;
        self.byte_count += byte_count;
    }

    /// Closes the epoch; the next one is empty.
    pub(super) fn close(&mut self, member: ShareMember) -> SourceReport {
        let OpenEpoch { decisions, record_count, byte_count } = std::mem::take(self);
        let decided =
            if decisions.is_empty() { Vec::new() } else { vec![MemberDecisions { member, decisions }] };
        SourceReport { decided, record_count, byte_count }
    }
}
