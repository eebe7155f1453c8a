//! The lag of share partitions (KIP-1226): what is not delivered to the end, as an administrator sees it.

use sharestream_wire::messages::describe_share_group_offsets::DescribeShareGroupOffsetsResponse;

use super::membership::heartbeat;
use super::offsets::{alter, describe};
use super::requests::*;
use super::sharing::{Ack, Member, from_the_start, write};
use super::transactions::{MINUTE_MS, identity, rest};
use crate::play::Play;

/// Start offset and lag, as both versions tell it.
async fn seen(p: &mut Play, when: &str, group: &str, source: &Topic) {
    for version in [0, 1] {
        let request = describe(group, Some(&[(&source.name, &[0, 1])]));
        p.settled(&format!("lag {when}, version {version}"), request, version).await;
    }
}

pub(crate) async fn play(p: &mut Play) {
    p.over(1);
    let source = topic(p, "lag", 2).await;
    let (group, stranger, unknown) = (p.name("lag"), p.name("no-lag"), p.name("unknown"));
    write(p, &source, 0, &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]).await;
    from_the_start(p, &group, &[]).await;
    seen(p, "of an unknown group", &stranger, &source).await;
    p.settled("lag of an unknown topic", describe(&stranger, Some(&[(&unknown, &[0])])), 1).await;
    let mut alice = Member::new(p, &group, "alice", &source).await;
    seen(p, "of a group that has not fetched", &group, &source).await;
    alice.acquires(p, "lag: acquired", &[0]).await;
    seen(p, "of what is acquired", &group, &source).await;
    let acks: [(&str, &[Ack<'_>]); 5] = [
        ("accepted behind the start offset", &[(0, 3, 4, &[1])]),
        ("rejected", &[(0, 6, 6, &[3])]),
        ("released", &[(0, 8, 8, &[2])]),
        ("accepted at the start offset", &[(0, 0, 2, &[1])]),
        ("a gap", &[(0, 9, 9, &[0])]),
    ];
    for (what, acks) in acks {
        let request = alice.acknowledge(acks);
        alice.acknowledged(p, &format!("lag: {what}"), request, 2).await;
        seen(p, &format!("with what is {what}"), &group, &source).await;
    }
    write(p, &source, 0, &["k", "l"]).await;
    seen(p, "with more records", &group, &source).await;
    transaction(p, &group, &source).await;
    p.settled("lag: the member leaves", heartbeat(&group, "alice", -1, None), 1).await;
    p.hang_up(1);
    for offset in [7, 1_000, 0] {
        p.settled(&format!("lag: set offset {offset}"), alter(&group, &source.name, &[(0, offset)]), 0).await;
        let is_set = |answer: &DescribeShareGroupOffsetsResponse| {
            answer.groups[0].topics[0].partitions[0].start_offset == offset
        };
        let request = describe(&group, Some(&[(&source.name, &[0])]));
        p.until(&format!("lag from offset {offset}"), request, 1, is_set).await;
    }
    p.settled("lag of every topic", describe(&group, None), 1).await;
    p.over(0);
}

/// The end of the log counts, not that of what is decided, and markers count.
async fn transaction(p: &mut Play, group: &str, source: &Topic) {
    let id = p.name("lag-transaction");
    let producer = identity(&p.settled("lag: init", init(Some(&id), NEW, MINUTE_MS), 5).await);
    let records = batch(p.base_ms, producer, 0, true, &["m", "n"]);
    p.settled("lag: produce", produce(Some(&id), &source.name, 0, Some(records), -1), 12).await;
    seen(p, "with an open transaction", group, source).await;
    p.settled("lag: commit", end(&id, producer, true), 5).await;
    rest(p, &id).await;
    seen(p, "with a committed transaction", group, source).await;
}
