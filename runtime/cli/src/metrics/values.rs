//! What each metric says now.

use sharestream_core::coordinates::RejectKind;
use sharestream_core::source::PartitionLoad;
use sharestream_core::{CallStatus, Histogram, JobMetrics, JobStatus};

use super::definitions::Metric;
use super::offsets::{Offsets, PartitionOffsets};

/// What a scrape reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Counts of the job.
    pub(crate) status: JobStatus,
    /// What is measured beside them.
    pub(crate) metrics: JobMetrics,
    /// What the brokers said of the group's offsets.
    pub(crate) offsets: Offsets,
    /// Now, Unix milliseconds.
    pub(crate) wall_ms: i64,
}

/// One value under the values of the metric's own labels, in the order of its definition.
#[derive(Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) labels: Vec<String>,
    pub(crate) value: Value<'a>,
}

/// A value.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Counter(u64),
    Gauge(f64),
    Histogram(&'a Histogram),
    Info,
}

/// The samples of `metric`. Empty where nobody knows yet.
pub(crate) fn samples(metric: Metric, facts: &Facts) -> Vec<Sample<'_>> {
    let Facts { status, metrics, offsets, wall_ms } = facts;
    let source = &metrics.source;
    match metric {
        Metric::Build => vec![info(env!("CARGO_PKG_VERSION"))],
        Metric::Guarantee => status.mode.map(|mode| info(&word(&mode))).into_iter().collect(),
        Metric::State => vec![Sample { labels: vec![word(&status.state)], value: Value::Gauge(1.0) }],
        Metric::Attempts => counter(status.attempts),
        Metric::Failures => by_word(metrics.failures.iter().map(|(kind, count)| (kind.as_str(), *count))),
        Metric::Fenced => counter(metrics.fenced),
        Metric::StateSize => gauge(status.state_bytes as f64),
        Metric::StateWritten => counter(status.state_written_bytes),
        Metric::StateCompacted => counter(status.state_compacted_bytes),
        Metric::Watermark => optional(status.watermark_ms.map(|ms| ms as f64 / 1_000.0)),
        Metric::WatermarkLag => {
            optional(status.watermark_ms.map(|ms| wall_ms.saturating_sub(ms) as f64 / 1_000.0))
        }
        Metric::RecordsIn => counter(status.records_in),
        Metric::RecordsOut => counter(status.rows_out),
        Metric::Filtered => counter(status.filtered),
        Metric::DeadLettered => counter(status.dead_letters),
        Metric::Rejected => {
            by_word(RejectKind::ALL.into_iter().map(|kind| (kind.name(), status.rejected.of(kind))))
        }
        Metric::Parked => counter(status.parked),
        Metric::OpenRecords => gauge(status.in_flight as f64),
        Metric::InFlight => loads(&metrics.partitions, |load| load.in_flight as f64),
        Metric::WindowUse => loads(&metrics.partitions, |load| load.window_fill),
        Metric::StartOffset => of_offsets(offsets, |at| Some(Value::Gauge(at.start?.0 as f64))),
        Metric::EndOffset => of_offsets(offsets, |at| Some(Value::Gauge(at.end.0 as f64))),
        Metric::Lag => of_offsets(offsets, |at| Some(Value::Gauge(at.lag? as f64))),
        Metric::OldestAge => of_offsets(offsets, |at| Some(Value::Gauge(at.oldest_age?.as_secs_f64()))),
        Metric::Removed => {
            let removed = offsets.removed.iter();
            let sample = |((topic, partition), count): (&(String, i32), &u64)| Sample {
                labels: vec![topic.clone(), partition.to_string()],
                value: Value::Counter(*count),
            };
            removed.map(sample).collect()
        }
        Metric::OffsetPolls => by_word([("ok", offsets.polls), ("failed", offsets.failed_polls)].into_iter()),
        Metric::Redelivered => counter(source.redeliveries),
        Metric::Released => counter(source.releases),
        Metric::Renewed => counter(source.renewals),
        Metric::LocksLost => counter(source.lost_locks),
        Metric::GivenUp => counter(metrics.given_up),
        Metric::AlreadyDecided => counter(status.already_decided),
        Metric::BelowFloor => counter(status.dropped_below_floor),
        Metric::CallsRunning => calls(status, |calls| Value::Gauge(calls.running as f64)),
        Metric::CallsWaiting => calls(status, |calls| Value::Gauge(calls.waiting as f64)),
        Metric::CallsDeferred => calls(status, |calls| Value::Gauge(calls.deferred as f64)),
        Metric::CallRetries => calls(status, |calls| Value::Counter(calls.retries)),
        Metric::CallsHeld => calls(status, |calls| Value::Gauge(f64::from(u8::from(calls.is_holding)))),
        Metric::CallOldestAge => calls(status, |calls| {
            Value::Gauge(calls.oldest.as_ref().map_or(0.0, |oldest| oldest.for_ms as f64 / 1e3))
        }),
        Metric::BoundBy => {
            let bound = status.bound_by.iter();
            bound.map(|bound| Sample { labels: vec![word(bound)], value: Value::Gauge(1.0) }).collect()
        }
        Metric::Checkpoints => by_word(metrics.checkpoints.iter().map(|(reason, count)| (*reason, *count))),
        Metric::LastCheckpoint => gauge(status.checkpoint.map_or(0.0, |checkpoint| checkpoint.0 as f64)),
        Metric::CheckpointDuration => histogram(&metrics.checkpoint_seconds),
        Metric::StepDuration => {
            let steps = metrics.step_seconds.iter();
            let sample = |(step, histogram): (&sharestream_core::CheckpointStep, _)| Sample {
                labels: vec![step.name().to_owned()],
                value: Value::Histogram(histogram),
            };
            steps.map(sample).collect()
        }
        Metric::CheckpointRecords => histogram(&metrics.checkpoint_records),
        Metric::CheckpointBytes => histogram(&metrics.checkpoint_bytes),
        Metric::DecidedOffsets => counter(metrics.decided_offsets),
        Metric::ManifestBytes => counter(metrics.manifest_bytes),
        Metric::ProbeFailures => counter(status.visible_failures),
        Metric::AbortedTransactions => counter(metrics.aborted_transactions),
    }
}

/// The word that a value has in JSON, too.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}

fn counter(count: u64) -> Vec<Sample<'static>> {
    vec![Sample { labels: Vec::new(), value: Value::Counter(count) }]
}

fn gauge(value: f64) -> Vec<Sample<'static>> {
    vec![Sample { labels: Vec::new(), value: Value::Gauge(value) }]
}

fn optional(value: Option<f64>) -> Vec<Sample<'static>> {
    value.map(gauge).unwrap_or_default()
}

fn histogram(histogram: &Histogram) -> Vec<Sample<'_>> {
    vec![Sample { labels: Vec::new(), value: Value::Histogram(histogram) }]
}

fn info(label: &str) -> Sample<'static> {
    Sample { labels: vec![label.to_owned()], value: Value::Info }
}

fn by_word<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> Vec<Sample<'static>> {
    counts
        .map(|(word, count)| Sample { labels: vec![word.to_owned()], value: Value::Counter(count) })
        .collect()
}

fn calls(status: &JobStatus, value: impl Fn(&CallStatus) -> Value<'static>) -> Vec<Sample<'static>> {
    let sample = |calls: &CallStatus| Sample { labels: vec![calls.name.clone()], value: value(calls) };
    status.calls.iter().map(sample).collect()
}

fn loads(partitions: &[PartitionLoad], value: impl Fn(&PartitionLoad) -> f64) -> Vec<Sample<'static>> {
    let sample = |load: &PartitionLoad| Sample {
        labels: vec![load.topic.to_string(), load.partition.to_string()],
        value: Value::Gauge(value(load)),
    };
    partitions.iter().map(sample).collect()
}

fn of_offsets(
    offsets: &Offsets,
    value: impl Fn(&PartitionOffsets) -> Option<Value<'static>>,
) -> Vec<Sample<'static>> {
    let sample = |((topic, partition), at): (&(String, i32), &PartitionOffsets)| {
        Some(Sample { labels: vec![topic.clone(), partition.to_string()], value: value(at)? })
    };
    offsets.partitions.iter().filter_map(sample).collect()
}
