//! Three nodes of a real Kafka, one of which is killed. `SHARESTREAM_KAFKA_NODES` is the command that kills and starts
//! nodes, in words to which `kill` or `start` is added as the second and the node's number as the last, for example
//! `path/to/kafka --dir /tmp/kafka-three`.

use std::collections::BTreeSet;
use std::time::Duration;

use sharestream_base::ids::PartitionIndex;
use sharestream_base::{Env, ErrorKind};
use sharestream_client::{
    AcknowledgeType, BatchWriter, Client, Isolation, TransactionConfig, TransactionSession, WriterConfig,
};
use tokio::process::Command;

use crate::common::{acknowledge_all, acquired_values, client, read_values, share_consumer, topic, unique};

const ROUNDS: usize = 60;
const EACH: usize = 6;
const PARTITIONS: usize = 3;

async fn nodes(verb: &str, node: i32) {
    let words = std::env::var("SHARESTREAM_KAFKA_NODES").unwrap();
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let done = command.arg(verb).args(words).arg(node.to_string()).status().await.unwrap();
    assert!(done.success(), "{verb} {node}");
}

/// Writes one round in one transaction, again until it is known to have committed.
async fn write_round(session: &mut TransactionSession, writer: &mut BatchWriter, topic: &str, round: usize) {
    loop {
        writer.set_identity(&session.begin().unwrap());
        let written = async {
            for n in 0..EACH {
                let index = PartitionIndex(i32::try_from(n % PARTITIONS).unwrap());
                let value = format!("{round}-{n}");
                writer.append(topic, index, 1_000, None, Some(value.as_bytes()), &[]).await?;
            }
            writer.flush().await
        };
        match written.await {
            Ok(_) => loop {
                match session.commit().await {
                    Ok(()) => return,
                    Err(error) if error.kind() == ErrorKind::Indeterminate => println!("again: {error}"),
                    Err(error) => panic!("commit of round {round}: {error}"),
                }
            },
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Abort, "{error}");
                println!("round {round} again: {error}");
                session.abort().await.unwrap();
            }
        }
    }
}

/// Accepts until every record has come and the group has decided all of them.
async fn consume(client: &Client, group: &str, topic: &str) -> (BTreeSet<String>, usize) {
    let mut consumer = share_consumer(client, group, topic).await;
    let clock = Env::system().clock;
    let deadline = clock.now() + Duration::from_secs(400);
    let (mut values, mut lost_count, mut asked_at) = (BTreeSet::new(), 0, clock.now());
    let mut complete_at = None;
    while clock.now() < deadline {
        let polls = [consumer.poll().await.unwrap()];
        values.extend(acquired_values(&polls).into_keys());
        acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
        // What was not taken comes again; what may have been taken comes again or does not.
        for result in consumer.commit_acknowledgements().await.unwrap() {
            if let Some(error) = result.error {
                println!("acknowledgement of partition {}: {error}", result.partition);
            }
        }
        lost_count += consumer.lost().len();
        if values.len() == ROUNDS * EACH {
            complete_at.get_or_insert_with(|| clock.now());
        }
        if complete_at.is_some() && clock.now() > asked_at + Duration::from_secs(1) {
            asked_at = clock.now();
            let offsets = client.admin().describe_share_group_offsets(group, &[topic]).await.unwrap();
            if offsets.iter().all(|offset| offset.lag == Some(0)) {
                break;
            }
        }
    }
    assert!(clock.now() < deadline, "{} records came, and not all are decided", values.len());
    println!("all decided {:?} after the last record came", clock.now() - complete_at.unwrap_or(deadline));
    consumer.close().await.unwrap();
    (values, lost_count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_and_a_share_group_outlive_the_death_of_every_node_in_turn() {
    let (Ok(bootstrap), Ok(_)) =
        (std::env::var("SHARESTREAM_KAFKA_BOOTSTRAP"), std::env::var("SHARESTREAM_KAFKA_NODES"))
    else {
        crate::say("skipped: needs SHARESTREAM_KAFKA_BOOTSTRAP of three nodes and SHARESTREAM_KAFKA_NODES");
        return;
    };
    let client: Client = client(&bootstrap).await;
    let name = topic(&client, "client-nodes", i32::try_from(PARTITIONS).unwrap()).await;
    let group = unique("client-nodes-group");
    let config = TransactionConfig::new(unique("client-nodes-id"));
    let mut session = TransactionSession::new(client.clone(), config).unwrap();
    session.init().await.unwrap();
    let mut writer = BatchWriter::new(client.clone(), WriterConfig::default());
    let write = async {
        for round in 0..ROUNDS {
            // Each node dies once and comes back before the next one goes.
            if round % 20 == 5 {
                nodes("kill", i32::try_from(round / 20).unwrap() + 1).await;
            }
            if round % 20 == 15 {
                nodes("start", i32::try_from(round / 20).unwrap() + 1).await;
                Env::system().clock.sleep(Duration::from_secs(12)).await;
            }
            write_round(&mut session, &mut writer, &name, round).await;
        }
    };
    let (_, (consumed, lost_count)) = tokio::join!(write, consume(&client, &group, &name));
    println!("locks lost {lost_count} times");
    let expected: BTreeSet<String> =
        (0..ROUNDS).flat_map(|round| (0..EACH).map(move |n| format!("{round}-{n}"))).collect();
    assert_eq!(consumed.len(), expected.len(), "missing: {:?}", expected.difference(&consumed));
    let mut read = Vec::new();
    for partition in 0..PARTITIONS {
        let partition = i32::try_from(partition).unwrap();
        read.extend(read_values(&client, &name, partition, Isolation::ReadCommitted).await);
    }
    assert_eq!(read.len(), expected.len(), "nothing doubled");
    assert_eq!(read.into_iter().collect::<BTreeSet<_>>(), expected, "nothing lost");
}
