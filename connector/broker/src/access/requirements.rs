//! What each API asks of whoever calls it: the one list. Handlers ask [`super::Checks`] for a resource, which
//! looks here for the operation.
//!
//! Sources: Apache Kafka 4.4's own checks for its APIs, KIP-932 for those of share groups, KIP-1289 for
//! TxnShareAcknowledge. What only nodes send asks for CLUSTER_ACTION before anything else; nodes of this
//! broker may do everything.

use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
// Newer than kafka_protocol has them, or ours alone: these names win over those of the glob above.
use sharestream_wire::messages::describe_share_group_offsets::DescribeShareGroupOffsetsRequest;
use sharestream_wire::messages::initialize_share_group_state::InitializeShareGroupStateRequest;
use sharestream_wire::messages::read_share_group_state::ReadShareGroupStateRequest;
use sharestream_wire::messages::share_acknowledge::ShareAcknowledgeRequest;
use sharestream_wire::messages::share_fetch::ShareFetchRequest;
use sharestream_wire::messages::share_txn_outcome::ShareTxnOutcomeRequest;
use sharestream_wire::messages::write_share_group_state::WriteShareGroupStateRequest;
use sharestream_wire::txn_share_acknowledge::TxnShareAcknowledgeRequest;

use super::acl::Operation::{
    self, Alter, AlterConfigs, ClusterAction, Create, Delete, Describe, DescribeConfigs, IdempotentWrite,
    Read, Write,
};
use super::acl::ResourceType::{self, Cluster, Group, Topic, TransactionalId};

/// An operation on each resource of a type that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// On what.
    pub(super) kind: ResourceType,
    /// The operation.
    pub(super) operation: Operation,
    /// What does as well.
    pub(super) or: Or,
}

/// What does in the place of a need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Or {
    /// Nothing.
    Nothing,
    /// An operation on the cluster.
    Cluster(Operation),
    /// An operation on any topic at all (KIP-679).
    AnyTopic(Operation),
}

/// A need for the cluster that is checked before the handler sees the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gate {
    pub(super) need: Need,
    /// From this version of the API on.
    pub(super) from_version: i16,
}

/// What one API asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requirement {
    pub(super) api_key: i16,
    pub(super) gate: Option<Gate>,
    /// The first need of a type is the one that handlers mean where they do not name the operation.
    pub(super) needs: &'static [Need],
}

const fn on(kind: ResourceType, operation: Operation) -> Need {
    Need { kind, operation, or: Or::Nothing }
}

impl Need {
    const fn or(self, or: Or) -> Need {
        Need { or, ..self }
    }
}

const fn api<R: Request>(needs: &'static [Need]) -> Requirement {
    Requirement { api_key: R::KEY, gate: None, needs }
}

const fn gated<R: Request>(need: Need) -> Requirement {
    Requirement { api_key: R::KEY, gate: Some(Gate { need, from_version: 0 }), needs: &[] }
}

/// What only nodes send.
const fn between_nodes<R: Request>() -> Requirement {
    gated::<R>(on(Cluster, ClusterAction))
}

/// Versions of AddPartitionsToTxn from here on come from partition leaders.
const ADD_PARTITIONS_FROM_LEADERS: i16 = 4;

/// Every API that the broker serves.
const REQUIREMENTS: &[Requirement] = &[
    // Anybody, also before it is known who that is.
    api::<ApiVersionsRequest>(&[]),
    api::<SaslHandshakeRequest>(&[]),
    api::<SaslAuthenticateRequest>(&[]),
    // Records.
    api::<ProduceRequest>(&[on(TransactionalId, Write), on(Topic, Write)]),
    api::<FetchRequest>(&[on(Topic, Read)]),
    api::<ListOffsetsRequest>(&[on(Topic, Describe)]),
    api::<DeleteRecordsRequest>(&[on(Topic, Delete)]),
    // What there is. What may not be described is not there; CREATE where asking for a topic makes it.
    api::<MetadataRequest>(&[on(Topic, Describe), on(Topic, Create).or(Or::Cluster(Create))]),
    api::<FindCoordinatorRequest>(&[
        on(Group, Describe),
        on(TransactionalId, Describe),
        on(Cluster, ClusterAction),
    ]),
    api::<ListGroupsRequest>(&[on(Group, Describe).or(Or::Cluster(Describe))]),
    api::<DeleteGroupsRequest>(&[on(Group, Delete)]),
    // Everybody may know the nodes; without DESCRIBE on the cluster its operations are not told.
    api::<DescribeClusterRequest>(&[on(Cluster, Describe)]),
    api::<DescribeProducersRequest>(&[on(Topic, Read)]),
    // Topics. The settings of a new one are told with DESCRIBE_CONFIGS only.
    api::<CreateTopicsRequest>(&[on(Topic, Create).or(Or::Cluster(Create)), on(Topic, DescribeConfigs)]),
    api::<DeleteTopicsRequest>(&[
        on(Topic, Delete).or(Or::Cluster(Delete)),
        on(Topic, Describe).or(Or::Cluster(Delete)),
    ]),
    // Settings, of the type that the request names.
    api::<DescribeConfigsRequest>(&[
        on(Topic, DescribeConfigs),
        on(Group, DescribeConfigs),
        on(Cluster, DescribeConfigs),
    ]),
    api::<IncrementalAlterConfigsRequest>(&[
        on(Topic, AlterConfigs),
        on(Group, AlterConfigs),
        on(Cluster, AlterConfigs),
    ]),
    gated::<UpdateFeaturesRequest>(on(Cluster, Alter)),
    gated::<DescribeAclsRequest>(on(Cluster, Describe)),
    gated::<CreateAclsRequest>(on(Cluster, Alter)),
    gated::<DeleteAclsRequest>(on(Cluster, Alter)),
    // Transactions.
    api::<InitProducerIdRequest>(&[
        on(TransactionalId, Write),
        on(Cluster, IdempotentWrite).or(Or::AnyTopic(Write)),
    ]),
    Requirement {
        api_key: AddPartitionsToTxnRequest::KEY,
        gate: Some(Gate { need: on(Cluster, ClusterAction), from_version: ADD_PARTITIONS_FROM_LEADERS }),
        needs: &[on(TransactionalId, Write), on(Topic, Write)],
    },
    api::<EndTxnRequest>(&[on(TransactionalId, Write)]),
    // ALTER: administrators end hanging transactions with it (KIP-664).
    gated::<WriteTxnMarkersRequest>(on(Cluster, ClusterAction).or(Or::Cluster(Alter))),
    api::<DescribeTransactionsRequest>(&[on(TransactionalId, Describe), on(Topic, Describe)]),
    api::<ListTransactionsRequest>(&[on(TransactionalId, Describe)]),
    // Offsets of consumer groups.
    api::<OffsetCommitRequest>(&[on(Group, Read), on(Topic, Read)]),
    api::<OffsetFetchRequest>(&[on(Group, Describe), on(Topic, Describe)]),
    api::<OffsetDeleteRequest>(&[on(Group, Delete), on(Topic, Read)]),
    api::<DescribeGroupsRequest>(&[on(Group, Describe)]),
    api::<AddOffsetsToTxnRequest>(&[on(TransactionalId, Write), on(Group, Read)]),
    api::<TxnOffsetCommitRequest>(&[on(TransactionalId, Write), on(Group, Read), on(Topic, Read)]),
    api::<OffsetForLeaderEpochRequest>(&[on(Topic, Describe).or(Or::Cluster(ClusterAction))]),
    // Share groups.
    api::<ShareGroupHeartbeatRequest>(&[on(Group, Read), on(Topic, Describe)]),
    api::<ShareGroupDescribeRequest>(&[on(Group, Describe), on(Topic, Describe)]),
    api::<DescribeShareGroupOffsetsRequest>(&[on(Group, Describe), on(Topic, Describe)]),
    api::<AlterShareGroupOffsetsRequest>(&[on(Group, Read), on(Topic, Read)]),
    api::<DeleteShareGroupOffsetsRequest>(&[on(Group, Delete), on(Topic, Read)]),
    api::<ShareFetchRequest>(&[on(Group, Read), on(Topic, Read)]),
    api::<ShareAcknowledgeRequest>(&[on(Group, Read), on(Topic, Read)]),
    api::<TxnShareAcknowledgeRequest>(&[on(TransactionalId, Write), on(Group, Read), on(Topic, Read)]),
    between_nodes::<InitializeShareGroupStateRequest>(),
    between_nodes::<ReadShareGroupStateRequest>(),
    between_nodes::<WriteShareGroupStateRequest>(),
    between_nodes::<DeleteShareGroupStateRequest>(),
    between_nodes::<ShareTxnOutcomeRequest>(),
];

/// What can be done with a resource at all, for answers that list what is allowed (KIP-430).
pub(super) fn operations_of(kind: ResourceType) -> &'static [Operation] {
    match kind {
        Topic => &[Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs],
        Group => &[Read, Delete, Describe, DescribeConfigs, AlterConfigs],
        Cluster => &[Create, Alter, Describe, ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite],
        TransactionalId => &[Write, Describe],
    }
}

/// What an API asks; `None` for those that are not served.
pub(super) fn of(api_key: i16) -> Option<&'static Requirement> {
    REQUIREMENTS.iter().find(|requirement| requirement.api_key == api_key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::handlers::SERVED;

    #[test]
    fn no_api_of_the_broker_is_without_its_requirement() {
        let served: BTreeSet<i16> = SERVED.iter().map(|served| served.api_key).collect();
        let listed: BTreeSet<i16> = REQUIREMENTS.iter().map(|requirement| requirement.api_key).collect();
        assert_eq!(listed, served);
        assert_eq!(listed.len(), REQUIREMENTS.len(), "an API is listed twice");
    }

    #[test]
    fn who_is_not_known_yet_is_asked_for_nothing_and_what_is_hidden_is_for_nodes() {
        for requirement in REQUIREMENTS {
            let open = requirement.gate.is_none() && requirement.needs.is_empty();
            let key = requirement.api_key;
            assert_eq!(open, [18, 17, 36].contains(&key), "api key {key}");
        }
        for hidden in SERVED.iter().filter(|served| served.hidden) {
            let gate = of(hidden.api_key).and_then(|requirement| requirement.gate);
            assert_eq!(gate.map(|gate| gate.need), Some(on(Cluster, ClusterAction)), "{}", hidden.api_key);
        }
    }
}
