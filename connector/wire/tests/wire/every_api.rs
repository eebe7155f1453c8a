//! Every API that there is a decoder for: all of kafka_protocol, and our own.

use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::Request;
use sharestream_wire::messages as ours;
use sharestream_wire::txn_share_acknowledge::TxnShareAcknowledgeRequest;

/// Something to do with each API.
pub(crate) trait Visit {
    /// Does it.
    fn visit<R: Request>(&mut self);
}

macro_rules! visit {
    ($visitor:ident, $at:ident: $($request:ident),+ $(,)?) => {
        $($visitor.visit::<$at::$request>();)+
    };
}

/// Visits them.
pub(crate) fn every_api(visitor: &mut impl Visit) {
    visit!(visitor, theirs:
        ProduceRequest, FetchRequest, ListOffsetsRequest, MetadataRequest, OffsetCommitRequest,
        OffsetFetchRequest, FindCoordinatorRequest, JoinGroupRequest, HeartbeatRequest,
        LeaveGroupRequest, SyncGroupRequest, DescribeGroupsRequest, ListGroupsRequest,
        SaslHandshakeRequest, ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
        DeleteRecordsRequest, InitProducerIdRequest, OffsetForLeaderEpochRequest,
        AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest, WriteTxnMarkersRequest,
        TxnOffsetCommitRequest, DescribeAclsRequest, CreateAclsRequest, DeleteAclsRequest,
        DescribeConfigsRequest, AlterConfigsRequest, AlterReplicaLogDirsRequest, DescribeLogDirsRequest,
        SaslAuthenticateRequest, CreatePartitionsRequest, CreateDelegationTokenRequest,
        RenewDelegationTokenRequest, ExpireDelegationTokenRequest, DescribeDelegationTokenRequest,
        DeleteGroupsRequest, ElectLeadersRequest, IncrementalAlterConfigsRequest,
        AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest, OffsetDeleteRequest,
        DescribeClientQuotasRequest, AlterClientQuotasRequest, DescribeUserScramCredentialsRequest,
        AlterUserScramCredentialsRequest, VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest,
        DescribeQuorumRequest, AlterPartitionRequest, UpdateFeaturesRequest, EnvelopeRequest,
        FetchSnapshotRequest, DescribeClusterRequest, DescribeProducersRequest,
        BrokerRegistrationRequest, BrokerHeartbeatRequest, UnregisterBrokerRequest,
        DescribeTransactionsRequest, ListTransactionsRequest, AllocateProducerIdsRequest,
        ConsumerGroupHeartbeatRequest, ConsumerGroupDescribeRequest, ControllerRegistrationRequest,
        GetTelemetrySubscriptionsRequest, PushTelemetryRequest, AssignReplicasToDirsRequest,
        ListConfigResourcesRequest, DescribeTopicPartitionsRequest, ShareGroupHeartbeatRequest,
        ShareGroupDescribeRequest, ShareFetchRequest, ShareAcknowledgeRequest, AddRaftVoterRequest,
        RemoveRaftVoterRequest, UpdateRaftVoterRequest, InitializeShareGroupStateRequest,
        ReadShareGroupStateRequest, WriteShareGroupStateRequest, DeleteShareGroupStateRequest,
        ReadShareGroupStateSummaryRequest, DescribeShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest,
    );
    visitor.visit::<ours::describe_share_group_offsets::DescribeShareGroupOffsetsRequest>();
    visitor.visit::<ours::initialize_share_group_state::InitializeShareGroupStateRequest>();
    visitor.visit::<ours::read_share_group_state::ReadShareGroupStateRequest>();
    visitor.visit::<ours::share_acknowledge::ShareAcknowledgeRequest>();
    visitor.visit::<ours::share_fetch::ShareFetchRequest>();
    visitor.visit::<ours::share_txn_outcome::ShareTxnOutcomeRequest>();
    visitor.visit::<ours::write_share_group_state::WriteShareGroupStateRequest>();
    visitor.visit::<TxnShareAcknowledgeRequest>();
}
