//! krafka, a Kafka client in Rust that shares no code with ours.

use std::collections::BTreeMap;
use std::time::Duration;

use krafka::admin::{ConfigOp, ConfigResource, NewTopic};
use krafka::share_consumer::AcknowledgementMode;
use krafka::{Kafka, Record};
use sharestream_base::Env;

use super::broker;

const LIMIT: Duration = Duration::from_secs(20);

async fn prepare(kafka: &Kafka) {
    let admin = kafka.admin();
    let created = admin.create_topics([NewTopic::new("t", 3, 1).unwrap()], Default::default()).await.unwrap();
    created.into_values().for_each(|result| result.unwrap());
    let earliest = vec![ConfigOp::set("share.auto.offset.reset", "earliest")];
    let isolated = vec![ConfigOp::set("share.isolation.level", "read_committed")];
    for settings in [earliest, isolated] {
        let change = [(ConfigResource::group("g"), settings)];
        let altered = admin.incremental_alter_configs(change, Default::default()).await.unwrap();
        altered.into_values().for_each(|result| result.unwrap());
    }
}

/// Three transactions of one record for each partition: the one in the middle aborts.
async fn produce(kafka: &Kafka) {
    let producer = kafka.producer().build_transactional("krafka").await.unwrap();
    for round in 0..3 {
        producer.begin().unwrap();
        for partition in 0..3 {
            let record = Record::new("t", format!("{round}-{partition}")).partition(partition);
            let _appended_at = producer.send(record).await.unwrap();
        }
        if round == 1 { producer.abort().await.unwrap() } else { producer.commit().await.unwrap() }
    }
    producer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn krafka_commits_transactions_and_its_share_consumer_gets_what_they_wrote_on_three_nodes() {
    let env = Env::system();
    let broker = broker(&env, 3).await;
    let kafka = Kafka::builder(broker.bootstrap()).client_id("krafka").connect().await.unwrap();
    prepare(&kafka).await;
    produce(&kafka).await;

    let mode = AcknowledgementMode::Explicit;
    let consumer = kafka.share_consumer("g").acknowledgement_mode(mode).build().await.unwrap();
    consumer.subscribe(["t"]).await.unwrap();
    let mut deliveries: BTreeMap<String, Vec<i16>> = BTreeMap::new();
    let mut ended = 0;
    let deadline = env.clock.now() + LIMIT;
    while ended < 6 && env.clock.now() < deadline {
        for record in consumer.poll(Duration::from_millis(200)).await.unwrap() {
            let value = record.value_str().unwrap().to_owned();
            let delivery = record.delivery_count.unwrap();
            // All of the first transaction are given back once.
            if value.starts_with('0') && delivery == 1 {
                consumer.release(&record).unwrap();
            } else {
                consumer.ack(&record).unwrap();
                ended += 1;
            }
            deliveries.entry(value).or_default().push(delivery);
        }
        consumer.commit().await.unwrap().into_values().for_each(|outcome| outcome.unwrap());
    }
    let left = consumer.poll(Duration::from_millis(500)).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    consumer.close().await.unwrap();
    let expected: BTreeMap<String, Vec<i16>> = (0..3)
        .flat_map(|partition| [(format!("0-{partition}"), vec![1, 2]), (format!("2-{partition}"), vec![1])])
        .collect();
    assert_eq!(deliveries, expected);

    let offsets = kafka.admin().describe_share_group_offsets("g", Default::default()).await.unwrap();
    assert_eq!(offsets.len(), 3);
    for (partition, offset) in offsets {
        // Two records, the aborted one and three markers of transactions.
        let start = offset.unwrap().start_offset;
        assert!(start >= 5, "{partition:?}: {start}");
    }
    broker.shutdown().await;
}
