//! ShareTxnOutcome (private key 10095), version 0: the share coordinator tells the leader of a source partition
//! how a transaction ended, so that the leader's cached pending records resolve at once.
//!
//! Source: KIP-1289 leaves open how the leader learns the outcome; see the design notes of the broker.

use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::codec::{flexible_api, flexible_struct};

/// The private API key.
pub const KEY: i16 = 10095;

flexible_struct! {
    /// The pending records of one transaction in one share partition are resolved.
    pub struct ShareTxnOutcomeRequest {
        /// The group.
        group_id: StrBytes = StrBytes::new();
        /// The source topic.
        topic_id: Uuid = Uuid::nil();
        /// The source partition.
        partition: i32 = 0;
        /// Producer of the transaction.
        producer_id: i64 = -1;
        /// Producer epoch that the marker carried.
        marker_epoch: i16 = -1;
        /// Whether the transaction committed.
        commit: bool = false;
        /// Incarnation of the durable state that was changed.
        state_epoch: i32 = 0;
    }
}

flexible_struct! {
    /// Whether the leader has taken the outcome over.
    pub struct ShareTxnOutcomeResponse {
        /// Error.
        error_code: i16 = 0;
        /// Its text.
        error_message: Option<StrBytes> = None;
    }
}

flexible_api!(ShareTxnOutcomeRequest, ShareTxnOutcomeResponse, key KEY, versions 0..=0);
