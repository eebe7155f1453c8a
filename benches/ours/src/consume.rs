//! Consume only: the counterpart of Kafka's `ShareConsumerPerformance`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use sharestream_base::{CancellationToken, Clock, Env, Instant, TaskKind, TaskSet};
use sharestream_client::{AcknowledgeType, Client, ShareConsumer, ShareConsumerConfig};

use crate::Brokers;

/// A consumer that gets nothing for so long has come to the end.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// `consume`.
#[derive(Args)]
pub(crate) struct ConsumeArgs {
    #[command(flatten)]
    brokers: Brokers,
    /// Topic to read
    #[arg(long)]
    topic: String,
    /// Share group; its settings are made here
    #[arg(long)]
    group: String,
    /// Consumers, each a member of the group
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Records after which the clock starts
    #[arg(long, default_value_t = 500_000)]
    warm_up: u64,
    /// Records that are counted then
    #[arg(long, default_value_t = 2_000_000)]
    records: u64,
}

/// What all consumers count together.
struct Count {
    clock: Clock,
    started_at: Instant,
    warm_up: u64,
    goal: u64,
    records: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds after the start at which the warm-up was over, and at which the goal was reached.
    marks: [AtomicU64; 2],
}

impl Count {
    /// Adds a poll's records; false when the goal is reached.
    fn add(&self, records: u64, bytes: u64) -> bool {
        let before = self.records.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let now = self.clock.now().duration_since(self.started_at).as_nanos();
        for (mark, at) in self.marks.iter().zip([self.warm_up, self.goal]) {
            if before < at && before + records >= at {
                mark.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        }
        before + records < self.goal
    }
}

/// Measures and prints.
pub(crate) async fn run(env: Env, args: ConsumeArgs) -> anyhow::Result<()> {
    let client = args.brokers.connect(&env).await?;
    let settings = [("share.auto.offset.reset", "earliest"), ("share.partition.max.record.locks", "4000")];
    let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
    client.admin().alter_group_config(&args.group, &settings).await?;
    let count = Arc::new(Count {
        clock: env.clock.clone(),
        started_at: env.clock.now(),
        warm_up: args.warm_up,
        goal: args.warm_up + args.records,
        records: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        marks: [AtomicU64::new(0), AtomicU64::new(0)],
    });
    let mut consumers = TaskSet::new(&env.spawner, CancellationToken::new());
    for _ in 0..args.threads {
        // A client each, as each Java consumer has its own connections.
        let client = args.brokers.connect(&env).await?;
        let consumer = consume(client, args.topic.clone(), args.group.clone(), count.clone());
        consumers.spawn("consumer", TaskKind::Job, consumer);
    }
    while let Some(exit) = consumers.join_next().await {
        exit.result?.unwrap_or(Ok(()))?;
    }
    let [from, to] = count.marks.each_ref().map(|mark| mark.load(Ordering::Relaxed));
    anyhow::ensure!(to > from, "the topic held fewer than {} records", count.goal);
    let seconds = (to - from) as f64 / 1e9;
    let report = json!({
        "name": "consume", "threads": args.threads, "records": args.records, "seconds": seconds,
        "records_per_second": (args.records as f64 / seconds).round(),
        "bytes": count.bytes.load(Ordering::Relaxed),
    });
    println!("{report}");
    Ok(())
}

async fn consume(client: Client, topic: String, group: String, count: Arc<Count>) -> anyhow::Result<()> {
    let mut config = ShareConsumerConfig::new(group, [topic]);
    config.max_poll_records = 4_000;
    let mut consumer = ShareConsumer::join(client, config).await?;
    let mut heard_at = count.clock.now();
    loop {
        let polled = consumer.poll().await?;
        let (mut records, mut bytes) = (0, 0);
        for partition in &polled.partitions {
            // Every record is looked at, as the Java tool does.
            for batch in &partition.batches {
                let decoded = batch.records()?;
                for record in &decoded {
                    let record = record?;
                    if partition
                        .acquired
                        .iter()
                        .any(|range| range.first.0 <= record.offset && record.offset <= range.last.0)
                    {
                        records += 1;
                        bytes += record.value.map_or(0, <[u8]>::len) as u64;
                    }
                }
            }
            for range in &partition.acquired {
                let (first, last) = (range.first, range.last);
                let accept = AcknowledgeType::Accept;
                consumer.acknowledge(partition.topic_id, partition.partition, first, last, accept);
            }
        }
        consumer.acknowledge_with_next_fetch();
        for result in consumer.acknowledgement_results() {
            anyhow::ensure!(result.error.is_none(), "an acknowledgement failed: {result:?}");
        }
        let now = count.clock.now();
        if records > 0 {
            heard_at = now;
        }
        if !count.add(records, bytes) || now.duration_since(heard_at) > SILENCE_MAX {
            break;
        }
    }
    consumer.commit_acknowledgements().await?;
    consumer.close().await?;
    Ok(())
}
