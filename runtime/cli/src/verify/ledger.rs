//! What the outcome topic says of a group: outcomes, floors, replay generations.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use sharestream_base::ids::PartitionIndex;
use sharestream_client::Client;
use sharestream_core::decision::SourcePartition;
use sharestream_kafka::KafkaJobConfig;
use sharestream_kafka::outcome::{
    BegunPartition, FloorRecord, GenerationRecord, GroupGeneration, LogEntry, OutcomeRecord, ReplayGeneration,
};
use sharestream_wire::records::RecordView;

use super::facts::{Claim, Place, Replay};
use super::scan::{self, Scan};

/// A committed outcome record and where it stands.
pub(super) struct Outcome {
    pub(super) partition: PartitionIndex,
    pub(super) offset: i64,
    pub(super) record: OutcomeRecord,
}

/// What the outcome topic says of a group in ledger mode beside its claims.
#[derive(Default)]
pub(super) struct Ledger {
    /// The newest replay generation.
    pub(super) generation: ReplayGeneration,
    /// Its highest floors.
    pub(super) floors: BTreeMap<SourcePartition, FloorRecord>,
    /// Every generation but the first, with the place of the record that begins it.
    pub(super) generations: BTreeMap<ReplayGeneration, (Option<(i32, i64)>, GroupGeneration)>,
}

impl Ledger {
    pub(super) fn begin(&mut self, generation: ReplayGeneration) {
        if generation > self.generation {
            self.generation = generation;
            self.floors.clear();
        }
    }

    pub(super) fn take(&mut self, at: (i32, i64), record: &GenerationRecord) {
        self.begin(record.generation);
        let (place, generation) = self.generations.entry(record.generation).or_default();
        generation.take(record);
        if record.begins.is_some() {
            *place = Some(at);
        }
    }

    /// Where the newest generation begins in a partition.
    pub(super) fn begun(&self, source: SourcePartition) -> Option<&BegunPartition> {
        let (_, generation) = self.generations.get(&self.generation)?;
        generation.begins.as_ref()?.partitions.iter().find(|partition| partition.source() == source)
    }

    /// Everything below is decided, although the claims of before the newest generation say nothing any more.
    pub(super) fn begins_at(&self, source: SourcePartition) -> i64 {
        self.begun(source).map_or(0, |begun| begun.start_offset.0)
    }

    pub(super) fn leaves_decided(&self) -> bool {
        self.generations.get(&self.generation).is_some_and(|(_, generation)| {
            generation.begins.as_ref().is_some_and(|begins| !begins.decisions().is_empty())
        })
    }

    /// What the savepoint that the newest generation begins from had decided.
    pub(super) fn claims(&self, topic: &str) -> Vec<Claim> {
        let Some((Some((partition, offset)), generation)) = self.generations.get(&self.generation) else {
            return Vec::new();
        };
        let at = Place { topic: Arc::from(topic), partition: *partition, offset: *offset };
        let begun = generation.begins.iter().flat_map(|begins| &begins.partitions);
        let claims = begun.flat_map(|begun| {
            let at = at.clone();
            begun.decided.iter().map(move |range| Claim {
                at: at.clone(),
                checkpoint: 0,
                source: begun.source(),
                first: range.first.0,
                last: range.last.0,
                decision: range.decision,
                late: false,
            })
        });
        claims.collect()
    }

    /// How often records of a partition were wanted again. A generation that was never ready decided nothing.
    pub(super) fn replays(&self, source: SourcePartition) -> Vec<Replay> {
        let ready = self.generations.values().filter(|(_, generation)| generation.is_ready);
        let replay = |generation: &GroupGeneration| {
            let Some(begins) = &generation.begins else {
                // A reset by a build that did not say where: anything may have been wanted again.
                return Some(Replay::default());
            };
            let begun = begins.partitions.iter().find(|partition| partition.source() == source)?;
            let decided = begun.decided.iter().map(|range| (range.first.0, range.last.0)).collect();
            Some(Replay { start: begun.start_offset.0, decided })
        };
        ready.filter_map(|(_, generation)| replay(generation)).collect()
    }

    pub(super) fn raise(&mut self, floor: FloorRecord) {
        self.begin(floor.generation);
        let known = self.floors.get(&floor.source());
        if floor.generation == self.generation && known.is_none_or(|known| known.floor < floor.floor) {
            self.floors.insert(floor.source(), floor);
        }
    }

    pub(super) fn note(&self, notes: &mut Vec<String>) {
        if self.generation.0 > 0 {
            let ready: Vec<&GroupGeneration> =
                self.generations.values().map(|(_, generation)| generation).collect();
            let ready = ready.into_iter().filter(|generation| generation.is_ready);
            let (back, reset): (Vec<_>, Vec<_>) = ready.partition(|generation| generation.rewind().is_some());
            if !reset.is_empty() {
                notes.push(format!(
                    "the group was reset {} times: effects of before are there as well, and are right",
                    reset.len()
                ));
            }
            let names: Vec<&str> =
                back.iter().filter_map(|generation| Some(generation.rewind()?.savepoint.as_str())).collect();
            if !names.is_empty() {
                notes.push(format!(
                    "the job went back to {}: what had come after it was processed again, so its effects are there twice, and \
                     are right",
                    names.join(", then to ")
                ));
            }
            if self.generations.get(&self.generation).is_some_and(|(_, newest)| !newest.is_ready) {
                notes.push(
                    "a reset, or a return to a savepoint, has begun and not ended: repeat it".to_owned(),
                );
            }
        }
        for floor in self.floors.values().filter(|floor| floor.passed > 0) {
            notes.push(format!(
                "{}[{}]: {} offsets below the floor {} were passed without a claim: retention, aborted transactions, \
                 the delivery limit of the broker, or a foreign consumer",
                floor.topic, floor.partition, floor.passed, floor.floor
            ));
        }
    }
}

/// The outcomes of the group, of every job and instance in it.
pub(super) async fn outcomes(
    client: &Client,
    config: &KafkaJobConfig,
    scan: Scan,
    ledger: &mut Ledger,
) -> anyhow::Result<Vec<Outcome>> {
    let topic = &config.outcome_topic;
    let mut outcomes = Vec::new();
    let read = |partition: PartitionIndex, record: &RecordView<'_>| -> anyhow::Result<()> {
        let (Some(key), Some(value)) = (record.key, record.value) else { return Ok(()) };
        let entry = LogEntry::decode(key, value)
            .with_context(|| format!("outcome record {topic}[{partition}]@{}", record.offset))?;
        match entry {
            LogEntry::Outcome(found) if found.group == config.group => {
                outcomes.push(Outcome { partition, offset: record.offset, record: *found });
            }
            LogEntry::Outcome(_)
            | LogEntry::Mode(_)
            | LogEntry::Owner(_)
            | LogEntry::NearLimit(_)
            | LogEntry::Unknown => {}
            LogEntry::Floor(floor) => {
                if floor.group == config.group {
                    ledger.raise(floor);
                }
            }
            LogEntry::Generation(begun) => {
                if begun.group == config.group {
                    ledger.take((partition.0, record.offset), &begun);
                }
            }
        }
        Ok(())
    };
    scan::topic(client, topic, scan, read)
        .await
        .with_context(|| format!("cannot read the outcome topic {topic} (has the job run?)"))?;
    Ok(outcomes)
}

pub(super) async fn committed_outcomes(
    client: &Client,
    config: &KafkaJobConfig,
    ledger: &mut Ledger,
) -> anyhow::Result<Vec<Outcome>> {
    outcomes(client, config, Scan::Committed, ledger).await
}

/// Outcomes that were committed while the effects were read. Reads the topic raw as well, for the note. Floors that were
/// raised meanwhile count: claims that they cover may have been removed under the first reading.
pub(super) async fn later_outcomes(
    client: &Client,
    config: &KafkaJobConfig,
    known: &[Outcome],
    ledger: &mut Ledger,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Outcome>> {
    let is_known = |outcome: &Outcome| {
        known.iter().any(|known| (known.partition, known.offset) == (outcome.partition, outcome.offset))
    };
    let mut now = committed_outcomes(client, config, ledger).await?;
    let raw = outcomes(client, config, Scan::Raw, &mut Ledger::default()).await?;
    let given_up = raw.len().saturating_sub(now.len());
    if given_up > 0 {
        notes.push(format!(
            "{given_up} outcome records were aborted or are still open: they count for nothing"
        ));
    }
    now.retain(|outcome| !is_known(outcome));
    Ok(now)
}

/// Claims of older generations explain effects, but say nothing about the records as they are wanted now.
pub(super) fn claims(
    topic: &str,
    outcomes: &[Outcome],
    generation: ReplayGeneration,
    late: bool,
) -> Vec<Claim> {
    let topic: Arc<str> = Arc::from(topic);
    let mut claims = Vec::new();
    for outcome in outcomes {
        let at = Place { topic: topic.clone(), partition: outcome.partition.0, offset: outcome.offset };
        for partition in &outcome.record.partitions {
            let source = SourcePartition { topic_id: partition.topic_id, partition: partition.partition };
            claims.extend(partition.ranges.iter().map(|range| Claim {
                at: at.clone(),
                checkpoint: outcome.record.checkpoint.0,
                source,
                first: range.first.0,
                last: range.last.0,
                decision: range.decision,
                late: late || outcome.record.generation < generation,
            }));
        }
    }
    claims
}
