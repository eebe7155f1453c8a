//! Where the group stands in its partitions: lag, age of the oldest undecided record, what retention took away.
//!
//! The job itself does not know: replicas and other consumers share the group. So the brokers are asked, now and then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{Clock, Env, OwnedTask, TaskKind};
use sharestream_client::{Client, Isolation, OffsetSpec, PartitionReader, ShareGroupOffset};

use crate::group_offsets;
use crate::job_file::JobFile;

/// What the brokers said last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offsets {
    /// By topic and partition; empty after a failed poll: no number is better than an old one.
    pub(crate) partitions: BTreeMap<(String, i32), PartitionOffsets>,
    /// Offsets that were removed undecided, since the start of the process.
    pub(crate) removed: BTreeMap<(String, i32), u64>,
    /// What the last good poll said: what is removed counts from there.
    seen: BTreeMap<(String, i32), PartitionOffsets>,
    pub(crate) polls: u64,
    pub(crate) failed_polls: u64,
}

/// Where the group stands in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionOffsets {
    /// Everything below is decided; `None` while the group has not read the partition.
    pub(crate) start: Option<Offset>,
    /// First offset that the log still has.
    pub(crate) log_start: Offset,
    /// Offset behind the last record.
    pub(crate) end: Offset,
    /// Undecided records; `None` while the group has not read the partition.
    pub(crate) lag: Option<u64>,
    /// Since the timestamp of the oldest undecided record; `None` when it could not be read.
    pub(crate) oldest_age: Option<Duration>,
}

/// Longest time of one poll, over all partitions.
const POLL_DEADLINE: Duration = Duration::from_secs(30);

/// Asks the brokers until it is dropped.
pub(crate) struct OffsetWatch {
    _task: OwnedTask<()>,
}

impl OffsetWatch {
    /// Starts to ask, at once and then in the job file's interval; answers go to `offsets`.
    pub(crate) fn start(env: &Env, client: Client, job: &JobFile, offsets: Arc<Mutex<Offsets>>) -> Self {
        let clock = env.clock.clone();
        let interval = job.metrics.offsets_interval;
        let mut poller = Poller {
            reader: PartitionReader::new(client.clone()),
            client,
            clock: clock.clone(),
            group: job.source.group.clone(),
            topics: job.acquired_topics(),
        };
        let task = OwnedTask::spawn(&env.spawner, "offsets", TaskKind::Job, async move {
            loop {
                let polled = clock.timeout(POLL_DEADLINE, poller.poll()).await;
                let polled = polled.context("the brokers did not answer in time").flatten();
                if let Err(error) = &polled {
                    tracing::warn!(error = format!("{error:#}"), "the group's offsets could not be read");
                }
                offsets.lock().unwrap_or_else(PoisonError::into_inner).take(polled.ok());
                clock.sleep(interval).await;
            }
        });
        OffsetWatch { _task: task }
    }
}

impl Offsets {
    /// Takes the answer of a poll; `None` when it failed.
    fn take(&mut self, polled: Option<BTreeMap<(String, i32), PartitionOffsets>>) {
        let Some(polled) = polled else {
            self.failed_polls += 1;
            self.partitions.clear();
            return;
        };
        self.polls += 1;
        for (key, now) in &polled {
            let removed = self.removed.entry(key.clone()).or_default();
            *removed += removed_since(self.seen.get(key), now);
        }
        self.partitions.clone_from(&polled);
        self.seen = polled;
    }
}

/// Offsets that the log lost while they were undecided. What was decided between the two looks and removed since counts
/// too, but never more than was undecided.
fn removed_since(before: Option<&PartitionOffsets>, now: &PartitionOffsets) -> u64 {
    // At the first look, what lies between the group's start and the log's.
    let before = before.copied().unwrap_or(PartitionOffsets { log_start: Offset(0), ..*now });
    let (Some(start), Some(lag)) = (before.start, before.lag) else { return 0 };
    let undecided_from = start.max(before.log_start);
    let gone = u64::try_from(now.log_start.0 - undecided_from.0).unwrap_or(0);
    gone.min(lag)
}

struct Poller {
    client: Client,
    reader: PartitionReader,
    clock: Clock,
    group: String,
    topics: Vec<String>,
}

impl Poller {
    async fn poll(&mut self) -> anyhow::Result<BTreeMap<(String, i32), PartitionOffsets>> {
        let described = group_offsets::of_group(&self.client, &self.group, &self.topics).await?;
        let described: BTreeMap<_, _> =
            described.into_iter().map(|at| ((at.topic.to_string(), at.partition), at)).collect();
        let mut found = BTreeMap::new();
        for topic in self.topics.clone() {
            let admin = self.client.admin();
            // After the group's offsets: what the log has lost by now was undecided then.
            let log_starts = admin.list_offsets(&topic, &[], OffsetSpec::Earliest).await?;
            let ends = admin.list_offsets(&topic, &[], OffsetSpec::Latest).await?;
            for (partition, end) in ends {
                let Some(log_start) = log_starts.get(&partition).copied() else { continue };
                let known = described.get(&(topic.clone(), partition));
                let start = known.and_then(|known| known.start_offset);
                let lag = known.and_then(|known| lag(known, log_start, end));
                let mut at = PartitionOffsets { start, log_start, end, lag, oldest_age: None };
                at.oldest_age = self.oldest_age(&topic, partition, &at).await;
                found.insert((topic.clone(), partition.0), at);
            }
        }
        Ok(found)
    }

    /// Since the timestamp of the first record that is not decided.
    async fn oldest_age(
        &mut self,
        topic: &str,
        partition: PartitionIndex,
        at: &PartitionOffsets,
    ) -> Option<Duration> {
        let (start, lag) = (at.start?, at.lag?);
        if lag == 0 {
            return Some(Duration::ZERO);
        }
        let from = start.max(at.log_start);
        match self.timestamp_ms(topic, partition, from).await {
            Ok(timestamp_ms) => {
                let age_ms = self.clock.wall_ms().saturating_sub(timestamp_ms?);
                Some(Duration::from_millis(u64::try_from(age_ms).unwrap_or(0)))
            }
            Err(error) => {
                // Retention may have been faster; the next poll looks again.
                tracing::debug!(
                    error = format!("{error:#}"),
                    "the oldest undecided record could not be read"
                );
                None
            }
        }
    }

    /// The timestamp of the first record at `from` or behind it, in the batch there.
    async fn timestamp_ms(
        &mut self,
        topic: &str,
        partition: PartitionIndex,
        from: Offset,
    ) -> anyhow::Result<Option<i64>> {
        // One byte: a broker sends one whole batch all the same.
        let fetched =
            self.reader.fetch(topic, partition, from, Isolation::ReadUncommitted, 1, Duration::ZERO);
        for batch in fetched.await?.batches.iter().filter(|batch| !batch.header.is_control()) {
            for record in &batch.records()? {
                let record = record?;
                if record.offset >= from.0 {
                    return Ok(Some(record.timestamp));
                }
            }
        }
        Ok(None)
    }
}

/// Undecided records of a partition that the group has read.
fn lag(known: &ShareGroupOffset, log_start: Offset, end: Offset) -> Option<u64> {
    let start = known.start_offset?;
    let distance = u64::try_from(end.0 - start.max(log_start).0).unwrap_or(0);
    Some(known.lag.and_then(|lag| u64::try_from(lag).ok()).unwrap_or(distance))
}

#[cfg(test)]
#[path = "offsets_tests.rs"]
mod tests;
