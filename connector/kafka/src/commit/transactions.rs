//! What both modes share: two alternating transactions, the outcome record in each, and recovery.
//!
//! ```text
//!            slot 0: | open 2 ........ commit 2 | open 4 ........ commit 4 |
//!            slot 1:        | open 3 ........ commit 3 | open 5 ........ commit 5 |
//! ```
//! Epoch n+1 writes while n commits; commits stay in order, because the coordinator calls them in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use sharestream_base::ErrorKind;
use sharestream_base::ids::{CheckpointId, JobEpoch, PartitionIndex, ProducerEpoch, ProducerId, TopicId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_client::{
    BatchWriter, Client, Producer, ProducerIdentity, TransactionConfig, TransactionDescription,
    TransactionSession, WriterConfig,
};
use sharestream_core::commit::{AckMode, CommitStep, LastCommitted, RecoverRequest, SealedEpoch, StepHook};
use sharestream_core::decision::{Decisions, MemberDecisions};

use crate::attempt::Attempt;
use crate::error::{bug, client_error};
use crate::outcome::{
    FORMAT_VERSION, ModeRecord, OutcomeCounts, OutcomeLog, OutcomePartition, OutcomeRecord, OwnerRecord,
    last_committed, read_outcomes,
};
use crate::{Error, Result};

/// Transactions that may be open at once.
pub(crate) const SLOT_COUNT: usize = 2;
/// Pause before the outcome partition is read again for a marker that recovery's fencing has caused.
const MARKER_PAUSE: Duration = Duration::from_millis(50);
/// How often it is read again.
const MARKER_READS_MAX: u32 = 40;
/// First pause between two looks at a committing transaction.
const VISIBLE_PAUSE: Duration = Duration::from_micros(500);
/// Longest pause.
const VISIBLE_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Committed epochs that are remembered.
const COMMITTED_KEPT: usize = 8;

/// The partition of the outcome topic that the group's outcomes go to.
#[derive(Clone, Debug)]
pub(crate) struct OutcomeTopic {
    pub(crate) name: Arc<str>,
    pub(crate) topic_id: TopicId,
    pub(crate) partition_count: i32,
    pub(crate) partition: PartitionIndex,
}

/// Settings of the transactions of one replica.
#[derive(Clone, Debug)]
pub(crate) struct TransactionsConfig {
    pub(crate) job: String,
    pub(crate) instance: String,
    pub(crate) group: String,
    pub(crate) mode: AckMode,
    pub(crate) outcome_topic: OutcomeTopic,
    /// Names of the source topics, for people.
    pub(crate) topic_names: BTreeMap<TopicId, String>,
    pub(crate) transaction_timeout: Duration,
    pub(crate) commit_deadline: Duration,
}

impl TransactionsConfig {
    fn transactional_id(&self, slot: usize) -> String {
        format!("{}.{}.{slot}", self.job, self.instance)
    }
}

/// An epoch that may be written into.
#[derive(Clone, Debug)]
struct OpenEpoch {
    identity: ProducerIdentity,
    deadline_ms: i64,
}

/// The transactions of one replica, by slot, and the writer of their outcome records.
pub(crate) struct Transactions {
    client: Client,
    config: TransactionsConfig,
    attempt: Arc<Attempt>,
    hook: Option<StepHook>,
    sessions: Vec<TransactionSession>,
    /// Our name in the owner record, once it is written.
    incarnation: Option<String>,
    outcome_writer: BatchWriter,
    open: BTreeMap<CheckpointId, OpenEpoch>,
    /// The last committed epochs, for whoever waits until they are visible.
    committed: BTreeMap<CheckpointId, ProducerIdentity>,
}

/// The slot of an epoch: ids alternate.
pub(crate) fn slot_of(checkpoint: CheckpointId) -> usize {
    usize::try_from(checkpoint.0 % SLOT_COUNT as u64).unwrap_or(0)
}

impl Transactions {
    pub(crate) fn new(
        client: Client,
        config: TransactionsConfig,
        attempt: Arc<Attempt>,
        hook: Option<StepHook>,
    ) -> Self {
        let outcome_writer = BatchWriter::new(client.clone(), WriterConfig::default());
        Transactions {
            client,
            config,
            attempt,
            hook,
            sessions: Vec::new(),
            incarnation: None,
            outcome_writer,
            open: BTreeMap::new(),
            committed: BTreeMap::new(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn attempt(&self) -> &Arc<Attempt> {
        &self.attempt
    }

    pub(crate) fn transactional_id(&self, checkpoint: CheckpointId) -> String {
        self.config.transactional_id(slot_of(checkpoint))
    }

    /// Called at the steps that only the protocol sees.
    pub(crate) fn hook(&self) -> Option<StepHook> {
        self.hook.clone()
    }

    fn new_session(&self, transactional_id: String) -> Result<TransactionSession> {
        let mut config = TransactionConfig::new(transactional_id);
        config.timeout = self.config.transaction_timeout;
        config.end_deadline = self.config.commit_deadline;
        TransactionSession::new(self.client.clone(), config).map_err(client_error("transaction session"))
    }

    /// Fences older incarnations, waits until what they left open is resolved, and reads the own outcomes.
    pub(crate) async fn recover(&mut self, request: RecoverRequest) -> Result<LastCommitted> {
        let incarnation = self.take_ownership(request.job_epoch).await?;
        self.incarnation = Some(incarnation.clone());
        let own: Vec<String> = (0..SLOT_COUNT).map(|slot| self.config.transactional_id(slot)).collect();
        let foreign = request.pending_transactional_ids.iter().filter(|id| !own.contains(id));
        for transactional_id in foreign {
            let mut session = self.new_session(transactional_id.clone())?;
            session
                .init()
                .await
                .map_err(client_error("recovery: fence the transactional id of a pending manifest"))?;
        }
        self.open.clear();
        self.sessions.clear();
        let read_early = if is_planted(Bug::OutcomesReadBeforeFencing) {
            Some(self.read_own_outcomes(&incarnation).await?)
        } else {
            None
        };
        for transactional_id in own {
            let mut session = self.new_session(transactional_id)?;
            session.init().await.map_err(client_error("recovery: take the transactional id"))?;
            self.sessions.push(session);
        }
        match read_early {
            Some(last_committed) => Ok(last_committed),
            None => self.read_own_outcomes(&incarnation).await,
        }
    }

    /// Writes who we are, before the transactional ids are taken; gives the name to look for afterwards.
    async fn take_ownership(&mut self, job_epoch: JobEpoch) -> Result<String> {
        let env = self.client.env();
        let owner = OwnerRecord {
            format_version: FORMAT_VERSION,
            job: self.config.job.clone(),
            instance: self.config.instance.clone(),
            job_epoch,
            incarnation: env.rng.uuid().to_string(),
            since_ms: env.clock.wall_ms(),
        };
        let value = owner.encode().map_err(|error| bug("owner record").with_source(error))?;
        self.write_alone(&owner.key(), &value, "write the owner record").await?;
        Ok(owner.incarnation)
    }

    /// The highest incarnation that an owner record or an outcome of this replica names.
    pub(crate) async fn last_job_epoch(&mut self) -> Result<Option<JobEpoch>> {
        let OutcomeTopic { name, partition, .. } = self.config.outcome_topic.clone();
        let mut log = OutcomeLog::of(&self.config.job, &self.config.instance);
        read_outcomes(&self.client, &name, partition, &mut log).await?;
        let owner = log.owner(&self.config.job, &self.config.instance).map(|owner| owner.job_epoch);
        let outcomes = log.outcomes().iter().map(|outcome| outcome.record.job_epoch);
        Ok(outcomes.chain(owner).max())
    }

    /// Whether the last owner record is ours.
    pub(crate) async fn still_owns(&mut self) -> Result<bool> {
        let Some(incarnation) = self.incarnation.clone() else { return Ok(false) };
        let OutcomeTopic { name, partition, .. } = self.config.outcome_topic.clone();
        let mut log = OutcomeLog::of(&self.config.job, &self.config.instance);
        read_outcomes(&self.client, &name, partition, &mut log).await?;
        let owner = log.owner(&self.config.job, &self.config.instance);
        Ok(owner.is_some_and(|owner| owner.incarnation == incarnation))
    }

    /// Writes one record to the outcome partition, outside transactions.
    async fn write_alone(&mut self, key: &str, value: &[u8], doing: &str) -> Result<()> {
        let topic = &self.config.outcome_topic;
        let mut producer = Producer::connect(self.client.clone(), WriterConfig::default())
            .await
            .map_err(client_error(doing))?;
        let now_ms = self.client.env().clock.wall_ms();
        producer
            .writer()
            .append(&topic.name, topic.partition, now_ms, Some(key.as_bytes()), Some(value), &[])
            .await
            .map_err(client_error(doing))?;
        producer.flush().await.map_err(client_error(doing))?;
        Ok(())
    }

    /// Our transactional ids are taken: whoever owned them before can write no more. Someone who wrote an owner record
    /// after ours is about to take them from us, or has done so.
    fn check_owner(&self, log: &OutcomeLog, incarnation: &str) -> Result<()> {
        let TransactionsConfig { job, instance, .. } = &self.config;
        match log.owner(job, instance) {
            Some(owner) if owner.incarnation == incarnation => Ok(()),
            Some(owner) => Err(Error::new(
                ErrorKind::Fenced,
                format!(
                    "{job}/{instance} was started again (owner {} since {} ms); give the second copy another instance",
                    owner.incarnation, owner.since_ms
                ),
            )),
            None => Err(Error::new(
                ErrorKind::Corrupt,
                format!("{} has lost the owner record of {job}/{instance}", self.config.outcome_topic.name),
            )),
        }
    }

    async fn read_own_outcomes(&mut self, incarnation: &str) -> Result<LastCommitted> {
        let OutcomeTopic { name, partition, .. } = self.config.outcome_topic.clone();
        for _read in 0..MARKER_READS_MAX {
            let mut log = OutcomeLog::of(&self.config.job, &self.config.instance);
            read_outcomes(&self.client, &name, partition, &mut log).await?;
            if !is_planted(Bug::OwnerNotReadAgain) {
                self.check_owner(&log, incarnation)?;
            }
            match last_committed(log.outcomes())? {
                Some(last) => {
                    self.pin_mode(log.mode(&self.config.group)).await?;
                    return Ok(last);
                }
                None => self.client.env().clock.sleep(MARKER_PAUSE).await,
            }
        }
        Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "{name}/{partition} holds an outcome without a marker, although its transaction was ended"
            ),
        ))
    }

    /// Checks the group's mode record, or writes it.
    async fn pin_mode(&mut self, pinned: Option<&ModeRecord>) -> Result<()> {
        let topic = self.config.outcome_topic.clone();
        let ours = ModeRecord {
            format_version: FORMAT_VERSION,
            group: self.config.group.clone(),
            mode: self.config.mode,
            topic_id: topic.topic_id,
            partition_count: topic.partition_count,
        };
        if let Some(pinned) = pinned {
            check_mode(&ours, pinned, &topic.name)?;
            if pinned.mode == ours.mode {
                return Ok(());
            }
        }
        let value = ours.encode().map_err(|error| bug("mode record").with_source(error))?;
        self.write_alone(&ours.key(), &value, "write the mode record").await
    }

    /// Opens the transaction of the epoch and publishes its identity to the sinks.
    pub(crate) fn open(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let session = self.session(checkpoint)?;
        let identity = session.begin().map_err(client_error(format!("open checkpoint {checkpoint}")))?;
        let timeout_ms = i64::try_from(self.config.transaction_timeout.as_millis()).unwrap_or(i64::MAX);
        let deadline_ms = self.client.env().clock.wall_ms().saturating_add(timeout_ms);
        self.open.insert(checkpoint, OpenEpoch { identity: identity.clone(), deadline_ms });
        self.attempt.publish_identity(checkpoint, identity);
        Ok(())
    }

    pub(crate) fn session(&mut self, checkpoint: CheckpointId) -> Result<&mut TransactionSession> {
        let slot = slot_of(checkpoint);
        self.sessions.get_mut(slot).ok_or_else(|| bug(format!("checkpoint {checkpoint} before recovery")))
    }

    fn opened(&self, checkpoint: CheckpointId) -> Result<&OpenEpoch> {
        self.open.get(&checkpoint).ok_or_else(|| bug(format!("checkpoint {checkpoint} is not open")))
    }

    /// Puts the outcome record into the epoch's transaction, as its last write, and waits until it is there.
    pub(crate) async fn write_outcome(&mut self, epoch: &SealedEpoch) -> Result<()> {
        let opened = self.opened(epoch.checkpoint)?.clone();
        let decisions = merged(&epoch.decided);
        let name_of = |id: TopicId| self.config.topic_names.get(&id).cloned().unwrap_or_default();
        let record = OutcomeRecord {
            format_version: FORMAT_VERSION,
            job: self.config.job.clone(),
            instance: self.config.instance.clone(),
            job_epoch: epoch.job_epoch,
            checkpoint: epoch.checkpoint,
            predecessor: epoch.predecessor,
            manifest: epoch.manifest.clone(),
            mode: self.config.mode,
            group: self.config.group.clone(),
            partitions: OutcomePartition::of(&decisions, name_of),
            transactional_id: opened.identity.transactional_id.to_string(),
            producer_id: opened.identity.producer_id,
            producer_epoch: opened.identity.producer_epoch,
            deadline_ms: opened.deadline_ms,
            counts: OutcomeCounts::of(&decisions),
        };
        let value = record.encode().map_err(|error| bug("outcome record").with_source(error))?;
        let topic = &self.config.outcome_topic;
        let now_ms = self.client.env().clock.wall_ms();
        let doing = || client_error(format!("write the outcome of checkpoint {}", epoch.checkpoint));
        self.outcome_writer.set_identity(&opened.identity);
        self.outcome_writer
            .append(&topic.name, topic.partition, now_ms, Some(record.key().as_bytes()), Some(&value), &[])
            .await
            .map_err(doing())?;
        self.outcome_writer.flush().await.map_err(doing())?;
        Ok(())
    }

    /// Commits the epoch's transaction; returns when its outcome is known.
    pub(crate) async fn commit(&mut self, checkpoint: CheckpointId) -> Result<()> {
        // From here on the epoch is not open: a commit of unknown outcome must not be aborted by us.
        let opened = self.open.remove(&checkpoint);
        let opened =
            opened.ok_or_else(|| bug(format!("commit of checkpoint {checkpoint}, which is not open")))?;
        self.attempt.withdraw_identity(checkpoint);
        let hook = self.hook.clone();
        let during = move || {
            if let Some(hook) = hook {
                hook(checkpoint, CommitStep::DuringEndTxn);
            }
        };
        let session = self.session(checkpoint)?;
        if let Err(error) = session.commit_with(during).await {
            if error.kind() == ErrorKind::Abort {
                // Refused, so known not to be committed: it may be aborted.
                self.open.insert(checkpoint, opened);
            }
            return Err(client_error(format!("commit checkpoint {checkpoint}"))(error));
        }
        self.committed.insert(checkpoint, opened.identity);
        if self.committed.len() > COMMITTED_KEPT {
            self.committed.pop_first();
        }
        Ok(())
    }

    /// A future that ends when the markers of the committed epoch are written everywhere.
    pub(crate) fn visible(&mut self, checkpoint: CheckpointId) -> BoxFuture<'static, Result<()>> {
        let Some(identity) = self.committed.remove(&checkpoint) else {
            return Box::pin(
                async move { Err(bug(format!("checkpoint {checkpoint} has not just committed"))) },
            );
        };
        let client = self.client.clone();
        Box::pin(async move {
            let ProducerIdentity { transactional_id, producer_id, producer_epoch } = identity;
            let mut pause = VISIBLE_PAUSE;
            loop {
                let described =
                    client.admin().describe_transactions(&[&*transactional_id]).await.map_err(
                        client_error(format!("look at the transaction of checkpoint {checkpoint}")),
                    )?;
                if is_complete(&described, producer_id, producer_epoch) {
                    return Ok(());
                }
                client.env().clock.sleep(pause).await;
                pause = (pause * 2).min(VISIBLE_PAUSE_MAX);
            }
        })
    }

    /// Aborts the epoch's transaction.
    pub(crate) async fn abort(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.attempt.withdraw_identity(checkpoint);
        if self.open.remove(&checkpoint).is_none() {
            return Ok(());
        }
        self.outcome_writer.discard();
        let session = self.session(checkpoint)?;
        session.abort().await.map_err(client_error(format!("abort checkpoint {checkpoint}")))
    }
}

/// The decisions of all members; they hold disjoint offsets.
fn merged(decided: &[MemberDecisions]) -> Decisions {
    let mut all = Decisions::new();
    for member in decided {
        all.overlay(&member.decisions);
    }
    all
}

/// True when the coordinator has nothing left to do for this transaction.
fn is_complete(described: &[TransactionDescription], producer_id: ProducerId, epoch: ProducerEpoch) -> bool {
    described.iter().all(|transaction| {
        let moved_on = transaction.producer_id != producer_id || transaction.producer_epoch > epoch;
        match transaction.state.as_str() {
            // Still writing markers: our transaction, or (bumped epoch) our transaction's end.
            "PrepareCommit" => {
                transaction.producer_id != producer_id || transaction.producer_epoch.0 > epoch.0 + 1
            }
            "Ongoing" => moved_on,
            _ => true,
        }
    })
}

/// Refuses an outcome topic that is not the one this group began with, and a mode that cannot follow the recorded one.
fn check_mode(ours: &ModeRecord, pinned: &ModeRecord, topic: &str) -> Result<()> {
    if pinned.topic_id != ours.topic_id {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "outcome topic {topic} has id {}, but group {} began with id {}: it was created again",
                ours.topic_id, ours.group, pinned.topic_id
            ),
        ));
    }
    if pinned.partition_count != ours.partition_count {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "outcome topic {topic} has {} partitions, but group {} began with {}: its outcomes are in another \
                 partition now",
                ours.partition_count, ours.group, pinned.partition_count
            ),
        ));
    }
    if pinned.mode == AckMode::Ledger {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("group {} runs in ledger mode, which is not available yet", ours.group),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(state: &str, producer_id: i64, epoch: i16) -> TransactionDescription {
        TransactionDescription {
            transactional_id: "j.0.0".to_owned(),
            producer_id: ProducerId(producer_id),
            producer_epoch: ProducerEpoch(epoch),
            state: state.to_owned(),
            timeout: Duration::ZERO,
            start_ms: None,
            partitions: Vec::new(),
        }
    }

    #[test]
    fn a_transaction_is_visible_when_its_markers_are_written_or_a_later_one_has_begun() {
        // The transaction had producer 7, epoch 3; its end bumps the epoch to 4 (KIP-890).
        let cases = [
            ("Ongoing", 7, 3, false),
            ("PrepareCommit", 7, 3, false),
            ("PrepareCommit", 7, 4, false),
            ("CompleteCommit", 7, 4, true),
            ("Empty", 7, 4, true),
            ("Ongoing", 7, 4, true),
            ("PrepareCommit", 7, 5, true),
            ("PrepareCommit", 8, 0, true),
        ];
        for (state, producer_id, epoch, expected) in cases {
            let described = [description(state, producer_id, epoch)];
            let complete = is_complete(&described, ProducerId(7), ProducerEpoch(3));
            assert_eq!(complete, expected, "{state} {producer_id} {epoch}");
        }
        assert!(is_complete(&[], ProducerId(7), ProducerEpoch(3)), "long forgotten");
    }

    #[test]
    fn an_outcome_topic_that_was_created_again_is_corrupt() {
        let record = |id: u128, partition_count, mode| ModeRecord {
            format_version: FORMAT_VERSION,
            group: "g".to_owned(),
            mode,
            topic_id: TopicId(uuid::Uuid::from_u128(id)),
            partition_count,
        };
        let ours = record(1, 4, AckMode::Transactional);
        let kind = |pinned: &ModeRecord| check_mode(&ours, pinned, "o").map_err(|error| error.kind());
        assert_eq!(kind(&ours), Ok(()));
        assert_eq!(kind(&record(1, 4, AckMode::AtLeastOnce)), Ok(()));
        assert_eq!(kind(&record(2, 4, AckMode::Transactional)), Err(ErrorKind::Corrupt));
        assert_eq!(kind(&record(1, 8, AckMode::Transactional)), Err(ErrorKind::Corrupt));
        assert_eq!(kind(&record(1, 4, AckMode::Ledger)), Err(ErrorKind::InvalidInput));
    }

    #[test]
    fn neighbouring_epochs_have_different_slots() {
        let slots: Vec<_> = (1..=4).map(|id| slot_of(CheckpointId(id))).collect();
        assert_eq!(slots, [1, 0, 1, 0]);
    }
}
