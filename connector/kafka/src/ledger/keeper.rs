//! The keeper: raises floors and tombstones what they cover, beside the commits and never on their way; and looks whether
//! the group's start offsets agree with the ledger.
//!
//! One for each replica that runs. Several do the same work at worst, which is harmless. Its failures end nothing: without
//! it the topic grows, and no record is lost or doubled. What it finds wrong with a start offset ends the job.

use std::sync::Arc;
use std::time::Duration;

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{ErrorKind, OwnedTask, TaskKind};
use sharestream_client::{
    Client, Isolation, OffsetSpec, PartitionReader, Producer, TopicInfo, WriterConfig, committed_records,
};
use sharestream_core::decision::SourcePartition;

use super::floor::{Finding, KeeperIs, Plan, StartOffsets, examine, floors_of, plan};
use super::starts::start_offsets;
use super::tail::LedgerTail;
use super::view::View;
use crate::error::{bug, client_error, invalid_input, wire_error};
use crate::{Error, Result};

/// Longest pause between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Shortest pause.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Claims in the log at which a round begins before its time.
const BACKLOG: usize = 256;
/// Bytes of one fetch of source records that a start offset has passed.
const FETCH_BYTES_MAX: i32 = 1 << 20;
/// Fetches of one look at such records.
const FETCHES_MAX: usize = 16;

/// What a keeper needs.
#[derive(Clone, Debug)]
pub(crate) struct KeeperConfig {
    pub(crate) client: Client,
    pub(crate) job: String,
    pub(crate) instance: String,
    pub(crate) group: String,
    pub(crate) outcome_topic: Arc<str>,
    pub(crate) outcome_partition: PartitionIndex,
    pub(crate) sources: Vec<Arc<TopicInfo>>,
    /// No claim is tombstoned: the topic keeps all of them.
    pub(crate) keeps_history: bool,
}

/// The task, and the way to end it.
pub(crate) struct Keeper {
    task: OwnedTask<()>,
}

impl Keeper {
    /// Looks at the start offsets once, and goes on in a task of its own. Errors: `InvalidInput` when the group's offsets
    /// were moved back, `Retry` while the group is being reset.
    pub(crate) async fn start(tail: LedgerTail, config: KeeperConfig) -> Result<Keeper> {
        if !tail.look(View::is_generation_ready)? {
            let group = &config.group;
            return Err(Error::new(
                ErrorKind::Retry,
                format!(
                    "a reset of group {group} has begun and not ended; if it is not under way, repeat it: \
                     sharestream group reset {group}"
                ),
            ));
        }
        // With connections of its own: a broker answers the requests of a connection one after another, and describing
        // the group's offsets was seen to take two seconds under load, for which commits would wait.
        let shared = config.client;
        let client = Client::connect(shared.env().clone(), shared.config().clone())
            .await
            .map_err(client_error("connect the keeper"))?;
        let config = KeeperConfig { client, ..config };
        let mut rounds = Rounds { tail, config, producer: None, is_first: true };
        rounds.examine_and_plan().await?;
        rounds.is_first = false;
        let name = format!("ledger-keeper-{}", rounds.config.group);
        let spawner = rounds.config.client.env().spawner.clone();
        Ok(Keeper { task: OwnedTask::spawn(&spawner, name, TaskKind::Service, rounds.run()) })
    }

    /// Ends the task where it is: what it had begun to write may be there, which is harmless.
    pub(crate) async fn stop(mut self) {
        self.task.abort();
        // Aborted or panicked, nothing depends on it.
        let _ended = self.task.join().await;
    }
}

/// Methods take `&mut self` also where they change nothing: a producer's answers can be sent to another thread, not shared
/// with one.
struct Rounds {
    tail: LedgerTail,
    config: KeeperConfig,
    producer: Option<Producer>,
    is_first: bool,
}

impl Rounds {
    async fn run(mut self) {
        let clock = self.config.client.env().clock.clone();
        loop {
            match self.round().await {
                // Something was done: there may soon be more.
                Ok(true) => {
                    clock.sleep(PAUSE_MIN).await;
                    // Either is a reason to go on; an error of the tail shows itself in the next round.
                    let _more_or_time = clock.timeout(INTERVAL, self.tail.backlog_of(BACKLOG)).await;
                }
                Ok(false) => clock.sleep(INTERVAL).await,
                Err(error) if error.kind() == ErrorKind::InvalidInput && self.tail.check().is_err() => return,
                Err(error) => {
                    tracing::warn!(%error, group = %self.config.group, "the ledger could not be looked after");
                    self.producer = None;
                    clock.sleep(INTERVAL).await;
                }
            }
        }
    }

    /// One round; whether it wrote anything.
    async fn round(&mut self) -> Result<bool> {
        let plan = self.examine_and_plan().await?;
        let is_busy = !plan.floors.is_empty() || !plan.tombstones.is_empty();
        if is_busy {
            self.write(plan).await?;
        }
        Ok(is_busy)
    }

    /// Order matters. The generation and the floors are looked at *before* the start offsets are asked for: a start offset
    /// may be followed only in the generation in which it was told, and compared only with floors that are older. What
    /// is decided is looked at *after*, when the tail has caught up: who acknowledges has claimed before.
    async fn examine_and_plan(&mut self) -> Result<Plan> {
        let (generation, floors_before) = self.tail.look(|view| (view.generation(), floors_of(view)))?;
        let topics = self.config.sources.iter().map(|topic| (topic.topic_id, &*topic.name));
        let starts = start_offsets(&self.config.client, &self.config.group, topics).await?;
        self.tail.catch_up().await?;
        let is_settled =
            self.tail.look(|view| view.generation() == generation && view.is_generation_ready())?;
        if !is_settled {
            return Ok(Plan::default());
        }
        for (partition, finding) in self.tail.look(|view| examine(view, &floors_before, &starts))? {
            self.judge(partition, finding).await?;
        }
        self.tail.look(|view| self.plan(view, &starts))
    }

    fn plan(&self, view: &View, starts: &StartOffsets) -> Plan {
        let keeper = KeeperIs {
            group: &self.config.group,
            job: &self.config.job,
            instance: &self.config.instance,
            now_ms: self.config.client.env().clock.wall_ms(),
        };
        let name = |partition: SourcePartition| self.topic(partition).map(|topic| topic.name.to_string());
        let mut plan = plan(view, keeper, starts, |partition| name(partition).unwrap_or_default());
        if self.config.keeps_history {
            plan.tombstones.clear();
        }
        plan
    }

    fn topic(&self, partition: SourcePartition) -> Option<&Arc<TopicInfo>> {
        self.config.sources.iter().find(|topic| topic.topic_id == partition.topic_id)
    }

    /// What a finding means. Errors: `InvalidInput`, which every task of the job gets to see as well.
    async fn judge(&mut self, partition: SourcePartition, finding: Finding) -> Result<()> {
        let group = self.config.group.clone();
        let Some(topic) = self.topic(partition).cloned() else { return Ok(()) };
        let place = format!("{}/{}", topic.name, partition.partition);
        let error = match finding {
            Finding::MovedBack { start, floor } => invalid_input(format!(
                "group {group} starts at offset {start} of {place}, but everything below {floor} is decided: its offsets \
                 were moved back without a new replay generation, and the records would be dropped; to process them \
                 again, use: sharestream group reset {group}"
            )),
            Finding::PassedUndecided { first, last } => {
                let Some(record) = self.deliverable(&topic, partition.partition, first, last).await? else {
                    return Ok(());
                };
                invalid_input(format!(
                    "group {group} has passed offset {record} of {place} (undecided: {first} to {last}), which no job in \
                     ledger mode has decided: another consumer is in the group, or the broker gave the record up at its \
                     delivery limit; give the job a group of its own, then start it again: it goes on behind these offsets"
                ))
            }
        };
        if self.is_first && matches!(finding, Finding::PassedUndecided { .. }) {
            // Whoever starts the job has been told, or could not be; nothing brings the records back.
            tracing::error!(%error, "records were lost to the job before it started");
            return Ok(());
        }
        self.tail.fail(&error);
        Err(error)
    }

    /// The first record of `first..=last` that the group would hand out: control records, aborted transactions, holes of
    /// compaction and what retention has removed are passed by the broker itself.
    async fn deliverable(
        &mut self,
        topic: &TopicInfo,
        partition: PartitionIndex,
        first: Offset,
        last: Offset,
    ) -> Result<Option<Offset>> {
        let client = &self.config.client;
        let doing = || client_error(format!("look at {}/{partition} from {first}", topic.name));
        let earliest = client
            .admin()
            .list_offsets(&topic.name, &[partition], OffsetSpec::Earliest)
            .await
            .map_err(doing())?;
        let mut next = earliest.get(&partition).copied().unwrap_or(first).max(first);
        let mut reader = PartitionReader::new(client.clone());
        for _fetch in 0..FETCHES_MAX {
            if next > last {
                break;
            }
            let isolation = Isolation::ReadCommitted;
            let fetched = reader
                .fetch(&topic.name, partition, next, isolation, FETCH_BYTES_MAX, PAUSE_MIN)
                .await
                .map_err(doing())?;
            for batch in committed_records(&fetched).map_err(doing())? {
                for record in &batch.records().map_err(wire_error("source batch"))? {
                    let offset = Offset(record.map_err(wire_error("source record"))?.offset);
                    if offset >= next && offset <= last {
                        return Ok(Some(offset));
                    }
                }
            }
            let end = fetched.next_offset(next);
            if end == next {
                break;
            }
            next = end;
        }
        Ok(None)
    }

    async fn write(&mut self, plan: Plan) -> Result<()> {
        let KeeperConfig { client, outcome_topic, outcome_partition, .. } = &self.config;
        let producer = match &mut self.producer {
            Some(producer) => producer,
            empty => empty.insert(
                Producer::connect(client.clone(), WriterConfig::default())
                    .await
                    .map_err(client_error("connect the keeper"))?,
            ),
        };
        let now_ms = client.env().clock.wall_ms();
        let doing = || client_error("write floors and tombstones");
        for floor in &plan.floors {
            let value = floor.encode().map_err(|error| bug("floor record").with_source(error))?;
            producer
                .writer()
                .append(
                    outcome_topic,
                    *outcome_partition,
                    now_ms,
                    Some(floor.key().as_bytes()),
                    Some(&value),
                    &[],
                )
                .await
                .map_err(doing())?;
        }
        for key in &plan.tombstones {
            producer
                .writer()
                .append(outcome_topic, *outcome_partition, now_ms, Some(key.as_bytes()), None, &[])
                .await
                .map_err(doing())?;
        }
        producer.flush().await.map_err(doing())?;
        tracing::debug!(
            floors = plan.floors.len(),
            tombstones = plan.tombstones.len(),
            "ledger looked after"
        );
        Ok(())
    }
}
