//! The watermark of a job, from checkpoint to checkpoint. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sharestream_base::Instant;
use sharestream_checkpoints::EventTimeSnapshot;

use super::partition::PartitionProgress;
use super::{EventTime, EventTimes, Standing, Watermark};
use crate::decision::{MemberDecisions, SourcePartition};

/// What a sealed epoch tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SealedTimes<'a> {
    /// What it decides.
    pub(crate) decided: &'a [MemberDecisions],
    /// What operators still work on.
    pub(crate) deferred: &'a [MemberDecisions],
    /// Of the records that were handed on since the epoch before.
    pub(crate) times: &'a EventTimes,
}

#[derive(Clone, Debug)]
struct Partition {
    progress: PartitionProgress,
    /// When something of it last came.
    active_at: Instant,
    has_deferred: bool,
    standing: Option<Standing>,
}

/// The event time of all partitions, as of the last sealed epoch.
#[derive(Clone, Debug)]
pub(crate) struct Watermarks {
    settings: EventTime,
    partitions: BTreeMap<SourcePartition, Partition>,
    /// Never falls, over restarts either.
    watermark: Option<Watermark>,
    started_at: Instant,
    /// Sources say where the group stands, so nothing is guessed.
    has_standing: bool,
}

impl Watermarks {
    /// As the last committed checkpoint has it.
    pub(crate) fn restore(settings: EventTime, snapshot: Option<&EventTimeSnapshot>, now: Instant) -> Self {
        let partitions = snapshot.map_or(&[][..], |snapshot| &snapshot.partitions).iter().map(|times| {
            let source = SourcePartition { topic_id: times.topic_id, partition: times.partition };
            let progress = PartitionProgress::restore(times);
            (source, Partition { progress, active_at: now, has_deferred: false, standing: None })
        });
        Watermarks {
            settings,
            partitions: partitions.collect(),
            watermark: snapshot.and_then(|snapshot| snapshot.watermark_ms).map(Watermark),
            started_at: now,
            has_standing: true,
        }
    }

    /// What a checkpoint keeps.
    pub(crate) fn snapshot(&self) -> EventTimeSnapshot {
        let partitions = self
            .partitions
            .iter()
            .map(|(source, partition)| partition.progress.snapshot(source.topic_id, source.partition));
        EventTimeSnapshot {
            watermark_ms: self.watermark.map(|watermark| watermark.0),
            partitions: partitions.collect(),
        }
    }

    /// The watermark as of the last sealed epoch.
    pub(crate) fn watermark(&self) -> Option<Watermark> {
        self.watermark
    }

    /// Where the group stands at the start of an attempt, as [`Watermarks::stands`]. What the group does not know of any more,
    /// such as a topic that was created again, is forgotten: its holes would never close.
    pub(crate) fn begin(&mut self, standing: Option<&BTreeMap<SourcePartition, Standing>>) {
        if let Some(standing) = standing {
            self.partitions.retain(|source, _| standing.contains_key(source));
        }
        self.stands(standing);
    }

    /// Where the group stands. `None`: the sources cannot say, so a partition begins with what is decided first of it.
    pub(crate) fn stands(&mut self, standing: Option<&BTreeMap<SourcePartition, Standing>>) {
        self.has_standing = standing.is_some();
        for (source, standing) in standing.into_iter().flatten() {
            let partition = partition(&mut self.partitions, *source, self.started_at);
            partition.progress.raise(standing.start_offset);
            partition.standing = Some(*standing);
        }
    }

    /// An epoch is sealed: what it decides, and with it the watermark, is in the checkpoint.
    pub(crate) fn seal(&mut self, sealed: SealedTimes<'_>, now: Instant) {
        for (source, times) in sealed.times {
            let partition = partition(&mut self.partitions, *source, now);
            partition.active_at = now;
            times.iter().for_each(|(offset, time)| partition.progress.mark(*offset, *time));
        }
        let mut touched = BTreeSet::new();
        for (source, range) in sealed.decided.iter().flat_map(|member| member.decisions.ranges()) {
            let partition = partition(&mut self.partitions, source, now);
            partition.active_at = now;
            partition.progress.decide(range.first, range.last);
            touched.insert(source);
        }
        let deferred: BTreeSet<SourcePartition> =
            sealed.deferred.iter().flat_map(|member| member.decisions.partitions()).collect();
        for (source, partition) in &mut self.partitions {
            partition.has_deferred = deferred.contains(source);
            if touched.contains(source) && !self.has_standing {
                partition.progress.begin_at_first();
            }
        }
        self.advance(now);
    }

    /// Rises as far as what is known allows: time makes partitions idle.
    pub(crate) fn advance(&mut self, now: Instant) {
        let is_idle = |partition: &&Partition| partition.is_idle(self.settings.idle_timeout, now);
        let mut lowest: Option<i64> = None;
        for partition in self.partitions.values().filter(|partition| !is_idle(partition)) {
            let Some(max_ms) = partition.progress.max_ms().filter(|_| partition.progress.is_started()) else {
                return;
            };
            lowest = Some(lowest.map_or(max_ms, |lowest| lowest.min(max_ms)));
        }
        if self.partitions.values().all(|partition| is_idle(&partition)) {
            lowest = self.last_to_be_idle();
        }
        let Some(lowest) = lowest else { return };
        let bound_ms = i64::try_from(self.settings.max_out_of_orderness.as_millis()).unwrap_or(i64::MAX);
        let reached = Watermark(lowest.saturating_sub(bound_ms).saturating_sub(1));
        self.watermark = self.watermark.max(Some(reached));
    }

    /// The lowest time of the partitions that fell idle last, while all are: nobody may have looked in between.
    fn last_to_be_idle(&self) -> Option<i64> {
        let times = self.partitions.values().filter_map(|partition| {
            let max_ms = partition.progress.max_ms()?;
            Some((partition.active_at, max_ms))
        });
        let last_at = times.clone().map(|(active_at, _)| active_at).max()?;
        times.filter(|(active_at, _)| *active_at == last_at).map(|(_, max_ms)| max_ms).min()
    }
}

impl Partition {
    /// It does not hold the watermark: nothing came for long, and nothing that is known of is undecided.
    fn is_idle(&self, timeout: Option<Duration>, now: Instant) -> bool {
        let Some(timeout) = timeout else { return false };
        let end = self.standing.and_then(|standing| standing.end_offset);
        now.duration_since(self.active_at) >= timeout
            && !self.has_deferred
            && self.progress.is_decided_up_to(end)
    }
}

fn partition(
    partitions: &mut BTreeMap<SourcePartition, Partition>,
    source: SourcePartition,
    now: Instant,
) -> &mut Partition {
    partitions.entry(source).or_insert_with(|| Partition {
        progress: PartitionProgress::default(),
        active_at: now,
        has_deferred: false,
        standing: None,
    })
}
