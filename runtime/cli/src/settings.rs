//! From a job file and the command line to the settings of the Kafka side.

use std::time::Duration;

use sharestream_base::HostPort;
use sharestream_checkpoints::StoreLocation;
use sharestream_core::JobOptions;
use sharestream_core::commit::CommitStep;
use sharestream_kafka::memory::{MemoryPlan, Tasks};
use sharestream_kafka::{AckModeChoice, KafkaJobConfig, SinkConfig, SinkKey};

use crate::args::{Mode, Overrides};
use crate::job_file::{AckModeSetting, Brokers, JobFile};

/// Longest wait for the slowest subtask of a barrier.
const BARRIER_MAX: Duration = Duration::from_secs(12);
/// Longest time of a commit, from the last barrier acknowledgement to its known outcome.
const COMMIT_MAX: Duration = Duration::from_secs(15);
/// Part of it in which an unanswered EndTxn is sent again.
const END_TXN_MAX: Duration = Duration::from_secs(10);

/// Replicas of the outcome topic that a run creates, where there are so many brokers.
const OUTCOME_REPLICAS_MAX: usize = 3;

/// Replicas of the outcome topic on so many brokers.
pub(crate) fn outcome_replicas(node_count: usize) -> i16 {
    i16::try_from(node_count.clamp(1, OUTCOME_REPLICAS_MAX)).unwrap_or(1)
}

/// Puts what the command line says in place of what the file says.
pub(crate) fn apply(job: &mut JobFile, overrides: &Overrides) {
    if let Some(security) = overrides.command_config.given() {
        job.source.security = security.clone();
    }
    if !overrides.brokers.is_empty() {
        job.source.brokers = Brokers::Addresses(overrides.brokers.clone());
    }
    match overrides.mode {
        Some(Mode::Auto) => job.ack_mode = AckModeSetting::Auto,
        Some(Mode::Ledger) => job.ack_mode = AckModeSetting::Ledger,
        Some(Mode::Transactional) => job.ack_mode = AckModeSetting::Transactional,
        Some(Mode::AtLeastOnce) => job.ack_mode = AckModeSetting::AtLeastOnce,
        None => {}
    }
    if let Some(directory) = &overrides.checkpoint_directory {
        job.checkpoint.store = Some(StoreLocation::folder(directory));
    }
}

/// The settings of the job's Kafka side. `crash_at`: the step that a crash test stops at.
pub(crate) fn kafka_config(
    job: &JobFile,
    bootstrap: &[HostPort],
    crash_at: Option<CommitStep>,
) -> KafkaJobConfig {
    let key = match &job.sink.key {
        Some(column) => SinkKey::Column(column.clone()),
        None => SinkKey::Source,
    };
    let sink = SinkConfig::to_topic(&job.sink.topic).with_key(key).with_format(job.sink.format.clone());
    let mut config = KafkaJobConfig::new(&job.job, &job.source.group, job.source.topics.clone(), sink);
    config.bootstrap = bootstrap.iter().map(ToString::to_string).collect();
    config.security.clone_from(&job.source.security);
    config.instance.clone_from(&job.instance);
    config.group_configs.clone_from(&job.source.group_config);
    config.format = job.source.format.clone();
    config.dead_letter_topic.clone_from(&job.dead_letter_topic);
    config.parking_topic = job.parking_topic().cloned();
    config.decode_policy = job.errors.decode;
    config.transform_policy = job.errors.transform;
    config.call_policy = job.errors.call;
    config.delivery_limit_policy = job.errors.delivery_limit;
    config.too_large_policy = job.errors.too_large;
    if let Some(bytes) = job.source.record_bytes_max {
        config.record_bytes_max = bytes;
    }
    if let Some(plan) = memory_plan(job) {
        plan.set_config(&mut config);
    }
    config.mode = match job.ack_mode {
        AckModeSetting::Auto => AckModeChoice::Auto,
        AckModeSetting::Transactional => AckModeChoice::Transactional,
        AckModeSetting::Ledger => AckModeChoice::Ledger,
        AckModeSetting::AtLeastOnce => AckModeChoice::AtLeastOnce,
    };
    if let Some(topic) = &job.outcome_topic {
        config.outcome_topic.clone_from(topic);
    }
    // An epoch's transaction begins with its first write, may have to wait for the commit before it, then for its own
    // barrier and commit. Not longer: a dead job's open transaction holds up read-committed readers.
    config.commit_deadline = END_TXN_MAX;
    let interval = job.checkpoint.interval.unwrap_or(job.latency_goal);
    config.transaction_timeout = interval + COMMIT_MAX + BARRIER_MAX + COMMIT_MAX;
    // On a cluster of one node there is one leader: a crash between two needs two requests.
    config.stage_separately = crash_at == Some(CommitStep::BetweenStagedLeaders);
    config
}

/// How the memory of the job is shared out, where the file gives one. That it is enough was checked as the file was read.
fn memory_plan(job: &JobFile) -> Option<MemoryPlan> {
    let tasks = Tasks::of_chain(job.source.parallelism, job.http.len(), job.sink.parallelism);
    MemoryPlan::within(job.memory?, tasks).ok()
}

/// The settings of the runtime, within the transaction time-out that [`kafka_config`] asks for.
pub(crate) fn job_options(job: &JobFile, drain_deadline: Duration) -> JobOptions {
    let defaults = JobOptions::default();
    let close_deadline = defaults.close_deadline.min(drain_deadline);
    let records = job.checkpoint.records.unwrap_or(defaults.epoch_rows_max);
    let mut options = defaults.with_latency_goal(job.latency_goal);
    options.checkpoint_interval = job.checkpoint.interval;
    if let Some(plan) = memory_plan(job) {
        options = plan.set_options(options);
    }
    options
        .with_epoch_rows_max(records)
        .with_checkpoints_retained(job.checkpoint.retain)
        .with_barrier_alignment_timeout(BARRIER_MAX)
        .with_commit_deadline(COMMIT_MAX)
        .with_close_deadline(close_deadline)
        .with_drain_deadline(drain_deadline)
}
