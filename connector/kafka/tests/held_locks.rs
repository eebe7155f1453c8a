//! Locks of what a source holds: renewed in time, for deferred offsets too, and never given back near the limit.

#![allow(clippy::unwrap_used, reason = "a test")]

mod fixtures;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use sharestream_base::ids::{CheckpointId, Offset, PartitionIndex};
use sharestream_base::{Clock, Env, ErrorKind};
use sharestream_broker::{Broker, RunningBroker};
use sharestream_client::{
    AcknowledgeType, Client, ClientConfig, NewTopic, OffsetRange, Producer, ShareConsumer,
    ShareConsumerConfig, WriterConfig,
};
use sharestream_core::coordinates;
use sharestream_core::decision::{DecidedRange, Decision, Decisions, SourcePartition};
use sharestream_core::sink::{Router, Sink, SinkFactory, SinkReport};
use sharestream_core::source::{Source, SourceEvent};
use sharestream_core::{JobBuilder, JobId, Result};
use sharestream_kafka::formats::Format;
use sharestream_kafka::{AckModeChoice, KafkaJob, KafkaJobConfig, SinkConfig};

use fixtures::{ByFate, Findings, World};

const LOCK: Duration = Duration::from_secs(2);
const RECORDS: usize = 10;

/// A broker with one topic of one partition, and a group with short locks.
struct Place {
    env: Env,
    broker: RunningBroker,
    client: Client,
    config: KafkaJobConfig,
}

impl Place {
    async fn new(seed: u64, settings: &[(&str, &str)]) -> Place {
        let env = Env::seeded(seed);
        let broker = Broker::builder(env.clone()).start().await.unwrap();
        let bootstrap = broker.bootstrap();
        let client =
            Client::connect(env.clone(), ClientConfig::with_bootstrap(&bootstrap).unwrap()).await.unwrap();
        for topic in ["words", "counts", "dead"] {
            client.admin().create_topic(NewTopic::new(topic, 1)).await.unwrap();
        }
        let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
        for id in 0..RECORDS {
            producer.send("words", None, Some(id.to_string().as_bytes()), &[]).await.unwrap();
        }
        producer.flush().await.unwrap();
        let mut config =
            KafkaJobConfig::new("job", "group", vec!["words".to_owned()], SinkConfig::to_topic("counts"));
        config.bootstrap = vec![bootstrap];
        config.format = Format::Raw;
        config.dead_letter_topic = Some("dead".to_owned());
        let lock_ms = LOCK.as_millis().to_string();
        let always = [("share.auto.offset.reset", "earliest"), ("share.record.lock.duration.ms", &lock_ms)];
        for (key, value) in always.iter().chain(settings) {
            config.group_configs.insert((*key).to_owned(), (*value).to_owned());
        }
        Place { env, broker, client, config }
    }

    async fn source(&self) -> Box<dyn Source> {
        let job = KafkaJob::connect(self.env.clone(), self.config.clone()).await.unwrap();
        job.source_factory().create(0).await.unwrap()
    }

    /// Acquires everything and gives it back, so many times; each costs the records a delivery.
    async fn use_up_deliveries(&self, times: usize) {
        // The group's settings come with the job.
        KafkaJob::connect(self.env.clone(), self.config.clone()).await.unwrap();
        let config = ShareConsumerConfig::new("group", ["words"]);
        let mut consumer = ShareConsumer::join(self.client.clone(), config).await.unwrap();
        for _ in 0..times {
            let mut taken = 0;
            while taken < RECORDS as u64 {
                let records = consumer.poll().await.unwrap();
                taken += records.acquired_count();
                for partition in &records.partitions {
                    for range in &partition.acquired {
                        let release = AcknowledgeType::Release;
                        consumer.acknowledge(
                            partition.topic_id,
                            partition.partition,
                            range.first,
                            range.last,
                            release,
                        );
                    }
                }
            }
            consumer.commit_acknowledgements().await.unwrap();
        }
        consumer.close().await.unwrap();
    }

    async fn words(&self) -> SourcePartition {
        let topic_id = self.client.topic("words").await.unwrap().topic_id;
        SourcePartition { topic_id, partition: PartitionIndex(0) }
    }
}

/// Offsets of the next event that has any, dead letters included; what the task does meanwhile is done.
async fn next_offsets(source: &mut dyn Source, clock: &Clock) -> Result<Vec<i64>> {
    loop {
        let event = maintained_next(source, clock, None).await?.unwrap();
        if let SourceEvent::Records { rows, rejected } = event {
            let offsets = |batch: &RecordBatch| {
                let offsets = batch.column_by_name(coordinates::OFFSET).unwrap().as_primitive::<Int64Type>();
                offsets.values().to_vec()
            };
            return Ok([rows, rejected].iter().flatten().flat_map(offsets).collect());
        }
    }
}

/// As the source task calls it; nothing when `limit` has passed.
async fn maintained_next(
    source: &mut dyn Source,
    clock: &Clock,
    limit: Option<Duration>,
) -> Result<Option<SourceEvent>> {
    let end = clock.now() + limit.unwrap_or(Duration::from_secs(600));
    loop {
        let due = source.maintain_at().unwrap_or(end).min(end);
        tokio::select! {
            biased;
            () = clock.sleep_until(due) => {
                if clock.now() >= end {
                    return Ok(None);
                }
                source.maintain().await?;
            }
            event = source.next() => return event.map(Some),
        }
    }
}

/// Nothing is handed on for that long.
async fn quiet_for(source: &mut dyn Source, clock: &Clock, length: Duration) -> Result<()> {
    let end = clock.now() + length;
    while clock.now() < end {
        let left = end.duration_since(clock.now());
        match maintained_next(source, clock, Some(left)).await? {
            Some(SourceEvent::Records { .. }) => panic!("something was handed on"),
            Some(SourceEvent::Idle) | None => {}
        }
    }
    Ok(())
}

fn offsets_of(partition: SourcePartition, offsets: &[(i64, i64)]) -> Decisions {
    let mut decisions = Decisions::new();
    for (first, last) in offsets {
        let decision = Decision::Accept;
        let range = DecidedRange { first: Offset(*first), last: Offset(*last), decision };
        decisions.set(partition, range);
    }
    decisions
}

#[tokio::test(start_paused = true)]
async fn what_is_held_longer_than_a_lock_is_renewed_and_does_not_come_again() {
    let place = Place::new(1, &[]).await;
    let mut source = place.source().await;
    let clock = &place.env.clock;
    assert_eq!(next_offsets(source.as_mut(), clock).await.unwrap().len(), RECORDS);
    quiet_for(source.as_mut(), clock, LOCK * 5).await.unwrap();
    let counters = source.in_flight().counters;
    assert!(counters.renewals >= 4 * RECORDS as u64, "{counters:?}");
    assert!(counters.renewals <= 9 * RECORDS as u64, "renewed by need, not in a loop: {counters:?}");
    assert_eq!((counters.lost_locks, counters.redeliveries, counters.releases), (0, 0, 0));
    // Behind a barrier, too, as long as it has not committed.
    source.barrier(CheckpointId(1)).await.unwrap();
    quiet_for(source.as_mut(), clock, LOCK * 3).await.unwrap();
    source.close().await.unwrap();
    place.broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_ran_out_before_it_was_renewed_ends_the_attempt() {
    let place = Place::new(2, &[]).await;
    let mut source = place.source().await;
    let clock = &place.env.clock;
    next_offsets(source.as_mut(), clock).await.unwrap();
    clock.sleep(LOCK * 2).await;
    let error = source.maintain().await.expect_err("the locks were lost");
    assert_eq!(error.kind(), ErrorKind::Abort, "{error}");
    assert!(error.to_string().contains("could not be renewed"), "{error}");
    assert_eq!(source.in_flight().counters.lost_locks, RECORDS as u64);
    place.broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn where_the_group_forbids_renewal_the_attempt_ends_when_the_lock_does() {
    let place = Place::new(3, &[("share.renew.acknowledge.enable", "false")]).await;
    let mut source = place.source().await;
    let clock = &place.env.clock;
    let start = clock.now();
    next_offsets(source.as_mut(), clock).await.unwrap();
    let error = quiet_for(source.as_mut(), clock, LOCK * 3).await.expect_err("the locks were lost");
    assert_eq!(error.kind(), ErrorKind::Abort, "{error}");
    assert!(error.to_string().contains("cannot renew"), "{error}");
    assert!(clock.now().duration_since(start) >= LOCK, "not before there is need");
    place.broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn deferred_offsets_are_held_across_commits_until_an_epoch_decides_them() {
    let place = Place::new(4, &[]).await;
    let mut source = place.source().await;
    let clock = &place.env.clock;
    let words = place.words().await;
    assert_eq!(next_offsets(source.as_mut(), clock).await.unwrap().len(), RECORDS);
    source.barrier(CheckpointId(1)).await.unwrap();
    source.deferred(CheckpointId(1), &offsets_of(words, &[(2, 2), (7, 8)])).await.unwrap();
    // Nothing stages in this test: all but the deferred ones come again when their locks have run out.
    source.committed(CheckpointId(1)).await.unwrap();
    let fill = source.in_flight().window_fill;
    assert_eq!(fill, 7.0 / 2_000.0, "offsets 2 to 8 use the window");
    let mut again = Vec::new();
    let end = clock.now() + LOCK * 4;
    while clock.now() < end {
        let left = end.duration_since(clock.now());
        if let Some(SourceEvent::Records { rows: Some(rows), .. }) =
            maintained_next(source.as_mut(), clock, Some(left)).await.unwrap()
        {
            again.extend_from_slice(
                rows.column_by_name(coordinates::OFFSET).unwrap().as_primitive::<Int64Type>().values(),
            );
        }
    }
    assert_eq!(again, [0, 1, 3, 4, 5, 6, 9]);
    // One came to its end in epoch 2, two go on.
    source.barrier(CheckpointId(2)).await.unwrap();
    source.deferred(CheckpointId(2), &offsets_of(words, &[(7, 8)])).await.unwrap();
    source.committed(CheckpointId(2)).await.unwrap();
    assert_eq!(source.in_flight().window_fill, 2.0 / 2_000.0);
    source.barrier(CheckpointId(3)).await.unwrap();
    source.committed(CheckpointId(3)).await.unwrap();
    assert_eq!(source.in_flight().window_fill, 0.0);
    source.close().await.unwrap();
    place.broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deferred_offset_whose_lock_was_lost_ends_the_attempt() {
    let place = Place::new(5, &[]).await;
    let clock = &place.env.clock;
    let words = place.words().await;
    for is_renewed in [false, true] {
        let mut source = place.source().await;
        next_offsets(source.as_mut(), clock).await.unwrap();
        source.barrier(CheckpointId(1)).await.unwrap();
        source.deferred(CheckpointId(1), &offsets_of(words, &[(2, 2)])).await.unwrap();
        source.committed(CheckpointId(1)).await.unwrap();
        // The process stands still.
        clock.sleep(LOCK * 2).await;
        let error = if is_renewed {
            source.maintain().await.expect_err("lost")
        } else {
            loop {
                match source.next().await {
                    Ok(SourceEvent::Idle) => {}
                    Ok(SourceEvent::Records { .. }) => panic!("offset 2 is being worked on"),
                    Err(error) => break error,
                }
            }
        };
        assert_eq!(error.kind(), ErrorKind::Abort, "{error}");
        source.close().await.unwrap();
        clock.sleep(Duration::from_secs(1)).await;
    }
    place.broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_near_its_limit_is_alone_in_its_epoch_and_nothing_follows_before_its_commit() {
    let place = Place::new(6, &[("share.delivery.count.limit", "5")]).await;
    place.use_up_deliveries(2).await;
    let mut source = place.source().await;
    let clock = &place.env.clock;
    for epoch in 0..3i64 {
        assert_eq!(next_offsets(source.as_mut(), clock).await.unwrap(), [epoch]);
        let in_flight = source.in_flight();
        assert!(in_flight.wants_barrier);
        let nearest = in_flight.nearest_limit.unwrap();
        assert_eq!((nearest.count, nearest.limit, nearest.left()), (3, 5, 2));
        quiet_for(source.as_mut(), clock, LOCK).await.unwrap();
        let checkpoint = CheckpointId(1 + epoch.unsigned_abs());
        source.barrier(checkpoint).await.unwrap();
        assert!(!source.in_flight().wants_barrier);
        quiet_for(source.as_mut(), clock, LOCK).await.unwrap();
        source.committed(checkpoint).await.unwrap();
    }
    source.close().await.unwrap();
    place.broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_decides_records_near_their_limit_and_gives_back_all_others() {
    for (deliveries, rest) in [(1, 0), (2, RECORDS - 1), (4, 0)] {
        let mut place = Place::new(7, &[("share.delivery.count.limit", "5")]).await;
        // More than one chunk.
        place.config.batch_rows_max = 4;
        place.use_up_deliveries(deliveries).await;
        let mut source = place.source().await;
        let clock = &place.env.clock;
        let mut handed_on = next_offsets(source.as_mut(), clock).await.unwrap();
        source.stop_acquiring().await.unwrap();
        let mut later = 0;
        while source.has_rest() {
            let offsets = next_offsets(source.as_mut(), clock).await.unwrap();
            later += offsets.len();
            handed_on.extend(offsets);
        }
        let releases = source.in_flight().counters.releases;
        match deliveries {
            1 => assert_eq!((handed_on.len(), releases), (4, 6), "given back at once"),
            2 => assert_eq!((later, releases), (rest, 0), "each alone, and none given back"),
            _ => {
                assert_eq!((handed_on.len(), releases), (RECORDS, 0), "on the last delivery all are given up")
            }
        }
        let report = source.barrier(CheckpointId(1)).await.unwrap();
        assert_eq!(report.record_count, handed_on.len() as u64);
        source.close().await.unwrap();
        place.broker.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn members_of_one_job_do_not_hand_each_other_what_they_give_back() {
    for is_stopped in [false, true] {
        let place = Place::new(10, &[]).await;
        let job = KafkaJob::connect(place.env.clone(), place.config.clone()).await.unwrap();
        let clock = &place.env.clock;
        let factory = job.source_factory();
        let mut first = factory.create(0).await.unwrap();
        assert_eq!(next_offsets(first.as_mut(), clock).await.unwrap().len(), RECORDS);
        let mut others = Vec::new();
        for subtask in 1..4 {
            let mut other = factory.create(subtask).await.unwrap();
            quiet_for(other.as_mut(), clock, Duration::from_millis(500)).await.unwrap();
            others.push(other);
        }
        // Each has a fetch under way that what is given back would answer.
        let ending = others.iter_mut().map(|other| async {
            let _under_way = clock.timeout(Duration::from_millis(20), other.next()).await;
            if is_stopped {
                other.stop_acquiring().await.unwrap();
            }
            other.close().await.unwrap();
        });
        let ((), _) = tokio::join!(async { first.close().await.unwrap() }, futures::future::join_all(ending));
        place.use_up_deliveries(0).await;
        let mut consumer =
            ShareConsumer::join(place.client.clone(), ShareConsumerConfig::new("group", ["words"]))
                .await
                .unwrap();
        let records = loop {
            let records = consumer.poll().await.unwrap();
            if !records.is_empty() {
                break records;
            }
        };
        let counts: Vec<i16> =
            records.partitions[0].acquired.iter().map(|range| range.delivery_count).collect();
        assert_eq!(counts, [2], "one delivery more, not one for each member");
        consumer.close().await.unwrap();
        place.broker.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_fetch_ahead_brings_meanwhile_is_renewed_as_well() {
    let place = Place::new(8, &[("share.partition.max.record.locks", "100")]).await;
    let mut source = place.source().await;
    let clock = &place.env.clock;
    assert_eq!(next_offsets(source.as_mut(), clock).await.unwrap().len(), RECORDS);
    // The next fetch is on its way; what it brings is not asked for while the task waits for room.
    let mut producer = Producer::connect(place.client.clone(), WriterConfig::default()).await.unwrap();
    let _idle = maintained_next(source.as_mut(), clock, Some(Duration::from_millis(50))).await.unwrap();
    producer.send("words", None, Some(b"late"), &[]).await.unwrap();
    producer.flush().await.unwrap();
    let end = clock.now() + LOCK * 4;
    while let Some(at) = source.maintain_at().filter(|at| *at < end) {
        clock.sleep_until(at).await;
        source.maintain().await.unwrap();
    }
    assert_eq!(next_offsets(source.as_mut(), clock).await.unwrap(), [RECORDS as i64]);
    assert_eq!(source.in_flight().counters.redeliveries, 0);
    source.close().await.unwrap();
    place.broker.shutdown().await;
}

/// A sink that takes longer for its first rows than locks last.
struct SlowFactory(Arc<dyn SinkFactory>, Duration);

struct SlowSink {
    inner: Box<dyn Sink>,
    first_write: Duration,
}

#[async_trait]
impl Sink for SlowSink {
    async fn write(&mut self, checkpoint: CheckpointId, rows: RecordBatch) -> Result<()> {
        Clock::system().sleep(std::mem::take(&mut self.first_write)).await;
        self.inner.write(checkpoint, rows).await
    }

    async fn write_rejected(&mut self, checkpoint: CheckpointId, rejected: RecordBatch) -> Result<()> {
        self.inner.write_rejected(checkpoint, rejected).await
    }

    async fn flush(&mut self, checkpoint: CheckpointId) -> Result<SinkReport> {
        self.inner.flush(checkpoint).await
    }

    async fn close(&mut self) -> Result<()> {
        self.inner.close().await
    }
}

#[async_trait]
impl SinkFactory for SlowFactory {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn check_schema(&self, schema: SchemaRef) -> Result<()> {
        self.0.check_schema(schema)
    }

    fn router(&self, sink_count: usize) -> Result<Box<dyn Router>> {
        self.0.router(sink_count)
    }

    async fn create(&self, subtask: usize, sink_count: usize) -> Result<Box<dyn Sink>> {
        Ok(Box::new(SlowSink { inner: self.0.create(subtask, sink_count).await?, first_write: self.1 }))
    }
}

/// Everything comes once, in one attempt, although the sink takes three times as long as a lock lasts.
fn everything_comes_once(mut world: World, mode: AckModeChoice, lock: Duration, count: i64) {
    world.mode = mode;
    world.options = world.options.clone().with_channel_rows_max(100);
    let mut config = world.config();
    config.batch_rows_max = 100;
    config.delivery_reserve = 2;
    config.transaction_timeout = config.transaction_timeout.max(lock * 8);
    let lock_ms = lock.as_millis().to_string();
    config.group_configs.insert("share.record.lock.duration.ms".to_owned(), lock_ms);
    let job = world.start_built(config, false, move |kafka| {
        JobBuilder::new(JobId::new(&kafka.config().job, &kafka.config().instance))
            .source(kafka.source_factory(), 1)
            .operator(Arc::new(ByFate))
            .sink(Arc::new(SlowFactory(kafka.sink_factory(), lock * 3)), 1)
            .commit(kafka.commit_protocol(None))
    });
    world.wait_until_caught_up(&job);
    let status = job.drain().status;
    assert_eq!(status.records_in, count.unsigned_abs(), "each once, in the first attempt");
    assert_eq!(world.check_output(count), Findings::default());
    world.shut_down();
}

#[test]
fn a_job_behind_a_full_channel_keeps_its_locks_in_every_mode() {
    for mode in [AckModeChoice::Transactional, AckModeChoice::Ledger] {
        everything_comes_once(World::with_records(3_000), mode, LOCK, 3_000);
    }
}

/// Apache Kafka has no shorter locks than 15 s.
#[test]
fn on_a_real_kafka_a_job_behind_a_full_channel_keeps_its_locks() {
    let Ok(bootstrap) = std::env::var("SHARESTREAM_KAFKA_BOOTSTRAP") else {
        // Past the test harness, which would swallow it: a skipped test must be seen.
        let text = "skipped: needs SHARESTREAM_KAFKA_BOOTSTRAP=host:port of an Apache Kafka 4.2 or later";
        let _unseen = writeln!(std::io::stderr(), "{text}");
        return;
    };
    let world = World::on_cluster(&bootstrap, 1_000);
    everything_comes_once(world, AckModeChoice::Auto, Duration::from_secs(15), 1_000);
}

#[tokio::test(start_paused = true)]
async fn many_partitions_are_renewed_by_one_call() {
    let place = Place::new(9, &[]).await;
    // The group's settings come with the job.
    KafkaJob::connect(place.env.clone(), place.config.clone()).await.unwrap();
    let config = ShareConsumerConfig::new("group", ["words"]);
    let mut consumer = ShareConsumer::join(place.client.clone(), config).await.unwrap();
    consumer.fetch_singly(true);
    let mut taken = Vec::new();
    while taken.len() < 3 {
        for partition in consumer.poll().await.unwrap().partitions {
            taken.extend(partition.acquired.iter().map(|range| (range.first.0, range.last.0)));
        }
    }
    assert_eq!(taken, [(0, 0), (1, 1), (2, 2)], "one at a time");
    let words = place.words().await;
    let ranges = vec![
        OffsetRange { first: Offset(0), last: Offset(0) },
        OffsetRange { first: Offset(2), last: Offset(2) },
    ];
    let all = [((words.topic_id, words.partition), ranges)].into();
    let renewed = consumer.renew_all(&all).await.unwrap();
    assert_eq!(renewed.len(), 1);
    assert_eq!(renewed[0].error, None);
    assert_eq!(renewed[0].batches.len(), 2);
    consumer.fetch_singly(false);
    let rest = loop {
        let records = consumer.poll().await.unwrap();
        if !records.is_empty() {
            break records.acquired_count();
        }
    };
    assert_eq!(rest, RECORDS as u64 - 3);
    consumer.close().await.unwrap();
    place.broker.shutdown().await;
}
