//! Where a measurement with processes runs: an embedded broker in a process of its own, or brokers that are there.

use std::time::Duration;

use anyhow::Context;
use sharestream_base::ids::Offset;
use sharestream_base::{Env, Instant};
use sharestream_client::{
    Client, ClientConfig, Isolation, NewTopic, OffsetSpec, PartitionReader, committed_records,
};

use crate::process::Process;

/// Between two looks at a share group.
const LOOK: Duration = Duration::from_millis(20);
const FETCH_BYTES: i32 = 8 << 20;
const FETCH_WAIT: Duration = Duration::from_millis(10);

/// Brokers and a client of them.
pub(crate) struct Place {
    pub(crate) env: Env,
    pub(crate) client: Client,
    /// Bootstrap brokers.
    pub(crate) brokers: String,
    broker: Option<Process>,
    /// In every name that is made here: the brokers may be used again.
    mark: String,
}

impl Place {
    /// Connects to `brokers`; without them starts one.
    pub(crate) async fn open(env: &Env, brokers: Option<&str>) -> anyhow::Result<Place> {
        let (brokers, broker) = match brokers {
            Some(brokers) => (brokers.to_owned(), None),
            None => {
                let arguments = ["broker", "--with-parent"].map(str::to_owned);
                let mut broker = Process::start(env, "the broker", &arguments)?;
                let event = broker.wait_for("listening").await?;
                let address = event["bootstrap"].as_str().context("the broker says where it listens")?;
                (address.to_owned(), Some(broker))
            }
        };
        let client = Client::connect(env.clone(), ClientConfig::with_bootstrap(&brokers)?).await?;
        let mark = format!("bench-{:06x}", env.rng.next_u64() & 0xff_ffff);
        Ok(Place { env: env.clone(), client, brokers, broker, mark })
    }

    /// `what` with the mark of this place.
    pub(crate) fn named(&self, what: &str) -> String {
        format!("{}-{what}", self.mark)
    }

    /// Whether the broker is one of ours, for people.
    pub(crate) fn kind(&self) -> &'static str {
        if self.broker.is_some() { "embedded, in a process of its own" } else { "outside" }
    }

    /// Creates a topic.
    pub(crate) async fn topic(&self, name: &str, partitions: i32) -> anyhow::Result<()> {
        self.client.admin().create_topic(NewTopic::new(name, partitions)).await?;
        Ok(())
    }

    /// Records of the topic that the group has not decided.
    pub(crate) async fn lag(&self, group: &str, topic: &str) -> anyhow::Result<i64> {
        let admin = self.client.admin();
        let ends = admin.list_offsets(topic, &[], OffsetSpec::Latest).await?;
        // Nobody has joined it yet: nothing is decided.
        let known = admin.describe_share_group_offsets(group, &[topic]).await.unwrap_or_default();
        let lag_of = |(partition, end): (_, Offset)| {
            let offset = known.iter().find(|offset| offset.partition == partition);
            let start = offset.and_then(|offset| offset.start_offset).unwrap_or(Offset(0));
            offset.and_then(|offset| offset.lag).unwrap_or(end.0 - start.0)
        };
        Ok(ends.into_iter().map(lag_of).sum())
    }

    /// Waits until everything in the topic is decided.
    pub(crate) async fn wait_decided(
        &self,
        group: &str,
        topic: &str,
        deadline: Instant,
    ) -> anyhow::Result<()> {
        loop {
            let lag = self.lag(group, topic).await?;
            if lag == 0 {
                return Ok(());
            }
            anyhow::ensure!(self.env.clock.now() < deadline, "{lag} records of {topic} are not decided");
            self.env.clock.sleep(LOOK).await;
        }
    }

    /// Calls `each` with the value of every committed record of a topic.
    pub(crate) async fn read_committed(
        &self,
        topic: &str,
        mut each: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for (partition, end) in self.client.admin().list_offsets(topic, &[], OffsetSpec::Latest).await? {
            let mut reader = PartitionReader::new(self.client.clone());
            let mut next = Offset(0);
            while next < end {
                let fetching =
                    reader.fetch(topic, partition, next, Isolation::ReadCommitted, FETCH_BYTES, FETCH_WAIT);
                let fetched = fetching.await?;
                for batch in committed_records(&fetched)? {
                    for record in &batch.records()? {
                        each(record?.value.unwrap_or_default())?;
                    }
                }
                next = fetched.next_offset(next);
            }
        }
        Ok(())
    }

    /// Transactions of this job that are open or not wholly ended.
    pub(crate) async fn open_transactions(&self, job: &str) -> anyhow::Result<u64> {
        let listed = self.client.admin().list_transactions().await?;
        let is_open = |state: &str| matches!(state, "Ongoing" | "PrepareCommit" | "PrepareAbort");
        let ours = listed.iter().filter(|listing| listing.transactional_id.starts_with(job));
        Ok(ours.filter(|listing| is_open(&listing.state)).count() as u64)
    }

    /// Ends the broker, if it is ours.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        match self.broker {
            Some(broker) => broker.kill().await,
            None => Ok(()),
        }
    }
}
