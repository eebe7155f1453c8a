//! Partition logs: record batches in memory, the state of their producers, and who may read how far; with a data
//! folder, the same in files.
//!
//! [`Partition`] is the handle that handlers hold, [`Led`] the right to write through it; [`PartitionLog`] is the
//! pure state behind its lock. Nothing here waits: every call takes the lock for a short time and returns.

mod aborted;
mod partition;
mod partition_log;
mod producer_state;
mod rebuild;
mod settings;
mod store;

pub(crate) use aborted::AbortedTransaction;
pub(crate) use partition::{Led, Partition, Place, Stored, TimestampOffset, TimestampQuery};
pub(crate) use partition_log::{
    AppendInfo, EpochEnd, Isolation, LogEnds, Marker, Origin, PartitionLog, ReadInfo, TransactionVersion,
};
pub(crate) use producer_state::{ProducerSummary, VerificationGuard};
pub(crate) use settings::LogSettings;
