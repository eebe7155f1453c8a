//! Looks into a cluster, for tests and tools: logs, transactions, share partitions, groups.
//!
//! Everything here reads the shared memory at once, without the network and whether or not a node is alive,
//! and changes nothing. What is durable is replayed from the logs, not taken from what a coordinator
//! believes; what a leader holds in memory is shown beside it. Fates of batches follow from the markers in
//! the log alone, so they are evidence against the broker's own index of aborted transactions.

mod logs;
mod offsets;
mod share_groups;
mod transactions;

pub use logs::{BatchView, Fate, PartitionView, RecordView};
pub use offsets::ConsumerOffsetView;
pub use share_groups::{
    DurableRunView, DurableStateView, GroupView, MemoryRunView, MemoryStateView, MemoryView,
    SharePartitionView, ShareStateWritten, StagedIntent, StagedView,
};
pub use transactions::TransactionView;
