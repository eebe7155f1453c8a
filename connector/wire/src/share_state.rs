//! Which partition of `__share_group_state` keeps a share partition's state (KIP-932).

use sharestream_base::ids::{PartitionIndex, TopicId};

/// Name of the internal topic of share-partition state.
pub const SHARE_GROUP_STATE_TOPIC: &str = "__share_group_state";

/// The text that names a share partition to FindCoordinator: "group:topicId:partition".
pub fn coordinator_key(group: &str, topic_id: TopicId, partition: PartitionIndex) -> String {
    format!("{group}:{topic_id}:{partition}")
}

/// The partition of `__share_group_state`, which has `count` partitions, for a share partition.
pub fn state_partition(group: &str, topic_id: TopicId, partition: PartitionIndex, count: i32) -> i32 {
    state_partition_of_key(&coordinator_key(group, topic_id, partition), count)
}

/// The same for a key as FindCoordinator carries it.
pub fn state_partition_of_key(key: &str, count: i32) -> i32 {
    if count <= 0 {
        return 0;
    }
    // Kafka's Utils.abs maps the one value without a positive counterpart to 0.
    java_hash(key).checked_abs().unwrap_or(0) % count
}

/// Java's `String.hashCode`: over UTF-16 units.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_java_string_hash() {
        // Known values of Java: "polygenelubricants" hashes to the minimum.
        let cases = [("", 0), ("a", 97), ("hello", 99_162_322), ("polygenelubricants", i32::MIN)];
        for (text, hash) in cases {
            assert_eq!(java_hash(text), hash, "{text}");
        }
        // Beyond the basic plane Java sees two units: 0xd83d and 0xde00.
        assert_eq!(java_hash("\u{1f600}"), 0xd83d * 31 + 0xde00);
    }

    #[test]
    fn state_partitions_are_those_of_kafka() {
        // Computed with kafka-clients 4.4.0: Utils.abs(key.hashCode()) % 50, topic ids new Uuid(1, n).
        for (n, expected) in [(0u64, 1), (1, 24), (2, 31), (3, 4), (4, 6)] {
            let topic_id = TopicId(uuid::Uuid::from_u64_pair(1, n));
            assert_eq!(state_partition("group", topic_id, PartitionIndex(n as i32), 50), expected, "{n}");
        }
    }

    #[test]
    fn smallest_hash_maps_to_partition_zero() {
        assert_eq!(state_partition_of_key("polygenelubricants", 50), 0);
        assert_eq!(state_partition_of_key("hello", 50), 22);
        assert_eq!(state_partition_of_key("hello", 0), 0);
    }

    #[test]
    fn key_prints_the_topic_id_as_kafka_does() {
        let id = "AAAAAAAAAAAAAAAAAAAAAQ".parse().unwrap();
        assert_eq!(coordinator_key("flights", id, PartitionIndex(3)), "flights:AAAAAAAAAAAAAAAAAAAAAQ:3");
    }
}
