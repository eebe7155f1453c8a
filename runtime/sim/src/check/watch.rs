//! Looks at the brokers while a run goes on: what must only move forward, and what must never be undone.
//!
//! Everything is read at one moment, between two lines of any process, so the parts of a sample fit together: a
//! rule that names two of them (acknowledged, therefore committed) may be applied to the sample as it is.
//!
//! Replaying the brokers' own topics costs in proportion to their length. So a full look is taken only after
//! something was written, and the rarer the longer they are: see [`Pace`]. What it depends on is the same in every run
//! of a seed.

mod logs;
mod outcomes;
mod shares;
mod transactions;

use std::collections::BTreeMap;

use sharestream_base::ids::{JobEpoch, Offset, PartitionIndex, TopicId};
use sharestream_broker::inspect::{BatchView, PartitionView, SharePartitionView, TransactionView};
use sharestream_broker::{BrokerCluster, GROUP_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC};
use sharestream_kafka::outcome::ReplayGeneration;

use super::{Checker, Finding, Place};
use crate::plan::Plan;
use crate::workload::{DEAD_LETTERS, GROUP, OUTCOMES, OUTPUT, SOURCE};
use logs::LogWatch;
use outcomes::OutcomeWatch;
pub(super) use outcomes::{Said, Seen as SeenOutcome};
use shares::ShareWatch;
pub(super) use shares::{Done, LastSeen};
use transactions::TransactionWatch;

/// Records of the brokers' own topics for which one step is waited between two full looks.
const RECORDS_PER_STEP: i64 = 400;

/// Remembers what was seen, and finds what contradicts it.
#[derive(Debug)]
pub(crate) struct Watch {
    logs: LogWatch,
    shares: ShareWatch,
    transactions: TransactionWatch,
    outcomes: OutcomeWatch,
    /// The outcome topic is compacted.
    is_ledger: bool,
    /// How far the log of the share coordinator is read, by partition.
    share_state_read: BTreeMap<PartitionIndex, Offset>,
    pace: Pace,
}

/// One full look: parts of it may be made by hand.
#[derive(Debug, Default)]
struct Sample {
    partitions: Vec<PartitionView>,
    shares: Vec<SharePartitionView>,
    transactions: Vec<TransactionView>,
    /// Batches of partitions that have grown since the last look.
    batches: Vec<(PartitionView, Vec<BatchView>)>,
}

/// When the next full look is due.
#[derive(Debug, Default)]
struct Pace {
    /// Log ends of the last full look.
    ends: BTreeMap<(TopicId, PartitionIndex), (i64, i64)>,
    steps: i64,
}

impl Watch {
    /// Nothing was seen yet.
    pub(crate) fn new(plan: &Plan) -> Self {
        Watch {
            logs: LogWatch::default(),
            shares: ShareWatch::new(plan),
            transactions: TransactionWatch::default(),
            outcomes: OutcomeWatch::new(plan.ledger.is_some()),
            is_ledger: plan.ledger.is_some(),
            share_state_read: BTreeMap::new(),
            pace: Pace::default(),
        }
    }

    /// Looks once. Cheap: most calls compare a few numbers for each partition.
    pub(crate) fn look(&mut self, cluster: &BrokerCluster) -> Vec<Finding> {
        let partitions = cluster.partitions();
        let mut found = self.logs.ends(&partitions);
        // Before any of it can be compacted away.
        for view in partitions.iter().filter(|view| self.is_ledger && view.topic == OUTCOMES) {
            if self.outcomes.has_grown(view) {
                self.outcomes.read(view.partition, &cluster.batches(&view.topic, view.partition));
                self.outcomes.has_read(view);
            }
        }
        // Before the log is cut.
        let written = cluster.share_state_written(&mut self.share_state_read);
        for written in written.into_iter().filter(|written| written.group == GROUP) {
            self.shares.take_written(written);
        }
        if self.pace.is_due(&partitions) {
            found.extend(self.look_fully(cluster, partitions));
        }
        found
    }

    /// Looks at everything, whatever was written since.
    pub(crate) fn look_last(&mut self, cluster: &BrokerCluster) -> Vec<Finding> {
        self.pace = Pace::default();
        self.look(cluster)
    }

    /// What the group's durable state said last of a source record.
    pub(super) fn last_seen(&self, topic_id: TopicId, place: Place) -> LastSeen {
        self.shares.last_seen(topic_id, place)
    }

    /// Incarnations of a replica, in order of the owner records that were read so far.
    pub(crate) fn owners(&self, instance: &str) -> &[JobEpoch] {
        self.outcomes.owners(instance)
    }

    /// Everything that the outcome topic has held, in order.
    pub(super) fn outcome_topic(&self) -> Vec<SeenOutcome<'_>> {
        self.outcomes.all()
    }

    /// The newest replay generation that has begun.
    pub(super) fn generation(&self) -> ReplayGeneration {
        self.outcomes.generation()
    }

    fn look_fully(&mut self, cluster: &BrokerCluster, partitions: Vec<PartitionView>) -> Vec<Finding> {
        let grown = partitions.iter().filter(|view| is_user_topic(view) && self.pace.has_grown(view));
        let batches =
            grown.map(|view| (view.clone(), cluster.batches(&view.topic, view.partition))).collect();
        self.pace.looked_at(&partitions);
        self.judge(&Sample {
            partitions,
            shares: cluster.share_partitions(),
            transactions: cluster.transactions(),
            batches,
        })
    }

    fn judge(&mut self, sample: &Sample) -> Vec<Finding> {
        let mut found = self.transactions.look(&sample.transactions);
        for (view, batches) in &sample.batches {
            let is_compacted = self.is_ledger && view.topic == OUTCOMES;
            found.extend(self.logs.fates(view, batches, is_compacted));
            if view.topic == OUTCOMES {
                self.outcomes.read(view.partition, batches);
            }
        }
        for share in sample.shares.iter().filter(|share| share.group == GROUP) {
            let is_its =
                |view: &&PartitionView| (view.topic_id, view.partition) == (share.topic_id, share.partition);
            let leader_epoch = sample.partitions.iter().find(is_its).map(|view| view.leader_epoch);
            let news = self.shares.look(share, leader_epoch);
            found.extend(news.findings);
            found.extend(news.acknowledged.into_iter().filter_map(|place| {
                let text = self.outcomes.contradicts(share.topic_id, place, &sample.transactions)?;
                Some(Finding::about(Checker::Watch, place, text))
            }));
        }
        found
    }
}

fn is_user_topic(view: &PartitionView) -> bool {
    [SOURCE, OUTPUT, DEAD_LETTERS, OUTCOMES].contains(&view.topic.as_str())
}

impl Pace {
    fn is_due(&mut self, partitions: &[PartitionView]) -> bool {
        self.steps += 1;
        let internal = [SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC, GROUP_TOPIC];
        let is_internal = |view: &&PartitionView| internal.contains(&view.topic.as_str());
        let records: i64 =
            partitions.iter().filter(is_internal).map(|view| view.high_watermark.0 - view.log_start.0).sum();
        self.steps > records / RECORDS_PER_STEP && partitions.iter().any(|view| self.has_grown(view))
    }

    fn has_grown(&self, view: &PartitionView) -> bool {
        let ends = (view.last_stable_offset.0, view.high_watermark.0);
        self.ends.get(&(view.topic_id, view.partition)) != Some(&ends)
    }

    fn looked_at(&mut self, partitions: &[PartitionView]) {
        self.steps = 0;
        self.ends = partitions
            .iter()
            .map(|view| ((view.topic_id, view.partition), (view.last_stable_offset.0, view.high_watermark.0)))
            .collect();
    }
}

#[cfg(test)]
mod tests;
