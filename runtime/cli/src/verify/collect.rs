//! Collects the facts of a job from the cluster: topics at both isolation levels, and the share state.
//!
//! Order matters where the job still runs: the start offsets are read first (everything below them must have an
//! outcome), the outcomes second, the effects third, and the start offsets again at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_client::{Client, OffsetSpec, TopicInfo};
use sharestream_core::commit::AckMode;
use sharestream_core::decision::SourcePartition;
use sharestream_kafka::outcome::{LogEntry, OutcomeRecord};
use sharestream_kafka::provenance::Provenance;
use sharestream_kafka::{AckModeChoice, KafkaJobConfig};
use sharestream_wire::records::RecordView;

use super::facts::{Claim, Effect, Expected, Facts, OpenTransaction, PartitionFacts, Place, digest};
use super::recompute::Recompute;
use super::scan::{self, Scan};
use crate::job_file::JobFile;
use crate::settings;

/// Facts, and what is worth telling besides.
pub(crate) struct Collected {
    /// The facts.
    pub(crate) facts: Facts,
    /// Notes for the report.
    pub(crate) notes: Vec<String>,
    /// True when the transform was recomputed.
    pub(crate) recomputed: bool,
}

/// Reads everything. `settle`: how long the share state may lag behind the outcomes.
pub(crate) async fn collect(client: &Client, job: &JobFile, settle: Duration) -> anyhow::Result<Collected> {
    let config = settings::kafka_config(job, &client.config().bootstrap, None);
    let mut notes = Vec::new();
    let sources = topics(client, &job.source.topics).await?;
    let before = start_offsets(client, &job.source.group, &sources).await?;
    let outcomes = outcomes(client, &config, &mut notes).await?;
    let outputs = effects(client, &job.sink.topic, &mut notes).await?;
    let dead_letters = match &job.dead_letter_topic {
        Some(topic) => effects(client, topic, &mut notes).await?,
        None => Vec::new(),
    };
    let claims = claims(&config.outcome_topic, &outcomes);
    let mut recompute = Recompute::new(job, &sources)?;
    let mut partitions = Vec::new();
    for topic in &sources {
        let first = client.admin().list_offsets(&topic.name, &[], OffsetSpec::Earliest).await?;
        for (partition, log_start) in first {
            let source = SourcePartition { topic_id: topic.topic_id, partition };
            let start = before.get(&source).copied();
            let initial = initial(job, &claims, source, log_start, start, &mut notes, &topic.name);
            let expected = expected(client, &mut recompute, topic, source, initial).await?;
            partitions.push(PartitionFacts {
                topic: topic.name.clone(),
                source,
                initial: initial.0,
                start_offset: start.unwrap_or(initial).0,
                start_offset_after: 0,
                expected,
            });
        }
    }
    settle_start_offsets(client, job, &sources, &claims, &mut partitions, settle).await?;
    let open_transactions = open_transactions(client, &config, &outcomes, &mut notes).await?;
    let facts = Facts {
        exactly_once: promises_exactly_once(&config, &outcomes, &mut notes),
        has_dead_letter_topic: job.dead_letter_topic.is_some(),
        partitions,
        claims,
        outputs,
        dead_letters,
        open_transactions,
    };
    Ok(Collected { facts, notes, recomputed: true })
}

/// What the committed outcomes were made under decides; the job file may have changed since.
fn promises_exactly_once(config: &KafkaJobConfig, outcomes: &[Outcome], notes: &mut Vec<String>) -> bool {
    let weak = outcomes.iter().filter(|outcome| outcome.record.mode == AckMode::AtLeastOnce).count();
    let wants_weak = config.mode == AckModeChoice::AtLeastOnce;
    if weak > 0 && !wants_weak {
        notes.push(format!(
            "{weak} of {} commits were made at least once, against the job file",
            outcomes.len()
        ));
    }
    weak == 0 && !wants_weak
}

async fn topics(client: &Client, names: &[String]) -> anyhow::Result<Vec<Arc<TopicInfo>>> {
    let mut topics = Vec::new();
    for name in names {
        topics.push(client.topic(name).await?);
    }
    Ok(topics)
}

async fn start_offsets(
    client: &Client,
    group: &str,
    sources: &[Arc<TopicInfo>],
) -> anyhow::Result<BTreeMap<SourcePartition, Offset>> {
    let names: Vec<&str> = sources.iter().map(|topic| &*topic.name).collect();
    let described = client.admin().describe_share_group_offsets(group, &names).await;
    let described = described.with_context(|| format!("cannot read the state of share group {group}"))?;
    Ok(described
        .into_iter()
        .filter_map(|offset| {
            let source = SourcePartition { topic_id: offset.topic_id, partition: offset.partition };
            Some((source, offset.start_offset?))
        })
        .collect())
}

/// A committed outcome record and where it stands.
struct Outcome {
    partition: PartitionIndex,
    offset: i64,
    record: OutcomeRecord,
}

/// The committed outcomes of the group, of every job and instance in it.
async fn outcomes(
    client: &Client,
    config: &KafkaJobConfig,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Outcome>> {
    let topic = &config.outcome_topic;
    let mut committed = Vec::new();
    let read =
        |partition: PartitionIndex, record: &RecordView<'_>, into: &mut Vec<Outcome>| -> anyhow::Result<()> {
            let (Some(key), Some(value)) = (record.key, record.value) else { return Ok(()) };
            let entry = LogEntry::decode(key, value)
                .with_context(|| format!("outcome record {topic}[{partition}]@{}", record.offset))?;
            match entry {
                LogEntry::Outcome(record_of) if record_of.group == config.group => {
                    into.push(Outcome { partition, offset: record.offset, record: *record_of });
                }
                LogEntry::Outcome(_) | LogEntry::Mode(_) | LogEntry::Unknown => {}
            }
            Ok(())
        };
    scan::topic(client, topic, Scan::Committed, |partition, record| read(partition, record, &mut committed))
        .await
        .with_context(|| format!("cannot read the outcome topic {topic} (has the job run?)"))?;
    let mut raw = Vec::new();
    scan::topic(client, topic, Scan::Raw, |partition, record| read(partition, record, &mut raw)).await?;
    if raw.len() < committed.len() {
        bail!(
            "the outcome topic {topic} changed under the check: {} records, then {}",
            committed.len(),
            raw.len()
        );
    }
    let given_up = raw.len() - committed.len();
    if given_up > 0 {
        notes.push(format!(
            "{given_up} outcome records were aborted or are still open: they count for nothing"
        ));
    }
    Ok(committed)
}

fn claims(topic: &str, outcomes: &[Outcome]) -> Vec<Claim> {
    let topic: Arc<str> = Arc::from(topic);
    let mut claims = Vec::new();
    for outcome in outcomes {
        let at = Place { topic: topic.clone(), partition: outcome.partition.0, offset: outcome.offset };
        for partition in &outcome.record.partitions {
            let source = SourcePartition { topic_id: partition.topic_id, partition: partition.partition };
            for range in &partition.ranges {
                claims.push(Claim {
                    at: at.clone(),
                    checkpoint: outcome.record.checkpoint.0,
                    source,
                    first: range.first.0,
                    last: range.last.0,
                    decision: range.decision,
                });
            }
        }
    }
    claims
}

/// First offset that the group was to process: the log's start when it began there, else the first decision.
fn initial(
    job: &JobFile,
    claims: &[Claim],
    source: SourcePartition,
    log_start: Offset,
    start: Option<Offset>,
    notes: &mut Vec<String>,
    topic: &str,
) -> Offset {
    let from_earliest =
        job.source.group_config.get("share.auto.offset.reset").is_some_and(|reset| reset == "earliest");
    if log_start.0 > 0 {
        notes.push(format!(
            "{topic}[{}]: records below {log_start} are no longer kept, so they are not checked",
            source.partition
        ));
    }
    if from_earliest {
        return log_start;
    }
    let first = claims.iter().filter(|claim| claim.source == source).map(|claim| Offset(claim.first)).min();
    let first = first.or(start).unwrap_or(log_start).max(log_start);
    notes.push(format!(
        "{topic}[{}]: the group does not start at earliest, so records below its first decision ({first}) are not \
         checked",
        source.partition
    ));
    first
}

/// The committed effects in a topic that carry a provenance.
async fn effects(client: &Client, topic: &str, notes: &mut Vec<String>) -> anyhow::Result<Vec<Effect>> {
    let name: Arc<str> = Arc::from(topic);
    let mut effects = Vec::new();
    let mut foreign = 0u64;
    scan::topic(client, topic, Scan::Committed, |partition, record| {
        match Provenance::of_headers(record.headers.iter()) {
            Some(provenance) => effects.push(Effect {
                at: Place { topic: name.clone(), partition: partition.0, offset: record.offset },
                source: SourcePartition { topic_id: provenance.topic_id, partition: provenance.partition },
                offset: provenance.offset.0,
                ordinal: provenance.ordinal,
                digest: digest(provenance.ordinal, record.key, record.value),
            }),
            None => foreign += 1,
        }
        Ok(())
    })
    .await
    .with_context(|| format!("cannot read topic {topic}"))?;
    if foreign > 0 {
        notes.push(format!("{foreign} records of {topic} carry no provenance: another program wrote them"));
    }
    Ok(effects)
}

async fn expected(
    client: &Client,
    recompute: &mut Recompute,
    topic: &TopicInfo,
    source: SourcePartition,
    initial: Offset,
) -> anyhow::Result<Vec<Expected>> {
    let mut expected = Vec::new();
    scan::partition(client, &topic.name, source.partition, initial, Scan::Committed, &mut |batch| {
        recompute.batch(source, initial, batch, &mut expected)
    })
    .await?;
    recompute.finish(source, initial, &mut expected)?;
    Ok(expected)
}

/// Reads the start offsets again until no committed decision lies right at them, or the time is up.
async fn settle_start_offsets(
    client: &Client,
    job: &JobFile,
    sources: &[Arc<TopicInfo>],
    claims: &[Claim],
    partitions: &mut [PartitionFacts],
    settle: Duration,
) -> anyhow::Result<()> {
    let clock = &client.env().clock;
    let deadline = clock.now() + settle;
    loop {
        let after = start_offsets(client, &job.source.group, sources).await?;
        let mut is_behind = false;
        for partition in partitions.iter_mut() {
            let start = after.get(&partition.source).map_or(partition.initial, |start| start.0);
            partition.start_offset_after = start;
            let is_claimed = |claim: &Claim| {
                claim.source == partition.source && claim.first <= start && start <= claim.last
            };
            is_behind |= claims.iter().any(is_claimed);
        }
        if !is_behind || clock.now() >= deadline {
            return Ok(());
        }
        clock.sleep(Duration::from_millis(100)).await;
    }
}

/// Transactions of the job's transactional ids that are neither committed nor aborted.
async fn open_transactions(
    client: &Client,
    config: &KafkaJobConfig,
    outcomes: &[Outcome],
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<OpenTransaction>> {
    let listed = client.admin().list_transactions().await?;
    let is_ours = |id: &str| {
        outcomes.iter().any(|outcome| outcome.record.transactional_id == id)
            || id.starts_with(&format!("{}.{}.", config.job, config.instance))
    };
    let is_over = |state: &str| matches!(state, "Empty" | "CompleteCommit" | "CompleteAbort" | "Dead");
    let open: Vec<OpenTransaction> = listed
        .into_iter()
        .filter(|listing| is_ours(&listing.transactional_id) && !is_over(&listing.state))
        .map(|listing| OpenTransaction { transactional_id: listing.transactional_id, state: listing.state })
        .collect();
    for transaction in &open {
        notes.push(format!("transaction {} is {}", transaction.transactional_id, transaction.state));
    }
    Ok(open)
}
