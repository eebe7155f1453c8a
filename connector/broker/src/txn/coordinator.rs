//! The transactions that one node coordinates: machines by transactional id, and the timer that ends the late ones.
//!
//! A change is decided, appended to `__transaction_state` and replayed under one short lock; the answer follows, and
//! markers are sent by a task of their own.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_base::{Instant, TaskKind};
use sharestream_wire::records::{BatchBuilder, BatchMeta};
use tokio::sync::watch;
use tracing::{info, warn};

use super::log;
use super::markers;
use super::state::{
    Command, Decision, Facts, Identity, Outcome, State, TopicPartition, Transaction, TransactionRecord,
    first_record,
};
use crate::cluster::TRANSACTION_STATE_TOPIC;
use crate::error::ErrorCode;
use crate::log::{Isolation, Origin, Partition, TransactionVersion};
use crate::node::Node;

/// Bytes read at a time in recovery.
const LOAD_BYTES: usize = 1024 * 1024;

/// Holds the machines of one node.
#[derive(Debug)]
pub(crate) struct Coordinator {
    machines: Mutex<HashMap<Arc<str>, Transaction>>,
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
        Coordinator { machines: Mutex::default(), completed: watch::Sender::new(0) }
    }

    /// Loads what the led partitions of `__transaction_state` hold and starts the timer.
    pub(crate) fn start(&self, node: &Arc<Node>) {
        if let Some(topic) = node.cluster.topics.by_name(TRANSACTION_STATE_TOPIC) {
            for partition in topic.partitions().iter().filter(|partition| node.leads(partition)) {
                self.load(node, partition);
            }
        }
        let timer = Arc::clone(node);
        node.spawn("transaction-timer", TaskKind::Service, async move {
            while tick(&timer, timer.config.transaction_check_interval).await {
                timer.transactions.end_late_ones(&timer);
            }
        });
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
        let partition = coordinated(node, transactional_id)?;
        let facts = facts(node);
        let mut machines = self.lock();
        if !machines.contains_key(transactional_id) {
            let id: Arc<str> = Arc::from(transactional_id);
            return write(&mut machines, &partition, &id, first_record(timeout_ms, facts));
        }
        let command = Command::Init { expected, timeout_ms };
        self.decide_and_write(node, machines, &partition, transactional_id, &command, facts)
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
        coordinated(node, transactional_id)?;
        let machines = self.lock();
        let machine = machines.get(transactional_id).ok_or(ErrorCode::InvalidProducerIdMapping)?;
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
        let machines = self.lock();
        let mut all: Vec<_> = machines.iter().map(|(id, machine)| summary(id, machine.record())).collect();
        all.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        all
    }

    /// One transactional id. Errors: NOT_COORDINATOR, TRANSACTIONAL_ID_NOT_FOUND.
    pub(crate) fn describe(
        &self,
        node: &Arc<Node>,
        transactional_id: &str,
    ) -> Result<TransactionSummary, ErrorCode> {
        coordinated(node, transactional_id)?;
        let machines = self.lock();
        let (id, machine) =
            machines.get_key_value(transactional_id).ok_or(ErrorCode::TransactionalIdNotFound)?;
        Ok(summary(id, machine.record()))
    }

    /// Replays a partition of the log; what was decided and not completed sends its markers again.
    fn load(&self, node: &Arc<Node>, partition: &Arc<Partition>) {
        let mut machines = self.lock();
        let loaded = match replay_log(partition) {
            Ok(loaded) => loaded,
            Err(error) => {
                let (topic, topic_id, partition) = (&partition.topic, partition.topic_id, partition.index);
                warn!(%topic, %topic_id, %partition, %error, "cannot load transactions");
                return;
            }
        };
        for (id, record) in loaded {
            start_markers(node, &id, &record, partition);
            machines.insert(id, Transaction::replay(record));
        }
    }

    fn end_late_ones(&self, node: &Arc<Node>) {
        let open: Vec<Arc<str>> = {
            let machines = self.lock();
            let is_open = |machine: &Transaction| matches!(machine.record().state, State::Ongoing(_));
            machines.iter().filter(|(_, machine)| is_open(machine)).map(|(id, _)| Arc::clone(id)).collect()
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
        let partition = coordinated(node, transactional_id)?;
        self.decide_and_write(node, self.lock(), &partition, transactional_id, command, facts(node))
    }

    fn decide_and_write(
        &self,
        node: &Arc<Node>,
        mut machines: MutexGuard<'_, HashMap<Arc<str>, Transaction>>,
        partition: &Arc<Partition>,
        transactional_id: &str,
        command: &Command,
        facts: Facts,
    ) -> Result<Identity, ErrorCode> {
        let (id, machine) =
            machines.get_key_value(transactional_id).ok_or(ErrorCode::InvalidProducerIdMapping)?;
        let (id, decision) = (Arc::clone(id), machine.decide(command, facts)?);
        match decision {
            Decision::Keep(identity) => Ok(identity),
            Decision::Write(record) => write(&mut machines, partition, &id, record),
            Decision::WriteAndSendMarkers(record) => {
                if *command == Command::CheckTimeOut {
                    info!(transactional_id, "transaction timed out and is aborted");
                }
                let identity = write(&mut machines, partition, &id, record.clone())?;
                start_markers(node, &id, &record, partition);
                Ok(identity)
            }
            Decision::AbortFirst(record) => {
                write(&mut machines, partition, &id, record.clone())?;
                start_markers(node, &id, &record, partition);
                Err(ErrorCode::ConcurrentTransactions)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Transaction>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the next check; false when the node stops.
async fn tick(node: &Node, interval: Duration) -> bool {
    let next: Instant = node.env.clock.now() + interval;
    tokio::select! {
        biased;
        () = node.stop.cancelled() => false,
        () = node.env.clock.sleep_until(next) => true,
    }
}

fn facts(node: &Node) -> Facts {
    // An id that the decision does not take is skipped; there are enough.
    Facts { now_ms: node.env.clock.wall_ms(), fresh_id: node.cluster.allocate_producer_id() }
}

/// The partition of the log that holds the id. Errors: NOT_COORDINATOR when another node leads it.
fn coordinated(node: &Node, transactional_id: &str) -> Result<Arc<Partition>, ErrorCode> {
    let index = node.cluster.transaction_partition(transactional_id);
    let partition = index.and_then(|index| node.cluster.topics.partition(TRANSACTION_STATE_TOPIC, index));
    partition.filter(|partition| node.leads(partition)).ok_or(ErrorCode::NotCoordinator)
}

/// Appends a record and replays it.
fn write(
    machines: &mut HashMap<Arc<str>, Transaction>,
    partition: &Partition,
    id: &Arc<str>,
    record: TransactionRecord,
) -> Result<Identity, ErrorCode> {
    let mut builder = BatchBuilder::new();
    let (key, value) = (log::encode_key(id), log::encode_value(&record));
    let failed = |_| ErrorCode::UnknownServerError;
    builder.append(record.updated_ms, Some(&key), Some(&value), &[]).map_err(failed)?;
    let batch = builder.build(&BatchMeta::default()).map_err(failed)?;
    partition.append(&batch, Origin::Coordinator)?;
    let identity = record.identity;
    machines.insert(Arc::clone(id), Transaction::replay(record));
    Ok(identity)
}

fn start_markers(node: &Arc<Node>, id: &Arc<str>, record: &TransactionRecord, partition: &Partition) {
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
        coordinator_epoch: partition.leadership().epoch.0,
        partitions: open.partitions.clone(),
    };
    node.spawn(format!("markers {id}"), TaskKind::Service, markers::write_all(Arc::clone(node), job));
}

/// The last record of every transactional id in a partition of the log.
fn replay_log(
    partition: &Partition,
) -> Result<HashMap<Arc<str>, TransactionRecord>, Box<dyn std::error::Error>> {
    let mut found = HashMap::new();
    let mut from = partition.ends().log_start;
    loop {
        let read = partition.read(from, LOAD_BYTES, Isolation::ReadUncommitted)?;
        let Some(last) = read.batches.last() else { return Ok(found) };
        from = sharestream_base::ids::Offset(last.header.next_offset());
        for batch in &read.batches {
            for record in batch.records()?.iter() {
                let record = record?;
                let (Some(key), Some(value)) = (record.key, record.value) else { continue };
                found.insert(Arc::from(log::decode_key(key)?), log::decode_value(value)?);
            }
        }
    }
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
