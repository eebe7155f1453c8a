//! Answers that carry a throttle time (KIP-219): the client stays silent on that connection for so long.

use kafka_protocol::messages as m;
use sharestream_wire::messages::{describe_share_group_offsets, share_acknowledge, share_fetch};
use sharestream_wire::txn_share_acknowledge;

/// The throttle time of an answer.
pub(crate) trait Throttled {
    /// Milliseconds to stay silent; 0 when the broker does not mind.
    fn throttle_time_ms(&self) -> i32;
}

macro_rules! throttled {
    ($($response:ty),* $(,)?) => {
        $(impl Throttled for $response {
            fn throttle_time_ms(&self) -> i32 {
                self.throttle_time_ms
            }
        })*
    };
}

throttled!(
    m::AlterShareGroupOffsetsResponse,
    m::ApiVersionsResponse,
    m::CreatePartitionsResponse,
    m::CreateTopicsResponse,
    m::DeleteGroupsResponse,
    m::DeleteShareGroupOffsetsResponse,
    m::DeleteTopicsResponse,
    m::DescribeConfigsResponse,
    m::DescribeGroupsResponse,
    m::DescribeTransactionsResponse,
    m::EndTxnResponse,
    m::FetchResponse,
    m::FindCoordinatorResponse,
    m::IncrementalAlterConfigsResponse,
    m::InitProducerIdResponse,
    m::ListGroupsResponse,
    m::ListOffsetsResponse,
    m::ListTransactionsResponse,
    m::MetadataResponse,
    m::ProduceResponse,
    m::ShareGroupDescribeResponse,
    m::ShareGroupHeartbeatResponse,
    describe_share_group_offsets::DescribeShareGroupOffsetsResponse,
    share_acknowledge::ShareAcknowledgeResponse,
    share_fetch::ShareFetchResponse,
    txn_share_acknowledge::TxnShareAcknowledgeResponse,
);
