//! What is exported, read back with a parser of others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use prometheus_parse::{Scrape, Value};
use sharestream_base::ids::{CheckpointId, Offset, PartitionIndex};
use sharestream_core::commit::AckMode;
use sharestream_core::source::PartitionLoad;
use sharestream_core::{BoundBy, CallStatus, RecordInWork};

use super::definitions::{Definition, Kind, Metric};
use super::exporter::encode;
use super::offsets::PartitionOffsets;
use super::values::Facts;

/// Facts that give every metric a value, each number another.
fn facts() -> Facts {
    let mut facts = Facts::default();
    let status = &mut facts.status;
    status.mode = Some(AckMode::AtLeastOnce);
    (status.records_in, status.rows_out, status.filtered, status.dead_letters) = (101, 102, 103, 104);
    (status.in_flight, status.attempts, status.visible_failures) = (105, 106, 107);
    (status.already_decided, status.dropped_below_floor) = (108, 109);
    status.checkpoint = Some(CheckpointId(110));
    let rejected = &mut status.rejected;
    (rejected.decode, rejected.transform, rejected.call, rejected.delivery_limit) = (130, 131, 132, 133);
    (status.state_bytes, status.state_written_bytes, status.state_compacted_bytes) = (112, 128, 129);
    let mut calls = CallStatus::default();
    calls.name = "rates".to_owned();
    (calls.running, calls.waiting, calls.retries, calls.deferred) = (134, 135, 136, 137);
    calls.is_holding = true;
    let (topic, partition, offset) = ("flights".to_owned(), 3, 1_001);
    calls.oldest = Some(RecordInWork { topic, partition, offset, for_ms: 138_500 });
    status.calls.push(calls);
    status.parked = 139;
    status.bound_by = Some(BoundBy::Circuit);
    (status.watermark_ms, facts.wall_ms) = (Some(134_500), 270_000);
    let metrics = &mut facts.metrics;
    (metrics.fenced, metrics.decided_offsets) = (111, 113);
    (metrics.manifest_bytes, metrics.aborted_transactions) = (114, 115);
    metrics.failures.insert("abort".to_owned(), 116);
    metrics.checkpoints.insert("rows", 117);
    let source = &mut metrics.source;
    (source.redeliveries, source.releases, source.renewals, source.lost_locks) = (118, 119, 120, 121);
    metrics.given_up = 122;
    let mut load = PartitionLoad::new(Arc::from("flights"), PartitionIndex(3));
    (load.in_flight, load.window_fill) = (123, 0.25);
    metrics.partitions.push(load);
    let key = ("flights".to_owned(), 3);
    let at = PartitionOffsets {
        start: Some(Offset(1_000)),
        log_start: Offset(0),
        end: Offset(1_124),
        lag: Some(124),
        oldest_age: Some(Duration::from_millis(2_500)),
    };
    facts.offsets.partitions.insert(key.clone(), at);
    facts.offsets.removed.insert(key, 125);
    (facts.offsets.polls, facts.offsets.failed_polls) = (126, 127);
    facts
}

fn parse(text: &str) -> Scrape {
    Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap()
}

#[test]
fn what_is_exported_is_what_is_defined_in_both_directions() {
    let text = encode("delayed-flights", "main", facts()).unwrap();
    let scrape = parse(&text);
    let exported: BTreeSet<&str> = scrape
        .samples
        .iter()
        // The parser leaves the sum and the count of a histogram as samples of their own.
        .map(|sample| match (&sample.value, sample.metric.as_str()) {
            (Value::Untyped(_), name) => {
                name.strip_suffix("_sum").or_else(|| name.strip_suffix("_count")).unwrap_or(name)
            }
            (_, name) => name,
        })
        .collect();
    let defined: BTreeSet<&str> = Metric::ALL.iter().map(|metric| metric.definition().name).collect();
    assert_eq!(exported, defined);
    for Definition { name, kind, labels, help, .. } in Metric::ALL.iter().map(|metric| metric.definition()) {
        assert_eq!(scrape.docs[name], help, "{name}");
        let wanted: BTreeSet<&str> = labels.iter().copied().chain(["job", "instance"]).collect();
        for sample in scrape.samples.iter().filter(|sample| sample.metric == name) {
            let given: BTreeSet<&str> = sample.labels.keys().map(String::as_str).collect();
            assert_eq!(given, wanted, "{name}");
            let fits = match kind {
                Kind::Counter => matches!(sample.value, Value::Counter(_)),
                Kind::Gauge | Kind::Info => matches!(sample.value, Value::Gauge(_)),
                Kind::Histogram => matches!(sample.value, Value::Histogram(_)),
            };
            assert!(fits, "{name}: {:?}", sample.value);
            assert_eq!(sample.labels.get("job"), Some("delayed-flights"));
        }
    }
}

#[test]
fn every_number_is_exported_under_its_own_name() {
    let text = encode("j", "i", facts()).unwrap();
    let samples: BTreeMap<String, f64> = parse(&text)
        .samples
        .into_iter()
        .filter_map(|sample| match sample.value {
            Value::Counter(value) | Value::Gauge(value) => {
                let result = sample.labels.get("result").map_or(String::new(), |result| format!(" {result}"));
                Some((sample.metric + &result, value))
            }
            Value::Histogram(_) | Value::Summary(_) | Value::Untyped(_) => None,
        })
        .collect();
    for (name, value) in [
        ("records_in_total", 101.0),
        ("records_out_total", 102.0),
        ("records_filtered_total", 103.0),
        ("records_dead_lettered_total", 104.0),
        ("open_checkpoint_records", 105.0),
        ("job_attempts_total", 106.0),
        ("visibility_probe_failures_total", 107.0),
        ("records_already_decided_total", 108.0),
        ("records_below_floor_total", 109.0),
        ("checkpoint_last_id", 110.0),
        ("job_fenced_total", 111.0),
        ("state_size_bytes", 112.0),
        ("state_written_bytes_total", 128.0),
        ("watermark_timestamp_seconds", 134.5),
        ("watermark_lag_seconds", 135.5),
        ("state_compacted_bytes_total", 129.0),
        ("checkpoint_decided_offsets_total", 113.0),
        ("checkpoint_manifest_bytes_total", 114.0),
        ("transactions_aborted_total", 115.0),
        ("job_failures_total", 116.0),
        ("checkpoints_total", 117.0),
        ("records_redelivered_total", 118.0),
        ("records_released_total", 119.0),
        ("record_lock_renewals_total", 120.0),
        ("record_locks_lost_total", 121.0),
        ("records_given_up_total", 122.0),
        ("records_parked_total", 139.0),
        ("calls_running", 134.0),
        ("calls_waiting", 135.0),
        ("call_retries_total", 136.0),
        ("calls_deferred", 137.0),
        ("calls_held", 1.0),
        ("call_oldest_age_seconds", 138.5),
        ("bound_by", 1.0),
        ("partition_in_flight_records", 123.0),
        ("partition_window_use_ratio", 0.25),
        ("partition_start_offset", 1_000.0),
        ("partition_end_offset", 1_124.0),
        ("partition_lag_records", 124.0),
        ("partition_oldest_undecided_age_seconds", 2.5),
        ("partition_removed_by_retention_records_total", 125.0),
        ("offset_polls_total ok", 126.0),
        ("offset_polls_total failed", 127.0),
        ("guarantee_info", 1.0),
        ("build_info", 1.0),
        ("job_state", 1.0),
    ] {
        assert_eq!(samples.get(&format!("sharestream_{name}")), Some(&value), "{name} in {samples:?}");
    }
    assert!(text.contains("mode=\"at-least-once\"") && text.contains("state=\"created\""), "{text}");
    assert!(text.contains("operator=\"rates\"") && text.contains("bound=\"circuit\""), "{text}");
}

#[test]
fn what_nobody_knows_yet_is_left_out() {
    let text = encode("j", "i", Facts::default()).unwrap();
    let scrape = parse(&text);
    for name in ["sharestream_guarantee_info", "sharestream_partition_lag_records"] {
        assert!(scrape.docs.contains_key(name) && scrape.samples.iter().all(|sample| sample.metric != name));
    }
}
