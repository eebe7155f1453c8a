//! Starts a job from a savepoint: goes on where it is the last commit, goes back where the user wants it.
//!
//! ```text
//! rewind:  generation begins -> everybody fenced -> offsets set -> state copied -> state committed -> generation ready
//!              |<--------------- no job of the group starts; done anew from the first step ------------->|
//! ```
//! Each run of a rewind begins a further generation and does everything again, so that it does not matter where the one
//! before it ended: until a generation is ready nothing can be decided in it, and state that was committed is replaced
//! by the same. The last record is what makes it happen.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use sharestream_base::ErrorKind;
use sharestream_base::ids::{CheckpointId, Offset, TopicId};
use sharestream_checkpoints::{CheckpointStore, LoadedSavepoint, OffsetDecision, Savepoint, SavepointSource};
use sharestream_client::{OffsetSpec, StartOffset, TransactionConfig, TransactionSession};
use sharestream_core::decision::{DecidedRange, Decision, SourcePartition};
use sharestream_core::takeover::Takeover;

use super::choice::{Choice, StartChoice, choose};
use super::cut::Standing;
use super::standing::{self, Of, OutcomePlace};
use crate::error::{client_error, invalid_input};
use crate::job::KafkaJob;
use crate::ledger::{begin_rewind, end_rewind, start_offsets};
use crate::outcome::{
    Beginning, BegunPartition, OutcomeLog, ReplayGeneration, RewindTo, outcome_partition, read_outcomes,
};
use crate::{Error, Result};

/// How long outcomes may be open where everybody who could end them is fenced.
const PATIENCE: Duration = Duration::from_secs(10);

/// A step of a rewind that has just been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RewindStep {
    /// The new generation has begun: from here on no job of the group starts.
    Begun,
    /// Every replica is fenced, and what it left is resolved.
    Fenced,
    /// The group's offsets are those of the savepoint.
    OffsetsSet,
    /// The parts of state are in the job's store.
    StateCopied,
    /// They are the job's last commit.
    StateCommitted,
    /// The generation is ready: jobs start.
    Ready,
}

impl RewindStep {
    /// All, in order.
    pub const ALL: [RewindStep; 6] = [
        RewindStep::Begun,
        RewindStep::Fenced,
        RewindStep::OffsetsSet,
        RewindStep::StateCopied,
        RewindStep::StateCommitted,
        RewindStep::Ready,
    ];
}

/// Called behind each step; an error ends the rewind there, as a crash would.
pub type RewindHook = Box<dyn Fn(RewindStep) -> Result<()> + Send + Sync>;

/// A start from a savepoint.
pub struct SavepointStart<'a> {
    kafka: &'a KafkaJob,
    store: Option<CheckpointStore>,
    savepoint: &'a LoadedSavepoint,
    choice: StartChoice,
    deadline: Duration,
    hook: Option<RewindHook>,
}

impl fmt::Debug for SavepointStart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavepointStart")
            .field("savepoint", &self.savepoint.place)
            .field("choice", &self.choice)
            .finish_non_exhaustive()
    }
}

/// How a start from a savepoint went; the job can be run now, as it always is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Started {
    /// The savepoint is the last commit.
    GoesOn {
        /// The job's store had lost the checkpoint and got it back.
        checkpoint_restored: bool,
    },
    /// Group and state went back.
    Rewound {
        /// The generation that begins with it.
        generation: ReplayGeneration,
        /// The commit that holds the state; `None` for a job without a checkpoint store.
        checkpoint: Option<CheckpointId>,
        /// What a person should know, a sentence each.
        notes: Vec<String>,
    },
}

impl<'a> SavepointStart<'a> {
    /// A start of `kafka` from `savepoint`; `store` is the job's own, if it has one. Without more it never goes back.
    pub fn new(kafka: &'a KafkaJob, store: Option<CheckpointStore>, savepoint: &'a LoadedSavepoint) -> Self {
        let (choice, deadline, hook) = (StartChoice::default(), Duration::from_secs(60), None);
        SavepointStart { kafka, store, savepoint, choice, deadline, hook }
    }

    /// What is allowed where the savepoint is not the last commit. Default: nothing.
    #[must_use]
    pub fn choice(mut self, choice: StartChoice) -> Self {
        self.choice = choice;
        self
    }

    /// Longest time of taking the job over, and of committing its state. Default 60 s.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Calls `hook` behind each step of a rewind.
    #[must_use]
    pub fn hook(mut self, hook: RewindHook) -> Self {
        self.hook = Some(hook);
        self
    }
}

/// Prepares a start from a savepoint, before the job is run; with a rewind, goes back to it.
///
/// # Errors
/// `InvalidInput`: the savepoint is another job's, is not the last commit and a rewind was not allowed, or members are in the
/// group. `Corrupt`: a copy is damaged or missing; nothing was changed. Others as those of a start. After an error behind
/// the first step of a rewind no job of the group starts until the rewind was repeated with success.
///
/// # Cancel safety
/// Not cancel safe: as after an error.
pub async fn start_from(start: SavepointStart<'_>) -> Result<Started> {
    let Savepoint { name, job, instance, .. } = &start.savepoint.savepoint;
    start.check_identity().await?;
    // Before anything is changed: what is damaged cannot be gone back to.
    if let Some(fault) = start.savepoint.verify().await?.first() {
        return Err(Error::new(ErrorKind::Corrupt, format!("savepoint {name} is damaged: {fault}")));
    }
    let topics = start.topics();
    let standing = start.standing(&topics, Duration::ZERO).await?;
    match start.choose(&standing) {
        Choice::Refuse(why) => Err(invalid_input(why)),
        Choice::Rewind => start.rewind(&topics, &standing).await,
        Choice::GoOn => {
            let mut checkpoint_restored = false;
            if let Some(store) = &start.store {
                checkpoint_restored = start.savepoint.restore_checkpoint(store).await?;
            }
            // What was still open may have committed: only behind the fences it is known for good.
            let id = start.kafka.id();
            let takeover = Takeover::of(
                &id,
                start.kafka.rewind_protocol(),
                start.store.clone(),
                start.kafka.client().env(),
                start.deadline,
            );
            let _taken = takeover.await?;
            let standing = start.standing(&topics, PATIENCE).await?;
            standing::must_be_settled(&standing, &start.savepoint.savepoint.group)?;
            match start.choose(&standing) {
                Choice::GoOn => Ok(Started::GoesOn { checkpoint_restored }),
                Choice::Refuse(why) => Err(invalid_input(why)),
                Choice::Rewind => Err(Error::new(
                    ErrorKind::Retry,
                    format!("{job}/{instance} committed while it was taken over; start it again"),
                )),
            }
        }
    }
}

impl SavepointStart<'_> {
    async fn check_identity(&self) -> Result<()> {
        let Savepoint { name, job, instance, group, outcome, manifest, .. } = &self.savepoint.savepoint;
        let config = self.kafka.config();
        let place = &self.savepoint.place;
        if (job, instance, group) != (&config.job, &config.instance, &config.group) {
            return Err(invalid_input(format!(
                "savepoint {name} ({place}) is of job {job}, instance {instance}, group {group}; this is job {}, instance \
                 {}, group {}: offsets and outcomes belong to one job",
                config.job, config.instance, config.group
            )));
        }
        let now = OutcomePlace::find(self.kafka.client(), &config.outcome_topic, group).await?;
        if (outcome.topic_id, outcome.partition) != (now.topic_id, now.partition) {
            return Err(invalid_input(format!(
                "savepoint {name} stands in outcome topic {} with id {}, partition {}; the job uses {} with id {}, partition \
                 {}: the topic was created again, or is another one, and nobody can tell what came after the savepoint",
                outcome.topic, outcome.topic_id, outcome.partition, now.topic, now.topic_id, now.partition
            )));
        }
        if manifest.is_some() && self.store.is_none() {
            return Err(invalid_input(format!(
                "savepoint {name} has a checkpoint of the job's store, but the job has no store now: give it one"
            )));
        }
        Ok(())
    }

    fn topics(&self) -> Vec<(TopicId, String)> {
        self.kafka.source_topics().iter().map(|topic| (topic.topic_id, topic.name.to_string())).collect()
    }

    async fn standing(&self, topics: &[(TopicId, String)], patience: Duration) -> Result<Standing> {
        let outcomes = self.kafka.outcomes();
        let place = OutcomePlace {
            topic: outcomes.name.to_string(),
            topic_id: outcomes.topic_id,
            partition: outcomes.partition,
        };
        let (client, group) = (self.kafka.client(), self.kafka.config().group.as_str());
        standing::read(Of { client, group, topics, outcomes: &place }, patience).await
    }

    fn choose(&self, standing: &Standing) -> Choice {
        let LoadedSavepoint { place, savepoint, sha256 } = self.savepoint;
        choose(savepoint, (sha256, &place.to_string()), standing, self.choice)
    }

    fn done(&self, step: RewindStep) -> Result<()> {
        tracing::info!(savepoint = self.savepoint.savepoint.name, ?step, "rewind");
        self.hook.as_ref().map_or(Ok(()), |hook| hook(step))
    }

    async fn rewind(&self, topics: &[(TopicId, String)], standing: &Standing) -> Result<Started> {
        let (client, config) = (self.kafka.client(), self.kafka.config());
        let LoadedSavepoint { place, savepoint, sha256 } = self.savepoint;
        let others = self.other_replicas().await?;
        self.nobody_may_be_alive(&others).await?;
        let mut notes = Vec::new();
        let partitions = self.partitions(topics, standing, &mut notes).await?;
        let rewind = RewindTo {
            job: savepoint.job.clone(),
            savepoint: savepoint.name.clone(),
            sha256: sha256.clone(),
            place: place.to_string(),
        };
        let since_ms = client.env().clock.wall_ms();
        let begins = Beginning { since_ms, rewind: Some(rewind), partitions: partitions.clone() };
        let generation = begin_rewind(client, &config.outcome_topic, &config.group, begins).await?;
        self.done(RewindStep::Begun)?;
        // Who started before the record cannot commit behind it: read again, for one may have started meanwhile.
        for id in self.other_replicas().await? {
            let doing = || client_error(format!("fence transactional id '{id}'"));
            let session = TransactionSession::new(client.clone(), TransactionConfig::new(&*id));
            session.map_err(doing())?.init().await.map_err(doing())?;
        }
        let takeover = Takeover::to_replace(
            &self.kafka.id(),
            self.kafka.rewind_protocol(),
            self.store.clone(),
            client.env(),
            self.deadline,
        )
        .await?;
        self.done(RewindStep::Fenced)?;
        let starts: Vec<StartOffset> = partitions.iter().map(start_offset).collect();
        let altered = client.admin().alter_share_group_offsets(&config.group, &starts).await;
        altered.map_err(client_error(format!(
            "set the offsets of group {} to those of savepoint {}; repeat the rewind",
            config.group, savepoint.name
        )))?;
        self.done(RewindStep::OffsetsSet)?;
        if let Some(store) = &self.store {
            self.savepoint.restore_state(store).await?;
        }
        self.done(RewindStep::StateCopied)?;
        let checkpoint = takeover.commit_state(self.savepoint).await?;
        self.done(RewindStep::StateCommitted)?;
        self.check_offsets(topics, &partitions).await?;
        end_rewind(client, &config.outcome_topic, &config.group, generation).await?;
        self.done(RewindStep::Ready)?;
        Ok(Started::Rewound { generation, checkpoint, notes })
    }

    /// Transactional ids of the job's other replicas.
    async fn other_replicas(&self) -> Result<BTreeSet<String>> {
        let (client, config) = (self.kafka.client(), self.kafka.config());
        let outcomes = self.kafka.outcomes();
        let partition = outcome_partition(&config.group, outcomes.partition_count);
        let mut log = OutcomeLog::of(&config.job, &config.instance);
        read_outcomes(client, &outcomes.name, partition, &mut log).await?;
        let own = log.transactional_ids(&config.job, &config.instance);
        Ok(log.transactional_ids_of_job(&config.job).difference(&own).cloned().collect())
    }

    /// Errors: `InvalidInput` when the group has members, or another replica has an open transaction. An open one of this
    /// replica is resolved by its fence, as at every start.
    async fn nobody_may_be_alive(&self, others: &BTreeSet<String>) -> Result<()> {
        let (client, group) = (self.kafka.client(), &self.kafka.config().group);
        let admin = client.admin();
        let count = admin
            .share_group_member_count(group)
            .await
            .map_err(client_error(format!("members of group {group}")))?;
        if count > 0 {
            return Err(invalid_input(format!(
                "group {group} has {count} members: stop every replica of the job before it goes back to a savepoint"
            )));
        }
        let ids: Vec<&str> = others.iter().map(String::as_str).collect();
        let described = admin.describe_transactions(&ids).await;
        let is_open = |state: &str| matches!(state, "Ongoing" | "PrepareCommit" | "PrepareAbort");
        for transaction in described.map_err(client_error("look at the transactions of the job"))? {
            if is_open(&transaction.state) {
                return Err(invalid_input(format!(
                    "transaction {} of another replica of the job is open: stop that replica; if it has died, wait for the \
                     time-out of the transaction, or end it: sharestream transactions abort {}",
                    transaction.transactional_id, transaction.transactional_id
                )));
            }
        }
        Ok(())
    }

    /// Where every partition begins again.
    async fn partitions(
        &self,
        topics: &[(TopicId, String)],
        standing: &Standing,
        notes: &mut Vec<String>,
    ) -> Result<Vec<BegunPartition>> {
        let admin = self.kafka.client().admin();
        let sources = &self.savepoint.savepoint.sources;
        if let Some(gone) = sources.iter().find(|source| topics.iter().all(|(id, _)| *id != source.topic_id))
        {
            return Err(invalid_input(format!(
                "savepoint {} has offsets of topic {} with id {}, which the job does not read now: the topic was created \
                 again, or the job file leaves it out",
                self.savepoint.savepoint.name, gone.topic, gone.topic_id
            )));
        }
        let mut begun = Vec::new();
        for (topic_id, topic) in topics {
            let doing = || client_error(format!("where topic {topic} begins"));
            let log_starts = admin.list_offsets(topic, &[], OffsetSpec::Earliest).await.map_err(doing())?;
            for (partition, log_start) in log_starts {
                let source = SourcePartition { topic_id: *topic_id, partition };
                let known =
                    sources.iter().find(|known| (known.topic_id, known.partition) == (*topic_id, partition));
                let (start_offset, decided) = match known {
                    Some(known) => (known.start_offset, decided_of(known)),
                    // The group had not begun it, so nothing of it is in the state.
                    None if standing.starts.contains_key(&source) => (log_start, Vec::new()),
                    None => continue,
                };
                if start_offset < log_start {
                    notes.push(format!(
                        "{topic}[{partition}]: offsets {start_offset} to {} are not kept any more: what of them was not \
                         decided at the savepoint is lost to it",
                        log_start.plus(-1)
                    ));
                }
                if known.is_none() {
                    notes.push(format!(
                        "{topic}[{partition}]: the group had not begun it at the savepoint, and begins at {log_start}"
                    ));
                }
                let start_offset = start_offset.max(log_start);
                begun.push(BegunPartition {
                    topic: topic.clone(),
                    topic_id: *topic_id,
                    partition,
                    start_offset,
                    decided: decided.into_iter().filter(|range| range.last >= start_offset).collect(),
                });
            }
        }
        Ok(begun)
    }

    /// Errors: `Retry` when somebody else has moved the offsets meanwhile.
    async fn check_offsets(&self, topics: &[(TopicId, String)], begun: &[BegunPartition]) -> Result<()> {
        let group = &self.kafka.config().group;
        let names = topics.iter().map(|(id, name)| (*id, name.as_str()));
        let starts = start_offsets(self.kafka.client(), group, names).await?;
        let moved = begun.iter().find(|partition| {
            starts.get(&partition.source()).is_some_and(|start| *start != partition.start_offset)
        });
        match moved {
            None => Ok(()),
            Some(BegunPartition { topic, partition, .. }) => Err(Error::new(
                ErrorKind::Retry,
                format!(
                    "somebody else moved the offsets of group {group} in {topic}/{partition}; repeat the rewind"
                ),
            )),
        }
    }
}

fn start_offset(begun: &BegunPartition) -> StartOffset {
    let BegunPartition { topic, partition, start_offset, .. } = begun;
    StartOffset { topic: topic.clone(), partition: *partition, start_offset: *start_offset }
}

fn decided_of(source: &SavepointSource) -> Vec<DecidedRange> {
    let range = |range: &sharestream_checkpoints::DecidedOffsets| DecidedRange {
        first: Offset(range.first.0),
        last: Offset(range.last.0),
        decision: match range.decision {
            OffsetDecision::Accept => Decision::Accept,
            OffsetDecision::Reject => Decision::Reject,
            OffsetDecision::Gap => Decision::Gap,
        },
    };
    source.decided.iter().map(range).collect()
}
