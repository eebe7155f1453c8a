//! Every metric, defined once: what is exported and what `docs/metrics.md` says come from this table.

use Kind::{Counter, Gauge, Histogram, Info};

/// What a metric is, in Prometheus' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A count that only rises until the process ends; its name ends in `_total`.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// Counts of values by size: `_bucket`, `_sum` and `_count`.
    Histogram,
    /// Always 1; what it says is in its labels, and its name ends in `_info`.
    Info,
}

/// What metrics are about: the parts of the page.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Job,
    Records,
    Partitions,
    Deliveries,
    Calls,
    Checkpoints,
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Definition {
    /// Its name, with the suffix of its kind.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) kind: Kind,
    /// What it is about.
    #[cfg(test)]
    pub(crate) topic: Topic,
    /// Its labels beside `job` and `instance`.
    pub(crate) labels: &'static [&'static str],
    /// What it counts or measures: one line, with its unit.
    pub(crate) help: &'static str,
}

/// Declares the enum and its table together, so that neither can be without the other.
macro_rules! metrics {
    ($($metric:ident: $name:literal, $kind:ident, $topic:ident, $labels:expr, $help:literal;)*) => {
        /// The metrics, in the order in which they are exported.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Metric {
            $($metric,)*
        }

        impl Metric {
            /// All of them.
            pub(crate) const ALL: &'static [Metric] = &[$(Metric::$metric,)*];

            /// What this one is.
            pub(crate) fn definition(self) -> Definition {
                match self {
                    $(Metric::$metric => Definition {
                        name: $name,
                        kind: $kind,
                        #[cfg(test)]
                        topic: Topic::$topic,
                        labels: &$labels,
                        help: $help,
                    },)*
                }
            }
        }
    };
}

metrics! {
    Build: "sharestream_build_info", Info, Job, ["version"],
        "Version of the command";
    Guarantee: "sharestream_guarantee_info", Info, Job, ["mode"],
        "Guarantee of the run: transactional and ledger are exactly once, at-least-once may double records \
         after a crash";
    State: "sharestream_job_state", Gauge, Job, ["state"],
        "1 for the state in which the job is: created, recovering, connecting, running, draining, failing, \
         backing_off, ended";
    Attempts: "sharestream_job_attempts_total", Counter, Job, [],
        "Attempts started: 1 for a job that never failed";
    Failures: "sharestream_job_failures_total", Counter, Job, ["kind"],
        "Attempts failed, by kind of error: abort, retry and indeterminate are followed by another attempt";
    Fenced: "sharestream_job_fenced_total", Counter, Job, [],
        "Attempts failed because a newer incarnation, or a broker, had fenced them";
    StateSize: "sharestream_state_size_bytes", Gauge, Job, [],
        "Size of the operators' state in memory at the last checkpoint, in bytes; 0 for a stateless job";
    StateWritten: "sharestream_state_written_bytes_total", Counter, Job, [],
        "Changed state that committed checkpoints have written, in bytes";
    StateCompacted: "sharestream_state_compacted_bytes_total", Counter, Job, [],
        "State that committed checkpoints have written beside, so that old parts can go, in bytes";

    Watermark: "sharestream_watermark_timestamp_seconds", Gauge, Job, [],
        "Watermark of the last committed checkpoint, Unix time: records up to it are not waited for any more; left out \
         without event time, and until every partition that is not idle has told a time";
    WatermarkLag: "sharestream_watermark_lag_seconds", Gauge, Job, [],
        "How far the watermark is behind the clock of this process, in seconds; left out likewise";

    RecordsIn: "sharestream_records_in_total", Counter, Records, [],
        "Source records of committed checkpoints, bad ones included, gaps not";
    RecordsOut: "sharestream_records_out_total", Counter, Records, [],
        "Records written to the output topic by committed checkpoints";
    Filtered: "sharestream_records_filtered_total", Counter, Records, [],
        "Rows that operators of committed checkpoints dropped with no effect";
    DeadLettered: "sharestream_records_dead_lettered_total", Counter, Records, [],
        "Records written to the dead letter topic by committed checkpoints";
    Rejected: "sharestream_records_rejected_total", Counter, Records, ["kind"],
        "Rows that committed checkpoints rejected, as dead letters or without, by kind of error: decode, transform, \
         call, delivery-limit, too-large";
    Parked: "sharestream_records_parked_total", Counter, Records, [],
        "Records that committed checkpoints copied to the parking topic, each time counted; they count as records in \
         again when they come from there";
    OpenRecords: "sharestream_open_checkpoint_records", Gauge, Records, [],
        "Records handed on since the last barrier: what the next checkpoint will hold so far";

    InFlight: "sharestream_partition_in_flight_records", Gauge, Partitions, ["topic", "partition"],
        "Offsets that this process holds: handed on, and not in a committed checkpoint yet, gaps included";
    WindowUse: "sharestream_partition_window_use_ratio", Gauge, Partitions, ["topic", "partition"],
        "Use of the lock window (share.partition.max.record.locks) by this process, 0 to 1: at 1 the \
         broker hands out nothing more";
    StartOffset: "sharestream_partition_start_offset", Gauge, Partitions, ["topic", "partition"],
        "Start offset of the share partition: everything below is decided";
    EndOffset: "sharestream_partition_end_offset", Gauge, Partitions, ["topic", "partition"],
        "End offset of the partition";
    Lag: "sharestream_partition_lag_records", Gauge, Partitions, ["topic", "partition"],
        "Records that the group has not decided: the broker's count, or end offset minus start offset \
         where it gives none";
    OldestAge: "sharestream_partition_oldest_undecided_age_seconds", Gauge, Partitions, ["topic", "partition"],
        "Age of the oldest undecided record, by its timestamp, in seconds; 0 where all is decided";
    Removed: "sharestream_partition_removed_by_retention_records_total", Counter, Partitions, ["topic", "partition"],
        "Offsets that the start of the log passed before they were seen to be decided: lost to the group";
    OffsetPolls: "sharestream_offset_polls_total", Counter, Partitions, ["result"],
        "Times that the brokers were asked for these offsets: ok or failed; after a failure the offsets \
         are left out until the next success";

    Redelivered: "sharestream_records_redelivered_total", Counter, Deliveries, [],
        "Offsets acquired that had been delivered before, gaps included";
    Released: "sharestream_records_released_total", Counter, Deliveries, [],
        "Records given back undecided, so that others may have them at once";
    Renewed: "sharestream_record_lock_renewals_total", Counter, Deliveries, [],
        "Records whose locks were renewed, each renewal counted";
    LocksLost: "sharestream_record_locks_lost_total", Counter, Deliveries, [],
        "Records whose locks were lost before they were decided; the checkpoint that holds them is given up";
    GivenUp: "sharestream_records_given_up_total", Counter, Deliveries, [],
        "Records that were not processed because a further delivery could have been their last: \
         dead-lettered or rejected";
    AlreadyDecided: "sharestream_records_already_decided_total", Counter, Deliveries, [],
        "Deliveries that a committed claim had decided, acknowledged and not processed again (ledger \
         mode); starts anew with each attempt";
    BelowFloor: "sharestream_records_below_floor_total", Counter, Deliveries, [],
        "Deliveries below the floor, where all is decided (ledger mode); starts anew with each attempt";

    CallsRunning: "sharestream_calls_running", Gauge, Calls, ["operator"],
        "Calls that run";
    CallsWaiting: "sharestream_calls_waiting", Gauge, Calls, ["operator"],
        "Rows that wait for a call, first or repeated";
    CallsDeferred: "sharestream_calls_deferred", Gauge, Calls, ["operator"],
        "Rows that the last barrier passed while they were worked on: a later checkpoint commits them";
    CallRetries: "sharestream_call_retries_total", Counter, Calls, ["operator"],
        "Calls that were repeated; starts anew with each attempt";
    CallsHeld: "sharestream_calls_held", Gauge, Calls, ["operator"],
        "1 while everything fails, so that nothing is called but one record now and then; else 0";
    CallOldestAge: "sharestream_call_oldest_age_seconds", Gauge, Calls, ["operator"],
        "How long the record that came first is worked on, in seconds; 0 while none is. It holds back its partition";
    BoundBy: "sharestream_bound_by", Gauge, Calls, ["bound"],
        "1 for what bounds the rate just now, where it is known: source, concurrency, lock_window, circuit";

    Checkpoints: "sharestream_checkpoints_total", Counter, Checkpoints, ["reason"],
        "Committed checkpoints, by what caused them: idle, near_limit, rows, bytes, window, interval, request, \
         watermark, drain";
    LastCheckpoint: "sharestream_checkpoint_last_id", Gauge, Checkpoints, [],
        "Number of the last committed checkpoint; 0 before the first";
    CheckpointDuration: "sharestream_checkpoint_duration_seconds", Histogram, Checkpoints, [],
        "From sending the barrier to the known commit, in seconds";
    StepDuration: "sharestream_checkpoint_step_duration_seconds", Histogram, Checkpoints, ["step"],
        "Time of each step of committed checkpoints, in seconds: align, flush, manifest, outcome, stage, \
         end_txn, complete, visible (a sample)";
    CheckpointRecords: "sharestream_checkpoint_records", Histogram, Checkpoints, [],
        "Source records of a committed checkpoint";
    CheckpointBytes: "sharestream_checkpoint_payload_bytes", Histogram, Checkpoints, [],
        "Keys, values and headers of the source records of a committed checkpoint, in bytes";
    DecidedOffsets: "sharestream_checkpoint_decided_offsets_total", Counter, Checkpoints, [],
        "Offsets that committed checkpoints decided, gaps included: what the stage step acknowledges";
    ManifestBytes: "sharestream_checkpoint_manifest_bytes_total", Counter, Checkpoints, [],
        "Bytes of pending manifests of committed checkpoints: what the manifest step writes";
    ProbeFailures: "sharestream_visibility_probe_failures_total", Counter, Checkpoints, [],
        "Committed checkpoints whose visible step could not be measured";
    AbortedTransactions: "sharestream_transactions_aborted_total", Counter, Checkpoints, [],
        "Transactions aborted because their attempt failed; their records come again";
}
