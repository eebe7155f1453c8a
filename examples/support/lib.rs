//! What the examples stand on: an embedded broker with a topic of orders, and a look at what a job has committed.
//!
//! An order is a line `customer,amount`, for example `ann,250`. A program of yours has its brokers and topics already and
//! needs none of this.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use sharestream_base::Env;
use sharestream_base::ids::Offset;
use sharestream_broker::{Broker, RunningBroker};
use sharestream_client::{
    Client, ClientConfig, Isolation, NewTopic, OffsetSpec, PartitionReader, Producer, WriterConfig,
    committed_records,
};
use sharestream_kafka::formats::{Column, ColumnType, CsvFormat, Format};
use sharestream_kafka::{KafkaJobConfig, SinkConfig};

/// Name of the source topic.
pub const ORDERS: &str = "orders";
/// Name of the output topic.
pub const OUTPUT: &str = "output";
/// Name of the topic of dead letters.
pub const DEAD_LETTERS: &str = "dead-letters";

/// A broker in this process, with the three topics.
#[derive(Debug)]
pub struct World {
    broker: RunningBroker,
    client: Client,
}

impl World {
    /// Starts it.
    pub async fn start() -> Result<World> {
        let broker = Broker::builder(Env::system()).start().await?;
        let config = ClientConfig::with_bootstrap(&broker.bootstrap())?;
        let client = Client::connect(Env::system(), config).await?;
        for topic in [ORDERS, OUTPUT, DEAD_LETTERS] {
            client.admin().create_topic(NewTopic::new(topic, 2)).await?;
        }
        Ok(World { broker, client })
    }

    /// Settings of a job from the orders to the output.
    pub fn config(&self, job: &str) -> KafkaJobConfig {
        let sink = SinkConfig::to_topic(OUTPUT);
        let mut config = KafkaJobConfig::new(job, job, vec![ORDERS.to_owned()], sink);
        config.bootstrap = vec![self.broker.bootstrap()];
        let columns =
            vec![Column::new("customer", ColumnType::String), Column::new("amount", ColumnType::Int64)];
        config.format = Format::Csv(CsvFormat { columns, ..CsvFormat::default() });
        config.dead_letter_topic = Some(DEAD_LETTERS.to_owned());
        // A new group begins with what is in the topic already.
        config.group_configs.insert("share.auto.offset.reset".to_owned(), "earliest".to_owned());
        config
    }

    /// Appends orders.
    pub async fn order<T: AsRef<str>>(&self, orders: impl IntoIterator<Item = T>) -> Result<()> {
        let mut producer = Producer::connect(self.client.clone(), WriterConfig::default()).await?;
        for order in orders {
            producer.send(ORDERS, None, Some(order.as_ref().as_bytes()), &[]).await?;
        }
        producer.flush().await?;
        Ok(())
    }

    /// Values of the committed records of a topic; JSON where they are JSON, else as text.
    pub async fn committed(&self, topic: &str) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        for (partition, end) in self.client.admin().list_offsets(topic, &[], OffsetSpec::Latest).await? {
            let mut reader = PartitionReader::new(self.client.clone());
            let mut next = Offset(0);
            while next < end {
                let wait = Duration::from_millis(10);
                let fetched =
                    reader.fetch(topic, partition, next, Isolation::ReadCommitted, 1 << 20, wait).await?;
                for batch in committed_records(&fetched)? {
                    for record in &batch.records()? {
                        let value = record?.value.unwrap_or_default();
                        let as_text = || Value::from(String::from_utf8_lossy(value).into_owned());
                        values.push(serde_json::from_slice(value).unwrap_or_else(|_| as_text()));
                    }
                }
                next = fetched.next_offset(next);
            }
        }
        Ok(values)
    }

    /// Waits until a topic has `count` committed records, 30 seconds at most, and gives their values.
    pub async fn wait_for(&self, topic: &str, count: usize) -> Result<Vec<Value>> {
        let clock = Env::system().clock;
        let deadline = clock.now() + Duration::from_secs(30);
        loop {
            let values = self.committed(topic).await?;
            if values.len() >= count {
                return Ok(values);
            }
            anyhow::ensure!(clock.now() < deadline, "{topic} has {} of {count} records", values.len());
            clock.sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the broker.
    pub async fn shutdown(self) {
        self.broker.shutdown().await;
    }
}
