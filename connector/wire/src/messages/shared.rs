//! Structures that several messages carry.

use kafka_protocol::protocol::StrBytes;

use crate::codec::flexible_struct;

flexible_struct! {
    /// Acknowledgement of a range of offsets. Source: KIP-932; type 4 is KIP-1222.
    pub struct AcknowledgementBatch {
        /// First offset of the range.
        first_offset: i64 = 0;
        /// Last offset of the range, inclusive.
        last_offset: i64 = 0;
        /// One type for the whole range, or one per offset: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
        acknowledge_types: Vec<i8> = Vec::new();
    }
}

flexible_struct! {
    /// Who leads a partition, as far as the answering broker knows.
    pub struct LeaderIdAndEpoch {
        /// Node id of the leader, or 0 when nothing is said.
        leader_id: i32 = 0;
        /// Incarnation of the leadership.
        leader_epoch: i32 = 0;
    }
}

flexible_struct! {
    /// Address of a leader that the response names.
    pub struct NodeEndpoint {
        /// Node id.
        node_id: i32 = 0;
        /// Host name or address.
        host: StrBytes = StrBytes::new();
        /// Port.
        port: i32 = 0;
        /// Rack, if it has one.
        rack: Option<StrBytes> = None;
    }
}

flexible_struct! {
    /// Durable state of a range of offsets of a share partition, with the owner of a staged acknowledgement.
    pub struct StateBatch {
        /// First offset of the range.
        first_offset: i64 = 0;
        /// Last offset of the range, inclusive.
        last_offset: i64 = 0;
        /// 0 available, 2 acknowledged, 3 archiving, 4 archived, 5 pending in a transaction.
        delivery_state: i8 = 0;
        /// How often the records were delivered.
        delivery_count: i16 = 0;
        /// Producer whose transaction holds the range in state 5, else -1.
        producer_id: i64 = -1;
        /// Epoch of that producer, else -1.
        producer_epoch: i16 = -1;
        /// Acknowledgement to apply on commit in state 5 (1 accept, 3 reject, 0 gap), else -1.
        ack_type: i8 = -1;
    }
}
