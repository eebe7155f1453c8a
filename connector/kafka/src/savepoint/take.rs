//! Makes a savepoint: of a job that runs as of one that stands still, from outside.
//!
//! The job is not asked and not disturbed. Its checkpoints are frequent, and all that a savepoint needs is durable where
//! others can read it; so there is no door in the job that somebody could come in by, and it need not run on this machine.
//! To have what was processed up to a moment in it, a program asks for a checkpoint first
//! (`sharestream_core::JobControl::checkpoint`).

use std::time::Duration;

use sharestream_base::ErrorKind;
use sharestream_checkpoints::{
    CheckpointStore, DecidedOffsets, LoadedSavepoint, OffsetDecision, OutcomePosition, Savepoint,
    SavepointSource, Savepoints,
};
use sharestream_client::Client;
use sharestream_core::decision::Decision;

use super::cut::Standing;
use super::standing::{self, Of, OutcomePlace};
use crate::error::{client_error, invalid_input};
use crate::{Error, Result};

/// How long outcomes may be open: a commit that is under way ends sooner.
const PATIENCE: Duration = Duration::from_secs(30);

/// The job that a savepoint is made of.
#[derive(Clone, Debug)]
pub struct SavepointOf {
    /// Job.
    pub job: String,
    /// Replica of the job.
    pub instance: String,
    /// Share group.
    pub group: String,
    /// Source topics.
    pub topics: Vec<String>,
    /// Outcome topic.
    pub outcome_topic: String,
}

/// Makes a savepoint of the last committed checkpoint of `of`, and copies what it needs to `to`. `store` is the job's
/// checkpoint store, if it has one.
///
/// # Errors
/// `InvalidInput`: the job has not committed anything, or has a store that was not given, or is between two generations.
/// `Retry`: transactions stay open, brokers or stores do not answer. `Corrupt`: what the checkpoint names is damaged.
///
/// # Cancel safety
/// Dropped, an unfinished folder may lie in `to`, and retention of the job may wait for an hour.
pub async fn take(
    client: &Client,
    of: &SavepointOf,
    store: Option<&CheckpointStore>,
    to: &Savepoints,
) -> Result<LoadedSavepoint> {
    let suffix = client.env().rng.uuid().simple().to_string();
    let suffix = &suffix[..8];
    // Before it is known which checkpoint it will be: from here on none goes.
    let hold = match store {
        Some(store) => Some(store.hold(&format!("savepoint-{suffix}")).await?),
        None => None,
    };
    let taken = take_held(client, of, store, to, suffix).await;
    if let Some(hold) = hold
        && let Err(error) = hold.release().await
    {
        tracing::warn!(%error, "retention of the job waits for an hour: its hold could not be taken away");
    }
    taken
}

async fn take_held(
    client: &Client,
    of: &SavepointOf,
    store: Option<&CheckpointStore>,
    to: &Savepoints,
    suffix: &str,
) -> Result<LoadedSavepoint> {
    let outcomes = OutcomePlace::find(client, &of.outcome_topic, &of.group).await?;
    let mut topics = Vec::new();
    for name in &of.topics {
        let topic = client.topic(name).await.map_err(client_error(format!("look up source topic {name}")))?;
        topics.push((topic.topic_id, name.clone()));
    }
    let whose = Of { client, group: &of.group, topics: &topics, outcomes: &outcomes };
    let standing = standing::read(whose, PATIENCE).await?;
    standing::must_be_settled(&standing, &of.group)?;
    let SavepointOf { job, instance, group, .. } = of;
    if !standing.is_ready() {
        return Err(invalid_input(format!(
            "group {group} is being reset or rewound; a savepoint can be made when that has ended"
        )));
    }
    let Some(last) = standing.last.get(&(job.clone(), instance.clone())) else {
        return Err(invalid_input(format!(
            "{job}/{instance} has not committed anything in group {group} yet: there is no checkpoint to keep"
        )));
    };
    let (operators, event_time) = match (&last.manifest, store) {
        (None, _) => (Vec::new(), None),
        (Some(manifest_ref), Some(store)) => {
            let manifest = store.load(manifest_ref).await?;
            (manifest.operators, manifest.event_time)
        }
        (Some(manifest_ref), None) => {
            return Err(invalid_input(format!(
                "the last commit of {job}/{instance} names manifest {}: its checkpoint store is needed",
                manifest_ref.name
            )));
        }
    };
    let savepoint = Savepoint {
        format_version: Savepoint::FORMAT_VERSION,
        name: format!("savepoint-{}-{suffix}", last.checkpoint),
        job: job.clone(),
        instance: instance.clone(),
        job_epoch: last.job_epoch,
        checkpoint: last.checkpoint,
        manifest: last.manifest.clone(),
        group: group.clone(),
        generation: standing.generation.generation.0,
        outcome: OutcomePosition {
            topic: outcomes.topic.clone(),
            topic_id: outcomes.topic_id,
            partition: outcomes.partition,
            checkpoint: last.position,
            end: standing.end,
        },
        sources: sources(&standing, &topics)?,
        operators,
        event_time,
        created_ms: client.env().clock.wall_ms(),
    };
    if let Some(fault) = savepoint.faults().first() {
        return Err(Error::new(ErrorKind::Bug, format!("a savepoint that cannot be: {fault}")));
    }
    Ok(to.write(store, &savepoint).await?)
}

fn sources(
    standing: &Standing,
    topics: &[(sharestream_base::ids::TopicId, String)],
) -> Result<Vec<SavepointSource>> {
    let name_of = |id| topics.iter().find(|(known, _)| *known == id).map(|(_, name)| name.clone());
    if let Some(unknown) = standing
        .decided
        .partitions()
        .find(|source| name_of(source.topic_id).is_some() && !standing.starts.contains_key(source))
    {
        // The broker writes the first start offset of a partition with the first decision that reaches it.
        return Err(Error::new(
            ErrorKind::Retry,
            format!(
                "the group's start offset of partition {} is not durable yet although records of it are decided; try again",
                unknown.partition
            ),
        ));
    }
    let mut sources = Vec::new();
    for (source, start) in &standing.starts {
        let Some(topic) = name_of(source.topic_id) else { continue };
        let decided = standing.decided.of(*source).map(|range| DecidedOffsets {
            first: range.first,
            last: range.last,
            decision: match range.decision {
                Decision::Accept => OffsetDecision::Accept,
                Decision::Reject => OffsetDecision::Reject,
                Decision::Gap => OffsetDecision::Gap,
            },
        });
        sources.push(SavepointSource {
            topic,
            topic_id: source.topic_id,
            partition: source.partition,
            start_offset: *start,
            decided: decided.collect(),
        });
    }
    Ok(sources)
}
