//! Offsets of a group as an embedded broker tells them, and what is made of them.

use sharestream_broker::BrokerConfig;
use sharestream_client::{ClientConfig, NewTopic, Producer, StartOffset, WriterConfig};

use super::*;

fn at(start: i64, log_start: i64, lag: u64) -> PartitionOffsets {
    let (start, log_start) = (Some(Offset(start)), Offset(log_start));
    PartitionOffsets { start, log_start, end: Offset(100), lag: Some(lag), oldest_age: None }
}

#[test]
fn only_what_was_undecided_when_the_log_lost_it_counts_as_removed() {
    let table = [
        ("first look", None, at(10, 0, 90), 0),
        ("first look, behind the log's start", None, at(10, 30, 70), 20),
        ("nothing lost", Some(at(10, 0, 90)), at(20, 10, 80), 0),
        ("the log's start has overtaken", Some(at(10, 0, 90)), at(40, 40, 60), 30),
        ("counted before", Some(at(10, 30, 70)), at(10, 30, 70), 0),
        ("more than before", Some(at(10, 30, 70)), at(10, 40, 60), 10),
        ("all was decided, the start offset is written late", Some(at(10, 0, 0)), at(100, 100, 0), 0),
        ("most was decided", Some(at(10, 0, 5)), at(100, 100, 0), 5),
    ];
    for (name, before, now, removed) in table {
        assert_eq!(removed_since(before.as_ref(), &now), removed, "{name}");
    }
    let unread = PartitionOffsets { start: None, lag: None, ..at(0, 50, 0) };
    assert_eq!(removed_since(Some(&unread), &at(50, 60, 40)), 0, "the group had not read the partition");
}

#[test]
fn a_failed_poll_leaves_no_old_numbers_and_keeps_the_counts() {
    let mut offsets = Offsets::default();
    let key = ("t".to_owned(), 0);
    offsets.take(Some(BTreeMap::from([(key.clone(), at(10, 30, 70))])));
    offsets.take(None);
    assert_eq!((offsets.polls, offsets.failed_polls, offsets.partitions.len()), (1, 1, 0));
    offsets.take(Some(BTreeMap::from([(key.clone(), at(10, 35, 65))])));
    assert_eq!(offsets.removed[&key], 25, "what was counted before the failure is not counted again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_age_and_what_retention_removed_are_those_of_the_brokers() {
    let env = Env::system();
    let broker = crate::commands::broker::start(env.clone(), BrokerConfig::default()).await.unwrap();
    let client = Client::connect(env.clone(), ClientConfig::with_bootstrap(&broker.bootstrap()).unwrap())
        .await
        .unwrap();
    let admin = client.admin();
    admin.create_topic(NewTopic::new("words", 1).with_config("retention.bytes", "2000")).await.unwrap();
    let mut poller = Poller {
        reader: PartitionReader::new(client.clone()),
        client: client.clone(),
        clock: env.clock.clone(),
        group: "readers".to_owned(),
        topics: vec!["words".to_owned()],
    };
    let mut offsets = Offsets::default();
    let key = ("words".to_owned(), 0);
    offsets.take(Some(poller.poll().await.unwrap()));
    let unread =
        PartitionOffsets { start: None, log_start: Offset(0), end: Offset(0), lag: None, oldest_age: None };
    assert_eq!(offsets.partitions[&key], unread, "nobody has read it");

    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    let mut produce = async |count: usize| {
        for _ in 0..count {
            producer.send("words", None, Some(&[b'x'; 100]), &[]).await.unwrap();
            producer.flush().await.unwrap();
        }
    };
    let begun_at = env.clock.now();
    produce(5).await;
    env.clock.sleep(Duration::from_millis(50)).await;
    let start =
        StartOffset { topic: "words".to_owned(), partition: PartitionIndex(0), start_offset: Offset(2) };
    admin.alter_share_group_offsets("readers", &[start]).await.unwrap();
    offsets.take(Some(poller.poll().await.unwrap()));
    let now = offsets.partitions[&key];
    assert_eq!((now.start, now.end, now.lag), (Some(Offset(2)), Offset(5), Some(3)));
    let (age, since) = (now.oldest_age.unwrap(), env.clock.now() - begun_at);
    assert!(
        age >= Duration::from_millis(50) && age <= since + Duration::from_millis(10),
        "{age:?} of {since:?}"
    );
    assert_eq!(offsets.removed[&key], 0);

    produce(60).await;
    offsets.take(Some(poller.poll().await.unwrap()));
    let now = offsets.partitions[&key];
    assert!(now.log_start > Offset(2), "retention has removed something: {now:?}");
    assert_eq!(offsets.removed[&key], (now.log_start.0 - 2).unsigned_abs().min(3), "{now:?}");
    broker.shutdown().await;
}
