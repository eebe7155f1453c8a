//! Partition logs: record batches in memory, the state of their producers, and who may read how far.
//!
//! [`Partition`] is the handle that handlers hold, [`Led`] the right to write through it; [`PartitionLog`] is the
//! pure state behind its lock. Nothing here waits: every call takes the lock for a short time and returns.

mod aborted;
mod partition;
mod partition_log;
mod producer_state;
mod store;

pub(crate) use aborted::AbortedTransaction;
pub(crate) use partition::{Led, Partition, TimestampOffset, TimestampQuery};
pub(crate) use partition_log::{
    AppendInfo, Isolation, LogEnds, Marker, Origin, ReadInfo, TransactionVersion,
};
pub(crate) use producer_state::{ProducerSummary, VerificationGuard};
