//! An embedded broker in this process, and topics with records.

use sharestream_base::Env;
use sharestream_base::ids::PartitionIndex;
use sharestream_broker::{Broker, RunningBroker};
use sharestream_client::{Client, ClientConfig, NewTopic, Producer, WriterConfig};

/// Where the records are.
pub(super) struct World {
    pub(super) env: Env,
    pub(super) client: Client,
    broker: RunningBroker,
    /// Runs so far: each has a group, a job name and an output topic of its own.
    runs: u32,
}

/// How records are spread.
#[derive(Clone, Copy)]
pub(super) enum Spread {
    Even,
    /// Four of five are in the first partition.
    Skewed,
}

impl World {
    pub(super) async fn start(env: Env) -> anyhow::Result<World> {
        let broker = Broker::builder(env.clone()).start().await?;
        let client = Client::connect(env.clone(), ClientConfig::with_bootstrap(&broker.bootstrap())?).await?;
        Ok(World { env, client, broker, runs: 0 })
    }

    pub(super) fn bootstrap(&self) -> String {
        self.broker.bootstrap()
    }

    /// A name that no run had before.
    pub(super) fn fresh_name(&mut self, what: &str) -> String {
        self.runs += 1;
        format!("{what}-{}", self.runs)
    }

    /// A topic with `records` records of sixteen bytes.
    pub(super) async fn topic(
        &self,
        name: &str,
        partitions: i32,
        records: u64,
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
            let value = format!("record {number:09}");
            let writer = producer.writer();
            writer.append(name, PartitionIndex(partition), now_ms, None, Some(value.as_bytes()), &[]).await?;
        }
        producer.flush().await?;
        Ok(())
    }

    pub(super) async fn end(self) {
        self.broker.shutdown().await;
    }
}
