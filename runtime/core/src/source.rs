//! Sources: they acquire records, hand them on, and report what they handed on before each barrier.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use serde::Serialize;
use sharestream_base::ids::{CheckpointId, Offset, PartitionIndex};
use sharestream_base::{Clock, Instant};

use crate::decision::{Decisions, MemberDecisions, SourcePartition};
use crate::{Error, ErrorKind, Result};

/// What a source has next.
#[derive(Debug)]
pub enum SourceEvent {
    /// Rows, and the rows that could not be decoded.
    Records {
        /// Decoded rows, hidden columns at the end; `None` when every record was bad or a gap.
        rows: Option<RecordBatch>,
        /// Bad records, one row each; schema [`crate::coordinates::rejected_schema`].
        rejected: Option<RecordBatch>,
    },
    /// A poll came back empty: the source has run dry for now.
    Idle,
}

/// What has become of locks and deliveries since a source was made. Each counts records (offsets) and only rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceCounters {
    /// Locks that were started anew (KIP-1222).
    pub renewals: u64,
    /// Records given back to the group without a decision.
    pub releases: u64,
    /// Records that were handed out to this source and had been delivered before.
    pub redeliveries: u64,
    /// Records whose lock was lost before they were decided: connection, leader or member gone, or the lock ran out.
    pub lost_locks: u64,
}

impl SourceCounters {
    /// Adds what another source has counted.
    pub fn add(&mut self, other: &SourceCounters) {
        self.renewals += other.renewals;
        self.releases += other.releases;
        self.redeliveries += other.redeliveries;
        self.lost_locks += other.lost_locks;
    }
}

/// How often a record has been delivered, and how often it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// Partition of the record.
    pub partition: SourcePartition,
    /// Its offset.
    pub offset: Offset,
    /// Deliveries so far, this one included.
    pub count: u16,
    /// The group's limit: given back after this many, a record is archived by the broker.
    pub limit: u16,
}

impl Delivery {
    /// Deliveries that are left after this one.
    pub fn left(&self) -> u16 {
        self.limit.saturating_sub(self.count)
    }
}

/// How much a source holds acquired, and how close its lock windows are to full.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InFlight {
    /// Records handed on since the last barrier.
    pub record_count: u64,
    /// Their payload bytes.
    pub byte_count: u64,
    /// The fullest lock window of any partition, 0.0 (empty) to 1.0 (the broker hands out nothing more).
    pub window_fill: f64,
    /// Records that this source was given although a committed claim had decided them: acknowledged, not handed on
    /// (ledger mode). Counted since the source was made.
    pub already_decided: u64,
    /// The same for records below the floor, where the claims are gone.
    pub below_floor: u64,
    /// Locks and deliveries since the source was made.
    pub counters: SourceCounters,
    /// Of the records that this source holds undecided, the one with the fewest deliveries left; `None` while no record
    /// is near its limit.
    pub nearest_limit: Option<Delivery>,
    /// The epoch is to be closed as soon as one is open: what was handed on last, or comes next, is a record near its
    /// delivery limit, which shares its epoch with as little as possible (DESIGN section 5).
    pub wants_barrier: bool,
}

/// What a source holds of one partition.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartitionLoad {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: PartitionIndex,
    /// Offsets that were handed on and whose epoch has not committed, gaps included.
    pub in_flight: u64,
    /// How full the lock window is, 0.0 (empty) to 1.0 (the broker hands out nothing more).
    pub window_fill: f64,
}

impl PartitionLoad {
    /// An empty load of this partition.
    pub fn new(topic: Arc<str>, partition: PartitionIndex) -> Self {
        PartitionLoad { topic, partition, in_flight: 0, window_fill: 0.0 }
    }
}

/// Figures of one source subtask that only monitoring asks for: no decision hangs on them.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SourceMetrics {
    /// Records near the delivery limit that were given up before the broker would drop them, since the source was made.
    pub given_up: u64,
    /// What is held of each partition that holds anything, in order of topic and partition.
    pub partitions: Vec<PartitionLoad>,
}

/// What a source subtask closed with a barrier.
#[derive(Clone, Debug, Default)]
pub struct SourceReport {
    /// Default decisions (ACCEPT, REJECT of bad records, GAP) on everything handed on since the last barrier, by
    /// member. The coordinator overlays the rejections of operators.
    pub decided: Vec<MemberDecisions>,
    /// Records handed on, bad ones included, gaps not.
    pub record_count: u64,
    /// Payload bytes handed on.
    pub byte_count: u64,
}

/// Where a source goes back to when an attempt follows a failed one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rewind {
    /// The last committed checkpoint, as recovery has found it.
    pub last_committed: Option<CheckpointId>,
    /// Acknowledgements of epochs up to this one may have been staged, those of later ones were not.
    pub staged_up_to: Option<CheckpointId>,
}

/// The source of one subtask. Owned by its source task, which calls one method at a time.
#[async_trait]
pub trait Source: Send {
    /// The next records. Cancel safe: the task drops the call when a control message comes.
    async fn next(&mut self) -> Result<SourceEvent>;

    /// When [`Source::maintain`] is due; `None` while there is nothing to look after. Asked before every wait.
    fn maintain_at(&self) -> Option<Instant> {
        None
    }

    /// Does what must not wait for the job, such as renewing the locks of what is held. Called once
    /// [`Source::maintain_at`] has come, whatever the task waits for: records, commands, or room in a full channel.
    /// Errors: `Abort` when something was lost that an epoch holds. Cancel safe. Does nothing by default.
    async fn maintain(&mut self) -> Result<()> {
        Ok(())
    }

    /// Closes the epoch of `checkpoint`: reports everything handed on since the last barrier. Not cancel safe.
    async fn barrier(&mut self, checkpoint: CheckpointId) -> Result<SourceReport>;

    /// Load of this subtask, read after each event.
    fn in_flight(&self) -> InFlight;

    /// Figures for monitoring, read now and then and after every command. Nothing by default.
    fn metrics(&self) -> SourceMetrics {
        SourceMetrics::default()
    }

    /// These offsets, reported at the barrier of `checkpoint` or carried over to it, are still being worked on: they are
    /// not decided in its epoch but in a later one (DESIGN section 6). Called between that barrier and
    /// [`Source::committed`], only when there are such offsets of any source subtask; the source picks out its own, keeps
    /// their locks and counts them as held. Each call replaces the one before. Not cancel safe. Does nothing by default.
    async fn deferred(&mut self, checkpoint: CheckpointId, offsets: &Decisions) -> Result<()> {
        let _no_locks_to_keep = (checkpoint, offsets);
        Ok(())
    }

    /// Whether [`Source::release`] can be called. No by default.
    fn can_release(&self) -> bool {
        false
    }

    /// Gives these offsets, handed on since the last barrier, back to whoever they came from, undecided: the next barrier
    /// does not report them. Called only for a [`Session`](crate::session::Session). Not cancel safe. Errors by default.
    async fn release(&mut self, offsets: &Decisions) -> Result<()> {
        let _still_held = offsets;
        Err(Error::new(ErrorKind::Bug, "this source cannot give single records back"))
    }

    /// The epoch is committed and the share acknowledgements are final. Not cancel safe.
    async fn committed(&mut self, checkpoint: CheckpointId) -> Result<()>;

    /// Stops acquiring: what was acquired and not handed on is given back. [`Source::next`] is not called again, but
    /// for what [`Source::has_rest`] says; barriers still come. Not cancel safe.
    async fn stop_acquiring(&mut self) -> Result<()>;

    /// True when something is left after [`Source::stop_acquiring`] that must not be given back: it is handed on by
    /// [`Source::next`], without a wait, and decided by the last checkpoint. False by default.
    fn has_rest(&self) -> bool {
        false
    }

    /// The attempt has failed, and another may follow: acquires nothing for now, and holds on to what it has, to be looked
    /// after by [`Source::maintain`] and taken back by [`Source::rewind`]. False, the default: it cannot, and is closed.
    /// Errors: something was lost; it is closed. Not cancel safe.
    async fn keep(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// After [`Source::keep`], in the next attempt: from now on [`Source::next`] hands on again, in order and undecided,
    /// everything that was handed on and that no committed epoch has decided; what may have been staged is forgotten.
    /// The epochs of the failed attempt are gone. False or an error: it cannot, and is closed. Not cancel safe.
    async fn rewind(&mut self, to: Rewind) -> Result<bool> {
        let _nothing_kept = to;
        Ok(false)
    }

    /// Leaves the group and closes connections; records handed on and not committed go back to the group.
    async fn close(&mut self) -> Result<()>;
}

/// Waits for `work`, and looks after what the source holds meanwhile: its locks would run out in front of a full channel
/// or a slow sink.
pub(crate) async fn maintained<T, E: From<Error>>(
    source: &mut dyn Source,
    clock: &Clock,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::pin!(work);
    loop {
        let maintain_at = source.maintain_at();
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = clock.sleep_until_any(maintain_at) => source.maintain().await?,
        }
    }
}

/// Makes one source for each subtask.
#[async_trait]
pub trait SourceFactory: Send + Sync {
    /// Name for logs and status.
    fn name(&self) -> &str;
    /// Schema of the rows: the user's columns, then the hidden ones.
    fn schema(&self) -> SchemaRef;
    /// Who makes these sources: equal for factories whose sources may follow each other under [`Source::rewind`], over the
    /// attempts of a job. `None`, the default: sources of this factory are not kept.
    fn maker(&self) -> Option<usize> {
        None
    }
    /// Connects the source of one subtask.
    async fn create(&self, subtask: usize) -> Result<Box<dyn Source>>;
}
