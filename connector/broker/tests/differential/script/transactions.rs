//! Transactions of versions 2 and 1: states, repeats, refusals, fences, time-out.

use std::time::Duration;

use kafka_protocol::messages::*;

use super::requests::*;
use crate::play::Play;

pub(crate) const MINUTE_MS: i32 = 60_000;

pub(crate) async fn play(p: &mut Play) {
    let output = topic(p, "output", 2).await;
    find(p).await;
    identities(p).await;
    for commit in [true, false] {
        life(p, &output, commit).await;
    }
    nothing(p).await;
    version_1(p, &output).await;
    participants(p, &output).await;
    fences(p, &output).await;
    late(p, &output).await;
    listed(p).await;
}

async fn find(p: &mut Play) {
    let id = p.name("found");
    for key_type in [0, 1] {
        for version in 0..=6 {
            if version == 0 && key_type != 0 {
                continue;
            }
            let request = match version {
                0 => FindCoordinatorRequest::default().with_key(text(&id)),
                1..=3 => FindCoordinatorRequest::default().with_key(text(&id)).with_key_type(key_type),
                _ => FindCoordinatorRequest::default()
                    .with_key_type(key_type)
                    .with_coordinator_keys(vec![text(&id)]),
            };
            p.settled(&format!("find coordinator of type {key_type}, version {version}"), request, version)
                .await;
        }
    }
    let two = vec![text(&p.name("one")), text(&p.name("two"))];
    let request = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(two);
    p.settled("find two coordinators", request, 4).await;
    let request = FindCoordinatorRequest::default().with_key_type(9).with_coordinator_keys(vec![text("x")]);
    p.step("find coordinator of an unknown type", request, 6).await;
}

pub(crate) fn identity(answer: &Option<InitProducerIdResponse>) -> Producer {
    let answer = answer.as_ref().unwrap();
    Producer { id: answer.producer_id.0, epoch: answer.producer_epoch }
}

async fn identities(p: &mut Play) {
    let id = p.name("identities");
    let refused = [
        ("with an empty id", init(Some(""), NEW, MINUTE_MS)),
        ("with time-out 0", init(Some(&id), NEW, 0)),
        ("with a negative time-out", init(Some(&id), NEW, -1)),
        ("with a time-out that is too long", init(Some(&id), NEW, i32::MAX)),
        ("with half an identity", init(Some(&id), Producer { id: 5, epoch: -1 }, MINUTE_MS)),
        ("with the other half", init(Some(&id), Producer { id: -1, epoch: 5 }, MINUTE_MS)),
    ];
    for (what, request) in refused {
        p.settled(&format!("init {what}"), request, 5).await;
    }
    let first = identity(&p.settled("init a new id", init(Some(&id), NEW, MINUTE_MS), 5).await);
    let second = identity(&p.settled("init it again", init(Some(&id), NEW, MINUTE_MS), 5).await);
    let third = p.settled("init as the current identity", init(Some(&id), second, MINUTE_MS), 5).await;
    let third = identity(&third);
    p.settled("init as the current identity, again", init(Some(&id), second, MINUTE_MS), 5).await;
    p.settled("init as the first identity", init(Some(&id), first, MINUTE_MS), 5).await;
    let ahead = Producer { epoch: third.epoch + 7, ..third };
    p.settled("init as a later identity", init(Some(&id), ahead, MINUTE_MS), 5).await;
    let other = Producer { id: third.id + 1_000_000, ..third };
    p.settled("init as another producer", init(Some(&id), other, MINUTE_MS), 5).await;
    for version in 0..=5 {
        let id = p.name(&format!("init-v{version}"));
        let request = match version {
            3.. => init(Some(&id), NEW, MINUTE_MS),
            _ => InitProducerIdRequest::default()
                .with_transactional_id(Some(transactional(&id)))
                .with_transaction_timeout_ms(MINUTE_MS),
        };
        p.settled(&format!("init, version {version}"), request, version).await;
    }
    describe(p, "describe an initialised id", &[&id]).await;
    let unknown = p.name("unknown-id");
    describe(p, "describe an unknown id", &[&unknown]).await;
    describe(p, "describe an empty id", &[""]).await;
    describe(p, "describe nothing", &[]).await;
    let nobody = Producer { id: 1, epoch: 0 };
    p.settled("end an unknown id", end(&unknown, nobody, true), 5).await;
}

/// Waits until the markers are written; no step.
pub(crate) async fn rest(p: &mut Play, id: &str) {
    let request = describe_transactions(&[id]);
    let ended = |answer: &DescribeTransactionsResponse| {
        !answer.transaction_states[0].transaction_state.starts_with("Prepare")
    };
    p.quietly_until(&request, 0, ended).await;
}

pub(crate) fn successor(answer: &Option<EndTxnResponse>) -> Producer {
    let answer = answer.as_ref().unwrap();
    Producer { id: answer.producer_id.0, epoch: answer.producer_epoch }
}

/// A transaction of version 2 from its first record to what readers see.
async fn life(p: &mut Play, output: &Topic, commit: bool) {
    let word = if commit { "commit" } else { "abort" };
    let id = p.name(word);
    let producer = identity(&p.settled(&format!("{word}: init"), init(Some(&id), NEW, MINUTE_MS), 5).await);
    let base_ms = p.base_ms;
    let record = |who, sequence, value| Some(batch(base_ms, who, sequence, true, &[value]));
    for (partition, value) in [(0, "one"), (1, "two")] {
        let request = produce(Some(&id), &output.name, partition, record(producer, 0, value), -1);
        p.settled(&format!("{word}: produce to partition {partition}"), request, 12).await;
    }
    let request = produce(Some(&id), &output.name, 0, record(producer, 1, "three"), -1);
    p.settled(&format!("{word}: produce once more"), request, 12).await;
    let request = produce(Some(&id), &output.name, 0, record(producer, 7, "gap"), -1);
    p.settled(&format!("{word}: produce after a gap"), request, 12).await;
    let request = produce(None, &output.name, 0, Some(batch(p.base_ms, NEW, -1, false, &["plain"])), -1);
    p.settled(&format!("{word}: produce beside it"), request, 9).await;
    looks(p, output, &id, producer, &format!("{word}, open")).await;

    let ended = p.settled(&format!("{word}: end"), end(&id, producer, commit), 5).await;
    let next = successor(&ended);
    rest(p, &id).await;
    looks(p, output, &id, producer, &format!("{word}, ended")).await;
    p.settled(&format!("{word}: end again"), end(&id, producer, commit), 5).await;
    p.settled(&format!("{word}: end otherwise"), end(&id, producer, !commit), 5).await;
    let request = produce(Some(&id), &output.name, 0, record(producer, 2, "late"), -1);
    p.settled(&format!("{word}: produce late"), request, 12).await;
    let request = produce(Some(&id), &output.name, 0, record(next, 0, "next"), -1);
    p.settled(&format!("{word}: produce in the next"), request, 12).await;
    p.settled(&format!("{word}: end as the former"), end(&id, producer, commit), 5).await;
    let ahead = Producer { epoch: next.epoch + 3, ..next };
    p.settled(&format!("{word}: end as a later one"), end(&id, ahead, commit), 5).await;
    p.settled(&format!("{word}: abort the next"), end(&id, next, false), 5).await;
    rest(p, &id).await;
    describe(p, &format!("{word}: describe at last"), &[&id]).await;
}

/// Everything that shows a transaction.
async fn looks(p: &mut Play, output: &Topic, id: &str, producer: Producer, when: &str) {
    describe(p, &format!("{when}: describe"), &[id]).await;
    let ids = vec![ProducerId(producer.id)];
    let request = ListTransactionsRequest::default().with_producer_id_filters(ids).with_duration_filter(-1);
    p.step(&format!("{when}: list by producer"), request, 1).await;
    producers(p, &format!("{when}: producers"), &output.name, &[0]).await;
    for (level, isolation) in [("uncommitted", READ_UNCOMMITTED), ("committed", READ_COMMITTED)] {
        for version in [12, 16] {
            let request = fetch(version, output, (0, 0), isolation, -1);
            p.fetch(&format!("{when}: fetch {level}, version {version}"), request, version).await;
        }
        let request = list_offsets(&output.name, 0, -1, isolation);
        p.step(&format!("{when}: latest offset {level}"), request, 9).await;
    }
}

/// Ends without a transaction.
async fn nothing(p: &mut Play) {
    let id = p.name("nothing");
    let producer = identity(&p.settled("nothing: init", init(Some(&id), NEW, MINUTE_MS), 5).await);
    p.settled("nothing: commit, version 5", end(&id, producer, true), 5).await;
    p.settled("nothing: abort, version 4", end(&id, producer, false), 4).await;
    let next = successor(&p.settled("nothing: abort, version 5", end(&id, producer, false), 5).await);
    rest(p, &id).await;
    describe(p, "nothing: describe", &[&id]).await;
    p.settled("nothing: abort again", end(&id, producer, false), 5).await;
    p.settled("nothing: commit as the next", end(&id, next, true), 5).await;
    let last = successor(&p.settled("nothing: abort as the next", end(&id, next, false), 5).await);
    rest(p, &id).await;
    let wrong = Producer { id: last.id + 1_000_000, ..last };
    p.settled("nothing: abort as another producer", end(&id, wrong, false), 5).await;
}

/// Clients that add partitions themselves and keep their epoch.
async fn version_1(p: &mut Play, output: &Topic) {
    let id = p.name("first");
    let producer = identity(&p.settled("version 1: init", init(Some(&id), NEW, MINUTE_MS), 4).await);
    let base_ms = p.base_ms;
    let record = |sequence, value| Some(batch(base_ms, producer, sequence, true, &[value]));
    for version in [9, 10, 11] {
        let request = produce(Some(&id), &output.name, 1, record(0, "unasked"), -1);
        p.settled(&format!("version 1: produce without adding, version {version}"), request, version).await;
    }
    for version in 0..=3 {
        let request = add_partitions(&id, producer, &[(&output.name, &[1])]);
        p.settled(&format!("version 1: add, version {version}"), request, version).await;
    }
    p.settled("version 1: produce", produce(Some(&id), &output.name, 1, record(0, "v1"), -1), 11).await;
    describe(p, "version 1: describe", &[&id]).await;
    p.settled("version 1: end", end(&id, producer, true), 4).await;
    rest(p, &id).await;
    p.settled("version 1: end again", end(&id, producer, true), 4).await;
    p.settled("version 1: end otherwise", end(&id, producer, false), 4).await;
    for version in 0..=3 {
        let request = add_partitions(&id, producer, &[(&output.name, &[1])]);
        p.settled(&format!("version 1: add to the next, version {version}"), request, version).await;
        p.settled(&format!("version 1: abort, version {version}"), end(&id, producer, false), version).await;
        rest(p, &id).await;
    }
    describe(p, "version 1: describe at last", &[&id]).await;
    p.fetch("version 1: fetch", fetch(12, output, (1, 0), READ_COMMITTED, -1), 12).await;
}

/// What may be added to a transaction.
async fn participants(p: &mut Play, output: &Topic) {
    let id = p.name("participants");
    let producer = identity(&p.settled("participants: init", init(Some(&id), NEW, MINUTE_MS), 4).await);
    let unknown = p.name("unknown");
    let older = Producer { epoch: producer.epoch - 1, ..producer };
    let later = Producer { epoch: producer.epoch + 1, ..producer };
    let other = Producer { id: producer.id + 1_000_000, ..producer };
    let nobody = p.name("nobody");
    let cases: Vec<(&str, AddPartitionsToTxnRequest)> = vec![
        ("an unknown topic", add_partitions(&id, producer, &[(&unknown, &[0])])),
        (
            "an unknown partition beside a known one",
            add_partitions(&id, producer, &[(&output.name, &[0, 9])]),
        ),
        ("as an older incarnation", add_partitions(&id, older, &[(&output.name, &[0])])),
        ("as a later incarnation", add_partitions(&id, later, &[(&output.name, &[0])])),
        ("as another producer", add_partitions(&id, other, &[(&output.name, &[0])])),
        ("with an id that nobody has", add_partitions(&nobody, producer, &[(&output.name, &[0])])),
        ("nothing", add_partitions(&id, producer, &[])),
        ("a topic of the broker", add_partitions(&id, producer, &[("__consumer_offsets", &[0])])),
    ];
    for (what, request) in cases {
        for version in [1, 3] {
            let answer = p.quietly_until(&request, version, |_| true).await.map(|mut answer| {
                for topic in &mut answer.results_by_topic_v3_and_below {
                    topic.results_by_partition.sort_by_key(|result| result.partition_index);
                }
                answer
            });
            let name = format!("participants: add {what}, version {version}");
            p.note(&name, answer.as_ref().map(|answer| answer as &dyn std::fmt::Debug), Vec::new());
        }
    }
    describe(p, "participants: describe", &[&id]).await;
    p.settled("participants: end", end(&id, producer, false), 4).await;
    rest(p, &id).await;
}

/// A newer incarnation takes over.
async fn fences(p: &mut Play, output: &Topic) {
    let id = p.name("fences");
    let old = identity(&p.settled("fences: init", init(Some(&id), NEW, MINUTE_MS), 5).await);
    let base_ms = p.base_ms;
    let record = |who, sequence, value| Some(batch(base_ms, who, sequence, true, &[value]));
    let request = produce(Some(&id), &output.name, 0, record(old, 0, "zombie"), -1);
    p.settled("fences: produce", request, 12).await;
    // Aborts what is open, and answers when that is done.
    let new = identity(&p.settled("fences: init again", init(Some(&id), NEW, MINUTE_MS), 5).await);
    let request = || produce(Some(&id), &output.name, 0, record(old, 1, "zombie"), -1);
    p.settled("fences: produce as the old one, version 12", request(), 12).await;
    p.settled("fences: produce as the old one, version 9", request(), 9).await;
    for version in [1, 3, 5] {
        p.settled(&format!("fences: end as the old one, version {version}"), end(&id, old, true), version)
            .await;
    }
    let add = || add_partitions(&id, old, &[(&output.name, &[0])]);
    p.settled("fences: add as the old one, version 1", add(), 1).await;
    p.settled("fences: add as the old one, version 3", add(), 3).await;
    for version in [3, 4, 5] {
        let request = init(Some(&id), old, MINUTE_MS);
        p.settled(&format!("fences: init as the old one, version {version}"), request, version).await;
    }
    describe(p, "fences: describe", &[&id]).await;
    let request = produce(Some(&id), &output.name, 0, record(new, 0, "new"), -1);
    p.settled("fences: produce as the new one", request, 12).await;
    p.settled("fences: end as the new one", end(&id, new, true), 5).await;
    rest(p, &id).await;
    p.fetch("fences: fetch", fetch(12, output, (0, 0), READ_COMMITTED, -1), 12).await;
    producers(p, "fences: producers", &output.name, &[0]).await;
}

/// The coordinator's clock. Kafka looks every ten seconds.
async fn late(p: &mut Play, output: &Topic) {
    for (word, commit) in [("commit", true), ("abort", false)] {
        let id = p.name(&format!("late-{word}"));
        let producer =
            identity(&p.settled(&format!("late {word}: init"), init(Some(&id), NEW, 1_000), 5).await);
        let request =
            produce(Some(&id), &output.name, 1, Some(batch(p.base_ms, producer, 0, true, &["late"])), -1);
        p.settled(&format!("late {word}: produce"), request, 12).await;
        let request = describe_transactions(&[&id]);
        let timed_out = |answer: &DescribeTransactionsResponse| {
            answer.transaction_states[0].transaction_state.as_str() == "CompleteAbort"
        };
        p.until(&format!("late {word}: describe"), request, 0, timed_out).await;
        p.settled(&format!("late {word}: end"), end(&id, producer, commit), 5).await;
        let request =
            produce(Some(&id), &output.name, 1, Some(batch(p.base_ms, producer, 1, true, &["late"])), -1);
        p.settled(&format!("late {word}: produce late"), request, 12).await;
        let next = p.settled(&format!("late {word}: go on"), init(Some(&id), producer, 1_000), 5).await;
        let next = identity(&next);
        let request = produce(Some(&id), &output.name, 1, Some(batch(p.base_ms, next, 0, true, &["on"])), -1);
        p.settled(&format!("late {word}: produce again"), request, 12).await;
        p.settled(&format!("late {word}: commit"), end(&id, next, true), 5).await;
        rest(p, &id).await;
        p.sleep(Duration::from_millis(10)).await;
    }
    p.fetch("late: fetch", fetch(12, output, (1, 0), READ_COMMITTED, -1), 12).await;
}

async fn listed(p: &mut Play) {
    let nobody = vec![ProducerId(9_999_999)];
    for version in [0, 1] {
        let request = ListTransactionsRequest::default()
            .with_state_filters(vec![text("Ongoing"), text("Nonsense")])
            .with_producer_id_filters(nobody.clone());
        p.step(&format!("list transactions of nobody, version {version}"), request, version).await;
    }
}
