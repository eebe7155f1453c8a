//! The transactions that one node coordinates: machines by transactional id, and the timer that ends the late ones.
//!
//! A change is decided, appended to `__transaction_state` and replayed under one short lock; the answer follows, and
//! markers are sent by a task of their own. Each led partition of the log is one [`Shard`], loaded when this node
//! begins to lead it and dropped when it does not any more. The append is made under the leader epoch that was
//! loaded, so what a deposed coordinator decides is neither written nor answered.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_base::ids::PartitionIndex;
use sharestream_base::planted::{Bug, is_planted};
use sharestream_base::{TaskKind, watch};
use sharestream_wire::records::{BatchBuilder, BatchMeta};
use tracing::{info, warn};

use super::log;
use super::markers;
use super::state::{
    Command, Decision, Facts, Identity, Outcome, State, TopicPartition, Transaction, TransactionRecord,
    first_record,
};
use crate::cluster::TRANSACTION_STATE_TOPIC;
use crate::error::ErrorCode;
use crate::log::{Isolation, Led, Origin, Partition, TransactionVersion};
use crate::node::Node;

mod expiry;

/// Bytes read at a time in recovery.
const LOAD_BYTES: usize = 1024 * 1024;

type Shards = BTreeMap<PartitionIndex, Shard>;

/// The machines of one partition of the log, under one leadership.
#[derive(Debug)]
struct Shard {
    led: Led,
    machines: BTreeMap<Arc<str>, Transaction>,
}

/// Holds the machines of one node.
#[derive(Debug)]
pub(crate) struct Coordinator {
    shards: Mutex<Shards>,
    /// Counts completed transactions; for those who wait for the markers of one.
    completed: watch::Sender<u64>,
}

/// One transactional id as the admin APIs show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransactionSummary {
    /// Its id.
    pub(crate) transactional_id: Arc<str>,
    /// Who may go on with it.
    pub(crate) identity: Identity,
    /// As Kafka prints it.
    pub(crate) state: &'static str,
    /// Its time-out.
    pub(crate) timeout_ms: i32,
    /// When the open transaction began.
    pub(crate) started_ms: Option<i64>,
    /// Participants that have no marker yet.
    pub(crate) partitions: BTreeSet<TopicPartition>,
}

impl Coordinator {
    /// Without transactions.
    pub(crate) fn new() -> Self {
        Coordinator { shards: Mutex::default(), completed: watch::Sender::new(0) }
    }

    /// Loads what the led partitions of `__transaction_state` hold and starts the timer, which also follows the
    /// leaderships.
    pub(crate) fn start(&self, node: &Arc<Node>) {
        let mut changes = node.cluster.watch();
        self.follow_leaderships(node);
        let timer = Arc::clone(node);
        node.spawn("transaction-timer", TaskKind::Service, async move {
            while tick(&timer, &mut changes).await {
                timer.transactions.follow_leaderships(&timer);
                timer.transactions.end_late_ones(&timer);
                timer.transactions.expire_idle_ones(&timer);
            }
        });
    }

    /// Loads the partitions that this node has begun to lead, so that what they hold decided goes on by itself, and
    /// drops the others.
    fn follow_leaderships(&self, node: &Arc<Node>) {
        let Some(topic) = node.cluster.topics.by_name(TRANSACTION_STATE_TOPIC) else { return };
        let mut shards = self.lock();
        shards.retain(|_, shard| shard.led.is_current());
        for partition in topic.partitions() {
            let Ok(led) = node.led(TRANSACTION_STATE_TOPIC, partition.index) else { continue };
            if let Err(code) = loaded(node, &mut shards, led) {
                warn!(partition = %partition.index, %code, "cannot load transactions");
            }
        }
    }

    /// InitProducerId with a transactional id.
    ///
    /// Errors: NOT_COORDINATOR, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (markers are
    /// under way; an open transaction is aborted first).
    pub(crate) fn init(
        &self,
        node: &Arc<Node>,
        transactional_id: &str,
        expected: Option<Identity>,
        timeout_ms: i32,
    ) -> Result<Identity, ErrorCode> {
        let max_ms = i64::try_from(node.config.transaction_timeout_max.as_millis()).unwrap_or(i64::MAX);
        if timeout_ms <= 0 || i64::from(timeout_ms) > max_ms {
            return Err(ErrorCode::InvalidTransactionTimeout);
        }
        let facts = facts(node);
        let mut shards = self.lock();
        let shard = loaded(node, &mut shards, coordinated(node, transactional_id)?)?;
        if !shard.machines.contains_key(transactional_id) {
            let id: Arc<str> = Arc::from(transactional_id);
            return shard.write(&id, first_record(timeout_ms, facts));
        }
        let command = Command::Init { expected, timeout_ms };
        shard.decide_and_write(node, transactional_id, &command, facts)
    }

    /// Adds participants. Answers CONCURRENT_TRANSACTIONS only after `patience`: meanwhile the markers of the
    /// transaction before are usually written.
    ///
    /// Errors: NOT_COORDINATOR, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    pub(crate) async fn add_partitions(
        &self,
        node: &Arc<Node>,
        transactional_id: &str,
        command: &Command,
        patience: Duration,
    ) -> Result<Identity, ErrorCode> {
        let deadline = node.env.clock.now() + patience;
        let mut completed = self.completed.subscribe();
        loop {
            completed.mark_unchanged();
            let answer = self.apply(node, transactional_id, command);
            if answer != Err(ErrorCode::ConcurrentTransactions)
                || node.env.clock.timeout_at(deadline, completed.changed()).await.is_err()
            {
                return answer;
            }
        }
    }

    /// Checks that a partition is in the open transaction. Errors: as [`Transaction::verify`], NOT_COORDINATOR.
    pub(crate) fn verify(
        &self,
        node: &Arc<Node>,
        transactional_id: &str,
        identity: Identity,
        partition: &TopicPartition,
    ) -> Result<(), ErrorCode> {
        let mut shards = self.lock();
        let shard = loaded(node, &mut shards, coordinated(node, transactional_id)?)?;
        let machine = shard.machines.get(transactional_id).ok_or(ErrorCode::InvalidProducerIdMapping)?;
        machine.verify(identity, partition)
    }

    /// EndTxn: answers once the decision is in the log; the markers follow by themselves. The identity is the one
    /// to go on with.
    ///
    /// Errors: NOT_COORDINATOR and those of [`Transaction::decide`].
    pub(crate) fn end(
        &self,
        node: &Arc<Node>,
        transactional_id: &str,
        identity: Identity,
        version: TransactionVersion,
        outcome: Outcome,
    ) -> Result<Identity, ErrorCode> {
        self.apply(node, transactional_id, &Command::End { identity, version, outcome })
    }

    /// Every participant has the markers that carry this identity.
    pub(crate) fn markers_written(&self, node: &Arc<Node>, transactional_id: &str, marker: Identity) {
        match self.apply(node, transactional_id, &Command::MarkersWritten { marker }) {
            Ok(_) => self.completed.send_modify(|count| *count += 1),
            Err(code) => warn!(transactional_id, %code, "cannot complete a transaction"),
        }
    }

    /// Every transactional id, by name.
    pub(crate) fn summaries(&self) -> Vec<TransactionSummary> {
        let shards = self.lock();
        let current = shards.values().filter(|shard| shard.led.is_current());
        let machines = current.flat_map(|shard| &shard.machines);
        let mut all: Vec<_> = machines.map(|(id, machine)| summary(id, machine.record())).collect();
        all.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        all
    }

    /// One transactional id. Errors: NOT_COORDINATOR, TRANSACTIONAL_ID_NOT_FOUND.
    pub(crate) fn describe(
        &self,
        node: &Arc<Node>,
        transactional_id: &str,
    ) -> Result<TransactionSummary, ErrorCode> {
        let mut shards = self.lock();
        let shard = loaded(node, &mut shards, coordinated(node, transactional_id)?)?;
        let (id, machine) =
            shard.machines.get_key_value(transactional_id).ok_or(ErrorCode::TransactionalIdNotFound)?;
        Ok(summary(id, machine.record()))
    }

    fn end_late_ones(&self, node: &Arc<Node>) {
        let open: Vec<Arc<str>> = {
            let shards = self.lock();
            let is_open = |machine: &Transaction| machine.undecided().is_some();
            let machines = shards.values().flat_map(|shard| &shard.machines);
            machines.filter(|(_, machine)| is_open(machine)).map(|(id, _)| Arc::clone(id)).collect()
        };
        for id in open {
            if let Err(code) = self.apply(node, &id, &Command::CheckTimeOut) {
                warn!(transactional_id = %id, %code, "cannot check the time-out of a transaction");
            }
        }
    }

    fn apply(
        &self,
        node: &Arc<Node>,
        transactional_id: &str,
        command: &Command,
    ) -> Result<Identity, ErrorCode> {
        let facts = facts(node);
        let mut shards = self.lock();
        let shard = loaded(node, &mut shards, coordinated(node, transactional_id)?)?;
        shard.decide_and_write(node, transactional_id, command, facts)
    }

    fn lock(&self) -> MutexGuard<'_, Shards> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Replays a partition of the log; what was decided and not completed sends its markers again. Errors:
    /// CORRUPT_MESSAGE.
    fn load(node: &Arc<Node>, led: Led) -> Result<Shard, ErrorCode> {
        let records = replay_log(&led).map_err(|error| {
            let (topic, topic_id, partition) = (&led.topic, led.topic_id, led.index);
            warn!(%topic, %topic_id, %partition, %error, "a partition of the transaction log is damaged");
            ErrorCode::CorruptMessage
        })?;
        let mut machines = BTreeMap::new();
        for (id, record) in records {
            if !is_planted(Bug::DecidedTransactionForgotten) {
                start_markers(node, &id, &record, &led);
            }
            machines.insert(id, Transaction::replay(record));
        }
        Ok(Shard { led, machines })
    }

    fn decide_and_write(
        &mut self,
        node: &Arc<Node>,
        transactional_id: &str,
        command: &Command,
        facts: Facts,
    ) -> Result<Identity, ErrorCode> {
        let (id, machine) =
            self.machines.get_key_value(transactional_id).ok_or(ErrorCode::InvalidProducerIdMapping)?;
        let (id, decision) = (Arc::clone(id), machine.decide(command, facts)?);
        match decision {
            Decision::Keep(identity) => Ok(identity),
            Decision::Write(record) => self.write(&id, record),
            Decision::WriteAndSendMarkers(record) => {
                if *command == Command::CheckTimeOut {
                    info!(transactional_id, "transaction timed out and is aborted");
                }
                let identity = self.write(&id, record.clone())?;
                start_markers(node, &id, &record, &self.led);
                Ok(identity)
            }
            Decision::AbortFirst(record) => {
                self.write(&id, record.clone())?;
                start_markers(node, &id, &record, &self.led);
                Err(ErrorCode::ConcurrentTransactions)
            }
        }
    }

    /// Appends a record and replays it. Errors: NOT_COORDINATOR (deposed meanwhile; nothing has changed).
    fn write(&mut self, id: &Arc<str>, record: TransactionRecord) -> Result<Identity, ErrorCode> {
        let mut builder = BatchBuilder::new();
        let (key, value) = (log::encode_key(id), log::encode_value(&record));
        let failed = |_| ErrorCode::UnknownServerError;
        builder.append(record.updated_ms, Some(&key), Some(&value), &[]).map_err(failed)?;
        let batch = builder.build(&BatchMeta::default()).map_err(failed)?;
        self.led.append(&batch, Origin::Coordinator).map_err(|code| match code {
            ErrorCode::NotLeaderOrFollower => ErrorCode::NotCoordinator,
            code => code,
        })?;
        let identity = record.identity;
        self.machines.insert(Arc::clone(id), Transaction::replay(record));
        Ok(identity)
    }
}

/// The shard of a led partition, replayed from the log when this leadership has not been loaded yet.
fn loaded<'a>(node: &Arc<Node>, shards: &'a mut Shards, led: Led) -> Result<&'a mut Shard, ErrorCode> {
    let shard = match shards.entry(led.index) {
        Entry::Vacant(entry) => entry.insert(Shard::load(node, led)?),
        Entry::Occupied(mut entry) => {
            if entry.get().led.epoch() != led.epoch() {
                entry.insert(Shard::load(node, led)?);
            }
            entry.into_mut()
        }
    };
    Ok(shard)
}

/// Waits for the next check, or for a change of leaderships; false when the node stops.
async fn tick(node: &Node, changes: &mut watch::Receiver<u64>) -> bool {
    tokio::select! {
        biased;
        () = node.stop.cancelled() => false,
        changed = changes.changed() => changed.is_ok(),
        () = node.env.clock.sleep(node.config.transaction_check_interval) => true,
    }
}

fn facts(node: &Node) -> Facts {
    // An id that the decision does not take is skipped; there are enough.
    Facts { now_ms: node.env.clock.wall_ms(), fresh_id: node.cluster.allocate_producer_id() }
}

/// The partition of the log that holds the id. Errors: NOT_COORDINATOR when another node leads it.
fn coordinated(node: &Node, transactional_id: &str) -> Result<Led, ErrorCode> {
    let index = node.cluster.transaction_partition(transactional_id).ok_or(ErrorCode::NotCoordinator)?;
    node.led(TRANSACTION_STATE_TOPIC, index).map_err(|_| ErrorCode::NotCoordinator)
}

fn start_markers(node: &Arc<Node>, id: &Arc<str>, record: &TransactionRecord, led: &Led) {
    let (open, ended, outcome) = match &record.state {
        State::PrepareCommit(open, ended) => (open, ended, Outcome::Commit),
        State::PrepareAbort(open, ended) => (open, ended, Outcome::Abort),
        State::Empty { .. } | State::Ongoing(_) | State::CompleteCommit(_) | State::CompleteAbort(_) => {
            return;
        }
    };
    let job = markers::Job {
        transactional_id: Arc::clone(id),
        marker: ended.marker,
        outcome,
        led: led.clone(),
        partitions: open.partitions.clone(),
    };
    node.spawn(format!("markers {id}"), TaskKind::Service, markers::write_all(Arc::clone(node), job));
}

/// The last record of every transactional id in a partition of the log.
fn replay_log(
    partition: &Partition,
) -> Result<BTreeMap<Arc<str>, TransactionRecord>, Box<dyn std::error::Error>> {
    let mut found = BTreeMap::new();
    let mut from = partition.ends().log_start;
    loop {
        let read = partition.read(from, LOAD_BYTES, Isolation::ReadUncommitted)?;
        let Some(last) = read.batches.last() else { return Ok(found) };
        from = sharestream_base::ids::Offset(last.header.next_offset());
        for batch in &read.batches {
            for record in batch.records()?.iter() {
                let record = record?;
                let Some(key) = record.key else { continue };
                let id = log::decode_key(key)?;
                match record.value {
                    Some(value) => found.insert(Arc::from(id), log::decode_value(value)?),
                    None => found.remove(id.as_str()),
                };
            }
        }
    }
}

/// What a partition of the log says of every transactional id, whoever leads it; nothing when it is damaged.
pub(crate) fn recorded(log: &Partition) -> Vec<TransactionSummary> {
    let records = replay_log(log).unwrap_or_default();
    records.iter().map(|(id, record)| summary(id, record)).collect()
}

fn summary(id: &Arc<str>, record: &TransactionRecord) -> TransactionSummary {
    let (started_ms, partitions) = match &record.state {
        State::Ongoing(open) | State::PrepareCommit(open, _) | State::PrepareAbort(open, _) => {
            (Some(open.started_ms), open.partitions.clone())
        }
        State::Empty { .. } | State::CompleteCommit(_) | State::CompleteAbort(_) => (None, BTreeSet::new()),
    };
    TransactionSummary {
        transactional_id: Arc::clone(id),
        identity: record.identity,
        state: record.state.name(),
        timeout_ms: record.timeout_ms,
        started_ms,
        partitions,
    }
}

#[cfg(test)]
mod tests;
