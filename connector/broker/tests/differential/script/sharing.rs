//! Records of share groups: sessions, acquisition, acknowledgement, renewal, limits, isolation.

use std::time::Duration;

use kafka_protocol::messages::*;
use sharestream_wire::messages::AcknowledgementBatch;
use sharestream_wire::messages::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest, ShareAcknowledgeResponse,
};
use sharestream_wire::messages::share_fetch::{
    FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest, ShareFetchResponse,
};
use uuid::Uuid;

use super::membership::{heartbeat, join};
use super::requests::*;
use crate::play::Play;

/// Partition, first and last offset, acknowledge types.
pub(crate) type Ack<'a> = (i32, i64, i64, &'a [i8]);

const BATCHES: i8 = 0;
const RECORDS: i8 = 1;

/// A member and its share session.
pub(crate) struct Member {
    group: String,
    name: String,
    topic: Topic,
    session: i32,
}

fn batches(acks: &[Ack<'_>], partition: i32) -> Vec<AcknowledgementBatch> {
    let own = acks.iter().filter(|(of, ..)| *of == partition);
    own.map(|(_, first, last, types)| AcknowledgementBatch {
        first_offset: *first,
        last_offset: *last,
        acknowledge_types: types.to_vec(),
    })
    .collect()
}

impl Member {
    pub(crate) async fn new(p: &mut Play, group: &str, name: &str, topic: &Topic) -> Member {
        join(p, group, name, &[&topic.name]).await;
        Member { group: group.to_owned(), name: name.to_owned(), topic: topic.clone(), session: 0 }
    }

    /// A fetch of these partitions with these acknowledgements; limits are generous.
    pub(crate) fn fetch(&self, partitions: &[i32], acks: &[Ack<'_>]) -> ShareFetchRequest {
        let partitions = partitions.iter().map(|partition| FetchPartition {
            partition_index: *partition,
            acknowledgement_batches: batches(acks, *partition),
        });
        let topics = vec![FetchTopic { topic_id: self.topic.id, partitions: partitions.collect() }];
        ShareFetchRequest {
            group_id: Some(text(&self.group)),
            member_id: Some(text(&self.name)),
            share_session_epoch: self.session,
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: 1 << 20,
            max_records: 500,
            batch_size: 500,
            topics,
            ..ShareFetchRequest::default()
        }
    }

    pub(crate) fn acknowledge(&self, acks: &[Ack<'_>]) -> ShareAcknowledgeRequest {
        let mut partitions: Vec<i32> = acks.iter().map(|(partition, ..)| *partition).collect();
        partitions.dedup();
        let partitions = partitions.iter().map(|partition| AcknowledgePartition {
            partition_index: *partition,
            acknowledgement_batches: batches(acks, *partition),
        });
        let topics = vec![AcknowledgeTopic { topic_id: self.topic.id, partitions: partitions.collect() }];
        ShareAcknowledgeRequest {
            group_id: Some(text(&self.group)),
            member_id: Some(text(&self.name)),
            share_session_epoch: self.session,
            is_renew_ack: false,
            topics,
        }
    }

    /// Notes a fetch in the session and counts it.
    async fn fetched(&mut self, p: &mut Play, name: &str, request: ShareFetchRequest, version: i16) {
        let answer = p.share_fetch(name, &request, version).await;
        self.count(answer.map(|answer| answer.error_code));
    }

    /// Fetches until something is acquired, and notes that answer. What is empty before it depends on time.
    pub(crate) async fn acquires(
        &mut self,
        p: &mut Play,
        name: &str,
        partitions: &[i32],
    ) -> Option<ShareFetchResponse> {
        for _ in 0..200 {
            let request = ShareFetchRequest { max_wait_ms: 100, min_bytes: 1, ..self.fetch(partitions, &[]) };
            let answer = p.call(&request, 2).await;
            self.count(answer.as_ref().map(|answer| answer.error_code));
            let given =
                answer.iter().flat_map(|answer| &answer.responses).flat_map(|topic| &topic.partitions);
            let acquired = given.clone().any(|partition| !partition.acquired_records.is_empty());
            if acquired {
                p.note_share_fetch(name, answer.as_ref());
                return answer;
            }
        }
        p.note_share_fetch(name, None);
        None
    }

    pub(crate) async fn acknowledged(
        &mut self,
        p: &mut Play,
        name: &str,
        request: ShareAcknowledgeRequest,
        version: i16,
    ) -> Option<ShareAcknowledgeResponse> {
        let answer = p.step(name, request, version).await;
        self.count(answer.as_ref().map(|answer| answer.error_code));
        answer
    }

    /// A refused epoch does not count, nor does a closed connection.
    fn count(&mut self, code: Option<i16>) {
        if code == Some(0) {
            self.session += 1;
        }
    }
}

pub(crate) async fn write(p: &mut Play, topic: &Topic, partition: i32, values: &[&str]) {
    let request = produce(None, &topic.name, partition, Some(batch(p.base_ms, NEW, -1, false, values)), -1);
    let answer = p.quietly_until(&request, 9, |_| true).await.unwrap();
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
}

pub(crate) async fn from_the_start(p: &mut Play, group: &str, more: &[(&str, &str)]) {
    let mut configs = vec![("share.auto.offset.reset", Some("earliest"))];
    configs.extend(more.iter().map(|(key, value)| (*key, Some(*value))));
    let answer = p.call(&alter_configs(GROUP_RESOURCE, group, &configs), 1).await.unwrap();
    assert_eq!(answer.responses[0].error_code, 0, "{answer:?}");
    p.settings_arrive().await;
}

pub(crate) async fn play(p: &mut Play) {
    p.over(1);
    let source = topic(p, "source", 3).await;
    for partition in 0..2 {
        write(p, &source, partition, &["a", "b", "c", "d", "e"]).await;
        write(p, &source, partition, &["f", "g", "h", "i", "j"]).await;
    }
    sessions(p, &source).await;
    acknowledgements(p, &source).await;
    renewals(p).await;
    limits(p).await;
    two_members(p).await;
    isolation(p).await;
    p.hang_up(1);
    p.over(0);
}

async fn sessions(p: &mut Play, source: &Topic) {
    let group = p.name("sessions");
    from_the_start(p, &group, &[]).await;
    let alice = Member::new(p, &group, "alice", source).await;
    let at = |alice: &Member, epoch: i32| ShareFetchRequest {
        share_session_epoch: epoch,
        ..alice.fetch(&[2], &[])
    };
    let plain = alice.fetch(&[2], &[]);
    let cases = [
        ("without a group", ShareFetchRequest { group_id: None, ..plain.clone() }),
        ("without a member", ShareFetchRequest { member_id: None, ..plain.clone() }),
        ("with an empty group", ShareFetchRequest { group_id: Some(text("")), ..plain.clone() }),
        ("with an empty member", ShareFetchRequest { member_id: Some(text("")), ..plain.clone() }),
        ("in a session that is not there", at(&alice, 4)),
        ("that closes a session that is not there", at(&alice, -1)),
        ("with epoch -3", at(&alice, -3)),
        ("that opens and acknowledges", alice.fetch(&[2], &[(2, 0, 0, &[1])])),
        ("with an unknown acquire mode", ShareFetchRequest { share_acquire_mode: 9, ..plain.clone() }),
    ];
    for (what, request) in cases {
        p.share_fetch(&format!("share fetch {what}"), &request, 2).await;
    }
    let cases = [
        (
            "without a group",
            ShareAcknowledgeRequest { group_id: None, ..alice.acknowledge(&[(2, 0, 0, &[1])]) },
        ),
        (
            "without a member",
            ShareAcknowledgeRequest { member_id: None, ..alice.acknowledge(&[(2, 0, 0, &[1])]) },
        ),
        ("that opens a session", alice.acknowledge(&[(2, 0, 0, &[1])])),
        (
            "in a session that is not there",
            ShareAcknowledgeRequest { share_session_epoch: 3, ..alice.acknowledge(&[(2, 0, 0, &[1])]) },
        ),
        (
            "that closes a session that is not there",
            ShareAcknowledgeRequest { share_session_epoch: -1, ..alice.acknowledge(&[]) },
        ),
    ];
    for (what, request) in cases {
        p.step(&format!("share acknowledge {what}"), request, 2).await;
    }

    a_session(p, source, alice).await;
    p.step("alice leaves the sessions", heartbeat(&group, "alice", -1, None), 1).await;
}

/// From the opening of a session to its end.
async fn a_session(p: &mut Play, source: &Topic, mut alice: Member) {
    let at = |alice: &Member, epoch: i32| ShareFetchRequest {
        share_session_epoch: epoch,
        ..alice.fetch(&[2], &[])
    };
    // The first fetch of a share partition makes it; what Kafka answers meanwhile depends on time.
    for epoch in [0, 1, 2, -1] {
        let request = ShareFetchRequest { max_wait_ms: 300, min_bytes: 1, ..at(&alice, epoch) };
        p.call(&request, 2).await;
    }
    alice.fetched(p, "a session opens", alice.fetch(&[2], &[]), 2).await;
    alice.fetched(p, "a session goes on", alice.fetch(&[2], &[]), 2).await;
    alice.fetched(p, "a session goes on without naming partitions", alice.fetch(&[], &[]), 2).await;
    alice.fetched(p, "a session goes on in version 1", alice.fetch(&[2], &[]), 1).await;
    for (what, epoch) in [("of the past", alice.session - 1), ("of the future", alice.session + 1)] {
        p.share_fetch(&format!("share fetch with an epoch {what}"), &at(&alice, epoch), 2).await;
        let request = ShareAcknowledgeRequest { share_session_epoch: epoch, ..alice.acknowledge(&[]) };
        p.step(&format!("share acknowledge with an epoch {what}"), request, 2).await;
    }
    let unknown = vec![FetchTopic {
        topic_id: Uuid::from_u128(11),
        partitions: vec![FetchPartition { partition_index: 0, ..FetchPartition::default() }],
    }];
    let request = ShareFetchRequest { topics: unknown, ..alice.fetch(&[], &[]) };
    alice.fetched(p, "share fetch of an unknown topic", request, 2).await;
    let forgets =
        |id: Uuid, partition: i32| vec![ForgottenTopic { topic_id: id, partitions: vec![partition] }];
    let request =
        ShareFetchRequest { forgotten_topics_data: forgets(Uuid::from_u128(11), 0), ..alice.fetch(&[], &[]) };
    alice.fetched(p, "share fetch that forgets it", request, 2).await;
    alice.fetched(p, "share fetch of an unknown partition", alice.fetch(&[9], &[]), 2).await;
    let request = ShareFetchRequest { forgotten_topics_data: forgets(source.id, 9), ..alice.fetch(&[], &[]) };
    alice.fetched(p, "share fetch that forgets that", request, 2).await;
    // On another connection the session is another one.
    p.over(2);
    p.share_fetch("share fetch in a session of another connection", &alice.fetch(&[2], &[]), 2).await;
    p.hang_up(2);
    p.over(1);
    p.share_fetch("a session closes", &at(&alice, -1), 2).await;
    p.share_fetch("a session closes again", &at(&alice, -1), 2).await;
}

async fn acknowledgements(p: &mut Play, source: &Topic) {
    let group = p.name("acknowledgements");
    from_the_start(p, &group, &[]).await;
    let mut alice = Member::new(p, &group, "alice", source).await;
    alice.acquires(p, "partition 0 is acquired", &[0]).await;
    alice.fetched(p, "nothing is left of it", alice.fetch(&[0], &[]), 2).await;
    let cases: Vec<(&str, Vec<Ack<'_>>)> = vec![
        ("of unknown type 7", vec![(0, 0, 0, &[7])]),
        ("of a negative type", vec![(0, 0, 0, &[-1])]),
        ("without types", vec![(0, 0, 0, &[])]),
        ("with too few types", vec![(0, 0, 2, &[1, 1])]),
        ("with too many types", vec![(0, 0, 0, &[1, 1])]),
        ("with first above last", vec![(0, 3, 1, &[1])]),
        ("that overlap", vec![(0, 0, 2, &[1]), (0, 2, 3, &[1])]),
        ("out of order", vec![(0, 3, 3, &[1]), (0, 1, 1, &[1])]),
        ("beyond the end", vec![(0, 8, 12, &[1])]),
        ("far beyond the end", vec![(0, 100, 100, &[1])]),
        ("below 0", vec![(0, -2, -1, &[1])]),
        ("of a partition that was not fetched", vec![(1, 0, 0, &[1])]),
        ("of an unknown partition", vec![(9, 0, 0, &[1])]),
        ("of nothing", vec![]),
        ("of type 4 without saying so", vec![(0, 0, 0, &[4])]),
    ];
    for (what, acks) in cases {
        let request = alice.acknowledge(&acks);
        alice.acknowledged(p, &format!("acknowledge {what}"), request, 2).await;
    }
    let accepted: Vec<(&str, Vec<Ack<'_>>)> = vec![
        ("one record", vec![(0, 0, 0, &[1])]),
        ("it again", vec![(0, 0, 0, &[1])]),
        ("across what is done", vec![(0, 0, 2, &[1])]),
        ("each with its type", vec![(0, 1, 4, &[1, 3, 2, 0])]),
        ("what was rejected", vec![(0, 2, 2, &[1])]),
        ("what was released", vec![(0, 3, 3, &[1])]),
        ("two batches", vec![(0, 5, 5, &[1]), (0, 7, 8, &[2])]),
    ];
    for (what, acks) in accepted {
        let request = alice.acknowledge(&acks);
        alice.acknowledged(p, &format!("acknowledge {what}"), request, 2).await;
    }
    let request = alice.acknowledge(&[(0, 9, 9, &[1])]);
    alice.acknowledged(p, "acknowledge in version 1", request, 1).await;
    alice.acquires(p, "what was released comes again", &[0]).await;
    let request = alice.fetch(&[0], &[(0, 3, 3, &[1]), (0, 7, 8, &[3])]);
    alice.fetched(p, "acknowledgements go with a fetch", request, 2).await;
    let request = alice.fetch(&[0], &[(0, 3, 3, &[1])]);
    alice.fetched(p, "wrong acknowledgements go with a fetch", request, 2).await;
    let request = alice.acknowledge(&[(0, 6, 6, &[1])]);
    alice.acknowledged(p, "acknowledge the last", request, 2).await;
    alice.fetched(p, "everything is done", alice.fetch(&[0], &[]), 2).await;
    alice.acquires(p, "partition 1 is acquired as well", &[1]).await;
    let closing =
        ShareAcknowledgeRequest { share_session_epoch: -1, ..alice.acknowledge(&[(1, 0, 4, &[1])]) };
    p.step("the session closes with an acknowledgement", closing, 2).await;
    alice.session = 0;
    alice.acquires(p, "the rest comes again in a new session", &[1]).await;
    // A connection that is lost gives everything back. Kafka notices a little later, and then ends also a session that
    // was opened anew meanwhile.
    p.hang_up(1);
    p.sleep(Duration::from_secs(1)).await;
    alice.session = 0;
    alice.acquires(p, "after a lost connection it comes once more", &[1]).await;
}

async fn renewals(p: &mut Play) {
    let group = p.name("renewals");
    let source = topic(p, "renewed", 1).await;
    write(p, &source, 0, &["a", "b", "c"]).await;
    from_the_start(p, &group, &[]).await;
    let mut alice = Member::new(p, &group, "alice", &source).await;
    alice.acquires(p, "records to renew are acquired", &[0]).await;
    let renew = |alice: &Member, acks: &[Ack<'_>]| ShareAcknowledgeRequest {
        is_renew_ack: true,
        ..alice.acknowledge(acks)
    };
    let request = renew(&alice, &[(0, 0, 2, &[4])]);
    alice.acknowledged(p, "renew", request, 2).await;
    let request = renew(&alice, &[(0, 0, 2, &[4, 1, 4])]);
    alice.acknowledged(p, "renew around an accepted one", request, 2).await;
    let request = renew(&alice, &[(0, 1, 1, &[4])]);
    alice.acknowledged(p, "renew what is done", request, 2).await;
    let request = renew(&alice, &[(0, 0, 0, &[1])]);
    alice.acknowledged(p, "accept where renewal is announced", request, 2).await;
    let asks = |alice: &Member| ShareFetchRequest {
        is_renew_ack: true,
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 0,
        max_records: 0,
        ..alice.fetch(&[0], &[(0, 2, 2, &[4])])
    };
    let request = asks(&alice);
    alice.fetched(p, "renew with a fetch", request, 2).await;
    let request = ShareFetchRequest { max_records: 5, ..asks(&alice) };
    alice.fetched(p, "renew with a fetch of records", request, 2).await;
    let request =
        ShareFetchRequest { is_renew_ack: false, max_records: 5, max_bytes: 1 << 20, ..asks(&alice) };
    alice.fetched(p, "renew with a fetch that does not say so", request, 2).await;
    let answer = alter_configs(GROUP_RESOURCE, &group, &[("share.renew.acknowledge.enable", Some("false"))]);
    p.call(&answer, 1).await.unwrap();
    p.settings_arrive().await;
    let request = renew(&alice, &[(0, 2, 2, &[4])]);
    alice.acknowledged(p, "renew where it is forbidden", request, 2).await;
    p.hang_up(1);
}

async fn limits(p: &mut Play) {
    let group = p.name("limits");
    let source = topic(p, "limited", 1).await;
    for values in [["a", "b", "c", "d"], ["e", "f", "g", "h"], ["i", "j", "k", "l"]] {
        write(p, &source, 0, &values).await;
    }
    from_the_start(p, &group, &[("share.delivery.count.limit", "2")]).await;
    let mut alice = Member::new(p, &group, "alice", &source).await;
    alice.acquires(p, "everything is acquired once", &[0]).await;
    let request = alice.acknowledge(&[(0, 0, 11, &[2])]);
    alice.acknowledged(p, "everything is released", request, 2).await;
    let cut = |alice: &Member, mode: i8, records: i32| ShareFetchRequest {
        share_acquire_mode: mode,
        max_records: records,
        ..alice.fetch(&[0], &[])
    };
    let request = cut(&alice, RECORDS, 3);
    alice.fetched(p, "three records strictly", request, 2).await;
    let request = cut(&alice, BATCHES, 2);
    alice.fetched(p, "two records and the rest of their batch", request, 2).await;
    let request = cut(&alice, BATCHES, 5);
    alice.fetched(p, "five records and the rest of their batch", request, 2).await;
    let request = cut(&alice, RECORDS, 50);
    alice.fetched(p, "whatever is left", request, 2).await;
    let request = cut(&alice, BATCHES, 0);
    alice.fetched(p, "no records", request, 2).await;
    let request = ShareFetchRequest { max_bytes: 0, ..cut(&alice, BATCHES, 5) };
    alice.fetched(p, "no bytes", request, 2).await;
    let request = alice.acknowledge(&[(0, 0, 5, &[2])]);
    alice.acknowledged(p, "released at the limit", request, 2).await;
    let request = alice.acknowledge(&[(0, 0, 0, &[1])]);
    alice.acknowledged(p, "what is out of deliveries is accepted", request, 2).await;
    alice.fetched(p, "nothing comes above the limit", alice.fetch(&[0], &[]), 2).await;
    p.hang_up(1);
}

async fn two_members(p: &mut Play) {
    let group = p.name("two");
    let source = topic(p, "two", 1).await;
    write(p, &source, 0, &["a", "b"]).await;
    write(p, &source, 0, &["c", "d"]).await;
    from_the_start(p, &group, &[("share.record.lock.duration.ms", "1500")]).await;
    let mut alice = Member::new(p, &group, "alice", &source).await;
    let mut bob = Member::new(p, &group, "bob", &source).await;
    alice.acquires(p, "alice acquires all", &[0]).await;
    p.over(2);
    bob.fetched(p, "bob gets nothing", bob.fetch(&[0], &[]), 2).await;
    let request = bob.acknowledge(&[(0, 0, 1, &[1])]);
    bob.acknowledged(p, "bob acknowledges what alice holds", request, 2).await;
    p.over(1);
    let request = alice.acknowledge(&[(0, 0, 1, &[2])]);
    alice.acknowledged(p, "alice releases half", request, 2).await;
    p.over(2);
    bob.acquires(p, "bob gets that half", &[0]).await;
    p.over(1);
    let request = alice.acknowledge(&[(0, 0, 3, &[1])]);
    alice.acknowledged(p, "alice acknowledges all", request, 2).await;
    // Locks run out; Kafka and the embedded broker alike give the records to whoever asks.
    p.sleep(Duration::from_millis(2_500)).await;
    let request = alice.acknowledge(&[(0, 2, 3, &[1])]);
    alice.acknowledged(p, "alice acknowledges after her lock", request, 2).await;
    p.over(2);
    let request = bob.acknowledge(&[(0, 0, 1, &[1])]);
    bob.acknowledged(p, "bob acknowledges after his lock", request, 2).await;
    bob.acquires(p, "bob gets everything", &[0]).await;
    let request = bob.acknowledge(&[(0, 0, 3, &[1])]);
    bob.acknowledged(p, "bob acknowledges in time", request, 2).await;
    p.hang_up(2);
    p.over(1);
    p.hang_up(1);
}

async fn isolation(p: &mut Play) {
    let source = topic(p, "isolated", 1).await;
    let id = p.name("isolated");
    let answer = p.quietly_until(&init(Some(&id), NEW, 60_000), 5, |_| true).await.unwrap();
    let mut producer = Producer { id: answer.producer_id.0, epoch: answer.producer_epoch };
    for (value, commit) in [("kept", true), ("dropped", false), ("open", true)] {
        let records = batch(p.base_ms, producer, 0, true, &[value, value]);
        let request = produce(Some(&id), &source.name, 0, Some(records), -1);
        p.quietly_until(&request, 12, |_| true).await;
        if value != "open" {
            let ended = p.quietly_until(&end(&id, producer, commit), 5, |_| true).await.unwrap();
            producer = Producer { id: ended.producer_id.0, epoch: ended.producer_epoch };
            let written = |answer: &DescribeTransactionsResponse| {
                answer.transaction_states[0].transaction_state.starts_with("Complete")
            };
            p.quietly_until(&describe_transactions(&[&id]), 0, written).await;
        }
    }
    for level in ["read_uncommitted", "read_committed"] {
        let group = p.name(level);
        from_the_start(p, &group, &[("share.isolation.level", level)]).await;
        let mut alice = Member::new(p, &group, "alice", &source).await;
        alice.acquires(p, &format!("{level}: acquired"), &[0]).await;
        alice.fetched(p, &format!("{level}: nothing more"), alice.fetch(&[0], &[]), 2).await;
        // What was aborted is passed over by a write of the broker's own, which no answer waits for.
        p.sleep(Duration::from_millis(500)).await;
        let request = alice.acknowledge(&[(0, 2, 2, &[0])]);
        alice.acknowledged(p, &format!("{level}: a gap where the marker is"), request, 2).await;
        let request = alice.acknowledge(&[(0, 0, 1, &[1])]);
        alice.acknowledged(p, &format!("{level}: accepted"), request, 2).await;
        let request = alice.acknowledge(&[(0, 3, 5, &[1, 1, 0])]);
        alice.acknowledged(p, &format!("{level}: what was aborted"), request, 2).await;
        p.hang_up(1);
    }
    p.quietly_until(&end(&id, producer, true), 5, |_| true).await;
}
