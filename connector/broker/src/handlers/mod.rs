//! One file per API: decode is done here, each handler gets a typed request and gives a typed response.
//!
//! The table at the end is the one list of what this broker serves; ApiVersions shows it.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Message, Request};
use sharestream_base::CancellationToken;
use sharestream_base::ids::TopicId;
use sharestream_wire::WireError;
use sharestream_wire::api::ApiKey;
use sharestream_wire::frame::{self, RequestHeader};
// Newer than kafka_protocol has them, or ours alone: these names win over those of the glob above.
use sharestream_wire::messages::describe_share_group_offsets::DescribeShareGroupOffsetsRequest;
use sharestream_wire::messages::initialize_share_group_state::InitializeShareGroupStateRequest;
use sharestream_wire::messages::read_share_group_state::ReadShareGroupStateRequest;
use sharestream_wire::messages::share_acknowledge::ShareAcknowledgeRequest;
use sharestream_wire::messages::share_fetch::ShareFetchRequest;
use sharestream_wire::messages::share_txn_outcome::ShareTxnOutcomeRequest;
use sharestream_wire::messages::write_share_group_state::WriteShareGroupStateRequest;
use sharestream_wire::txn_share_acknowledge::TxnShareAcknowledgeRequest;

use crate::access::{Admission, Authentication, Checks};
use crate::disk::DiskFailed;
use crate::error::ErrorCode;
use crate::faults::FaultAction;
use crate::features::{SHARE_GROUPS, STAGING};
use crate::node::Node;

mod add_offsets_to_txn;
mod add_partitions_to_txn;
mod alter_share_group_offsets;
mod api_versions;
mod create_acls;
mod create_topics;
mod delete_acls;
mod delete_groups;
mod delete_records;
mod delete_share_group_offsets;
mod delete_share_group_state;
mod delete_topics;
mod describe_acls;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_producers;
mod describe_share_group_offsets;
mod describe_transactions;
mod end_txn;
mod fetch;
mod find_coordinator;
mod incremental_alter_configs;
mod init_producer_id;
mod initialize_share_group_state;
mod list_groups;
mod list_offsets;
mod list_transactions;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod offsets;
mod participation;
mod produce;
mod read_share_group_state;
mod refusals;
mod sasl_authenticate;
mod sasl_handshake;
mod share_acknowledge;
mod share_fetch;
mod share_group_describe;
mod share_group_heartbeat;
mod share_txn_outcome;
mod txn_offset_commit;
mod txn_share_acknowledge;
mod update_features;
mod write_share_group_state;
mod write_txn_markers;

/// One accepted connection, numbered within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// What is known of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Its number.
    pub(crate) id: ConnectionId,
    /// Triggered when the peer or the node goes away.
    pub(crate) closed: CancellationToken,
    /// Who it is.
    pub(crate) authentication: Authentication,
}

/// What a handler knows beside the request.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    /// The connection that it came on.
    pub(crate) connection: ConnectionId,
    /// Triggered when the peer or the node goes away: long waits end early. Work goes on to its end.
    pub(crate) closed: CancellationToken,
    /// What the client calls itself.
    pub(crate) client_id: Option<String>,
    /// Version of request and response.
    pub(crate) version: i16,
    /// What the one who asks may do.
    pub(crate) may: Checks,
}

impl RequestContext {
    /// The request's right to a topic by its id, which is no secret: a topic that is not there is for the
    /// handler to refuse. Errors: TOPIC_AUTHORIZATION_FAILED.
    pub(crate) fn may_topic_id(&self, node: &Node, id: TopicId) -> Result<(), ErrorCode> {
        if self.may.do_everything() {
            return Ok(());
        }
        node.cluster.topics.by_id(id).map_or(Ok(()), |topic| self.may.topic(&topic.name))
    }
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Dispatched {
    /// A whole frame to send.
    Answer(Bytes),
    /// A whole frame to send before the connection is closed.
    Last(Bytes),
    /// The request wants none (Produce with acks 0).
    NoAnswer,
}

/// A request that cannot be answered; its connection is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DispatchError {
    /// Header or response is at fault.
    #[error("malformed frame: {0}")]
    Frame(#[from] WireError),
    /// The body does not follow its schema.
    #[error("malformed body of api key {api_key} version {version}: {reason}")]
    Body {
        /// Which API.
        api_key: i16,
        /// Which version.
        version: i16,
        /// What the decoder said.
        reason: String,
    },
    /// What was done cannot be made durable: whoever asked must not be told that it is.
    #[error("{0}")]
    Disk(#[from] DiskFailed),
    /// Who asks did not say who they are, or not to the end.
    #[error("api key {0} before the connection is authenticated")]
    Unauthenticated(i16),
    /// Not in the table.
    #[error("api key {api_key} version {version} is not served")]
    Unsupported {
        /// Which API.
        api_key: i16,
        /// Which version.
        version: i16,
    },
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// Which API.
    pub(crate) api_key: i16,
    /// First version.
    pub(crate) min: i16,
    /// Last version.
    pub(crate) max: i16,
    /// Not shown to clients: between our own nodes only.
    pub(crate) hidden: bool,
}

/// Our own private API keys begin here; Kafka's are far below.
const PRIVATE_KEYS_FROM: i16 = 10_000;
/// Private versions of Kafka's share-state APIs (between brokers) begin here.
const PRIVATE_VERSIONS_FROM: i16 = 10;

/// The stage of transactional acknowledgements.
const STAGE: i16 = TxnShareAcknowledgeRequest::KEY;

/// Level of `share.version` that a request needs. Those between nodes need none: what was staged at a higher
/// level can still end.
fn share_version_of(api_key: i16) -> i16 {
    match api_key {
        STAGE => STAGING,
        ShareGroupHeartbeatRequest::KEY
        | ShareGroupDescribeRequest::KEY
        | ShareFetchRequest::KEY
        | ShareAcknowledgeRequest::KEY
        | DescribeShareGroupOffsetsRequest::KEY
        | AlterShareGroupOffsetsRequest::KEY
        | DeleteShareGroupOffsetsRequest::KEY => SHARE_GROUPS,
        _ => 0,
    }
}

/// Reads a body. Bytes left over are ignored, as Kafka's broker does: librdkafka 2.16 asks for the metadata
/// of all topics with three bytes too many.
fn decode<R: Request>(header: &RequestHeader, body: &mut Bytes) -> Result<R, DispatchError> {
    frame::decode_request_front(body, header.api_version).map_err(|error| DispatchError::Body {
        api_key: header.api_key,
        version: header.api_version,
        reason: error.to_string(),
    })
}

/// What a planted fault does to a frame; counts it.
pub(crate) fn planted_fault(node: &Node, frame: &Bytes) -> Option<FaultAction> {
    if !node.cluster.faults.is_planted() {
        return None;
    }
    // A header that cannot be read is for the dispatch to refuse.
    let header = frame::decode_request_header(&mut frame.clone()).ok()?;
    node.cluster.faults.meet(node.id, ApiKey(header.api_key), header.client_id.as_deref())
}

/// Answers one frame (without its length) with an error, without serving it.
pub(crate) fn refuse(mut frame: Bytes, code: i16) -> Result<Dispatched, DispatchError> {
    let header = frame::decode_request_header(&mut frame)?;
    refuse_read(&header, frame, code)
}

/// The same, with the header taken off.
fn refuse_read(header: &RequestHeader, mut body: Bytes, code: i16) -> Result<Dispatched, DispatchError> {
    if header.api_key != ProduceRequest::KEY {
        return refuse_from_table(header, body, code).map(Dispatched::Answer);
    }
    let request: ProduceRequest = decode(header, &mut body)?;
    if request.acks == 0 {
        return Ok(Dispatched::NoAnswer);
    }
    let response = refusals::Refuse::refuse(request, header.api_version, code);
    Ok(Dispatched::Answer(frame::encode_response(&response, header.api_version, header.correlation_id)?))
}

/// Serves one frame (without its length). Not cancel safe: a handler must run to its end.
pub(crate) async fn dispatch(
    node: &Arc<Node>,
    connection: &mut Connection,
    mut frame: Bytes,
) -> Result<Dispatched, DispatchError> {
    let header = frame::decode_request_header(&mut frame)?;
    let (api_key, version) = (header.api_key, header.api_version);
    let admission = connection.authentication.admit(api_key);
    match admission {
        Admission::Refuse => return refuse_last(&header, frame),
        Admission::Close => return Err(DispatchError::Unauthenticated(api_key)),
        Admission::Serve(_) | Admission::Authenticate => {}
    }
    let served = SERVED.iter().find(|served| served.api_key == api_key);
    if served.is_none_or(|served| version < served.min || version > served.max) {
        if api_key == ApiVersionsRequest::KEY {
            // KIP-511: a newer client learns our versions from an answer of version 0.
            let response = api_versions::unsupported_version(node);
            return Ok(Dispatched::Answer(frame::encode_response(&response, 0, header.correlation_id)?));
        }
        return Err(DispatchError::Unsupported { api_key, version });
    }
    let caller = match admission {
        Admission::Serve(caller) => caller,
        Admission::Authenticate => return authenticate(node, connection, &header, frame),
        Admission::Refuse | Admission::Close => return Err(DispatchError::Unauthenticated(api_key)),
    };
    let context = RequestContext {
        connection: connection.id,
        closed: connection.closed.clone(),
        client_id: header.client_id.clone(),
        version,
        may: Checks::new(&node.cluster.access, caller, api_key),
    };
    if node.cluster.features.share_version() < share_version_of(api_key) {
        // As Kafka answers requests whose feature is off.
        return refuse_from_table(&header, frame, ErrorCode::UnsupportedVersion.code())
            .map(Dispatched::Answer);
    }
    if let Err(code) = context.may.gate(version) {
        return refuse_from_table(&header, frame, code.code()).map(Dispatched::Answer);
    }
    if api_key == ProduceRequest::KEY {
        let request: ProduceRequest = decode(&header, &mut frame)?;
        let wants_answer = request.acks != 0;
        let response = Box::pin(produce::handle(node, &context, request)).await;
        if !wants_answer {
            return Ok(Dispatched::NoAnswer);
        }
        node.cluster.durable().await?;
        return Ok(Dispatched::Answer(frame::encode_response(&response, version, header.correlation_id)?));
    }
    serve_table(node, &context, &header, frame).await.map(Dispatched::Answer)
}

/// Answers what came in the place of a password; the connection ends with it, as in Kafka.
fn refuse_last(header: &RequestHeader, body: Bytes) -> Result<Dispatched, DispatchError> {
    match refuse_read(header, body, ErrorCode::IllegalSaslState.code())? {
        Dispatched::Answer(answer) | Dispatched::Last(answer) => Ok(Dispatched::Last(answer)),
        Dispatched::NoAnswer => Err(DispatchError::Unauthenticated(header.api_key)),
    }
}

/// A step by which a connection says who it is.
fn authenticate(
    node: &Node,
    connection: &mut Connection,
    header: &RequestHeader,
    mut frame: Bytes,
) -> Result<Dispatched, DispatchError> {
    let state = &mut connection.authentication;
    let answer = |bytes, goes_on| if goes_on { Dispatched::Answer(bytes) } else { Dispatched::Last(bytes) };
    if header.api_key == SaslHandshakeRequest::KEY {
        let (response, goes_on) = sasl_handshake::step(state, &decode(header, &mut frame)?);
        let bytes = frame::encode_response(&response, header.api_version, header.correlation_id)?;
        return Ok(answer(bytes, goes_on));
    }
    let (response, goes_on) =
        sasl_authenticate::step(&node.cluster.access, state, &decode(header, &mut frame)?);
    let bytes = frame::encode_response(&response, header.api_version, header.correlation_id)?;
    Ok(answer(bytes, goes_on))
}

macro_rules! table {
    ($( $request:ty => $module:ident [$min:literal, $max:literal] ),* $(,)?) => {
        /// Every API that is served, in its versions.
        pub(crate) const SERVED: &[Served] = &[
            Served { api_key: ProduceRequest::KEY, min: 3, max: 12, hidden: false },
            $( Served {
                api_key: <$request as Request>::KEY,
                min: $min,
                max: $max,
                hidden: <$request as Request>::KEY >= PRIVATE_KEYS_FROM || $min >= PRIVATE_VERSIONS_FROM,
            }, )*
        ];

        // A version that the codec does not know would close the connection at decode.
        $( const _: () = assert!(
            <$request as Message>::VERSIONS.min <= $min && <$request as Message>::VERSIONS.max >= $max
        ); )*

        async fn serve_table(
            node: &Arc<Node>,
            context: &RequestContext,
            header: &RequestHeader,
            mut body: Bytes,
        ) -> Result<Bytes, DispatchError> {
            match header.api_key {
                $( <$request as Request>::KEY => {
                    let request: $request = decode(header, &mut body)?;
                    // Boxed: else the future of every connection would be as large as the largest handler's.
                    let response = Box::pin($module::handle(node, context, request)).await;
                    // Also of reads: nobody is told of what may not be there after a crash.
                    node.cluster.durable().await?;
                    Ok(frame::encode_response(&response, header.api_version, header.correlation_id)?)
                } )*
                api_key => Err(DispatchError::Unsupported { api_key, version: header.api_version }),
            }
        }

        fn refuse_from_table(
            header: &RequestHeader,
            mut body: Bytes,
            code: i16,
        ) -> Result<Bytes, DispatchError> {
            match header.api_key {
                $( <$request as Request>::KEY => {
                    let request: $request = decode(header, &mut body)?;
                    let response = refusals::Refuse::refuse(request, header.api_version, code);
                    Ok(frame::encode_response(&response, header.api_version, header.correlation_id)?)
                } )*
                api_key => Err(DispatchError::Unsupported { api_key, version: header.api_version }),
            }
        }
    };
}

// Request, file, first and last version. Produce is apart: it alone may want no answer.
table! {
    FetchRequest => fetch [4, 16],
    ListOffsetsRequest => list_offsets [1, 10],
    MetadataRequest => metadata [0, 13],
    FindCoordinatorRequest => find_coordinator [0, 6],
    ListGroupsRequest => list_groups [0, 5],
    DeleteGroupsRequest => delete_groups [0, 2],
    ApiVersionsRequest => api_versions [0, 4],
    SaslHandshakeRequest => sasl_handshake [1, 1],
    SaslAuthenticateRequest => sasl_authenticate [0, 2],
    CreateTopicsRequest => create_topics [2, 7],
    DeleteTopicsRequest => delete_topics [1, 6],
    DeleteRecordsRequest => delete_records [0, 2],
    InitProducerIdRequest => init_producer_id [0, 5],
    AddPartitionsToTxnRequest => add_partitions_to_txn [0, 5],
    EndTxnRequest => end_txn [0, 5],
    WriteTxnMarkersRequest => write_txn_markers [1, 1],
    // Consumer groups: offsets, also in transactions. Members are not served.
    OffsetCommitRequest => offset_commit [2, 9],
    OffsetFetchRequest => offset_fetch [1, 9],
    OffsetDeleteRequest => offset_delete [0, 0],
    OffsetForLeaderEpochRequest => offset_for_leader_epoch [2, 4],
    AddOffsetsToTxnRequest => add_offsets_to_txn [0, 4],
    TxnOffsetCommitRequest => txn_offset_commit [0, 5],
    DescribeGroupsRequest => describe_groups [0, 6],
    DescribeConfigsRequest => describe_configs [1, 4],
    IncrementalAlterConfigsRequest => incremental_alter_configs [0, 1],
    DescribeClusterRequest => describe_cluster [0, 2],
    DescribeProducersRequest => describe_producers [0, 0],
    DescribeTransactionsRequest => describe_transactions [0, 0],
    ListTransactionsRequest => list_transactions [0, 1],
    UpdateFeaturesRequest => update_features [0, 2],
    DescribeAclsRequest => describe_acls [1, 3],
    CreateAclsRequest => create_acls [1, 3],
    DeleteAclsRequest => delete_acls [1, 3],
    // Share groups: membership, offsets.
    ShareGroupHeartbeatRequest => share_group_heartbeat [1, 1],
    ShareGroupDescribeRequest => share_group_describe [1, 1],
    DescribeShareGroupOffsetsRequest => describe_share_group_offsets [0, 1],
    AlterShareGroupOffsetsRequest => alter_share_group_offsets [0, 0],
    DeleteShareGroupOffsetsRequest => delete_share_group_offsets [0, 0],
    // Share groups: fetch, acknowledge, state.
    ShareFetchRequest => share_fetch [1, 2],
    ShareAcknowledgeRequest => share_acknowledge [1, 2],
    TxnShareAcknowledgeRequest => txn_share_acknowledge [0, 0],
    InitializeShareGroupStateRequest => initialize_share_group_state [10, 10],
    ReadShareGroupStateRequest => read_share_group_state [10, 10],
    WriteShareGroupStateRequest => write_share_group_state [10, 10],
    DeleteShareGroupStateRequest => delete_share_group_state [0, 0],
    ShareTxnOutcomeRequest => share_txn_outcome [0, 0],
}
