//! What a node counts (KIP-1289, KIP-1191): names are those of Kafka's `kafka.server:type=ShareGroupMetrics`, as far as
//! the drafts and releases have one.
//!
//! Counters begin with the node's incarnation; gauges are read when they are asked for.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::broker_cluster::BrokerCluster;
use crate::node::Node;

/// Upper bounds of the latency buckets, in microseconds; what is slower is in a last bucket of its own.
const BUCKETS_US: [u64; 16] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];

/// A latency histogram of fixed buckets.
#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS_US.len() + 1],
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

impl Histogram {
    fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let place = BUCKETS_US.partition_point(|bound| *bound < us);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(us, Ordering::Relaxed);
        self.max_us.fetch_max(us, Ordering::Relaxed);
    }

    fn snapshot(&self) -> LatencySnapshot {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let (count, max_us) = (counts.iter().sum::<u64>(), self.max_us.load(Ordering::Relaxed));
        let quantile_ms = |percent: u64| {
            let rank = (count * percent).div_ceil(100).max(1);
            let mut seen = 0;
            let place = counts.iter().position(|bucket| {
                seen += bucket;
                seen >= rank
            });
            let bound = place.and_then(|place| BUCKETS_US.get(place)).copied().unwrap_or(max_us);
            ms(bound.min(max_us))
        };
        let mean_us = self.sum_us.load(Ordering::Relaxed).checked_div(count).unwrap_or(0);
        LatencySnapshot {
            count,
            mean_ms: ms(mean_us),
            p50_ms: quantile_ms(50),
            p99_ms: quantile_ms(99),
            max_ms: ms(max_us),
        }
    }
}

fn ms(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64() * 1_000.0
}

/// What a node counts while it runs.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    stages: Histogram,
    letters_written: AtomicU64,
    letters_failed: AtomicU64,
    pending_lock_expired: AtomicU64,
}

impl Metrics {
    /// A TxnShareAcknowledge request was answered, well or not.
    pub(crate) fn stage_answered(&self, took: Duration) {
        self.stages.record(took);
    }

    /// Dead letters are in their topic.
    pub(crate) fn letters_written(&self, count: i64) {
        self.letters_written.fetch_add(count.unsigned_abs(), Ordering::Relaxed);
    }

    /// Records were archived without their dead letters.
    pub(crate) fn letters_failed(&self, count: i64) {
        self.letters_failed.fetch_add(count.unsigned_abs(), Ordering::Relaxed);
    }

    /// A lock took staged records back, which must not be.
    pub(crate) fn pending_lock_expired(&self, count: u64) {
        self.pending_lock_expired.fetch_add(count, Ordering::Relaxed);
    }
}

/// Times of one kind of request, in milliseconds. Quantiles are upper bounds of buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySnapshot {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_ms: f64,
    /// Half were at most so long.
    pub p50_ms: f64,
    /// 99 of 100 were at most so long.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// What one node counts, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeMetrics {
    /// The node.
    pub node: i32,
    /// Gauge: records of share partitions loaded here that are staged into open transactions.
    pub txn_pending_records_count: u64,
    /// Histogram: TxnShareAcknowledge from request to answer.
    pub txn_share_acknowledge_request_latency_ms: LatencySnapshot,
    /// Counter, and an alarm: staged records that a lock expiry took back. Anything but 0 is a defect of the broker.
    pub txn_pending_lock_expired_count: u64,
    /// Counter: dead letters that were written (KIP-1191).
    pub dead_letters_written_count: u64,
    /// Counter: records that were archived without their dead letter.
    pub dead_letters_failed_count: u64,
    /// Gauge: ends of transactions that the share coordinators here remember, to refuse late stages.
    pub txn_remembered_markers_count: u64,
}

impl NodeMetrics {
    fn of(node: &Node) -> NodeMetrics {
        let leaders = node.share.manager.loaded();
        let pending =
            leaders.iter().filter_map(|leader| leader.with(|partition| partition.pending_count()).ok());
        let metrics = &node.metrics;
        NodeMetrics {
            node: node.id.0,
            txn_pending_records_count: pending.sum(),
            txn_share_acknowledge_request_latency_ms: metrics.stages.snapshot(),
            txn_pending_lock_expired_count: metrics.pending_lock_expired.load(Ordering::Relaxed),
            dead_letters_written_count: metrics.letters_written.load(Ordering::Relaxed),
            dead_letters_failed_count: metrics.letters_failed.load(Ordering::Relaxed),
            txn_remembered_markers_count: node.share.coordinator.remembered_markers(),
        }
    }
}

impl BrokerCluster {
    /// What each running node counts, by id.
    pub fn metrics(&self) -> Vec<NodeMetrics> {
        self.all_running().iter().map(|node| NodeMetrics::of(node)).collect()
    }

    /// The same as text, in the form that Prometheus reads.
    pub fn metrics_text(&self) -> String {
        const GROUP: &str = "kafka_server_ShareGroupMetrics";
        let mut text = String::new();
        for one in self.metrics() {
            let latency = one.txn_share_acknowledge_request_latency_ms;
            let values = [
                ("TxnPendingRecordsCount", one.txn_pending_records_count as f64),
                ("TxnShareAcknowledgeRequestLatencyMs_count", latency.count as f64),
                ("TxnShareAcknowledgeRequestLatencyMs_mean", latency.mean_ms),
                ("TxnShareAcknowledgeRequestLatencyMs_p50", latency.p50_ms),
                ("TxnShareAcknowledgeRequestLatencyMs_p99", latency.p99_ms),
                ("TxnShareAcknowledgeRequestLatencyMs_max", latency.max_ms),
                ("TxnPendingLockExpiredCount", one.txn_pending_lock_expired_count as f64),
                ("DeadLettersWrittenCount", one.dead_letters_written_count as f64),
                ("DeadLettersFailedCount", one.dead_letters_failed_count as f64),
                ("TxnRememberedMarkersCount", one.txn_remembered_markers_count as f64),
            ];
            for (name, value) in values {
                // Writing to a string does not fail.
                let _infallible = writeln!(text, "{GROUP}_{name}{{node=\"{}\"}} {value}", one.node);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds_of_buckets_and_never_above_the_longest() {
        let histogram = Histogram::default();
        assert_eq!(histogram.snapshot(), LatencySnapshot::default());
        for us in [150, 150, 150, 4_200] {
            histogram.record(Duration::from_micros(us));
        }
        let found = histogram.snapshot();
        assert_eq!((found.count, found.p50_ms, found.p99_ms, found.max_ms), (4, 0.2, 4.2, 4.2));
        assert!((found.mean_ms - 1.162).abs() < 1e-9);
        histogram.record(Duration::from_secs(60));
        assert_eq!(histogram.snapshot().p99_ms, 60_000.0);
    }
}
