//! Recovery of a shard from the log of its partition, and what the coordinator refuses by itself.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sharestream_base::ids::{NodeId, ProducerEpoch, TopicId};

use super::*;
use crate::log::{LogSettings, Place, Stored};

fn of(partition: i32) -> TopicPartition {
    TopicPartition { topic: Arc::from("t"), partition: PartitionIndex(partition) }
}

fn value(offset: i64) -> CommittedOffset {
    CommittedOffset {
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(-1),
        metadata: String::new(),
        committed_ms: 1,
        topic_id: TopicId::default(),
    }
}

fn led(log: &Arc<Partition>, node: i32) -> Loaded {
    log.lead(Some(NodeId(node)));
    let led = log.led_by(NodeId(node)).unwrap();
    let shard = replay(&led).unwrap();
    Loaded { led, shard, builder: BatchBuilder::new() }
}

fn log() -> Arc<Partition> {
    let (topic, topic_id) = (Arc::from(GROUP_TOPIC), TopicId::default());
    let place = Place { topic, topic_id, index: PartitionIndex(0) };
    Arc::new(Partition::new(place, NodeId(1), 1_000_000, Stored::default()))
}

fn staging(loaded: &Loaded, epoch: i16) -> Staging {
    staging_of(loaded, 7, epoch)
}

fn staging_of(loaded: &Loaded, producer: i64, epoch: i16) -> Staging {
    let identity = Identity { producer_id: ProducerId(producer), epoch: ProducerEpoch(epoch) };
    let version = TransactionVersion::V2;
    let guard = loaded.led.staging_guard(identity.producer_id, identity.epoch, version).unwrap();
    Staging { led: loaded.led.clone(), identity, guard, version }
}

fn marker(epoch: i16, commit: bool) -> Marker {
    let (producer_id, producer_epoch) = (ProducerId(7), ProducerEpoch(epoch));
    Marker { producer_id, producer_epoch, coordinator_epoch: 0, commit }
}

fn end(loaded: &mut Loaded, epoch: i16, commit: bool) {
    let at = loaded.led.append_marker(&marker(epoch, commit), 1).unwrap();
    loaded.shard.replay_marker(ProducerId(7), commit, at);
}

fn append(loaded: &mut Loaded, offset: i64, staging: Option<&Staging>) -> Result<(), ErrorCode> {
    let records = loaded.shard.decide_commit("g", -1, vec![(of(0), value(offset))]).unwrap();
    loaded.append(records, staging, 1)
}

fn offset(loaded: &Loaded) -> Option<i64> {
    let progress = loaded.shard.progress("g", &of(0))?;
    progress.committed().map(|known| known.offset.0)
}

#[test]
fn a_new_coordinator_knows_what_is_committed_what_is_staged_and_whom_to_refuse() {
    let log = log();
    let mut live = led(&log, 1);
    append(&mut live, 1, None).unwrap();
    let first = staging(&live, 0);
    append(&mut live, 2, Some(&first)).unwrap();
    append(&mut live, 3, Some(&first)).unwrap();
    end(&mut live, 1, true);
    let second = staging(&live, 1);
    append(&mut live, 4, Some(&second)).unwrap();

    let mut next = led(&log, 2);
    assert_eq!(next.shard, live.shard);
    assert_eq!(offset(&next), Some(3));
    assert!(next.shard.progress("g", &of(0)).unwrap().is_staged());
    assert_eq!(append(&mut live, 9, None), Err(ErrorCode::NotCoordinator), "a deposed one writes nothing");
    assert_eq!(offset(&live), Some(3), "and believes nothing");
    end(&mut next, 2, false);
    assert_eq!(offset(&next), Some(3));
    let old = staging(&next, 1);
    assert_eq!(append(&mut next, 9, Some(&old)), Err(ErrorCode::InvalidProducerEpoch));
    end(&mut next, 2, false);
    assert_eq!(log.ends().last_stable_offset, log.ends().high_watermark);
}

#[test]
fn a_producer_stages_only_with_a_guard_that_no_marker_has_ended() {
    let log = log();
    let mut live = led(&log, 1);
    let unasked = Staging { guard: None, ..staging(&live, 0) };
    assert_eq!(append(&mut live, 1, Some(&unasked)), Err(ErrorCode::InvalidTxnState));
    let late = staging(&live, 0);
    end(&mut live, 1, false);
    assert_eq!(append(&mut live, 1, Some(&late)), Err(ErrorCode::InvalidProducerEpoch));
    let now = staging(&live, 1);
    append(&mut live, 1, Some(&now)).unwrap();
    assert_eq!(staging(&live, 1).guard, None, "the transaction is open here");
}

#[test]
fn metadata_is_measured_as_kafka_measures_it() {
    let fits = |text: String| check_metadata(&text).is_ok();
    assert!(fits("x".repeat(4_096)) && !fits("x".repeat(4_097)));
    assert!(fits("\u{e4}".repeat(4_096)) && !fits("\u{e4}".repeat(4_097)));
    assert!(fits("\u{1f980}".repeat(2_048)) && !fits("\u{1f980}".repeat(2_049)), "two units each");
}

/// Something that gets into the log.
#[derive(Clone, Debug)]
enum Op {
    Commit { partition: i32, by: Option<i64> },
    End { by: i64, commit: bool },
    DeleteOffset(i32),
    DeleteGroup,
    Compact,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..2i32, prop::option::of(1..3i64)).prop_map(|(partition, by)| Op::Commit { partition, by }),
        4 => (1..3i64, any::<bool>()).prop_map(|(by, commit)| Op::End { by, commit }),
        1 => (0..2i32).prop_map(Op::DeleteOffset),
        1 => Just(Op::DeleteGroup),
        2 => Just(Op::Compact),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_compacted_log_says_what_the_whole_one_said(ops in prop::collection::vec(op(), 1..80)) {
        let log = log();
        log.set_settings(LogSettings {
            delete: false,
            compact: true,
            segment_bytes: 200,
            dirty_percent_min: 0,
            ..LogSettings::default()
        });
        let mut live = led(&log, 1);
        let mut epochs = BTreeMap::from([(1, 0), (2, 0)]);
        for (turn, op) in ops.into_iter().enumerate() {
            match op {
                Op::Commit { partition, by } => {
                    let offsets = vec![(of(partition), value(turn as i64))];
                    let records = live.shard.decide_commit("g", -1, offsets).unwrap();
                    let staging = by.map(|by| staging_of(&live, by, epochs[&by]));
                    live.append(records, staging.as_ref(), 1).unwrap();
                }
                Op::End { by, commit } => {
                    let epoch = epochs[&by] + 1;
                    let marker = Marker { producer_id: ProducerId(by), ..marker(epoch, commit) };
                    let at = live.led.append_marker(&marker, 1).unwrap();
                    live.shard.replay_marker(marker.producer_id, commit, at);
                    epochs.insert(by, epoch);
                }
                Op::DeleteOffset(partition) => {
                    let records = live.shard.decide_delete_offsets("g", &[of(partition)]);
                    live.append(records.unwrap_or_default(), None, 1).unwrap();
                }
                Op::DeleteGroup => {
                    let records = live.shard.decide_delete_group("g").unwrap_or_default();
                    live.append(records, None, 1).unwrap();
                }
                // Long after every record: deletions and markers have outlived what they delete or end.
                Op::Compact => {
                    if let Some(cleaning) = live.led.keep_up(1_000_000_000_000) {
                        cleaning.run();
                    }
                }
            }
            let recovered = replay(&log).unwrap();
            for partition in 0..2 {
                let progress = |shard: &Shard| shard.progress("g", &of(partition)).cloned();
                prop_assert_eq!(progress(&recovered), progress(&live.shard));
            }
        }
    }
}
