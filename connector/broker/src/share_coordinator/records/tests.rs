//! The bytes of Kafka 4.4.0, and of what Kafka must refuse.

use proptest::prelude::*;

use super::*;
use crate::share::durable::OffsetRange;
use crate::share::record_state::{Intent, Staged};

fn key() -> ShareKey {
    let topic_id = TopicId(Uuid::from_u128(0x1_0000_0000_0000_0002));
    ShareKey { group: Arc::from("g"), topic_id, partition: PartitionIndex(3) }
}

fn batch(state: DurableState) -> StateBatch {
    StateBatch { range: OffsetRange { first: Offset(5), last: Offset(9) }, state, delivery_count: 3 }
}

fn pending() -> DurableState {
    let (producer_id, producer_epoch) = (ProducerId(11), ProducerEpoch(2));
    DurableState::TxnPending(Staged { producer_id, producer_epoch, intent: Intent::Reject })
}

fn snapshot(state: DurableState) -> Record {
    let share = DurableShare {
        state_epoch: StateEpoch(4),
        leader_epoch: LeaderEpoch(7),
        start_offset: Some(Offset(5)),
        batches: vec![batch(state)],
    };
    Record::Snapshot { key: key(), share }
}

fn update(state: DurableState) -> Record {
    let batches = vec![batch(state)];
    let (start_offset, complete_count) = (Some(Offset(4)), Some(12));
    Record::Update { key: key(), leader_epoch: LeaderEpoch(7), start_offset, complete_count, batches }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

/// Written by the generated classes of kafka-share-coordinator 4.4.0 for the same values.
const KAFKAS_KEY: &str = "00000001670000000000000001000000000000000200000003";
const KAFKAS_SNAPSHOT: &str = "00000000000000000004000000070000000000000005ffffffffffffffffffffffffffffffff\
                               02000000000000000500000000000000090200030001000400000005";
const KAFKAS_UPDATE: &str =
    "0000000000000000000700000000000000040200000000000000050000000000000009040003000100040000000c";
/// Without a start offset, so without a count.
const KAFKAS_UNCOUNTED_UPDATE: &str =
    "00000000000000000007ffffffffffffffff02000000000000000500000000000000090400030000";

#[test]
fn without_pending_runs_records_are_byte_for_byte_those_of_kafka() {
    let (key, value) = snapshot(DurableState::Acknowledged).encode();
    assert_eq!((hex(&key), hex(&value.unwrap())), (KAFKAS_KEY.to_owned(), KAFKAS_SNAPSHOT.to_owned()));
    let (key, value) = update(DurableState::Archived).encode();
    assert_eq!(hex(&value.unwrap()), KAFKAS_UPDATE);
    assert_eq!(Record::decode(&key, Some(&unhex(KAFKAS_UPDATE))), Ok(update(DurableState::Archived)));
    let uncounted = Record::Update {
        key: self::key(),
        leader_epoch: LeaderEpoch(7),
        start_offset: None,
        complete_count: None,
        batches: vec![batch(DurableState::Archived)],
    };
    assert_eq!(hex(&uncounted.encode().1.unwrap()), KAFKAS_UNCOUNTED_UPDATE);
    assert_eq!(Record::decode(&key, Some(&unhex(KAFKAS_UNCOUNTED_UPDATE))), Ok(uncounted));
}

#[test]
fn an_unknown_tagged_field_is_skipped_and_a_count_of_another_size_is_malformed() {
    let (key, value) = update(DurableState::Archived).encode();
    let value = value.unwrap();
    let body = value.strip_suffix(&[1, 0, 4, 0, 0, 0, 12][..]).unwrap();
    let unknown = [body, &[2, 0, 4, 0, 0, 0, 12, 1, 2, 9, 9]].concat();
    assert_eq!(Record::decode(&key, Some(&unknown)), Ok(update(DurableState::Archived)));
    let longer = [body, &[1, 0, 5, 0, 0, 0, 12, 0]].concat();
    assert_eq!(Record::decode(&key, Some(&longer)), Err(MalformedRecord));
}

#[test]
fn pending_runs_make_a_version_that_kafka_refuses() {
    for (record, version) in
        [(snapshot(pending()), 1), (update(pending()), 1), (update(DurableState::Available), 0)]
    {
        let (key, value) = record.encode();
        let value = value.unwrap();
        assert_eq!(i16::from_be_bytes([value[0], value[1]]), version);
        assert_eq!(Record::decode(&key, Some(&value)), Ok(record));
    }
    let (key, value) = update(DurableState::Available).encode();
    let mut newer = value.unwrap();
    newer[1] = 2;
    assert_eq!(Record::decode(&key, Some(&newer)), Err(MalformedRecord), "and so do we with a newer one");
}

proptest! {
    #[test]
    fn hostile_bytes_neither_panic_nor_allocate_beyond_themselves(
        kind in 0i16..3,
        version in 0i16..3,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut value = version.to_be_bytes().to_vec();
        value.extend_from_slice(&bytes);
        let mut share_key = Vec::new();
        put_key(&mut share_key, kind, &key());
        drop(Record::decode(&share_key, Some(&value)));
        let (key, value) = snapshot(pending()).encode();
        let value = value.unwrap();
        let short = &value[..cut.index(value.len())];
        prop_assert_eq!(Record::decode(&key, Some(short)), Err(MalformedRecord));
    }
}
