//! Rules of the shard by example, and: what a reader sees follows from the log alone.

use proptest::prelude::*;
use sharestream_base::ids::{LeaderEpoch, PartitionIndex, TopicId};

use super::*;

const ONE: ProducerId = ProducerId(1);

fn of(partition: i32) -> TopicPartition {
    TopicPartition { topic: Arc::from("t"), partition: PartitionIndex(partition) }
}

fn value(offset: i64) -> CommittedOffset {
    CommittedOffset {
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(3),
        metadata: "m".to_owned(),
        committed_ms: offset,
        topic_id: TopicId::default(),
    }
}

/// A shard with its log.
#[derive(Default)]
struct Live {
    shard: Shard,
    log: Vec<Logged>,
}

#[derive(Clone, Debug)]
enum Logged {
    Record(Record, Option<ProducerId>),
    Marker(ProducerId, bool),
}

impl Live {
    fn write(&mut self, logged: Logged) {
        let at = Offset(self.log.len() as i64);
        replay(&mut self.shard, &logged, at);
        self.log.push(logged);
    }

    fn commit(&mut self, group: &str, partition: i32, offset: i64, by: Option<ProducerId>) {
        let records = self.shard.decide_commit(group, -1, vec![(of(partition), value(offset))]).unwrap();
        records.into_iter().for_each(|record| self.write(Logged::Record(record, by)));
    }

    fn all(&mut self, records: Vec<Record>) {
        records.into_iter().for_each(|record| self.write(Logged::Record(record, None)));
    }

    fn offset(&self, group: &str, partition: i32) -> Option<i64> {
        let progress = self.shard.progress(group, &of(partition))?;
        progress.committed().map(|known| known.offset.0)
    }
}

/// As at recovery: through the codec.
fn replay(shard: &mut Shard, logged: &Logged, at: Offset) {
    match logged {
        Logged::Record(record, by) => {
            let (key, value) = record.encode();
            shard.replay(Record::decode(&key, value.as_deref()).unwrap(), at, *by);
        }
        Logged::Marker(producer_id, commit) => shard.replay_marker(*producer_id, *commit, at),
    }
}

#[test]
fn a_stranger_of_a_known_group_and_one_of_an_unknown_group_are_told_apart() {
    let mut live = Live::default();
    let commit = |live: &Live, generation| {
        live.shard.decide_commit("g", generation, vec![(of(0), value(1))]).map(|records| records.len())
    };
    assert_eq!(commit(&live, 0), Err(ErrorCode::IllegalGeneration));
    assert_eq!(commit(&live, -1), Ok(1));
    live.commit("g", 0, 1, None);
    assert_eq!(commit(&live, 0), Err(ErrorCode::UnknownMemberId));
    assert_eq!(commit(&live, -1), Ok(1));
    assert_eq!(live.shard.decide_delete_group("other"), Err(ErrorCode::GroupIdNotFound));
    assert_eq!(live.shard.decide_delete_offsets("other", &[of(0)]), Err(ErrorCode::GroupIdNotFound));
}

#[test]
fn a_deleted_group_does_not_come_back_with_the_marker_of_what_was_staged() {
    let mut live = Live::default();
    live.commit("g", 0, 1, None);
    live.commit("g", 1, 2, Some(ONE));
    let records = live.shard.decide_delete_group("g").unwrap();
    assert_eq!(records.len(), 3, "both offsets, then the group");
    live.all(records);
    live.write(Logged::Marker(ONE, true));
    assert!(!live.shard.has_group("g"));
    assert_eq!(live.shard, Shard { end: live.shard.end, ..Shard::default() }, "nothing is left");
}

#[test]
fn a_group_without_offsets_is_there_until_it_is_deleted() {
    let mut live = Live::default();
    live.commit("g", 0, 1, None);
    let records = live.shard.decide_delete_offsets("g", &[of(0), of(1)]).unwrap();
    assert_eq!(records.len(), 1, "only what is there");
    live.all(records);
    assert!(live.shard.has_group("g"));
    let kept = Retention { now_ms: 0, keep_ms: 100 };
    assert_eq!(live.shard.decide_sweep(kept, |_, _| false).len(), 1);
}

#[test]
fn a_repeated_marker_does_not_end_the_next_transaction() {
    let mut live = Live::default();
    live.commit("g", 0, 1, Some(ONE));
    live.write(Logged::Marker(ONE, true));
    let at = Offset(live.log.len() as i64 - 1);
    live.commit("g", 0, 2, Some(ONE));
    live.shard.replay_marker(ONE, true, at);
    assert_eq!(live.offset("g", 0), Some(1));
    assert!(live.shard.progress("g", &of(0)).unwrap().is_staged());
}

#[test]
fn old_offsets_and_those_of_gone_topics_are_swept_but_not_what_is_staged() {
    let mut live = Live::default();
    live.commit("g", 0, 10, None);
    live.commit("g", 1, 90, None);
    live.commit("h", 0, 10, None);
    live.commit("h", 0, 11, Some(ONE));
    live.commit("i", 2, 90, None);
    let sweep = Retention { now_ms: 110, keep_ms: 100 };
    let records = live.shard.decide_sweep(sweep, |partition, _| partition.partition == PartitionIndex(2));
    live.all(records);
    assert_eq!(live.offset("g", 0), None);
    assert_eq!(live.offset("g", 1), Some(90));
    assert_eq!(live.offset("h", 0), Some(10), "its transaction is open");
    let groups: Vec<_> = live.shard.groups().map(|group| group.to_string()).collect();
    assert_eq!(groups, ["g", "h"], "a group ends with its last offset");
}

/// What a reader sees of a partition, found by looking through the log alone: of what counts, the last that was
/// written. Staged counts when the next marker of its producer commits. A deletion ends all before it.
fn model(log: &[Logged], group: &str, partition: i32) -> (Option<i64>, bool) {
    let (mut newest, mut staged) = (None, false);
    for (at, logged) in log.iter().enumerate() {
        match logged {
            Logged::Record(Record::Offset { group: of_group, partition: of_partition, value }, by)
                if **of_group == *group && *of_partition == of(partition) =>
            {
                let decided = by.is_none_or(|producer| {
                    let end = log[at..].iter().find_map(|later| match later {
                        Logged::Marker(id, commit) if *id == producer => Some(*commit),
                        _ => None,
                    });
                    staged |= end.is_none();
                    end == Some(true)
                });
                newest = if decided { Some(value.offset.0) } else { newest };
            }
            Logged::Record(Record::OffsetDeleted { group: of_group, partition: of_partition }, _)
                if **of_group == *group && *of_partition == of(partition) =>
            {
                (newest, staged) = (None, false);
            }
            _ => {}
        }
    }
    (newest, staged)
}

#[derive(Clone, Debug)]
enum Op {
    Commit { group: usize, partition: i32, by: Option<i64> },
    Marker(i64, bool),
    DeleteOffset(usize, i32),
    DeleteGroup(usize),
}

const GROUPS: [&str; 2] = ["g", "h"];

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..2usize, 0..2i32, prop::option::of(1..4i64))
            .prop_map(|(group, partition, by)| Op::Commit { group, partition, by }),
        4 => (1..4i64, any::<bool>()).prop_map(|(id, commit)| Op::Marker(id, commit)),
        1 => (0..2usize, 0..2i32).prop_map(|(group, partition)| Op::DeleteOffset(group, partition)),
        1 => (0..2usize).prop_map(Op::DeleteGroup),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn readers_see_what_the_log_says_and_recovery_sees_the_same(ops in prop::collection::vec(op(), 1..60)) {
        let mut live = Live::default();
        for (turn, op) in ops.into_iter().enumerate() {
            match op {
                Op::Commit { group, partition, by } => {
                    live.commit(GROUPS[group], partition, turn as i64, by.map(ProducerId));
                }
                Op::Marker(id, commit) => live.write(Logged::Marker(ProducerId(id), commit)),
                Op::DeleteOffset(group, partition) => {
                    let decided = live.shard.decide_delete_offsets(GROUPS[group], &[of(partition)]);
                    live.all(decided.unwrap_or_default());
                }
                Op::DeleteGroup(group) => {
                    let decided = live.shard.decide_delete_group(GROUPS[group]);
                    live.all(decided.unwrap_or_default());
                }
            }
            for group in GROUPS {
                for partition in 0..2 {
                    let (newest, staged) = model(&live.log, group, partition);
                    let progress = live.shard.progress(group, &of(partition));
                    prop_assert_eq!(live.offset(group, partition), newest);
                    prop_assert_eq!(progress.is_some_and(Progress::is_staged), staged);
                }
            }
        }
        let mut recovered = Shard::default();
        for (at, logged) in live.log.iter().enumerate() {
            replay(&mut recovered, logged, Offset(at as i64));
        }
        prop_assert_eq!(recovered, live.shard);
    }
}
