//! Names of the API keys that we speak. The private and unreleased ones are defined beside their messages.

use std::fmt;

use crate::messages::share_txn_outcome;
use crate::txn_share_acknowledge;

/// The key that says which API a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApiKey(pub i16);

macro_rules! api_keys {
    ($($(#[$doc:meta])* $name:ident = $key:expr, $text:literal;)*) => {
        impl ApiKey {
            $($(#[$doc])* pub const $name: ApiKey = ApiKey($key);)*

            /// The name that Kafka's documentation uses, or none for a key we do not know.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(ApiKey::$name => Some($text),)*
                    ApiKey(_) => None,
                }
            }
        }
    };
}

api_keys! {
    /// Appends record batches.
    PRODUCE = 0, "Produce";
    /// Reads record batches.
    FETCH = 1, "Fetch";
    /// Offsets by timestamp or position.
    LIST_OFFSETS = 2, "ListOffsets";
    /// Brokers, topics, leaders.
    METADATA = 3, "Metadata";
    /// Commits consumer-group offsets.
    OFFSET_COMMIT = 8, "OffsetCommit";
    /// Reads consumer-group offsets.
    OFFSET_FETCH = 9, "OffsetFetch";
    /// Which broker coordinates a group, a transactional id or a share partition.
    FIND_COORDINATOR = 10, "FindCoordinator";
    /// Classic group protocol.
    JOIN_GROUP = 11, "JoinGroup";
    /// Classic group protocol.
    HEARTBEAT = 12, "Heartbeat";
    /// Classic group protocol.
    LEAVE_GROUP = 13, "LeaveGroup";
    /// Classic group protocol.
    SYNC_GROUP = 14, "SyncGroup";
    /// Classic group protocol.
    DESCRIBE_GROUPS = 15, "DescribeGroups";
    /// All groups.
    LIST_GROUPS = 16, "ListGroups";
    /// Chooses a SASL mechanism.
    SASL_HANDSHAKE = 17, "SaslHandshake";
    /// Version ranges and features.
    API_VERSIONS = 18, "ApiVersions";
    /// Creates topics.
    CREATE_TOPICS = 19, "CreateTopics";
    /// Deletes topics.
    DELETE_TOPICS = 20, "DeleteTopics";
    /// Raises a log start offset.
    DELETE_RECORDS = 21, "DeleteRecords";
    /// Producer identity.
    INIT_PRODUCER_ID = 22, "InitProducerId";
    /// End offset of a leader epoch.
    OFFSET_FOR_LEADER_EPOCH = 23, "OffsetForLeaderEpoch";
    /// Registers participants of a transaction.
    ADD_PARTITIONS_TO_TXN = 24, "AddPartitionsToTxn";
    /// Registers a consumer group with a transaction.
    ADD_OFFSETS_TO_TXN = 25, "AddOffsetsToTxn";
    /// Commits or aborts a transaction.
    END_TXN = 26, "EndTxn";
    /// Coordinator to participants: the outcome.
    WRITE_TXN_MARKERS = 27, "WriteTxnMarkers";
    /// Consumer-group offsets within a transaction.
    TXN_OFFSET_COMMIT = 28, "TxnOffsetCommit";
    /// Reads settings.
    DESCRIBE_CONFIGS = 32, "DescribeConfigs";
    /// Completes SASL.
    SASL_AUTHENTICATE = 36, "SaslAuthenticate";
    /// Adds partitions to a topic.
    CREATE_PARTITIONS = 37, "CreatePartitions";
    /// Deletes groups.
    DELETE_GROUPS = 42, "DeleteGroups";
    /// Changes settings.
    INCREMENTAL_ALTER_CONFIGS = 44, "IncrementalAlterConfigs";
    /// Cluster id, brokers, controller.
    DESCRIBE_CLUSTER = 60, "DescribeCluster";
    /// Producer state of partitions.
    DESCRIBE_PRODUCERS = 61, "DescribeProducers";
    /// State of transactions.
    DESCRIBE_TRANSACTIONS = 65, "DescribeTransactions";
    /// All transactions.
    LIST_TRANSACTIONS = 66, "ListTransactions";
    /// Consumer group protocol of KIP-848.
    CONSUMER_GROUP_HEARTBEAT = 68, "ConsumerGroupHeartbeat";
    /// Consumer group protocol of KIP-848.
    CONSUMER_GROUP_DESCRIBE = 69, "ConsumerGroupDescribe";
    /// Partitions of topics, paged.
    DESCRIBE_TOPIC_PARTITIONS = 75, "DescribeTopicPartitions";
    /// Share-group membership (KIP-932).
    SHARE_GROUP_HEARTBEAT = 76, "ShareGroupHeartbeat";
    /// Share-group state (KIP-932).
    SHARE_GROUP_DESCRIBE = 77, "ShareGroupDescribe";
    /// Acquires records (KIP-932).
    SHARE_FETCH = 78, "ShareFetch";
    /// Acknowledges records (KIP-932).
    SHARE_ACKNOWLEDGE = 79, "ShareAcknowledge";
    /// Share-partition state (KIP-932, broker to broker).
    INITIALIZE_SHARE_GROUP_STATE = 83, "InitializeShareGroupState";
    /// Share-partition state (KIP-932, broker to broker).
    READ_SHARE_GROUP_STATE = 84, "ReadShareGroupState";
    /// Share-partition state (KIP-932, broker to broker).
    WRITE_SHARE_GROUP_STATE = 85, "WriteShareGroupState";
    /// Share-partition state (KIP-932, broker to broker).
    DELETE_SHARE_GROUP_STATE = 86, "DeleteShareGroupState";
    /// Share-partition state (KIP-932, broker to broker).
    READ_SHARE_GROUP_STATE_SUMMARY = 87, "ReadShareGroupStateSummary";
    /// Start offsets of a share group.
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, "DescribeShareGroupOffsets";
    /// Moves start offsets of a share group.
    ALTER_SHARE_GROUP_OFFSETS = 91, "AlterShareGroupOffsets";
    /// Forgets start offsets of a share group.
    DELETE_SHARE_GROUP_OFFSETS = 92, "DeleteShareGroupOffsets";
    /// Stages acknowledgements into a transaction (KIP-1289).
    TXN_SHARE_ACKNOWLEDGE = txn_share_acknowledge::KEY, "TxnShareAcknowledge";
    /// Private: outcome of a transaction, from share coordinator to share-partition leader.
    SHARE_TXN_OUTCOME = share_txn_outcome::KEY, "ShareTxnOutcome";
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "api key {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_prints_name_and_number() {
        assert_eq!(ApiKey::SHARE_FETCH.to_string(), "ShareFetch (78)");
        assert_eq!(ApiKey(12345).to_string(), "api key 12345");
    }

    #[test]
    fn names_are_those_of_kafka_protocol() {
        for key in 0..=92 {
            let (Some(ours), Ok(theirs)) =
                (ApiKey(key).name(), kafka_protocol::messages::ApiKey::try_from(key))
            else {
                continue;
            };
            assert_eq!(ours, format!("{theirs:?}"));
        }
    }
}
