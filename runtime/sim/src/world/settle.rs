//! After the faults: everything must be decided, and everything must end, within a bound.

use std::time::Duration;

use sharestream_client::{Client, Isolation, OffsetSpec, PartitionReader};

use super::World;
use super::faults::Action;
use crate::check::ending::{self, Remains};
use crate::check::{Checker, Finding};
use crate::workload::{DEAD_LETTERS, GROUP, OUTCOMES, OUTPUT, SOURCE};

/// Longest time from the end of the faults until everything is decided: transaction time-outs, record locks and
/// session time-outs may have to pass, some one after another.
const SETTLE_MAX: Duration = Duration::from_secs(300);
/// Longest time of a drain, as the runtime has it, and some for the harness.
const DRAIN_MAX: Duration = Duration::from_secs(40);
/// By then the parts of a job have heard that it has ended, or never will.
const FAREWELL_MAX: Duration = Duration::from_secs(5);

impl World {
    /// Waits until nothing is undecided; a finding when that takes too long.
    pub(super) async fn settle(&mut self, client: &Client) {
        self.trace.note("settling");
        self.is_settling = true;
        let deadline = self.clock.now() + SETTLE_MAX;
        let mut undecided = vec!["nothing was looked at".to_owned()];
        while self.clock.now() < deadline {
            self.step().await;
            let look = self.clock.timeout(Duration::from_secs(30), undecided_things(client)).await;
            undecided = match look {
                Ok(Ok(undecided)) => undecided,
                Ok(Err(error)) => vec![format!("the brokers cannot be asked: {error:#}")],
                Err(_) => vec!["the brokers do not answer".to_owned()],
            };
            if undecided.is_empty() {
                return;
            }
        }
        for (index, slot) in self.workers.iter().enumerate() {
            let status = slot.current.as_ref().map(|incarnation| incarnation.control.snapshot());
            let line = status.map_or("not running".to_owned(), |status| {
                format!(
                    "{:?}, {} attempts, last error {:?}",
                    status.state, status.attempts, status.last_error
                )
            });
            undecided.push(format!("worker-{index}: {line}"));
        }
        for index in 0..self.workers.len() {
            undecided.extend(self.state_of_parts(index));
        }
        undecided.extend(self.stuck_share_partitions());
        self.find(Finding::new(
            Checker::Liveness,
            format!("after {} s without faults: {}", SETTLE_MAX.as_secs(), undecided.join("; ")),
        ));
    }

    /// What the brokers hold of share partitions that did not come to their end, in words.
    fn stuck_share_partitions(&self) -> Vec<String> {
        let cluster = self.nodes.cluster();
        let partitions = cluster.partitions();
        let mut lines = Vec::new();
        for share in cluster.share_partitions() {
            let source =
                partitions.iter().find(|it| (it.topic_id, it.partition) == (share.topic_id, share.partition));
            let is_done = source.is_none_or(|source| share.start_offset == Some(source.high_watermark));
            if !is_done {
                let leader = source.and_then(|source| source.leader);
                lines.push(format!(
                    "share partition {} led by {leader:?}: durable {:?}, in memory {:?}",
                    share.partition, share.runs, share.memory
                ));
            }
        }
        lines
    }

    /// Asks every worker to end and waits until all of its tasks are gone.
    pub(super) async fn drain(&mut self) {
        self.trace.note("draining");
        // What was to start again stays down from here on.
        self.actions.retain(|_, action| !matches!(action, Action::StartWorker(_) | Action::StartPart(..)));
        for slot in &mut self.workers {
            for incarnation in slot.current.iter().chain(&slot.zombies) {
                incarnation.control.drain();
            }
        }
        let deadline = self.clock.now() + DRAIN_MAX;
        for index in 0..self.workers.len() {
            let slot = &mut self.workers[index];
            let incarnations: Vec<_> =
                slot.current.take().into_iter().chain(slot.zombies.drain(..)).collect();
            for incarnation in incarnations {
                while !incarnation.is_finished() && self.clock.now() < deadline {
                    self.clock.sleep(Duration::from_millis(50)).await;
                }
                if incarnation.is_finished() {
                    self.account_for(incarnation).await;
                } else {
                    let tasks = incarnation.gate.tasks().join(", ");
                    let text = format!("{} does not end when asked to; its tasks: {tasks}", incarnation.host);
                    self.find(Finding::new(Checker::Liveness, text));
                }
            }
        }
        self.drain_parts(FAREWELL_MAX, DRAIN_MAX).await;
    }
}

impl World {
    /// Waits until the brokers have forgotten the workers; a finding for each thing that stays.
    pub(super) async fn wind_down(&mut self) {
        let (started_at, longest) = (self.clock.now(), ending::longest(&self.plan));
        loop {
            let waited = self.clock.now().duration_since(started_at);
            let is_last = waited >= longest;
            let left = Remains::of(self.nodes.cluster(), &self.fabric, is_last).list();
            if left.is_empty() || is_last {
                for finding in ending::findings(left, waited) {
                    self.find(finding);
                }
                return;
            }
            self.step().await;
        }
    }
}

/// What is not decided yet, in words.
async fn undecided_things(client: &Client) -> anyhow::Result<Vec<String>> {
    let admin = client.admin();
    let mut found = Vec::new();
    let ends = admin.list_offsets(SOURCE, &[], OffsetSpec::Latest).await?;
    let starts = admin.describe_share_group_offsets(GROUP, &[SOURCE]).await?;
    for (partition, end) in ends {
        let start = starts.iter().find(|start| start.partition == partition).and_then(|it| it.start_offset);
        if start.map_or(0, |start| start.0) < end.0 {
            let start = start.map_or("nowhere".to_owned(), |start| start.to_string());
            found.push(format!("the group stands at {start} of {end} in {SOURCE}/{partition}"));
        }
    }
    for listing in admin.list_transactions().await? {
        if matches!(listing.state.as_str(), "Ongoing" | "PrepareCommit" | "PrepareAbort") {
            found.push(format!("transaction {} is {}", listing.transactional_id, listing.state));
        }
    }
    for topic in [SOURCE, OUTPUT, DEAD_LETTERS, OUTCOMES] {
        for (partition, end) in admin.list_offsets(topic, &[], OffsetSpec::Latest).await? {
            let mut reader = PartitionReader::new(client.clone());
            let wait = Duration::ZERO;
            let fetched = reader.fetch(topic, partition, end, Isolation::ReadUncommitted, 1, wait).await?;
            if fetched.last_stable_offset < fetched.high_watermark {
                found.push(format!(
                    "{topic}/{partition} is stable up to {} of {}",
                    fetched.last_stable_offset, fetched.high_watermark
                ));
            }
        }
    }
    Ok(found)
}
