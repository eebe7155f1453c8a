//! What both modes share: two alternating transactions and the outcome record in each.
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
use sharestream_base::ids::{CheckpointId, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_client::{
    BatchWriter, Client, ProducerIdentity, TransactionConfig, TransactionDescription, TransactionSession,
    WriterConfig,
};
use sharestream_core::commit::{AckMode, CommitStep, SealedEpoch, StepHook};
use sharestream_core::decision::{Decisions, MemberDecisions};

use super::recovery::Ownership;
use crate::Result;
use crate::attempt::Attempt;
use crate::error::{bug, client_error};
use crate::outcome::{FORMAT_VERSION, OutcomeCounts, OutcomePartition, OutcomeRecord, ReplayGeneration};
use crate::source::DeliveryLimit;

/// Transactions that may be open at once.
pub(crate) const SLOT_COUNT: usize = 2;
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
    /// How often the group hands out a record, and how many deliveries are kept in reserve.
    pub(crate) delivery_limit: DeliveryLimit,
}

impl TransactionsConfig {
    /// The transactional id of a slot: the one place that names them (invariant J-TXN-ID). A function of job, instance
    /// and slot alone, so that every incarnation takes the ids of the ones before it, and so fences them.
    ///
    /// Whoever changes it keeps this form for owner records that name no ids.
    pub(super) fn transactional_id(&self, slot: usize) -> String {
        format!("{}.{}.{slot}", self.job, self.instance)
    }
}

/// What an outcome record says beside its decisions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClaimTerms {
    /// Replay generation of the group.
    pub(crate) generation: ReplayGeneration,
    /// Unix milliseconds after which anyone may end the transaction; `None`: the transaction time-out.
    pub(crate) deadline_ms: Option<i64>,
}

/// An epoch that may be written into.
#[derive(Clone, Debug)]
pub(super) struct OpenEpoch {
    identity: ProducerIdentity,
    deadline_ms: i64,
}

/// The transactions of one replica, by slot, and the writer of their outcome records.
pub(crate) struct Transactions {
    pub(super) client: Client,
    pub(super) config: TransactionsConfig,
    attempt: Arc<Attempt>,
    hook: Option<StepHook>,
    pub(super) sessions: Vec<TransactionSession>,
    /// How to find out whether the job is still ours, once the owner record is written.
    pub(super) ownership: Option<Ownership>,
    /// How often the group's mode had changed when we recovered.
    pub(super) era: u32,
    /// Replay generation of the group when we recovered.
    pub(super) generation: ReplayGeneration,
    /// True for the one that rewinds the group: only it goes on where a rewind is half done.
    pub(super) is_rewinding: bool,
    outcome_writer: BatchWriter,
    pub(super) open: BTreeMap<CheckpointId, OpenEpoch>,
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
            ownership: None,
            era: 0,
            generation: ReplayGeneration::default(),
            is_rewinding: false,
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

    /// Lets recovery pass where a rewind of the group is half done.
    pub(super) fn rewinding(mut self) -> Self {
        self.is_rewinding = true;
        self
    }

    /// What the outcome record of an epoch says where no view of the ledger knows more.
    pub(super) fn terms(&self) -> ClaimTerms {
        ClaimTerms { generation: self.generation, deadline_ms: None }
    }

    /// Called at the steps that only the protocol sees.
    pub(crate) fn hook(&self) -> Option<StepHook> {
        self.hook.clone()
    }

    /// Id of the topic that holds the outcomes.
    pub(crate) fn outcome_topic_id(&self) -> TopicId {
        self.config.outcome_topic.topic_id
    }

    pub(super) fn new_session(&self, transactional_id: String) -> Result<TransactionSession> {
        let mut config = TransactionConfig::new(transactional_id);
        config.timeout = self.config.transaction_timeout;
        config.end_deadline = self.config.commit_deadline;
        TransactionSession::new(self.client.clone(), config).map_err(client_error("transaction session"))
    }

    /// Opens the transaction of the epoch and publishes its identity to the sinks.
    pub(crate) fn open(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let session = self.session(checkpoint)?;
        let identity = session.begin().map_err(client_error(format!("open checkpoint {checkpoint}")))?;
        let timeout_ms = i64::try_from(self.config.transaction_timeout.as_millis()).unwrap_or(i64::MAX);
        let deadline_ms = self.client.env().clock.wall_ms().saturating_add(timeout_ms);
        self.open.insert(checkpoint, OpenEpoch { identity: identity.clone(), deadline_ms });
        self.attempt.publish_identity(checkpoint, identity)
    }

    pub(crate) fn session(&mut self, checkpoint: CheckpointId) -> Result<&mut TransactionSession> {
        let slot = slot_of(checkpoint);
        self.sessions.get_mut(slot).ok_or_else(|| bug(format!("checkpoint {checkpoint} before recovery")))
    }

    fn opened(&self, checkpoint: CheckpointId) -> Result<&OpenEpoch> {
        self.open.get(&checkpoint).ok_or_else(|| bug(format!("checkpoint {checkpoint} is not open")))
    }

    /// Puts the outcome record into the epoch's transaction, as its last write, and waits until it is there. Gives its
    /// place; `None` when the broker knows it only as a repeat.
    pub(crate) async fn write_outcome(
        &mut self,
        epoch: &SealedEpoch,
        terms: ClaimTerms,
    ) -> Result<Option<Offset>> {
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
            deadline_ms: terms.deadline_ms.unwrap_or(opened.deadline_ms),
            counts: OutcomeCounts::of(&decisions),
            generation: terms.generation,
        };
        let key = if is_planted(Bug::ClaimKeyReused) {
            format!("{}/{}/{}", record.job, record.instance, record.transactional_id)
        } else {
            record.key()
        };
        let value = record.encode().map_err(|error| bug("outcome record").with_source(error))?;
        let topic = &self.config.outcome_topic;
        let now_ms = self.client.env().clock.wall_ms();
        let doing = || client_error(format!("write the outcome of checkpoint {}", epoch.checkpoint));
        self.outcome_writer.set_identity(&opened.identity);
        self.outcome_writer
            .append(&topic.name, topic.partition, now_ms, Some(key.as_bytes()), Some(&value), &[])
            .await
            .map_err(doing())?;
        let written = self.outcome_writer.flush().await.map_err(doing())?;
        Ok(written.last().and_then(|written| written.last_offset))
    }

    /// Decisions of an epoch, whoever holds the records.
    pub(crate) fn decisions_of(epoch: &SealedEpoch) -> Decisions {
        merged(&epoch.decided)
    }

    /// Under which producer the open epoch writes.
    pub(crate) fn identity(&self, checkpoint: CheckpointId) -> Result<ProducerIdentity> {
        Ok(self.opened(checkpoint)?.identity.clone())
    }

    /// Settings.
    pub(crate) fn config(&self) -> &TransactionsConfig {
        &self.config
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BadRecords;

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

    /// Invariant J-TXN-ID. Whoever changes a name here leaves the transactions of running jobs unfenced, unless the ids
    /// of before are fenced by the owner record that names them; records without names are of this form.
    #[test]
    fn transactional_ids_are_a_function_of_job_instance_and_slot_that_never_changes() {
        let named = |job: &str, instance: &str, group: &str| {
            let config = TransactionsConfig {
                job: job.to_owned(),
                instance: instance.to_owned(),
                group: group.to_owned(),
                mode: AckMode::Transactional,
                outcome_topic: OutcomeTopic {
                    name: "o".into(),
                    topic_id: TopicId::default(),
                    partition_count: 1,
                    partition: PartitionIndex(0),
                },
                topic_names: BTreeMap::new(),
                transaction_timeout: Duration::from_secs(1),
                commit_deadline: Duration::from_secs(1),
                delivery_limit: DeliveryLimit::new(5, 2, BadRecords::DeadLetter),
            };
            (0..SLOT_COUNT).map(|slot| config.transactional_id(slot)).collect::<Vec<_>>()
        };
        assert_eq!(named("flights", "pod-1", "g"), ["flights.pod-1.0", "flights.pod-1.1"]);
        assert_eq!(named("flights", "pod-1", "g"), named("flights", "pod-1", "h"));
    }

    #[test]
    fn neighbouring_epochs_have_different_slots() {
        let slots: Vec<_> = (1..=4).map(|id| slot_of(CheckpointId(id))).collect();
        assert_eq!(slots, [1, 0, 1, 0]);
    }
}
