//! How long a transaction with one output record and one staged range takes from EndTxn until everybody sees it
//! (`visible_ms`): a read-committed reader has the output, and the source leader gives out the next record.
//!
//! The group may lock one record at a time, so the fetch that waits for the next one ends when the leader has applied
//! the commit to the staged one, and not before. Reader and consumer wait at the broker when EndTxn is sent: nothing is
//! polled, and nothing but the broker decides how long it takes.

use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use hdrhistogram::Histogram;
use serde_json::json;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{Clock, Env, Instant};
use sharestream_client::{
    AcknowledgeType, AcquireMode, BatchWriter, Isolation, NewTopic, PartitionReader, Producer, ShareConsumer,
    ShareConsumerConfig, ShareRecords, TransactionConfig, TransactionSession, WriterConfig,
    committed_records,
};

use crate::Brokers;

/// Longest wait of anybody for one transaction.
const LATE_MAX: Duration = Duration::from_secs(10);
/// So long before EndTxn the reader and the consumer ask, so that they wait at the broker when it comes.
const AHEAD: Duration = Duration::from_millis(3);
const FIRST: PartitionIndex = PartitionIndex(0);
/// Length of a value.
const VALUE_BYTES: usize = 100;

/// `visible`.
#[derive(Args)]
pub(crate) struct VisibleArgs {
    #[command(flatten)]
    brokers: Brokers,
    /// Transactions that are not counted
    #[arg(long, default_value_t = 100)]
    warm_up: u64,
    /// Transactions that are counted
    #[arg(long, default_value_t = 500)]
    transactions: u64,
}

/// What becomes visible, and who looks.
struct Scene {
    clock: Clock,
    session: TransactionSession,
    writer: BatchWriter,
    consumer: ShareConsumer,
    reader: PartitionReader,
    output: String,
    /// Where the next output of the reader is.
    next: Offset,
}

/// How long after EndTxn was asked for: its answer, the output, the next record.
struct Times {
    answered: Duration,
    read: Duration,
    applied: Duration,
}

/// Measures and prints.
pub(crate) async fn run(env: Env, args: VisibleArgs) -> anyhow::Result<()> {
    let total = args.warm_up + args.transactions;
    let mut scene = Scene::set(&env, &args.brokers, total + 1).await?;
    let mut held = scene.consumer.poll().await?;
    while held.acquired_count() == 0 {
        held = scene.consumer.poll().await?;
    }
    let [mut answered, mut read, mut applied, mut visible] = std::array::from_fn(|_| histogram());
    for number in 0..total {
        let times;
        (times, held) = scene.commit_one(&held).await?;
        if number >= args.warm_up {
            answered.record(micros(times.answered))?;
            read.record(micros(times.read))?;
            applied.record(micros(times.applied))?;
            visible.record(micros(times.read.max(times.applied)))?;
        }
    }
    scene.consumer.close().await?;
    let ms = |all: &Histogram<u64>, quantile: f64| all.value_at_quantile(quantile) as f64 / 1_000.0;
    let report = json!({
        "name": "visible", "transactions": visible.len(),
        "p50_ms": ms(&visible, 0.5), "p99_ms": ms(&visible, 0.99), "max_ms": ms(&visible, 1.0),
        "end_txn_p50_ms": ms(&answered, 0.5), "read_p50_ms": ms(&read, 0.5), "applied_p50_ms": ms(&applied, 0.5),
    });
    println!("{report}");
    Ok(())
}

#[expect(clippy::expect_used, reason = "the bounds are constants")]
fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are allowed")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Scene {
    /// Topics with so many records to take, a group that has not read, and connections of each own.
    async fn set(env: &Env, brokers: &Brokers, records: u64) -> anyhow::Result<Scene> {
        let client = brokers.connect(env).await?;
        let unique = format!("visible-{}", env.clock.wall_ms());
        let (source, output) = (format!("{unique}-in"), format!("{unique}-out"));
        let topics = [&source, &output].map(|name| NewTopic::new(name.clone(), 1));
        client.admin().create_topics(topics.into()).await?;
        let settings = [("share.auto.offset.reset", "earliest"), ("share.partition.max.record.locks", "1")];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        client.admin().alter_group_config(&unique, &settings).await?;
        let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await?;
        for _ in 0..records {
            producer.send(&source, None, Some(&[b'x'; VALUE_BYTES]), &[]).await?;
        }
        producer.flush().await?;
        let mut config = ShareConsumerConfig::new(unique.clone(), [source]);
        (config.max_poll_records, config.acquire_mode) = (1, AcquireMode::RecordLimit);
        (config.prefetch, config.max_wait) = (false, LATE_MAX);
        let consumer = ShareConsumer::join(brokers.connect(env).await?, config).await?;
        let session_client = brokers.connect(env).await?;
        let mut session = TransactionSession::new(session_client.clone(), TransactionConfig::new(unique))?;
        session.init().await?;
        Ok(Scene {
            clock: env.clock.clone(),
            session,
            writer: BatchWriter::new(session_client, WriterConfig::default()),
            consumer,
            reader: PartitionReader::new(brokers.connect(env).await?),
            output,
            next: Offset(0),
        })
    }

    /// Writes one record, stages what is held, commits; gives the times and what is held then.
    async fn commit_one(&mut self, held: &ShareRecords) -> anyhow::Result<(Times, ShareRecords)> {
        self.writer.set_identity(&self.session.begin()?);
        self.writer.append(&self.output, FIRST, 0, None, Some(&[b'y'; VALUE_BYTES]), &[]).await?;
        self.writer.flush().await?;
        for partition in &held.partitions {
            for range in &partition.acquired {
                let (id, index) = (partition.topic_id, partition.partition);
                self.consumer.acknowledge(id, index, range.first, range.last, AcknowledgeType::Accept);
            }
        }
        let acknowledgements = self.consumer.acknowledgements_for_transaction()?;
        let metadata = self.consumer.share_group_metadata();
        self.session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await?;

        let Scene { clock, session, consumer, reader, output, next, .. } = self;
        let reading = async { anyhow::Ok((read_on(reader, output, *next).await?, clock.now())) };
        let taking = async { anyhow::Ok((consumer.poll().await?, clock.now())) };
        let ending = async {
            clock.sleep(AHEAD).await;
            let start = clock.now();
            session.commit().await?;
            anyhow::Ok((start, clock.now()))
        };
        let (read, taken, ended) = tokio::try_join!(reading, taking, ending)?;
        let ((end, read), (held, applied), (start, answered)) = (read, taken, ended);
        ensure!(held.acquired_count() == 1, "{} records were given out at once", held.acquired_count());
        ensure!(read >= start && applied >= start, "something was seen before it was committed");
        *next = end;
        let after = |instant: Instant| instant.duration_since(start);
        Ok((Times { answered: after(answered), read: after(read), applied: after(applied) }, held))
    }
}

/// Waits for one committed record; gives the offset from which the next one is looked for.
async fn read_on(reader: &mut PartitionReader, topic: &str, mut from: Offset) -> anyhow::Result<Offset> {
    loop {
        let fetched = reader.fetch(topic, FIRST, from, Isolation::ReadCommitted, 1 << 20, LATE_MAX).await?;
        let last = committed_records(&fetched)?.last().map(|batch| batch.header.next_offset());
        let seen = last.is_some_and(|next| next > from.0);
        ensure!(seen || fetched.next_offset(from) > from, "nothing came for {LATE_MAX:?}");
        from = fetched.next_offset(from);
        if seen {
            return Ok(from);
        }
    }
}
