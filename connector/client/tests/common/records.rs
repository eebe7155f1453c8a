//! What records may look like, and what a reader sees of transactions: against any broker.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "each test file uses its part of it")]

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_client::{
    AcknowledgeType, BatchWriter, Client, Isolation, NewTopic, PartitionReader, Producer, TransactionConfig,
    TransactionSession, WriterConfig,
};
use sharestream_wire::records::Compression;
use sharestream_wire::records::control::{self, ControlMarker};

use super::{
    acknowledge_all, acquired_values, poll_count, share_consumer, topic, unique, wait_until_decided,
};

const LIMIT: Duration = Duration::from_secs(20);
const ONE: PartitionIndex = PartitionIndex(0);
const HEADERS: [(&[u8], Option<&[u8]>); 3] =
    [(b"trace", Some(b"1")), (b"trace", None), (b"trace", Some(b""))];

pub async fn every_codec_carries_keys_tombstones_and_repeated_headers(client: &Client) {
    let name = topic(client, "client-codecs", 1).await;
    for compression in Compression::ALL {
        let config = WriterConfig { compression, ..WriterConfig::default() };
        let mut producer = Producer::connect(client.clone(), config).await.unwrap();
        for n in 0..100 {
            let value = format!("{compression}-{n}");
            let value = (n % 10 != 0).then_some(value.as_bytes());
            producer.writer().append(&name, ONE, 7, Some(b"key"), value, &HEADERS).await.unwrap();
        }
        producer.flush().await.unwrap();
    }
    let mut reader = PartitionReader::new(client.clone());
    let fetched =
        reader.fetch(&name, ONE, Offset(0), Isolation::ReadCommitted, 1 << 20, LIMIT).await.unwrap();
    let mut seen = Vec::new();
    for batch in &fetched.batches {
        let records = batch.records().unwrap();
        for record in records.iter() {
            let record = record.unwrap();
            assert_eq!((record.key, record.timestamp), (Some(&b"key"[..]), 7));
            assert_eq!(record.headers.iter().collect::<Vec<_>>(), HEADERS);
            seen.push(record.value.map(|value| String::from_utf8(value.to_vec()).unwrap()));
        }
    }
    let expected = Compression::ALL
        .iter()
        .flat_map(|codec| (0..100).map(move |n| (n % 10 != 0).then(|| format!("{codec}-{n}"))));
    assert_eq!(seen, expected.collect::<Vec<_>>());
}

/// The ledger's tail reads so: everything below the high watermark, markers among it, and how far it is decided.
pub async fn an_uncommitted_read_shows_markers_and_both_ends(client: &Client) {
    let name = topic(client, "client-tail", 1).await;
    let config = TransactionConfig::new(unique("client-tail-id"));
    let mut session = TransactionSession::new(client.clone(), config).unwrap();
    session.init().await.unwrap();
    let mut writer = BatchWriter::new(client.clone(), WriterConfig::default());
    for commits in [true, false] {
        writer.set_identity(&session.begin().unwrap());
        writer.append(&name, ONE, 0, None, Some(b"v"), &[]).await.unwrap();
        writer.flush().await.unwrap();
        if commits { session.commit().await.unwrap() } else { session.abort().await.unwrap() }
    }
    writer.set_identity(&session.begin().unwrap());
    writer.append(&name, ONE, 0, None, Some(b"open"), &[]).await.unwrap();
    writer.flush().await.unwrap();
    let mut reader = PartitionReader::new(client.clone());
    let isolation = Isolation::ReadUncommitted;
    let (mut from, mut markers) = (Offset(0), Vec::new());
    loop {
        // Kafka reads no further than the end of a segment, and starts one where timestamps jump, as they do here: an
        // answer may end below its own high watermark.
        let fetched = reader.fetch(&name, ONE, from, isolation, 1 << 20, LIMIT).await.unwrap();
        assert_eq!((fetched.high_watermark, fetched.last_stable_offset), (Offset(5), Offset(4)));
        markers.extend(fetched.batches.iter().map(|batch| {
            let marker = batch.header.is_control().then(|| control::decode(batch).unwrap().0);
            (batch.header.base_offset, marker)
        }));
        from = fetched.next_offset(from);
        if from == fetched.high_watermark {
            break;
        }
    }
    let expected =
        [(0, None), (1, Some(ControlMarker::Commit)), (2, None), (3, Some(ControlMarker::Abort)), (4, None)];
    assert_eq!(markers, expected);
    // At the end, both ends still come, without a record.
    let wait = Duration::from_millis(100);
    let empty = reader.fetch(&name, ONE, Offset(5), isolation, 1 << 20, wait).await.unwrap();
    assert!(empty.batches.is_empty());
    assert_eq!((empty.high_watermark, empty.last_stable_offset), (Offset(5), Offset(4)));
    session.commit().await.unwrap();
    let marker = reader.fetch(&name, ONE, Offset(5), isolation, 1 << 20, LIMIT).await.unwrap();
    assert_eq!((marker.high_watermark, marker.last_stable_offset), (Offset(6), Offset(6)));
}

pub async fn aborted_records_never_reach_a_read_committed_group(client: &Client) {
    let name = topic(client, "client-aborted", 1).await;
    let config = TransactionConfig::new(unique("client-aborted-id"));
    let mut session = TransactionSession::new(client.clone(), config).unwrap();
    session.init().await.unwrap();
    let mut writer = BatchWriter::new(client.clone(), WriterConfig::default());
    for round in 0..6 {
        writer.set_identity(&session.begin().unwrap());
        for n in 0..5 {
            let value = format!("{round}-{n}");
            writer.append(&name, ONE, 0, None, Some(value.as_bytes()), &[]).await.unwrap();
        }
        writer.flush().await.unwrap();
        if round % 2 == 0 { session.abort().await.unwrap() } else { session.commit().await.unwrap() }
    }
    let group = unique("client-aborted-group");
    let mut consumer = share_consumer(client, &group, &name).await;
    let clock = sharestream_base::Env::system().clock;
    let deadline = clock.now() + LIMIT;
    let mut values = Vec::new();
    while values.len() < 15 && clock.now() < deadline {
        let polls = [consumer.poll().await.unwrap()];
        values.extend(acquired_values(&polls).into_keys());
        acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
        consumer.commit_acknowledgements().await.unwrap();
    }
    values.sort();
    let committed = [1, 3, 5].iter().flat_map(|round| (0..5).map(move |n| format!("{round}-{n}")));
    assert_eq!(values, committed.collect::<Vec<_>>(), "committed records, each once, and no other");
    let more = poll_count(&mut consumer, 1, Duration::from_millis(500)).await;
    acknowledge_all(&mut consumer, &more, AcknowledgeType::Accept);
    assert_eq!(acquired_values(&more).len(), 0);
    consumer.commit_acknowledgements().await.unwrap();
    wait_until_decided(client, &group, &name).await;
    consumer.close().await.unwrap();
}

pub async fn acknowledgements_go_with_the_next_fetch(client: &Client) {
    let name = topic(client, "client-piggyback", 2).await;
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    for n in 0..40 {
        let value = n.to_string();
        let index = PartitionIndex(n % 2);
        producer.writer().append(&name, index, 0, None, Some(value.as_bytes()), &[]).await.unwrap();
        producer.flush().await.unwrap();
    }
    let group = unique("client-piggyback-group");
    let mut consumer = share_consumer(client, &group, &name).await;
    let clock = sharestream_base::Env::system().clock;
    let deadline = clock.now() + LIMIT;
    let (mut values, mut acknowledged) = (Vec::new(), 0);
    while acknowledged < 40 && clock.now() < deadline {
        let polls = [consumer.poll().await.unwrap()];
        values.extend(acquired_values(&polls).into_keys());
        acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
        consumer.acknowledge_with_next_fetch();
        for result in consumer.acknowledgement_results() {
            assert_eq!(result.error, None, "{result:?}");
            acknowledged += result.batches.iter().map(|batch| batch.last.0 - batch.first.0 + 1).sum::<i64>();
        }
    }
    assert_eq!((values.len(), acknowledged), (40, 40), "each once, and each result came");
    wait_until_decided(client, &group, &name).await;
    assert_eq!(consumer.lost(), vec![]);
    // What still waits goes with a commit, in a request of its own.
    producer.send(&name, None, Some(b"last"), &[]).await.unwrap();
    producer.flush().await.unwrap();
    let polls = poll_count(&mut consumer, 1, LIMIT).await;
    acknowledge_all(&mut consumer, &polls, AcknowledgeType::Reject);
    consumer.acknowledge_with_next_fetch();
    let results = consumer.commit_acknowledgements().await.unwrap();
    assert_eq!(results.iter().map(|result| result.error).collect::<Vec<_>>(), [None]);
    consumer.close().await.unwrap();
}

pub async fn compaction_leaves_gaps_that_are_acknowledged(client: &Client) {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    let name = unique("client-compacted");
    let configs = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "0"),
        ("segment.ms", "86400000"),
    ];
    let mut wanted = NewTopic::new(&name, 1);
    for (key, value) in configs {
        wanted = wanted.with_config(key, value);
    }
    client.admin().create_topic(wanted).await.unwrap();
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    for round in 0..4i64 {
        for key in 0..10i64 {
            // Some keys end as tombstones; keys of one round return in the next but one, so that holes are everywhere.
            let value = format!("{round}-{key}");
            let value = (key != 5).then_some(value.as_bytes());
            let key = format!("key-{}", key + 5 * (round % 2));
            // A segment of its own for each round: compaction leaves the last one alone.
            let stamp = 1_700_000_000_000 + round * 2 * DAY_MS;
            producer.writer().append(&name, ONE, stamp, Some(key.as_bytes()), value, &[]).await.unwrap();
        }
        producer.flush().await.unwrap();
    }
    let clock = sharestream_base::Env::system().clock;
    let deadline = clock.now() + Duration::from_secs(60);
    let records = loop {
        let mut reader = PartitionReader::new(client.clone());
        let (mut from, mut records) = (Offset(0), BTreeMap::new());
        while from.0 < 40 {
            let isolation = Isolation::ReadCommitted;
            let fetched = reader.fetch(&name, ONE, from, isolation, 1 << 20, LIMIT).await.unwrap();
            for batch in &fetched.batches {
                for record in batch.records().unwrap().iter() {
                    let record = record.unwrap();
                    records.insert(record.offset, record.value.is_none());
                }
            }
            from = fetched.next_offset(from);
        }
        if records.len() < 30 {
            break records;
        }
        assert!(clock.now() < deadline, "the cleaner did not run");
        clock.sleep(Duration::from_secs(1)).await;
    };
    let group = unique("client-compacted-group");
    let mut consumer = share_consumer(client, &group, &name).await;
    let (mut deliverable, mut gap_count) = (0, 0);
    while deliverable < records.len() && clock.now() < deadline {
        let polls = [consumer.poll().await.unwrap()];
        for partition in polls.iter().flat_map(|records| &records.partitions) {
            let gaps = partition.gaps().unwrap();
            let gaps: i64 = gaps.iter().map(|gap| gap.last.0 - gap.first.0 + 1).sum();
            gap_count += gaps;
            deliverable +=
                usize::try_from(i64::try_from(partition.acquired_count()).unwrap() - gaps).unwrap();
        }
        acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
        for result in consumer.commit_acknowledgements().await.unwrap() {
            assert_eq!(result.error, None, "{result:?}");
        }
    }
    println!("{} records are left of 40, {gap_count} gaps were acquired", records.len());
    assert_eq!(deliverable, records.len(), "each record that is left, once");
    wait_until_decided(client, &group, &name).await;
    consumer.close().await.unwrap();
}
