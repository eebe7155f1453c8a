//! Messages newer than `kafka_protocol` has them, and messages that are ours alone.
//!
//! Each file is one API: schema first, wire order, one sentence per field. Private messages (version 10 of the
//! share-state APIs, `ShareTxnOutcome`) never leave our own broker nodes.

pub mod describe_share_group_offsets;
pub mod initialize_share_group_state;
pub mod read_share_group_state;
pub mod share_acknowledge;
pub mod share_fetch;
pub mod share_txn_outcome;
pub mod write_share_group_state;

mod shared;

pub use shared::{AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint, StateBatch};
