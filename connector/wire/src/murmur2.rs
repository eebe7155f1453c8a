//! Kafka's default partitioning of keys: murmur2 with the Java client's seed.

const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;

/// The hash that the Java client computes for a serialized key.
pub fn murmur2(data: &[u8]) -> i32 {
    let mut hash = SEED ^ (data.len() as u32);
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        k = k.wrapping_mul(MULTIPLIER);
        k ^= k >> 24;
        k = k.wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER) ^ k;
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^= hash >> 15;
    hash as i32
}

/// The partition of a key among `count` partitions, as the Java client chooses it. 0 when there are none.
pub fn partition_for_key(key: &[u8], count: i32) -> i32 {
    if count <= 0 {
        return 0;
    }
    (murmur2(key) & i32::MAX) % count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_java_client() {
        // Values of Kafka's own UtilsTest.
        let cases = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ];
        for (key, hash) in cases {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
        assert_eq!(murmur2(b"abc"), 479_470_107);
    }

    #[test]
    fn partitions_are_those_of_the_java_client() {
        // Computed with kafka-clients 4.4.0.
        for (key, partition) in [("key-0", 1), ("key-1", 0), ("key-2", 6), ("key-3", 3), ("key-4", 1)] {
            assert_eq!(partition_for_key(key.as_bytes(), 8), partition, "{key}");
        }
        assert_eq!(murmur2(b"key-3"), -1_839_136_101);
    }

    #[test]
    fn partition_is_within_the_count() {
        for count in [1, 3, 8, 50] {
            for key in 0..200u32 {
                assert!((0..count).contains(&partition_for_key(&key.to_be_bytes(), count)));
            }
        }
        assert_eq!(partition_for_key(b"key", 0), 0);
    }
}
