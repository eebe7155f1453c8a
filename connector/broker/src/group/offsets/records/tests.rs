//! The bytes of Kafka 4.4.0, and of what must be refused.

use proptest::prelude::*;

use super::*;

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

/// From the log of a Kafka 4.4.0: offset 44 with metadata `m`, leader epoch unknown.
const KAFKAS_KEY: &str = "00010016636f6d6d69742d76342d39333066613139373662323100\
                          1570726f67726573732d39333066613139373662323100000000";
const KAFKAS_VALUE: &str = "0004000000000000002cffffffff026d000001a22b9813e8\
                            010010d114d6b98b794995aa99aca6026a322a";

fn kafkas() -> Record {
    Record::Offset {
        group: Arc::from("commit-v4-930fa1976b21"),
        partition: TopicPartition { topic: Arc::from("progress-930fa1976b21"), partition: PartitionIndex(0) },
        value: CommittedOffset {
            offset: Offset(44),
            leader_epoch: LeaderEpoch(-1),
            metadata: "m".to_owned(),
            committed_ms: 0x1a2_2b98_13e8,
            topic_id: TopicId(Uuid::from_u128(0xd114_d6b9_8b79_4995_aa99_aca6_026a_322a)),
        },
    }
}

#[test]
fn offsets_are_byte_for_byte_those_of_kafka() {
    let (key, value) = kafkas().encode();
    assert_eq!((key, value), (unhex(KAFKAS_KEY), Some(unhex(KAFKAS_VALUE))));
    assert_eq!(Record::decode(&unhex(KAFKAS_KEY), Some(&unhex(KAFKAS_VALUE))), Ok(kafkas()));
}

#[test]
fn deletions_have_the_key_of_what_they_delete_and_no_value() {
    let Record::Offset { group, partition, .. } = kafkas() else { unreachable!() };
    let deleted = Record::OffsetDeleted { group: Arc::clone(&group), partition };
    assert_eq!(deleted.encode(), (unhex(KAFKAS_KEY), None));
    let gone = Record::GroupDeleted { group: Arc::from("g") };
    assert_eq!(gone.encode(), (unhex("0002000167"), None));
    for record in [deleted, gone] {
        let (key, value) = record.encode();
        assert_eq!(Record::decode(&key, value.as_deref()), Ok(record));
    }
}

#[test]
fn members_of_a_group_and_values_of_other_versions_are_refused() {
    assert_eq!(Record::decode(&unhex("0002000167"), Some(&[0, 4])), Err(MalformedRecord));
    for version in [3, 5] {
        let mut value = unhex(KAFKAS_VALUE);
        value[1] = version;
        assert_eq!(Record::decode(&unhex(KAFKAS_KEY), Some(&value)), Err(MalformedRecord));
    }
}

proptest! {
    #[test]
    fn hostile_bytes_neither_panic_nor_allocate_beyond_themselves(
        kind in 0i16..4,
        key in prop::collection::vec(any::<u8>(), 0..100),
        value in prop::collection::vec(any::<u8>(), 0..200),
        cut in any::<prop::sample::Index>(),
    ) {
        let key: Vec<u8> = kind.to_be_bytes().into_iter().chain(key).collect();
        drop(Record::decode(&key, Some(&value)));
        let value: Vec<u8> = VALUE_VERSION.to_be_bytes().into_iter().chain(value).collect();
        drop(Record::decode(&unhex(KAFKAS_KEY), Some(&value)));
        let whole = unhex(KAFKAS_VALUE);
        let short = &whole[..cut.index(whole.len())];
        prop_assert_eq!(Record::decode(&unhex(KAFKAS_KEY), Some(short)), Err(MalformedRecord));
    }
}
