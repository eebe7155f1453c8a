//! When a run has processed everything that its topics held at the start.

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_base::Clock;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_client::{Client, OffsetSpec};
use sharestream_core::{JobControl, JobState};

use crate::group_offsets;
use crate::job_file::JobFile;

/// Pause between two looks at the group's start offsets; each costs the brokers a read for every partition.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The end offsets at the start of the run, and where the group was then.
pub(crate) struct CaughtUp {
    client: Client,
    group: String,
    topics: Vec<String>,
    /// First and end offset by partition.
    bounds: BTreeMap<(String, PartitionIndex), (Offset, Offset)>,
    /// What is parked meanwhile is to be processed as well.
    parking: Option<String>,
    record_count: u64,
}

impl CaughtUp {
    /// Takes the present ends of the topics as the goal.
    pub(crate) async fn from_here(client: Client, job: &JobFile) -> anyhow::Result<Self> {
        let (group, topics) = (&job.source.group, &job.source.topics);
        let parking = job.parking_topic().cloned();
        let admin = client.admin();
        let mut bounds = BTreeMap::new();
        for topic in topics {
            let first = admin.list_offsets(topic, &[], OffsetSpec::Earliest).await?;
            let end = admin.list_offsets(topic, &[], OffsetSpec::Latest).await?;
            for (partition, first) in first {
                let end = end.get(&partition).copied().unwrap_or(first);
                bounds.insert((topic.clone(), partition), (first, end));
            }
        }
        let (group, topics) = (group.clone(), topics.clone());
        let mut watch = CaughtUp { client, group, topics, bounds, parking, record_count: 0 };
        let starts = watch.start_offsets().await?;
        watch.record_count = watch.left(&starts);
        Ok(watch)
    }

    /// Offsets to go at the start.
    pub(crate) fn record_count(&self) -> u64 {
        self.record_count
    }

    /// Returns when the group's start offsets have reached the goal. Cancel safe.
    pub(crate) async fn wait(&self, clock: &Clock, control: &JobControl) -> anyhow::Result<()> {
        loop {
            // Before the job runs, the group may not have a start offset: an empty topic would look done.
            let is_running =
                matches!(control.status().borrow().state, JobState::Running | JobState::Draining);
            if is_running
                && self.left(&self.start_offsets().await?) == 0
                && !self.is_something_parked().await?
            {
                return Ok(());
            }
            clock.sleep(LOOK_INTERVAL).await;
        }
    }

    /// Asked when the sources are done: what they parked is committed then.
    async fn is_something_parked(&self) -> anyhow::Result<bool> {
        let Some(topic) = &self.parking else { return Ok(false) };
        let ends = self.client.admin().list_offsets(topic, &[], OffsetSpec::Latest).await?;
        let described =
            group_offsets::of_group(&self.client, &self.group, std::slice::from_ref(topic)).await?;
        let is_done = |partition: PartitionIndex, end: Offset| {
            let mut offsets = described.iter().filter(|offset| offset.partition == partition);
            end == Offset(0)
                || offsets
                    .any(|offset| offset.lag == Some(0) || offset.start_offset.is_some_and(|at| at >= end))
        };
        Ok(!ends.into_iter().all(|(partition, end)| is_done(partition, end)))
    }

    fn left(&self, starts: &BTreeMap<(String, PartitionIndex), Offset>) -> u64 {
        let left = self.bounds.iter().map(|(key, (first, end))| {
            let start = starts.get(key).copied().unwrap_or(*first).max(*first);
            u64::try_from(end.0 - start.0).unwrap_or(0)
        });
        left.sum()
    }

    async fn start_offsets(&self) -> anyhow::Result<BTreeMap<(String, PartitionIndex), Offset>> {
        let described = group_offsets::of_group(&self.client, &self.group, &self.topics).await?;
        let reached = described.into_iter().filter_map(|offset| {
            // Apache Kafka writes the start offset late; a lag of 0 says that everything is decided all the same.
            let is_done = offset.lag == Some(0);
            let start = if is_done { Offset(i64::MAX) } else { offset.start_offset? };
            Some(((offset.topic.to_string(), offset.partition), start))
        });
        Ok(reached.collect())
    }
}
