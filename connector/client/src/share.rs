//! Share groups: consumers that acquire records, decide on them and acknowledge (KIP-932, KIP-1222, KIP-1289).

mod acknowledge;
mod acquired;
mod consumer;
mod leader;
mod membership;
mod membership_task;
mod session;

pub use acknowledge::{AckResult, AcknowledgeType, AcknowledgementBatch, OffsetRange, ShareAcknowledgements};
pub use acquired::{AcquiredPartition, AcquiredRange, ShareRecords};
pub use consumer::{AcquireMode, LostLocks, LostReason, ShareConsumer, ShareConsumerConfig};
pub use membership_task::{MetadataHandle, ShareGroupMetadata};
