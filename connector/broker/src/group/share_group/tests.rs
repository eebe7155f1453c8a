//! Heartbeats by table, and how epochs move.

use sharestream_base::Clock;
use sharestream_base::ids::TopicId;

use super::*;

const LIMITS: MemberLimits = MemberLimits { session_timeout: Duration::from_secs(10), members_max: 2 };

fn beat(member: &str, epoch: i32, topics: Option<&[&str]>) -> Heartbeat {
    Heartbeat {
        member: member.to_owned(),
        epoch: MemberEpoch(epoch),
        rack: None,
        topics: topics.map(|topics| topics.iter().map(|&topic| topic.to_owned()).collect()),
        client_id: "test".to_owned(),
    }
}

fn shape(name: &str) -> Option<TopicShape> {
    (name != "missing").then_some(TopicShape { id: TopicId::default(), partitions: 3 })
}

struct Group {
    group: ShareGroup,
    now: Instant,
}

impl Group {
    fn new() -> Self {
        Group { group: ShareGroup::default(), now: Clock::system().now() }
    }

    fn beat(&mut self, heartbeat: Heartbeat) -> Result<Reply, ErrorCode> {
        self.group.heartbeat(heartbeat, LIMITS, self.now, shape)
    }

    fn epoch_of(&self, member: &str) -> i32 {
        self.group.members()[member].epoch.0
    }
}

#[test]
fn every_member_is_assigned_every_partition_of_its_topics() {
    let mut group = Group::new();
    let reply = group.beat(beat("a", 0, Some(&["t", "missing"]))).unwrap();
    let assignment = reply.assignment.expect("a join is answered with an assignment");
    assert_eq!(assignment.len(), 1);
    assert_eq!(assignment[0].partitions, [0, 1, 2]);
    assert_eq!(group.beat(beat("a", reply.epoch.0, None)).unwrap().assignment, None);
    let other = group.beat(beat("b", 0, Some(&["t"]))).unwrap();
    assert_eq!(other.assignment.unwrap()[0].partitions, [0, 1, 2]);
}

#[test]
fn a_member_takes_the_groups_epoch_over_with_its_next_heartbeat() {
    let mut group = Group::new();
    let first = group.beat(beat("a", 0, Some(&["t"]))).unwrap().epoch;
    let second = group.beat(beat("b", 0, Some(&["t"]))).unwrap().epoch;
    assert!(second > first);
    assert_eq!(group.epoch_of("a"), first.0);
    let reply = group.beat(beat("a", first.0, None)).unwrap();
    assert_eq!((reply.epoch, reply.assignment.is_some()), (second, true));
    // The answer was lost: the member still sends its epoch before, once more.
    let repeated = group.beat(beat("a", first.0, None)).unwrap();
    assert_eq!((repeated.epoch, repeated.assignment.is_some()), (second, true));
}

#[test]
fn heartbeats_of_strangers_and_of_other_epochs_are_refused() {
    let mut group = Group::new();
    let epoch = group.beat(beat("a", 0, Some(&["t"]))).unwrap().epoch.0;
    let table = [
        (beat("x", 3, None), ErrorCode::UnknownMemberId),
        (beat("x", -1, None), ErrorCode::UnknownMemberId),
        (beat("x", 0, None), ErrorCode::InvalidRequest),
        (beat("", 0, Some(&["t"])), ErrorCode::InvalidRequest),
        (beat("a", -2, None), ErrorCode::InvalidRequest),
        (beat("a", epoch + 1, None), ErrorCode::FencedMemberEpoch),
    ];
    for (heartbeat, expected) in table {
        assert_eq!(group.beat(heartbeat.clone()), Err(expected), "{heartbeat:?}");
    }
    group.beat(beat("b", 0, Some(&["t"]))).unwrap();
    assert_eq!(group.beat(beat("c", 0, Some(&["t"]))), Err(ErrorCode::GroupMaxSizeReached));
    assert!(group.beat(beat("a", 0, Some(&["t"]))).is_ok(), "a member may join again");
}

#[test]
fn silent_members_are_removed() {
    let mut group = Group::new();
    let epoch = group.beat(beat("a", 0, Some(&["t"]))).unwrap().epoch.0;
    group.now += Duration::from_secs(9);
    group.beat(beat("b", 0, Some(&["t"]))).unwrap();
    group.now += Duration::from_secs(2);
    assert_eq!(group.group.expire(group.now), ["a"]);
    assert_eq!(group.beat(beat("a", epoch, None)), Err(ErrorCode::UnknownMemberId));
    assert_eq!(group.group.known_topics().len(), 1);
}
