//! Answers to requests that are not served: one error, wherever the answer has a place for one.

use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use sharestream_wire::messages::share_acknowledge::{ShareAcknowledgeRequest, ShareAcknowledgeResponse};
use sharestream_wire::messages::share_fetch::{ShareFetchRequest, ShareFetchResponse};
use sharestream_wire::messages::share_txn_outcome::{ShareTxnOutcomeRequest, ShareTxnOutcomeResponse};
use sharestream_wire::txn_share_acknowledge::{TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse};

mod acls;
mod admin;
mod groups;
mod records;
mod share_state;

/// A request that can be refused.
pub(super) trait Refuse: Request {
    /// The answer, in this version, that carries `code`, an error, for all that was asked.
    fn refuse(self, version: i16, code: i16) -> Self::Response;
}

/// Answers with one error for the whole.
macro_rules! whole {
    ($( $request:ty => $response:ident ),* $(,)?) => {
        $( impl Refuse for $request {
            fn refuse(self, _version: i16, code: i16) -> $response {
                let mut response = $response::default();
                response.error_code = code;
                response
            }
        } )*
    };
}

whole! {
    ListGroupsRequest => ListGroupsResponse,
    ApiVersionsRequest => ApiVersionsResponse,
    SaslHandshakeRequest => SaslHandshakeResponse,
    SaslAuthenticateRequest => SaslAuthenticateResponse,
    EndTxnRequest => EndTxnResponse,
    AddOffsetsToTxnRequest => AddOffsetsToTxnResponse,
    OffsetDeleteRequest => OffsetDeleteResponse,
    UpdateFeaturesRequest => UpdateFeaturesResponse,
    DescribeAclsRequest => DescribeAclsResponse,
    DescribeClusterRequest => DescribeClusterResponse,
    ListTransactionsRequest => ListTransactionsResponse,
    ShareGroupHeartbeatRequest => ShareGroupHeartbeatResponse,
    AlterShareGroupOffsetsRequest => AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest => DeleteShareGroupOffsetsResponse,
    ShareFetchRequest => ShareFetchResponse,
    ShareAcknowledgeRequest => ShareAcknowledgeResponse,
    TxnShareAcknowledgeRequest => TxnShareAcknowledgeResponse,
    ShareTxnOutcomeRequest => ShareTxnOutcomeResponse,
}

impl Refuse for InitProducerIdRequest {
    fn refuse(self, _version: i16, code: i16) -> InitProducerIdResponse {
        let nobody =
            InitProducerIdResponse::default().with_producer_id(ProducerId(-1)).with_producer_epoch(-1);
        nobody.with_error_code(code)
    }
}

/// From this version on FindCoordinator asks for several keys at once.
const FIND_COORDINATOR_FIRST_BATCHED: i16 = 4;

impl Refuse for FindCoordinatorRequest {
    fn refuse(self, version: i16, code: i16) -> FindCoordinatorResponse {
        use kafka_protocol::messages::find_coordinator_response::Coordinator;
        let response = FindCoordinatorResponse::default();
        if version < FIND_COORDINATOR_FIRST_BATCHED {
            return response.with_error_code(code).with_node_id(BrokerId(-1)).with_port(-1);
        }
        let coordinators = self.coordinator_keys.into_iter().map(|key| {
            let nobody = Coordinator::default().with_key(key).with_node_id(BrokerId(-1)).with_port(-1);
            nobody.with_error_code(code)
        });
        response.with_coordinators(coordinators.collect())
    }
}
