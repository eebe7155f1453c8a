//! Kafka's error codes by name, as Kafka 4.4.0 has them.

use std::fmt;

/// An error code of a response. 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct KafkaError(pub i16);

macro_rules! kafka_errors {
    ($($name:ident = $code:literal;)*) => {
        impl KafkaError {
            $(
                #[doc = concat!("Error code ", stringify!($code), ".")]
                pub const $name: KafkaError = KafkaError($code);
            )*

            /// Kafka's name of the code, or "UNKNOWN_ERROR_CODE" for one we do not know.
            pub fn name(self) -> &'static str {
                match self {
                    $(KafkaError::$name => stringify!($name),)*
                    KafkaError(_) => "UNKNOWN_ERROR_CODE",
                }
            }
        }
    };
}

kafka_errors! {
    UNKNOWN_SERVER_ERROR = -1;
    NONE = 0;
    OFFSET_OUT_OF_RANGE = 1;
    CORRUPT_MESSAGE = 2;
    UNKNOWN_TOPIC_OR_PARTITION = 3;
    INVALID_FETCH_SIZE = 4;
    LEADER_NOT_AVAILABLE = 5;
    NOT_LEADER_OR_FOLLOWER = 6;
    REQUEST_TIMED_OUT = 7;
    BROKER_NOT_AVAILABLE = 8;
    REPLICA_NOT_AVAILABLE = 9;
    MESSAGE_TOO_LARGE = 10;
    STALE_CONTROLLER_EPOCH = 11;
    OFFSET_METADATA_TOO_LARGE = 12;
    NETWORK_EXCEPTION = 13;
    COORDINATOR_LOAD_IN_PROGRESS = 14;
    COORDINATOR_NOT_AVAILABLE = 15;
    NOT_COORDINATOR = 16;
    INVALID_TOPIC_EXCEPTION = 17;
    RECORD_LIST_TOO_LARGE = 18;
    NOT_ENOUGH_REPLICAS = 19;
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20;
    INVALID_REQUIRED_ACKS = 21;
    ILLEGAL_GENERATION = 22;
    INCONSISTENT_GROUP_PROTOCOL = 23;
    INVALID_GROUP_ID = 24;
    UNKNOWN_MEMBER_ID = 25;
    INVALID_SESSION_TIMEOUT = 26;
    REBALANCE_IN_PROGRESS = 27;
    INVALID_COMMIT_OFFSET_SIZE = 28;
    TOPIC_AUTHORIZATION_FAILED = 29;
    GROUP_AUTHORIZATION_FAILED = 30;
    CLUSTER_AUTHORIZATION_FAILED = 31;
    INVALID_TIMESTAMP = 32;
    UNSUPPORTED_SASL_MECHANISM = 33;
    ILLEGAL_SASL_STATE = 34;
    UNSUPPORTED_VERSION = 35;
    TOPIC_ALREADY_EXISTS = 36;
    INVALID_PARTITIONS = 37;
    INVALID_REPLICATION_FACTOR = 38;
    INVALID_REPLICA_ASSIGNMENT = 39;
    INVALID_CONFIG = 40;
    NOT_CONTROLLER = 41;
    INVALID_REQUEST = 42;
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43;
    POLICY_VIOLATION = 44;
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45;
    DUPLICATE_SEQUENCE_NUMBER = 46;
    INVALID_PRODUCER_EPOCH = 47;
    INVALID_TXN_STATE = 48;
    INVALID_PRODUCER_ID_MAPPING = 49;
    INVALID_TRANSACTION_TIMEOUT = 50;
    CONCURRENT_TRANSACTIONS = 51;
    TRANSACTION_COORDINATOR_FENCED = 52;
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53;
    SECURITY_DISABLED = 54;
    OPERATION_NOT_ATTEMPTED = 55;
    KAFKA_STORAGE_ERROR = 56;
    LOG_DIR_NOT_FOUND = 57;
    SASL_AUTHENTICATION_FAILED = 58;
    UNKNOWN_PRODUCER_ID = 59;
    REASSIGNMENT_IN_PROGRESS = 60;
    DELEGATION_TOKEN_AUTH_DISABLED = 61;
    DELEGATION_TOKEN_NOT_FOUND = 62;
    DELEGATION_TOKEN_OWNER_MISMATCH = 63;
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64;
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65;
    DELEGATION_TOKEN_EXPIRED = 66;
    INVALID_PRINCIPAL_TYPE = 67;
    NON_EMPTY_GROUP = 68;
    GROUP_ID_NOT_FOUND = 69;
    FETCH_SESSION_ID_NOT_FOUND = 70;
    INVALID_FETCH_SESSION_EPOCH = 71;
    LISTENER_NOT_FOUND = 72;
    TOPIC_DELETION_DISABLED = 73;
    FENCED_LEADER_EPOCH = 74;
    UNKNOWN_LEADER_EPOCH = 75;
    UNSUPPORTED_COMPRESSION_TYPE = 76;
    STALE_BROKER_EPOCH = 77;
    OFFSET_NOT_AVAILABLE = 78;
    MEMBER_ID_REQUIRED = 79;
    PREFERRED_LEADER_NOT_AVAILABLE = 80;
    GROUP_MAX_SIZE_REACHED = 81;
    FENCED_INSTANCE_ID = 82;
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83;
    ELECTION_NOT_NEEDED = 84;
    NO_REASSIGNMENT_IN_PROGRESS = 85;
    GROUP_SUBSCRIBED_TO_TOPIC = 86;
    INVALID_RECORD = 87;
    UNSTABLE_OFFSET_COMMIT = 88;
    THROTTLING_QUOTA_EXCEEDED = 89;
    PRODUCER_FENCED = 90;
    RESOURCE_NOT_FOUND = 91;
    DUPLICATE_RESOURCE = 92;
    UNACCEPTABLE_CREDENTIAL = 93;
    INCONSISTENT_VOTER_SET = 94;
    INVALID_UPDATE_VERSION = 95;
    FEATURE_UPDATE_FAILED = 96;
    PRINCIPAL_DESERIALIZATION_FAILURE = 97;
    SNAPSHOT_NOT_FOUND = 98;
    POSITION_OUT_OF_RANGE = 99;
    UNKNOWN_TOPIC_ID = 100;
    DUPLICATE_BROKER_REGISTRATION = 101;
    BROKER_ID_NOT_REGISTERED = 102;
    INCONSISTENT_TOPIC_ID = 103;
    INCONSISTENT_CLUSTER_ID = 104;
    TRANSACTIONAL_ID_NOT_FOUND = 105;
    FETCH_SESSION_TOPIC_ID_ERROR = 106;
    INELIGIBLE_REPLICA = 107;
    NEW_LEADER_ELECTED = 108;
    OFFSET_MOVED_TO_TIERED_STORAGE = 109;
    FENCED_MEMBER_EPOCH = 110;
    UNRELEASED_INSTANCE_ID = 111;
    UNSUPPORTED_ASSIGNOR = 112;
    STALE_MEMBER_EPOCH = 113;
    MISMATCHED_ENDPOINT_TYPE = 114;
    UNSUPPORTED_ENDPOINT_TYPE = 115;
    UNKNOWN_CONTROLLER_ID = 116;
    UNKNOWN_SUBSCRIPTION_ID = 117;
    TELEMETRY_TOO_LARGE = 118;
    INVALID_REGISTRATION = 119;
    TRANSACTION_ABORTABLE = 120;
    INVALID_RECORD_STATE = 121;
    SHARE_SESSION_NOT_FOUND = 122;
    INVALID_SHARE_SESSION_EPOCH = 123;
    FENCED_STATE_EPOCH = 124;
    INVALID_VOTER_KEY = 125;
    DUPLICATE_VOTER = 126;
    VOTER_NOT_FOUND = 127;
    INVALID_REGULAR_EXPRESSION = 128;
    REBOOTSTRAP_REQUIRED = 129;
    STREAMS_INVALID_TOPOLOGY = 130;
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131;
    STREAMS_TOPOLOGY_FENCED = 132;
    SHARE_SESSION_LIMIT_REACHED = 133;
    GROUP_DELETION_FAILED = 134;
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135;
    CONTROLLER_ID_NOT_REGISTERED = 136;
}

impl KafkaError {
    /// Whether the code says success.
    pub fn is_ok(self) -> bool {
        self == KafkaError::NONE
    }

    /// Success, or the error as the `Err` of a result.
    pub fn into_result(self) -> Result<(), KafkaError> {
        if self.is_ok() { Ok(()) } else { Err(self) }
    }

    /// Whether the Java client of Kafka 4.4.0 calls the code retriable. Unknown codes are not.
    pub fn is_retriable(self) -> bool {
        matches!(
            self,
            KafkaError::CORRUPT_MESSAGE
                | KafkaError::UNKNOWN_TOPIC_OR_PARTITION
                | KafkaError::LEADER_NOT_AVAILABLE
                | KafkaError::NOT_LEADER_OR_FOLLOWER
                | KafkaError::REQUEST_TIMED_OUT
                | KafkaError::REPLICA_NOT_AVAILABLE
                | KafkaError::NETWORK_EXCEPTION
                | KafkaError::COORDINATOR_LOAD_IN_PROGRESS
                | KafkaError::COORDINATOR_NOT_AVAILABLE
                | KafkaError::NOT_COORDINATOR
                | KafkaError::NOT_ENOUGH_REPLICAS
                | KafkaError::NOT_ENOUGH_REPLICAS_AFTER_APPEND
                | KafkaError::NOT_CONTROLLER
                | KafkaError::CONCURRENT_TRANSACTIONS
                | KafkaError::KAFKA_STORAGE_ERROR
                | KafkaError::FETCH_SESSION_ID_NOT_FOUND
                | KafkaError::INVALID_FETCH_SESSION_EPOCH
                | KafkaError::LISTENER_NOT_FOUND
                | KafkaError::FENCED_LEADER_EPOCH
                | KafkaError::UNKNOWN_LEADER_EPOCH
                | KafkaError::OFFSET_NOT_AVAILABLE
                | KafkaError::PREFERRED_LEADER_NOT_AVAILABLE
                | KafkaError::ELIGIBLE_LEADERS_NOT_AVAILABLE
                | KafkaError::ELECTION_NOT_NEEDED
                | KafkaError::UNSTABLE_OFFSET_COMMIT
                | KafkaError::THROTTLING_QUOTA_EXCEEDED
                | KafkaError::UNKNOWN_TOPIC_ID
                | KafkaError::INCONSISTENT_TOPIC_ID
                | KafkaError::FETCH_SESSION_TOPIC_ID_ERROR
                | KafkaError::SHARE_SESSION_NOT_FOUND
                | KafkaError::INVALID_SHARE_SESSION_EPOCH
                | KafkaError::SHARE_SESSION_LIMIT_REACHED
        )
    }
}

impl From<i16> for KafkaError {
    fn from(code: i16) -> Self {
        KafkaError(code)
    }
}

impl fmt::Display for KafkaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl std::error::Error for KafkaError {}

#[cfg(test)]
mod tests {
    use kafka_protocol::error::ResponseError;

    use super::*;

    #[test]
    fn error_prints_name_and_code() {
        assert_eq!(KafkaError::INVALID_RECORD_STATE.to_string(), "INVALID_RECORD_STATE (121)");
        assert_eq!(KafkaError(999).to_string(), "UNKNOWN_ERROR_CODE (999)");
    }

    #[test]
    fn names_are_those_of_kafka_protocol() {
        let plain = |text: &str| text.replace('_', "").to_lowercase();
        for code in -1..=136 {
            let ours = KafkaError(code).name();
            assert_ne!(ours, "UNKNOWN_ERROR_CODE", "{code}");
            if let Some(theirs) =
                ResponseError::try_from_code(code).filter(|error| !matches!(error, ResponseError::Unknown(_)))
            {
                assert_eq!(plain(ours), plain(&format!("{theirs:?}")), "{code}");
            }
        }
    }

    #[test]
    fn retriable_codes_are_those_of_kafka_4_4() {
        // The codes whose exception is a RetriableException in kafka-clients 4.4.0.
        let retriable = [
            2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88, 89,
            100, 103, 106, 122, 123, 133,
        ];
        for code in -1..=200 {
            assert_eq!(KafkaError(code).is_retriable(), retriable.contains(&code), "{code}");
        }
    }
}
