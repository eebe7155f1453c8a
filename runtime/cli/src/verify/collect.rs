//! Collects the facts of a job from the cluster: topics at both isolation levels, and the share state.
//!
//! Order matters where the job still runs: the start offsets are read first (everything below them must have an
//! outcome), the outcomes second (each must have its effects), the effects third, the outcomes again (an effect of a
//! newer one is explained by it), and the start offsets again at the end. Markers reach partitions one after another,
//! so before each step the transactions that are just being ended are waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sharestream_base::ids::Offset;
use sharestream_client::{Client, OffsetSpec, TopicInfo};
use sharestream_core::commit::AckMode;
use sharestream_core::coordinates::RejectKind;
use sharestream_core::decision::SourcePartition;
use sharestream_kafka::formats::SchemaRegistry;
use sharestream_kafka::parking;
use sharestream_kafka::provenance::{self, Provenance, checkpoint_of_state};
use sharestream_kafka::{AckModeChoice, BadRecords, KafkaJobConfig};
use sharestream_wire::records::DECOMPRESSED_BYTES_MAX;

use super::facts::{Claim, Effect, Expected, Facts, OpenTransaction, PartitionFacts, Place, digest};
use super::ledger::{Ledger, Outcome, claims, committed_outcomes, later_outcomes};
use super::recompute::Recompute;
use super::scan::{self, PartitionScan, Scan};
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
pub(crate) async fn collect(
    client: &Client,
    job: &JobFile,
    registry: Option<&dyn SchemaRegistry>,
    settle: Duration,
) -> anyhow::Result<Collected> {
    let config = settings::kafka_config(job, &client.config().bootstrap, None);
    let mut notes = Vec::new();
    let sources = topics(client, &job.acquired_topics()).await?;
    let before = start_offsets(client, &job.source.group, &sources).await?;
    let mut ledger = Ledger::default();
    let outcomes = committed_outcomes(client, &config, &mut ledger).await?;
    settle_transactions(client, &config, settle).await?;
    let outputs = effects(client, &job.sink.topic, &mut notes).await?;
    let dead_letters = match &job.dead_letter_topic {
        Some(topic) => effects(client, topic, &mut notes).await?,
        None => Vec::new(),
    };
    let parked = match job.parking_topic() {
        Some(topic) => copies(client, topic, &mut notes).await?,
        None => Vec::new(),
    };
    settle_transactions(client, &config, settle).await?;
    let later = later_outcomes(client, &config, &outcomes, &mut ledger, &mut notes).await?;
    let mut claims = claims(&config.outcome_topic, &outcomes, ledger.generation, false);
    claims.extend(self::claims(&config.outcome_topic, &later, ledger.generation, true));
    claims.extend(ledger.claims(&config.outcome_topic));
    let claims = claims;
    ledger.note(&mut notes);
    let mut recompute = Recompute::new(job, &sources)?;
    let mut partitions = Vec::new();
    for topic in &sources {
        let first = client.admin().list_offsets(&topic.name, &[], OffsetSpec::Earliest).await?;
        for (partition, log_start) in first {
            let source = SourcePartition { topic_id: topic.topic_id, partition };
            let start = before.get(&source).copied();
            let floor = ledger.floors.get(&source);
            let told = floor.map(|floor| floor.initial).or(start);
            let initial = initial(job, &claims, source, log_start, told, &mut notes, &topic.name);
            let expected = expected(client, &mut recompute, registry, topic, source, initial).await?;
            partitions.push(PartitionFacts {
                topic: topic.name.clone(),
                source,
                initial: initial.0,
                floor: floor.map_or(0, |floor| floor.floor.0).max(ledger.begins_at(source)),
                replays: ledger.replays(source),
                start_offset: start.unwrap_or(initial).0,
                start_offset_after: 0,
                expected,
            });
        }
    }
    settle_start_offsets(client, job, &sources, &claims, &mut partitions, settle).await?;
    let open_transactions = open_transactions(client, &config, &outcomes, &mut notes).await?;
    let facts = Facts {
        // What a savepoint had decided is acknowledged when it comes again, in any mode.
        has_ledger: ledger.leaves_decided()
            || outcomes.iter().chain(&later).any(|outcome| outcome.record.mode == AckMode::Ledger),
        exactly_once: promises_exactly_once(&config, &outcomes, &mut notes),
        rejects_leave_letters: rejects_leave_letters(job, &config),
        broker_dead_letters: broker_dead_letters(client, &job.source.group, &mut notes).await,
        partitions,
        claims,
        outputs,
        dead_letters,
        parked,
        open_transactions,
    };
    let recomputed = job.http.is_empty();
    if !recomputed {
        notes.push(
            "outputs were counted and not compared: what is in them is up to the services called".to_owned(),
        );
    }
    Ok(Collected { facts, notes, recomputed })
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

fn rejects_leave_letters(job: &JobFile, config: &KafkaJobConfig) -> bool {
    let of_good_records = [RejectKind::Call, RejectKind::DeliveryLimit, RejectKind::TooLarge];
    job.dead_letter_topic.is_some()
        && of_good_records.into_iter().all(|kind| config.policy(kind) != BadRecords::Reject)
}

async fn broker_dead_letters(client: &Client, group: &str, notes: &mut Vec<String>) -> bool {
    match client.admin().describe_group_config(group).await {
        Ok(settings) => {
            settings.get("errors.deadletterqueue.topic.name").is_some_and(|topic| !topic.is_empty())
        }
        Err(error) => {
            notes.push(format!(
                "the settings of group {group} cannot be read ({error}); it is taken to have no dead letter topic of the \
                 broker's own"
            ));
            false
        }
    }
}

async fn topics(client: &Client, names: &[String]) -> anyhow::Result<Vec<Arc<TopicInfo>>> {
    let mut topics = Vec::new();
    for name in names {
        topics.push(client.topic(name).await?);
    }
    Ok(topics)
}

/// Where the group is in each partition it has read: everything below is decided.
async fn start_offsets(
    client: &Client,
    group: &str,
    sources: &[Arc<TopicInfo>],
) -> anyhow::Result<BTreeMap<SourcePartition, Offset>> {
    let names: Vec<&str> = sources.iter().map(|topic| &*topic.name).collect();
    // Ends first: a lag of 0 that is read later holds for all of them.
    let mut ends = BTreeMap::new();
    for topic in sources {
        for (partition, end) in client.admin().list_offsets(&topic.name, &[], OffsetSpec::Latest).await? {
            ends.insert(SourcePartition { topic_id: topic.topic_id, partition }, end);
        }
    }
    let described = client.admin().describe_share_group_offsets(group, &names).await;
    let described = described.with_context(|| format!("cannot read the state of share group {group}"))?;
    Ok(described
        .into_iter()
        .filter_map(|offset| {
            let source = SourcePartition { topic_id: offset.topic_id, partition: offset.partition };
            let start = offset.start_offset?;
            // Apache Kafka writes the start offset late; a lag of 0 says that everything is decided all the same.
            let end = ends.get(&source).copied().filter(|_| offset.lag == Some(0));
            Some((source, end.map_or(start, |end| end.max(start))))
        })
        .collect())
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
    let (mut foreign, mut of_state) = (0u64, 0u64);
    scan::topic(client, topic, Scan::Committed, |partition, record| {
        match Provenance::of_headers(record.headers.iter()) {
            Some(first) => {
                let copy = Provenance::of_header(record.headers.iter(), provenance::PARKED);
                let (source, offset) = source_of(copy.as_ref().unwrap_or(&first));
                effects.push(Effect {
                    at: Place { topic: name.clone(), partition: partition.0, offset: record.offset },
                    source,
                    offset,
                    origin: source_of(&first),
                    stands_in: None,
                    ordinal: first.ordinal,
                    digest: digest(first.ordinal, record.key, record.value),
                });
            }
            None if checkpoint_of_state(record.headers.iter()).is_some() => of_state += 1,
            None => foreign += 1,
        }
        Ok(())
    })
    .await
    .with_context(|| format!("cannot read topic {topic}"))?;
    if of_state > 0 {
        notes.push(format!(
            "{of_state} records of {topic} come from operator state: they name their checkpoint, and no source record \
             to hold them against"
        ));
    }
    if foreign > 0 {
        notes.push(format!("{foreign} records of {topic} carry no provenance: another program wrote them"));
    }
    Ok(effects)
}

fn source_of(provenance: &Provenance) -> (SourcePartition, i64) {
    let Provenance { topic_id, partition, offset, .. } = *provenance;
    (SourcePartition { topic_id, partition }, offset.0)
}

/// The committed copies in the parking topic, as effects of what was copied.
async fn copies(client: &Client, topic: &str, notes: &mut Vec<String>) -> anyhow::Result<Vec<Effect>> {
    let name: Arc<str> = Arc::from(topic);
    let topic_id = client.topic(topic).await?.topic_id;
    let mut copies = Vec::new();
    let mut foreign = 0u64;
    scan::topic(client, topic, Scan::Committed, |partition, record| {
        let Some(parked) = parking::read(&record.headers) else {
            foreign += 1;
            return Ok(());
        };
        let (source, offset) = source_of(&parked.via);
        copies.push(Effect {
            at: Place { topic: name.clone(), partition: partition.0, offset: record.offset },
            source,
            offset,
            origin: source_of(&parked.source),
            stands_in: Some(SourcePartition { topic_id, partition }),
            ordinal: 0,
            digest: digest(0, record.key, record.value),
        });
        Ok(())
    })
    .await
    .with_context(|| format!("cannot read parking topic {topic}"))?;
    if foreign > 0 {
        notes.push(format!("{foreign} records of {topic} are no copies: somebody else put them there"));
    }
    Ok(copies)
}

async fn expected(
    client: &Client,
    recompute: &mut Recompute,
    registry: Option<&dyn SchemaRegistry>,
    topic: &TopicInfo,
    source: SourcePartition,
    initial: Offset,
) -> anyhow::Result<Vec<Expected>> {
    let mut expected = Vec::new();
    let mut scan =
        PartitionScan::start(client, &topic.name, source.partition, initial, Scan::Committed).await?;
    while let Some(batches) = scan.next().await? {
        for batch in &batches {
            // No job reads more of a batch than that.
            let records = batch.records_within(DECOMPRESSED_BYTES_MAX)?;
            if let (Some(registry), Some(records)) = (registry, &records) {
                recompute.learn_schemas(records, registry).await?;
            }
            match records {
                Some(records) => recompute.batch(source, initial, &records, &mut expected)?,
                None => recompute.withheld(initial, &batch.header, &mut expected)?,
            }
        }
    }
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
                !claim.late && claim.source == partition.source && claim.first <= start && start <= claim.last
            };
            is_behind |= claims.iter().any(is_claimed);
        }
        if !is_behind || clock.now() >= deadline {
            return Ok(());
        }
        clock.sleep(Duration::from_millis(100)).await;
    }
}

/// True for the transactional ids of the job.
fn is_ours(config: &KafkaJobConfig, id: &str) -> bool {
    id.starts_with(&format!("{}.{}.", config.job, config.instance))
}

/// Waits until no transaction of the job is between its decision and its last marker.
async fn settle_transactions(
    client: &Client,
    config: &KafkaJobConfig,
    settle: Duration,
) -> anyhow::Result<()> {
    let clock = &client.env().clock;
    let deadline = clock.now() + settle;
    loop {
        let listed = client.admin().list_transactions().await?;
        let is_ending = listed.iter().any(|listing| {
            is_ours(config, &listing.transactional_id) && listing.state.starts_with("Prepare")
        });
        if !is_ending || clock.now() >= deadline {
            return Ok(());
        }
        clock.sleep(Duration::from_millis(10)).await;
    }
}

/// Transactions of the job's transactional ids that are neither committed nor aborted.
async fn open_transactions(
    client: &Client,
    config: &KafkaJobConfig,
    outcomes: &[Outcome],
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<OpenTransaction>> {
    /// Brokers look for expired transactions now and then only.
    const GRACE: Duration = Duration::from_secs(30);
    let admin = client.admin();
    let in_group = |id: &str| outcomes.iter().any(|outcome| outcome.record.transactional_id == id);
    let is_over = |state: &str| matches!(state, "Empty" | "CompleteCommit" | "CompleteAbort" | "Dead");
    let listed = admin.list_transactions().await?;
    let ids: Vec<&str> = listed
        .iter()
        .filter(|listing| !is_over(&listing.state))
        .map(|listing| listing.transactional_id.as_str())
        .filter(|id| is_ours(config, id) || in_group(id))
        .collect();
    let now_ms = client.env().clock.wall_ms();
    let mut open = Vec::new();
    for transaction in admin.describe_transactions(&ids).await? {
        if is_over(&transaction.state) {
            continue;
        }
        let patience = transaction.timeout + GRACE;
        let open_ms = transaction.start_ms.map_or(0, |start_ms| now_ms.saturating_sub(start_ms));
        let overdue = u128::try_from(open_ms).unwrap_or(0) > patience.as_millis();
        let expectation =
            if overdue { "and nobody ends it" } else { "the job runs, or its time-out ends it" };
        notes.push(format!(
            "transaction {} is {} for {open_ms} ms: {expectation}",
            transaction.transactional_id, transaction.state
        ));
        let (transactional_id, state) = (transaction.transactional_id, transaction.state);
        open.push(OpenTransaction { transactional_id, state, overdue });
    }
    Ok(open)
}
