//! Share groups: consumers that acquire records, decide on them and acknowledge (KIP-932, KIP-1222, KIP-1289).

mod acknowledge;
mod acquired;
mod config;
mod consumer;
mod leader;
mod lost;
mod membership;
mod membership_task;
mod records;
mod session;

pub use acknowledge::{AckResult, AcknowledgeType, AcknowledgementBatch, OffsetRange, ShareAcknowledgements};
pub use acquired::{AcquiredPartition, AcquiredRange, ShareRecords};
pub use config::{AcquireMode, ShareConsumerConfig};
pub use consumer::ShareConsumer;
pub use lost::{LostLocks, LostReason};
pub use membership_task::{MetadataHandle, ShareGroupMetadata};
