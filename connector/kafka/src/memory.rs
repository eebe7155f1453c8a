//! One bound for what a job holds, and the settings that follow from it.
//!
//! A job is a chain of queues, and each has a bound of its own ([`KafkaJobConfig`], [`JobOptions`]). [`MemoryPlan`] shares out
//! one number among them:
//!
//! ```text
//! fetch, fetch | decompressed, one batch | epoch committing, sealed, open |> channel |> output not acknowledged
//!   1      1          1           4               4        4      4            1               1     shares, per task
//! ```
//! What is counted are payload bytes (`docs/memory.md`). Operators' state and rows that wait for calls have bounds of their own.

use std::fmt;

use sharestream_core::JobOptions;
use sharestream_wire::records::DECOMPRESSED_BYTES_MAX;

use crate::Result;
use crate::config::KafkaJobConfig;
use crate::error::invalid_input;

/// Fetches that a source subtask holds as they came: the one that is read, and the one sent ahead.
const FETCHES: u64 = 2;
/// Epochs of which a source subtask holds what it handed on: one commits, one waits for that, one is filled.
const EPOCHS: u64 = 3;
/// Shares of a batch, and of an epoch, to one of everything else.
const BATCH_SHARES: u64 = 4;
const EPOCH_SHARES: u64 = 4;
/// Shares of a source subtask.
const SOURCE_SHARES: u64 = FETCHES + 1 + BATCH_SHARES + EPOCHS * EPOCH_SHARES;
/// The least of a share. A fetch of less does not hold the largest batch that brokers take by default.
pub const SHARE_MIN: u64 = 1 << 20;
/// The most of a share: what is held beyond that brings nothing but latency.
const SHARE_MAX: u64 = 64 << 20;

/// The tasks of a job that hold payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// Source subtasks.
    pub sources: usize,
    /// Channels between subtasks: behind each subtask of a source or stage, one for each subtask that it sends to.
    pub channels: usize,
    /// Sink subtasks.
    pub sinks: usize,
}

impl Tasks {
    /// Of a job whose sources send to its sinks, with `stages` stages of as many subtasks as the sources between them.
    pub fn of_chain(sources: usize, stages: usize, sinks: usize) -> Self {
        let channels = sources.saturating_mul(sinks).saturating_add(sources.saturating_mul(stages));
        Tasks { sources, channels, sinks }
    }

    fn shares(self) -> u64 {
        let count = |tasks: usize| tasks.max(1) as u64;
        SOURCE_SHARES * count(self.sources) + count(self.channels) + count(self.sinks)
    }
}

/// How one bound is shared out. All in payload bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// [`KafkaJobConfig::fetch_bytes_max`].
    pub fetch: u64,
    /// [`KafkaJobConfig::decompressed_bytes_max`].
    pub decompressed: u64,
    /// [`KafkaJobConfig::decompressed_batch_bytes_max`], and the most that [`KafkaJobConfig::record_bytes_max`] may be.
    pub batch: u64,
    /// [`JobOptions::epoch_bytes_max`], of each source subtask.
    pub epoch: u64,
    /// [`JobOptions::channel_bytes_max`].
    pub channel: u64,
    /// [`SinkConfig::in_flight_bytes_max`](crate::SinkConfig::in_flight_bytes_max).
    pub in_flight: u64,
    tasks: Tasks,
}

impl MemoryPlan {
    /// The least that `tasks` can do with.
    pub fn least(tasks: Tasks) -> u64 {
        tasks.shares() * SHARE_MIN
    }

    /// Shares out `bytes`.
    ///
    /// # Errors
    /// `InvalidInput` when they are fewer than [`MemoryPlan::least`].
    pub fn within(bytes: u64, tasks: Tasks) -> Result<Self> {
        let share = bytes / tasks.shares();
        if share < SHARE_MIN {
            let Tasks { sources, channels, sinks } = tasks;
            return Err(invalid_input(format!(
                "a memory of {} is too little for {sources} source subtasks, {channels} channels and {sinks} sink subtasks: give it at \
                 least {}, or run fewer",
                Size(bytes),
                Size(MemoryPlan::least(tasks))
            )));
        }
        let share = share.min(SHARE_MAX);
        Ok(MemoryPlan {
            fetch: share,
            decompressed: share,
            batch: (BATCH_SHARES * share).min(DECOMPRESSED_BYTES_MAX as u64),
            epoch: EPOCH_SHARES * share,
            channel: share,
            in_flight: share,
            tasks,
        })
    }

    /// What all of it comes to.
    pub fn total(&self) -> u64 {
        let Tasks { sources, channels, sinks } = self.tasks;
        let source = FETCHES * self.fetch + self.decompressed + self.batch + EPOCHS * self.epoch;
        source * sources as u64 + self.channel * channels as u64 + self.in_flight * sinks as u64
    }

    /// Sets what sources and sinks follow. A `record_bytes_max` that is smaller stays.
    pub fn set_config(&self, config: &mut KafkaJobConfig) {
        config.fetch_bytes_max = i32::try_from(self.fetch).unwrap_or(i32::MAX);
        config.decompressed_bytes_max = bytes(self.decompressed);
        config.decompressed_batch_bytes_max = bytes(self.batch);
        config.record_bytes_max = config.record_bytes_max.min(bytes(self.batch));
        config.sink.in_flight_bytes_max = bytes(self.in_flight);
        config.sink.batch_bytes_max = config.sink.batch_bytes_max.min(bytes(self.in_flight));
    }

    /// Sets what the runtime follows.
    #[must_use]
    pub fn set_options(&self, options: JobOptions) -> JobOptions {
        options.with_epoch_bytes_max(self.epoch).with_channel_bytes_max(bytes(self.channel))
    }
}

fn bytes(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Bytes for people: "1 GiB", "21 MiB", "1500 bytes" where it is no round number.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, bytes) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= bytes && self.0.is_multiple_of(bytes) {
                return write!(f, "{} {unit}", self.0 / bytes);
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SinkConfig;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_shared_out_is_never_more_than_the_bound_and_mostly_used() {
        for tasks in [Tasks::of_chain(1, 0, 1), Tasks::of_chain(4, 1, 2), Tasks::of_chain(64, 2, 8)] {
            let least = MemoryPlan::least(tasks);
            for bytes in [least, least + 1, 2 * least - 1, 7 * least] {
                let plan = MemoryPlan::within(bytes, tasks).unwrap();
                let total = plan.total();
                assert!(total <= bytes, "{tasks:?} {bytes}: {total}");
                assert!(total + tasks.shares() >= bytes, "{tasks:?} {bytes}: {total}");
            }
            assert!(MemoryPlan::within(u64::MAX, tasks).unwrap().total() < u64::MAX / 2, "no overflow");
        }
    }

    #[test]
    fn too_little_is_refused_with_what_would_do() {
        let tasks = Tasks::of_chain(2, 0, 1);
        let error = MemoryPlan::within(20 * MIB, tasks).unwrap_err().to_string();
        assert!(
            error.contains("a memory of 20 MiB is too little for 2 source subtasks, 2 channels"),
            "{error}"
        );
        let least = MemoryPlan::least(tasks);
        assert!(error.contains(&format!("at least {} MiB", least / MIB)), "{error}");
        assert!(MemoryPlan::within(least, tasks).is_ok());
    }

    #[test]
    fn settings_that_follow_are_valid_and_smaller_ones_stay() {
        for share in [1, 3, 64, 1_000] {
            let tasks = Tasks::of_chain(1, 0, 1);
            let plan = MemoryPlan::within(share * MemoryPlan::least(tasks), tasks).unwrap();
            let mut config =
                KafkaJobConfig::new("job", "group", vec!["in".to_owned()], SinkConfig::to_topic("out"));
            config.bootstrap = vec!["localhost:9092".to_owned()];
            config.record_bytes_max = 2_048;
            plan.set_config(&mut config);
            let options = plan.set_options(JobOptions::default());
            assert_eq!(config.validate(), [], "{plan:?}");
            assert!(options.validate().is_ok(), "{plan:?}");
            assert_eq!((config.record_bytes_max, options.epoch_bytes_max), (2_048, plan.epoch));
        }
    }
}
