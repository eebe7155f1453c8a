//! The outcome topic: one record for each transaction, in every acknowledgement mode.
//!
//! It recovers checkpoints and lets anyone verify a job. A record counts by its position: it is committed when the
//! first marker of its producer behind it commits, whatever epoch the marker carries (KIP-890 bumps it).

mod last_committed;
mod ledger_record;
mod near_limit_record;
mod read;
mod record;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use last_committed::last_committed;
pub use ledger_record::{
    Beginning, BegunPartition, FloorRecord, GenerationRecord, REWIND_FORMAT_VERSION, ReplayGeneration,
    RewindTo,
};
pub use near_limit_record::{NearLimitRange, NearLimitRecord};
pub(crate) use read::read_outcomes_from;
pub use read::{GroupGeneration, JudgedOutcome, OutcomeLog, Verdict, outcome_partition, read_outcomes};
pub use record::{
    FORMAT_VERSION, LogEntry, ModeRecord, OutcomeCounts, OutcomePartition, OutcomeRecord, OwnerRecord,
    RecordFormatError,
};
pub(crate) use write::write_record;
