//! One table for all error codes of Kafka: what a client does about each of them.
//!
//! A call may know better (a repeated abort that meets a fenced epoch is done, for example); it then says so where
//! it calls. Sources: Kafka's `Errors`, KIP-890, KIP-932, KIP-1289.

use sharestream_base::ErrorKind;

/// What a client does about an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Not an error.
    Success,
    /// Send the same request again after a pause.
    Retry,
    /// Learn the leaders again, then send the same request.
    RefreshMetadata,
    /// Find the coordinator again, then send the same request.
    FindCoordinator,
    /// Join the group again: this membership is over.
    Rejoin,
    /// Open a new (share) session: what was acquired in the old one is lost.
    ResetSession,
    /// Abort the transaction and process again.
    Abort,
    /// A newer incarnation has taken over.
    Fenced,
    /// It may have happened.
    Indeterminate,
    /// No retry helps; the kind says whose fault it is.
    Fatal(ErrorKind),
}

impl ErrorClass {
    /// What the caller must do, in the one vocabulary of all crates.
    pub fn kind(self) -> ErrorKind {
        match self {
            ErrorClass::Success => ErrorKind::Bug,
            ErrorClass::Retry | ErrorClass::RefreshMetadata | ErrorClass::FindCoordinator => ErrorKind::Retry,
            ErrorClass::Rejoin | ErrorClass::ResetSession | ErrorClass::Abort => ErrorKind::Abort,
            ErrorClass::Fenced => ErrorKind::Fenced,
            ErrorClass::Indeterminate => ErrorKind::Indeterminate,
            ErrorClass::Fatal(kind) => kind,
        }
    }

    /// True when the identical request may be sent again, given that repeating it does no harm.
    pub fn is_retriable(self) -> bool {
        match self {
            ErrorClass::Retry
            | ErrorClass::RefreshMetadata
            | ErrorClass::FindCoordinator
            | ErrorClass::Indeterminate => true,
            ErrorClass::Success
            | ErrorClass::Rejoin
            | ErrorClass::ResetSession
            | ErrorClass::Abort
            | ErrorClass::Fenced
            | ErrorClass::Fatal(_) => false,
        }
    }
}

/// The class of `code`. A code newer than this table is fatal: guessing could lose data.
pub fn classify(code: i16) -> ErrorClass {
    known(code).unwrap_or(ErrorClass::Fatal(ErrorKind::Bug))
}

/// The table. `None` for a code that it does not know.
#[rustfmt::skip]
fn known(code: i16) -> Option<ErrorClass> {
    use ErrorClass as C;
    const CONFIG: ErrorClass = C::Fatal(ErrorKind::InvalidInput);
    const BUG: ErrorClass = C::Fatal(ErrorKind::Bug);
    const CORRUPT: ErrorClass = C::Fatal(ErrorKind::Corrupt);
    Some(match code {
        -1 => C::Indeterminate,    // UNKNOWN_SERVER_ERROR: it may have happened
        0 => C::Success,
        1 => CORRUPT,              // OFFSET_OUT_OF_RANGE: what was to be read is gone
        2 => C::Retry,             // CORRUPT_MESSAGE: damaged on the way, or a damaged log; the deadline decides
        3 => C::RefreshMetadata,   // UNKNOWN_TOPIC_OR_PARTITION
        4 => BUG,                  // INVALID_FETCH_SIZE
        5 => C::RefreshMetadata,   // LEADER_NOT_AVAILABLE
        6 => C::RefreshMetadata,   // NOT_LEADER_OR_FOLLOWER
        7 => C::Indeterminate,     // REQUEST_TIMED_OUT
        8 => C::RefreshMetadata,   // BROKER_NOT_AVAILABLE
        9 => C::RefreshMetadata,   // REPLICA_NOT_AVAILABLE
        10 => CONFIG,              // MESSAGE_TOO_LARGE
        11 => C::Fenced,           // STALE_CONTROLLER_EPOCH
        12 => CONFIG,              // OFFSET_METADATA_TOO_LARGE
        13 => C::Retry,            // NETWORK_EXCEPTION
        14 => C::Retry,            // COORDINATOR_LOAD_IN_PROGRESS
        15 => C::FindCoordinator,  // COORDINATOR_NOT_AVAILABLE
        16 => C::FindCoordinator,  // NOT_COORDINATOR
        17 => CONFIG,              // INVALID_TOPIC_EXCEPTION
        18 => CONFIG,              // RECORD_LIST_TOO_LARGE
        19 => C::Retry,            // NOT_ENOUGH_REPLICAS
        20 => C::Indeterminate,    // NOT_ENOUGH_REPLICAS_AFTER_APPEND
        21 => BUG,                 // INVALID_REQUIRED_ACKS
        22 => C::Rejoin,           // ILLEGAL_GENERATION
        23 => CONFIG,              // INCONSISTENT_GROUP_PROTOCOL
        24 => CONFIG,              // INVALID_GROUP_ID
        25 => C::Rejoin,           // UNKNOWN_MEMBER_ID
        26 => CONFIG,              // INVALID_SESSION_TIMEOUT
        27 => C::Retry,            // REBALANCE_IN_PROGRESS
        28 => BUG,                 // INVALID_COMMIT_OFFSET_SIZE
        29..=31 => CONFIG,         // TOPIC, GROUP, CLUSTER_AUTHORIZATION_FAILED
        32 => BUG,                 // INVALID_TIMESTAMP
        33 => CONFIG,              // UNSUPPORTED_SASL_MECHANISM
        34 => CONFIG,              // ILLEGAL_SASL_STATE
        35 => CONFIG,              // UNSUPPORTED_VERSION: the cluster lacks what was asked for
        36 => CONFIG,              // TOPIC_ALREADY_EXISTS
        37..=40 => CONFIG,         // INVALID_PARTITIONS, _REPLICATION_FACTOR, _REPLICA_ASSIGNMENT, _CONFIG
        41 => C::RefreshMetadata,  // NOT_CONTROLLER
        42 => BUG,                 // INVALID_REQUEST
        43 => CONFIG,              // UNSUPPORTED_FOR_MESSAGE_FORMAT
        44 => CONFIG,              // POLICY_VIOLATION
        45 => C::Abort,            // OUT_OF_ORDER_SEQUENCE_NUMBER: a batch before it is missing
        46 => C::Success,          // DUPLICATE_SEQUENCE_NUMBER: it is in the log
        47 => C::Fenced,           // INVALID_PRODUCER_EPOCH
        48 => C::Abort,            // INVALID_TXN_STATE: the coordinator ended it before us
        49 => C::Fenced,           // INVALID_PRODUCER_ID_MAPPING
        50 => CONFIG,              // INVALID_TRANSACTION_TIMEOUT
        51 => C::Retry,            // CONCURRENT_TRANSACTIONS
        52 => C::FindCoordinator,  // TRANSACTION_COORDINATOR_FENCED
        53 => CONFIG,              // TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        54 => CONFIG,              // SECURITY_DISABLED
        55 => C::Retry,            // OPERATION_NOT_ATTEMPTED
        56 => C::RefreshMetadata,  // KAFKA_STORAGE_ERROR
        57 => CONFIG,              // LOG_DIR_NOT_FOUND
        58 => CONFIG,              // SASL_AUTHENTICATION_FAILED
        59 => C::Abort,            // UNKNOWN_PRODUCER_ID
        60 => C::Retry,            // REASSIGNMENT_IN_PROGRESS
        61..=63 => CONFIG,         // DELEGATION_TOKEN_AUTH_DISABLED, _NOT_FOUND, _OWNER_MISMATCH
        64..=66 => CONFIG,         // DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, _AUTHORIZATION_FAILED, _EXPIRED
        67 => CONFIG,              // INVALID_PRINCIPAL_TYPE
        68 => CONFIG,              // NON_EMPTY_GROUP
        69 => CONFIG,              // GROUP_ID_NOT_FOUND
        70 => C::ResetSession,     // FETCH_SESSION_ID_NOT_FOUND
        71 => C::ResetSession,     // INVALID_FETCH_SESSION_EPOCH
        72 => C::RefreshMetadata,  // LISTENER_NOT_FOUND
        73 => CONFIG,              // TOPIC_DELETION_DISABLED
        74 => C::RefreshMetadata,  // FENCED_LEADER_EPOCH
        75 => C::Retry,            // UNKNOWN_LEADER_EPOCH
        76 => CONFIG,              // UNSUPPORTED_COMPRESSION_TYPE
        77 => C::Fenced,           // STALE_BROKER_EPOCH
        78 => C::RefreshMetadata,  // OFFSET_NOT_AVAILABLE
        79 => C::Rejoin,           // MEMBER_ID_REQUIRED
        80 => C::RefreshMetadata,  // PREFERRED_LEADER_NOT_AVAILABLE
        81 => CONFIG,              // GROUP_MAX_SIZE_REACHED
        82 => C::Fenced,           // FENCED_INSTANCE_ID
        83 => C::RefreshMetadata,  // ELIGIBLE_LEADERS_NOT_AVAILABLE
        84 => C::RefreshMetadata,  // ELECTION_NOT_NEEDED
        85 => CONFIG,              // NO_REASSIGNMENT_IN_PROGRESS
        86 => CONFIG,              // GROUP_SUBSCRIBED_TO_TOPIC
        87 => CONFIG,              // INVALID_RECORD: the broker refused the content
        88 => C::Retry,            // UNSTABLE_OFFSET_COMMIT
        89 => C::Retry,            // THROTTLING_QUOTA_EXCEEDED
        90 => C::Fenced,           // PRODUCER_FENCED
        91 => CONFIG,              // RESOURCE_NOT_FOUND
        92 => CONFIG,              // DUPLICATE_RESOURCE
        93 => CONFIG,              // UNACCEPTABLE_CREDENTIAL
        94 => CONFIG,              // INCONSISTENT_VOTER_SET
        95 => CONFIG,              // INVALID_UPDATE_VERSION
        96 => CONFIG,              // FEATURE_UPDATE_FAILED
        97 => CONFIG,              // PRINCIPAL_DESERIALIZATION_FAILURE
        98 => CORRUPT,             // SNAPSHOT_NOT_FOUND
        99 => CORRUPT,             // POSITION_OUT_OF_RANGE
        100 => C::RefreshMetadata, // UNKNOWN_TOPIC_ID
        101 => CONFIG,             // DUPLICATE_BROKER_REGISTRATION
        102 => CONFIG,             // BROKER_ID_NOT_REGISTERED
        103 => C::RefreshMetadata, // INCONSISTENT_TOPIC_ID: the name now means another topic
        104 => CONFIG,             // INCONSISTENT_CLUSTER_ID
        105 => CONFIG,             // TRANSACTIONAL_ID_NOT_FOUND
        106 => C::ResetSession,    // FETCH_SESSION_TOPIC_ID_ERROR
        107 => C::Retry,           // INELIGIBLE_REPLICA
        108 => C::RefreshMetadata, // NEW_LEADER_ELECTED
        109 => CORRUPT,            // OFFSET_MOVED_TO_TIERED_STORAGE
        110 => C::Rejoin,          // FENCED_MEMBER_EPOCH
        111 => CONFIG,             // UNRELEASED_INSTANCE_ID
        112 => CONFIG,             // UNSUPPORTED_ASSIGNOR
        113 => C::Abort,           // STALE_MEMBER_EPOCH: ask the consumer for its epoch, stage again
        114 => CONFIG,             // MISMATCHED_ENDPOINT_TYPE
        115 => CONFIG,             // UNSUPPORTED_ENDPOINT_TYPE
        116 => C::RefreshMetadata, // UNKNOWN_CONTROLLER_ID
        117 => BUG,                // UNKNOWN_SUBSCRIPTION_ID
        118 => CONFIG,             // TELEMETRY_TOO_LARGE
        119 => CONFIG,             // INVALID_REGISTRATION
        120 => C::Abort,           // TRANSACTION_ABORTABLE
        121 => C::Abort,           // INVALID_RECORD_STATE: the lock is lost
        122 => C::ResetSession,    // SHARE_SESSION_NOT_FOUND
        123 => C::ResetSession,    // INVALID_SHARE_SESSION_EPOCH
        124 => C::RefreshMetadata, // FENCED_STATE_EPOCH: the group's offsets were reset
        125 => CONFIG,             // INVALID_VOTER_KEY
        126 => CONFIG,             // DUPLICATE_VOTER
        127 => CONFIG,             // VOTER_NOT_FOUND
        128 => CONFIG,             // INVALID_REGULAR_EXPRESSION
        129 => C::RefreshMetadata, // REBOOTSTRAP_REQUIRED
        130 => CONFIG,             // STREAMS_INVALID_TOPOLOGY
        131 => CONFIG,             // STREAMS_INVALID_TOPOLOGY_EPOCH
        132 => CONFIG,             // STREAMS_TOPOLOGY_FENCED
        133 => C::Retry,           // SHARE_SESSION_LIMIT_REACHED
        134 => CONFIG,             // GROUP_DELETION_FAILED
        135 => CONFIG,             // STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED
        136 => CONFIG,             // CONTROLLER_ID_NOT_REGISTERED
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use kafka_protocol::error::ResponseError;
    use sharestream_wire::KafkaError;

    use super::*;

    /// Code, name, and `retriable` or `-`: what `org.apache.kafka.common.protocol.Errors` of kafka-clients 4.4.0 says,
    /// printed by `benches/peers/ErrorCodes.java`.
    const KAFKA: &str = include_str!("kafka-4.4.0.txt");

    fn of_kafka() -> impl Iterator<Item = (i16, &'static str, bool)> {
        KAFKA.lines().map(|line| {
            let mut words = line.split(' ');
            let (code, name) = (words.next().unwrap(), words.next().unwrap());
            (code.parse().unwrap(), name, words.next() == Some("retriable"))
        })
    }

    #[test]
    fn every_code_of_kafka_4_4_is_in_the_table_and_none_beside() {
        let codes: Vec<i16> = of_kafka().map(|(code, ..)| code).collect();
        assert_eq!(codes.len(), 138);
        for (code, name, _) in of_kafka() {
            assert!(known(code).is_some(), "{name} ({code}) has no class");
            assert_eq!(KafkaError(code).name(), name);
        }
        for code in i16::MIN..=i16::MAX {
            assert_eq!(known(code).is_some(), codes.contains(&code), "{code}");
        }
    }

    #[test]
    fn every_code_of_kafka_protocol_is_in_the_table() {
        let theirs = (-1..=1_000).filter(|code| {
            let error = ResponseError::try_from_code(*code);
            error.is_some_and(|error| !matches!(error, ResponseError::Unknown(_)))
        });
        let theirs: Vec<i16> = theirs.collect();
        assert!(theirs.len() > 130, "the enum was really read");
        for code in theirs {
            assert!(known(code).is_some(), "error code {code} has no class");
        }
    }

    /// What the Java client retries we retry too, or we open the session anew. More is retried here: where the Java
    /// client's own state machine would handle the code, and where an unknown outcome may be asked for again.
    #[test]
    fn what_the_java_client_retries_is_retried() {
        for (code, name, _) in of_kafka().filter(|(.., retriable)| *retriable) {
            let class = classify(code);
            assert!(
                class.is_retriable() || class == ErrorClass::ResetSession,
                "{name} ({code}) is {class:?}"
            );
        }
    }

    #[test]
    fn a_code_from_the_future_is_never_retried() {
        assert!(!classify(20_000).is_retriable());
    }

    #[test]
    fn an_unknown_outcome_is_never_called_retry() {
        for code in [-1, 7, 20] {
            assert_eq!(classify(code).kind(), ErrorKind::Indeterminate);
        }
    }
}
