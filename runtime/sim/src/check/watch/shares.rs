//! Durable share state: what is done stays done, offsets and epochs only rise, and deliveries are counted.

use std::collections::BTreeMap;

use sharestream_base::ids::{LeaderEpoch, Offset, PartitionIndex, StateEpoch, TopicId};
use sharestream_broker::inspect::{
    DurableRunView, DurableStateView, MemoryStateView, MemoryView, SharePartitionView, ShareStateWritten,
};
use sharestream_core::commit::AckMode;

use crate::check::{Checker, Finding, Place};
use crate::plan::Plan;

/// How a record ended in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// Acknowledged.
    Acknowledged,
    /// Archived.
    Archived,
    /// Below the start offset; how it got there was not seen.
    Below,
}

/// What was seen last of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastSeen {
    /// How it ended, if it has.
    pub(crate) done: Option<Done>,
    /// Deliveries; in the memory of the leader too.
    pub(crate) delivery_count: u16,
}

/// What was seen of all share partitions of the group.
#[derive(Debug)]
pub(super) struct ShareWatch {
    delivery_limit: u16,
    /// Acknowledgements are plain. When the durable write of one is not answered, its leader gives the record back to
    /// its holder, as Kafka does, though the write may have been made: then what is done may be delivered again, which
    /// is the "at least" of at least once. No plain acknowledgement of a transactional job ends a record.
    plain_acknowledgements: bool,
    shares: BTreeMap<(TopicId, PartitionIndex), History>,
    /// Archived runs that were written since the last look: a start offset may have passed them by then.
    archived: BTreeMap<(TopicId, PartitionIndex), Archived>,
}

/// Archived runs of one incarnation of a share partition.
#[derive(Debug, Default)]
struct Archived {
    state_epoch: Option<StateEpoch>,
    runs: Vec<DurableRunView>,
}

#[derive(Debug)]
struct History {
    state_epoch: StateEpoch,
    leader_epoch: LeaderEpoch,
    start_offset: Option<Offset>,
    /// By offset from 0 on.
    records: Vec<LastSeen>,
}

/// What one look brought.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) findings: Vec<Finding>,
    /// Records that were not acknowledged at the look before.
    pub(super) acknowledged: Vec<Place>,
}

impl News {
    fn find(&mut self, text: String) {
        self.findings.push(Finding::new(Checker::Watch, text));
    }
}

impl ShareWatch {
    pub(super) fn new(plan: &Plan) -> Self {
        ShareWatch {
            delivery_limit: plan.group.delivery_limit,
            plain_acknowledgements: plan.mode() != AckMode::Transactional,
            shares: BTreeMap::new(),
            archived: BTreeMap::new(),
        }
    }

    /// Takes a write to the durable state.
    pub(super) fn take_written(&mut self, written: ShareStateWritten) {
        let archived = self.archived.entry((written.topic_id, written.partition)).or_default();
        if written.state_epoch.is_some_and(|epoch| archived.state_epoch.is_some_and(|known| known < epoch)) {
            // A reset of offsets: everything begins anew.
            archived.runs.clear();
        }
        archived.state_epoch = archived.state_epoch.max(written.state_epoch);
        let is_archived = |run: &DurableRunView| run.state == DurableStateView::Archived;
        archived.runs.extend(written.runs.into_iter().filter(is_archived));
    }

    pub(super) fn last_seen(&self, topic_id: TopicId, place: Place) -> LastSeen {
        let history = self.shares.get(&(topic_id, PartitionIndex(place.partition)));
        let index = usize::try_from(place.offset).unwrap_or(usize::MAX);
        history.and_then(|history| history.records.get(index)).copied().unwrap_or_default()
    }

    /// Compares with the look before. `leader_epoch` is that of the source partition: the memory of an older leader
    /// says nothing.
    pub(super) fn look(&mut self, view: &SharePartitionView, leader_epoch: Option<LeaderEpoch>) -> News {
        let (limit, may_repeat) = (self.delivery_limit, self.plain_acknowledgements);
        let key = (view.topic_id, view.partition);
        let history = self.shares.entry(key).or_insert_with(|| History::new(view.state_epoch));
        let mut news = News::default();
        history.advance(view, &mut news);
        history.take_durable(view, &mut news);
        if let Some(archived) = self.archived.get_mut(&key) {
            history.take_archived(std::mem::take(&mut archived.runs));
        }
        let memory = view.memory.as_ref().filter(|memory| Some(memory.leader_epoch) == leader_epoch);
        if let Some(memory) = memory.filter(|memory| memory.state_epoch == view.state_epoch) {
            history.compare_memory(view, memory, may_repeat, &mut news);
        }
        let over = history.records.iter().enumerate().filter(|(_, record)| record.delivery_count > limit);
        for (offset, record) in over {
            news.find(format!(
                "share partition {}: offset {offset} was delivered {} times, and the limit is {limit}",
                view.partition, record.delivery_count
            ));
        }
        news
    }
}

impl History {
    fn new(state_epoch: StateEpoch) -> Self {
        History { state_epoch, leader_epoch: LeaderEpoch(-1), start_offset: None, records: Vec::new() }
    }

    /// Epochs and the start offset.
    fn advance(&mut self, view: &SharePartitionView, news: &mut News) {
        let name = format!("share partition {}", view.partition);
        if view.state_epoch > self.state_epoch {
            // A reset of offsets: everything begins anew.
            *self = History::new(view.state_epoch);
        }
        if view.state_epoch < self.state_epoch {
            let (before, now) = (self.state_epoch, view.state_epoch);
            news.find(format!("{name}: the state epoch went back from {before} to {now}"));
        }
        if view.leader_epoch < self.leader_epoch {
            let (before, now) = (self.leader_epoch, view.leader_epoch);
            news.find(format!("{name}: the leader epoch went back from {before} to {now}"));
        }
        if view.start_offset < self.start_offset {
            let text = |offset: Option<Offset>| offset.map_or("none".to_owned(), |offset| offset.to_string());
            let (before, now) = (text(self.start_offset), text(view.start_offset));
            news.find(format!("{name}: the start offset went back from {before} to {now}"));
        }
        let ordered = view.runs.windows(2).all(|pair| pair[0].last < pair[1].first);
        if !ordered || view.runs.iter().any(|run| run.first > run.last) {
            news.find(format!("{name}: its durable runs overlap: {:?}", view.runs));
        }
        (self.state_epoch, self.leader_epoch) = (view.state_epoch, view.leader_epoch);
        self.start_offset = view.start_offset;
    }

    fn take_durable(&mut self, view: &SharePartitionView, news: &mut News) {
        let end =
            view.runs.last().map_or(0, |run| run.last.0 + 1).max(view.start_offset.map_or(0, |it| it.0));
        let end = usize::try_from(end).unwrap_or(0).max(self.records.len());
        self.records.resize(end, LastSeen::default());
        let mut now = vec![(None, 0); end];
        let below = usize::try_from(view.start_offset.map_or(0, |start| start.0)).unwrap_or(0);
        now[..below].fill((Some(Done::Below), 0));
        for run in &view.runs {
            let done = match run.state {
                DurableStateView::Acknowledged => Some(Done::Acknowledged),
                DurableStateView::Archived => Some(Done::Archived),
                DurableStateView::Available
                | DurableStateView::Archiving
                | DurableStateView::TxnPending(_) => None,
            };
            // What a run says of offsets below the start offset does not count any more.
            let first = usize::try_from(run.first.0).unwrap_or(0).max(below);
            for slot in now.iter_mut().take(usize::try_from(run.last.0 + 1).unwrap_or(0)).skip(first) {
                *slot = (done, run.delivery_count);
            }
        }
        for (offset, ((done, delivery_count), record)) in now.into_iter().zip(&mut self.records).enumerate() {
            let place =
                Place { partition: view.partition.0, offset: i64::try_from(offset).unwrap_or(i64::MAX) };
            record.take(place, done, delivery_count, news);
        }
    }

    /// How records ended that were never seen to be archived, and with how many deliveries.
    fn take_archived(&mut self, runs: Vec<DurableRunView>) {
        for run in runs {
            let end = usize::try_from(run.last.0 + 1).unwrap_or(0);
            self.records.resize(end.max(self.records.len()), LastSeen::default());
            for record in &mut self.records[usize::try_from(run.first.0).unwrap_or(0)..end] {
                record.delivery_count = record.delivery_count.max(run.delivery_count);
                if matches!(record.done, None | Some(Done::Below)) {
                    record.done = Some(Done::Archived);
                }
            }
        }
    }

    /// Nobody may be given what is done durably, and the leader may not have passed what is not.
    fn compare_memory(
        &mut self,
        view: &SharePartitionView,
        memory: &MemoryView,
        may_repeat: bool,
        news: &mut News,
    ) {
        for run in &memory.runs {
            let is_deliverable = !may_repeat
                && matches!(run.state, MemoryStateView::Available | MemoryStateView::Acquired { .. });
            for offset in run.first.0..=run.last.0 {
                let index = usize::try_from(offset).unwrap_or(0);
                if index >= self.records.len() {
                    self.records.resize(index + 1, LastSeen::default());
                }
                let record = &mut self.records[index];
                record.delivery_count = record.delivery_count.max(run.delivery_count);
                if let Some(done) = record.done.filter(|_| is_deliverable) {
                    let place = Place { partition: view.partition.0, offset };
                    let text = format!(
                        "it is {done:?} durably, and {:?} for its leader in epoch {}",
                        run.state, memory.leader_epoch
                    );
                    news.findings.push(Finding::about(Checker::Watch, place, text));
                }
            }
        }
        let passed = usize::try_from(memory.start_offset.0).unwrap_or(0).min(self.records.len());
        let open = self.records[..passed].iter().position(|record| record.done.is_none());
        if let Some(offset) = open {
            news.find(format!(
                "share partition {}: its leader stands at {}, and offset {offset} is not done durably",
                view.partition, memory.start_offset
            ));
        }
    }
}

impl LastSeen {
    fn take(&mut self, place: Place, done: Option<Done>, delivery_count: u16, news: &mut News) {
        let text = match (self.done, done) {
            (Some(before), None) => Some(format!("it was {before:?} and is available again")),
            (Some(Done::Acknowledged), Some(Done::Archived)) => {
                Some("it was acknowledged and is archived".to_owned())
            }
            (Some(Done::Archived), Some(Done::Acknowledged)) => {
                Some("it was archived and is acknowledged".to_owned())
            }
            _ => None,
        };
        news.findings.extend(text.map(|text| Finding::about(Checker::Watch, place, text)));
        if done == Some(Done::Acknowledged) && self.done != done {
            news.acknowledged.push(place);
        }
        // How it ended is known better than that it did.
        let is_known = done == Some(Done::Below) && self.done.is_some();
        if !is_known {
            self.done = done;
        }
        self.delivery_count = self.delivery_count.max(delivery_count);
    }
}
