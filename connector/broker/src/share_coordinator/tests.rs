//! Recovery of a shard from the log of its partition.

use std::sync::Arc;

use sharestream_base::ids::{NodeId, ProducerEpoch, ProducerId, TopicId};

use super::*;
use crate::log::{Place, Stored};
use crate::share::durable::{DurableState, OffsetRange, StateBatch};
use crate::share::record_state::{Intent, Staged};

const ROUNDS: i64 = 700;

fn key() -> ShareKey {
    ShareKey { group: Arc::from("g"), topic_id: TopicId::default(), partition: PartitionIndex(0) }
}

fn pending(epoch: i16) -> DurableState {
    let (producer_id, producer_epoch) = (ProducerId(7), ProducerEpoch(epoch));
    DurableState::TxnPending(Staged { producer_id, producer_epoch, intent: Intent::Accept })
}

fn stage(first: i64, epoch: i16) -> Write {
    let range = OffsetRange { first: Offset(first), last: Offset(first + 9) };
    Write {
        state_epoch: StateEpoch(0),
        leader_epoch: LeaderEpoch(0),
        start_offset: None,
        batches: vec![StateBatch { range, state: pending(epoch), delivery_count: 1 }],
    }
}

#[test]
fn a_new_coordinator_knows_what_is_pending_what_ended_and_whom_to_refuse() {
    let (topic, topic_id) = (Arc::from(SHARE_STATE_TOPIC), TopicId::default());
    let place = Place { topic, topic_id, index: PartitionIndex(0) };
    let log = Arc::new(Partition::new(place, NodeId(1), 1_000_000, Stored::default()));
    log.lead(Some(NodeId(1)));
    let mut live = Loaded::load(log.led_by(NodeId(1)).unwrap(), i64::MAX).unwrap();
    let created = live.shard.decide_initialize(&key(), StateEpoch(0), Some(Offset(0))).unwrap();
    live.append(created, 1).unwrap();
    for round in 0..ROUNDS {
        let epoch = i16::try_from(round).unwrap();
        let staged = live.shard.decide_write(&key(), stage(round * 10, epoch)).unwrap();
        live.append(staged, 1).unwrap();
        let marker = Marker {
            producer_id: ProducerId(7),
            producer_epoch: ProducerEpoch(epoch + 1),
            outcome: TxnOutcome::Commit,
        };
        let ended = live.shard.decide_complete(marker, 1);
        live.append(ended, 1).unwrap();
    }
    let last = i16::try_from(ROUNDS).unwrap();
    let staged = live.shard.decide_write(&key(), stage(ROUNDS * 10, last)).unwrap();
    live.append(staged, 1).unwrap();

    let ends = log.ends();
    assert!(ends.log_start > Offset(0), "snapshots cut the log");
    assert!(ends.high_watermark.0 - ends.log_start.0 < 1_000);
    log.lead(Some(NodeId(2)));
    let recovered = Loaded::load(log.led_by(NodeId(2)).unwrap(), i64::MAX).unwrap();
    let share = recovered.shard.read(&key()).unwrap();
    assert_eq!(Some(&share), live.shard.read(&key()).as_ref());
    assert_eq!(share.start_offset, Some(Offset(ROUNDS * 10)));
    assert_eq!(share.batches.len(), 1, "the last stage is pending");
    let late = recovered.shard.decide_write(&key(), stage(ROUNDS * 10 + 10, last - 1));
    assert_eq!(late, Err(ErrorCode::InvalidProducerEpoch));

    let end = log.ends().high_watermark;
    let deposed = live.shard.decide_write(&key(), stage(ROUNDS * 10 + 10, last + 1)).unwrap();
    assert_eq!(live.append(deposed, 1), Err(ErrorCode::NotCoordinator));
    assert_eq!(log.ends().high_watermark, end, "a deposed coordinator writes nothing");
    assert_eq!(live.shard.read(&key()), Some(share), "and believes nothing");
}
