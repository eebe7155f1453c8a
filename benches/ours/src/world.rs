//! An embedded broker in this process, or brokers that are there; and topics with records.

use std::time::Duration;

use anyhow::Context;
use sharestream_base::Env;
use sharestream_base::ids::PartitionIndex;
use sharestream_broker::faults::{Fault, FaultAction};
use sharestream_broker::{ApiKey, Broker, RunningBroker};
use sharestream_client::{Client, ClientConfig, NewTopic, Producer, WriterConfig};

/// Where the records are.
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) client: Client,
    bootstrap: String,
    /// `None`: it was there before.
    broker: Option<RunningBroker>,
    /// In every name: brokers that are there may be used again.
    mark: u64,
    /// Runs so far: each has a group, a job name and an output topic of its own.
    runs: u32,
}

/// How records are spread.
#[derive(Clone, Copy)]
pub(crate) enum Spread {
    Even,
    /// Four of five are in the first partition.
    Skewed,
}

impl World {
    /// Connects to `brokers`; without them starts one.
    pub(crate) async fn start(env: Env, brokers: Option<&str>) -> anyhow::Result<World> {
        let (bootstrap, broker) = match brokers {
            Some(brokers) => (brokers.to_owned(), None),
            None => {
                let broker = Broker::builder(env.clone()).start().await?;
                (broker.bootstrap(), Some(broker))
            }
        };
        let client = Client::connect(env.clone(), ClientConfig::with_bootstrap(&bootstrap)?).await?;
        let mark = env.rng.next_u64() & 0xff_ffff;
        Ok(World { env, client, bootstrap, broker, mark, runs: 0 })
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.bootstrap.clone()
    }

    /// True when the broker is in this process.
    pub(crate) fn is_embedded(&self) -> bool {
        self.broker.is_some()
    }

    /// A name that no run had before.
    pub(crate) fn fresh_name(&mut self, what: &str) -> String {
        self.runs += 1;
        format!("bench-{:06x}-{what}-{}", self.mark, self.runs)
    }

    /// A topic with `records` records of `value_bytes` bytes.
    pub(crate) async fn topic(
        &self,
        name: &str,
        partitions: i32,
        records: u64,
        value_bytes: usize,
        spread: Spread,
    ) -> anyhow::Result<()> {
        self.client.admin().create_topic(NewTopic::new(name, partitions)).await?;
        // Batches well below a lock window, as many producers make them.
        let config = WriterConfig { batch_bytes_max: 16 * 1024, ..WriterConfig::default() };
        let mut producer = Producer::connect(self.client.clone(), config).await?;
        let now_ms = self.env.clock.wall_ms();
        for number in 0..records {
            let even = i32::try_from(number / 5 % u64::from(partitions.unsigned_abs()))?;
            let partition = match spread {
                Spread::Even => i32::try_from(number % u64::from(partitions.unsigned_abs()))?,
                Spread::Skewed if number % 5 < 4 => 0,
                Spread::Skewed => even % (partitions - 1) + 1,
            };
            let value = format!("{number:0>value_bytes$}");
            let writer = producer.writer();
            writer.append(name, PartitionIndex(partition), now_ms, None, Some(value.as_bytes()), &[]).await?;
        }
        producer.flush().await?;
        Ok(())
    }

    /// From now on the embedded broker serves each EndTxn so much later.
    pub(crate) fn delay_end_txn(&self, delay: Duration) -> anyhow::Result<()> {
        let broker = self.broker.as_ref().context("only the embedded broker can be told to wait")?;
        broker.faults().plant(Fault::new(FaultAction::Delay(delay)).api(ApiKey::END_TXN).times(u64::MAX))?;
        Ok(())
    }

    pub(crate) async fn end(self) {
        if let Some(broker) = self.broker {
            broker.shutdown().await;
        }
    }
}
