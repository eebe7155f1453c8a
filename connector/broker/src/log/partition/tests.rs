//! Rights that have ended.

use sharestream_wire::records::{BatchBuilder, BatchMeta};

use super::*;

fn partition() -> Arc<Partition> {
    let id = TopicId::default();
    let place = Place { topic: Arc::from("t"), topic_id: id, index: PartitionIndex(0) };
    Arc::new(Partition::new(place, NodeId(1), 1 << 20, Stored::default()))
}

fn batch(meta: &BatchMeta) -> Bytes {
    let mut builder = BatchBuilder::new();
    builder.append(0, None, Some(b"v"), &[]).unwrap();
    builder.build(meta).unwrap()
}

#[test]
fn a_right_ends_with_its_leader_epoch_also_when_the_same_node_leads_again() {
    let partition = partition();
    assert!(partition.led_by(NodeId(1)).is_none(), "nobody leads yet");
    assert_eq!(partition.lead(Some(NodeId(1))), LeaderEpoch(0));
    let led = partition.led_by(NodeId(1)).unwrap();
    let blob = batch(&BatchMeta::default());
    led.append(&blob, Origin::Coordinator).unwrap();
    for leader in [Some(NodeId(2)), None, Some(NodeId(1))] {
        partition.lead(leader);
        assert_eq!(partition.leader(), leader);
        assert!(!led.is_current());
        let marker = Marker {
            producer_id: sharestream_base::ids::ProducerId(1),
            producer_epoch: sharestream_base::ids::ProducerEpoch(1),
            coordinator_epoch: 0,
            commit: true,
        };
        let refused = ErrorCode::NotLeaderOrFollower;
        assert_eq!(led.append(&blob, Origin::Coordinator), Err(refused));
        assert_eq!(led.append_marker(&marker, 0), Err(refused));
        assert_eq!(led.delete_before(Offset(1)), Err(refused));
        assert_eq!(led.read(Offset(0), 1, Isolation::ReadUncommitted).unwrap_err(), refused);
    }
    assert_eq!((partition.ends().log_start, partition.ends().high_watermark), (Offset(0), Offset(1)));
    assert_eq!(partition.home(), NodeId(1));
}

#[test]
fn what_was_verified_under_an_earlier_leadership_does_not_count() {
    let partition = partition();
    partition.lead(Some(NodeId(1)));
    let led = partition.led_by(NodeId(1)).unwrap();
    let meta = BatchMeta {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: 0,
        transactional: true,
        ..BatchMeta::default()
    };
    let blob = batch(&meta);
    let raw = RawBatch::from_bytes(blob.clone()).unwrap();
    let version = TransactionVersion::V2;
    let guard = led.verification_guard(&raw, version).unwrap();
    partition.lead(Some(NodeId(1)));
    let led = partition.led_by(NodeId(1)).unwrap();
    let late = led.append(&blob, Origin::Client { guard, version });
    assert_eq!(late, Err(ErrorCode::InvalidTxnState));
    let guard = led.verification_guard(&raw, version).unwrap();
    assert!(led.append(&blob, Origin::Client { guard, version }).is_ok());
}
