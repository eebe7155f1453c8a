//! The logs as any client reads them, at both isolation levels, and the rules of a log.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_client::{Client, Isolation, OffsetSpec, PartitionReader, committed_records};
use sharestream_kafka::provenance::{DELIVERY_COUNT, Provenance};
use sharestream_wire::records::control::{self, ControlMarker};
use sharestream_wire::records::{RawBatch, RecordView};

use super::{Checker, Finding, Place};
use crate::loader::Loaded;
use crate::workload::{DEAD_LETTERS, OUTCOMES, OUTPUT, SOURCE, id_of};

/// What became of the transaction of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was in none.
    Plain,
    /// Committed.
    Committed,
    /// Aborted.
    Aborted,
    /// No marker yet.
    Open,
}

/// Who wrote a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
}

/// One data record.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Its partition.
    pub partition: PartitionIndex,
    /// Its offset.
    pub offset: Offset,
    /// Who wrote it.
    pub writer: Writer,
    /// What became of its transaction.
    pub fate: Fate,
    /// The id in its value, if there is one.
    pub id: Option<i64>,
    /// Which source record it comes from.
    pub provenance: Option<Provenance>,
    /// The delivery count that a dead letter tells.
    pub delivery_count: Option<i16>,
    /// Digest of key, value and headers.
    pub digest: u64,
}

/// Digest of key, value and headers of a record, to tell two records apart.
pub(super) fn digest(record: &RecordView<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (record.key, record.value).hash(&mut hasher);
    for header in record.headers.iter() {
        header.hash(&mut hasher);
    }
    hasher.finish()
}

impl Logged {
    /// True when a read-committed reader must see it.
    pub fn is_committed(&self) -> bool {
        matches!(self.fate, Fate::Plain | Fate::Committed)
    }
}

/// All logs.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// Data records by topic, in order of partition and offset.
    pub topics: BTreeMap<&'static str, Vec<Logged>>,
    /// Id of the source topic.
    pub source_id: Option<TopicId>,
}

const FETCH_BYTES: i32 = 1 << 20;
const FETCH_WAIT: Duration = Duration::ZERO;

impl Logs {
    /// Reads everything; findings are what the two isolation levels disagree about. `is_compacted`: the outcome topic may
    /// have holes.
    pub async fn read(client: &Client, is_compacted: bool) -> anyhow::Result<(Logs, Vec<Finding>)> {
        let (mut logs, mut findings) = (Logs::default(), Vec::new());
        logs.source_id = Some(client.fresh_topic(SOURCE).await?.topic_id);
        for topic in [SOURCE, OUTPUT, DEAD_LETTERS, OUTCOMES] {
            let mut records = Vec::new();
            for (partition, end) in client.admin().list_offsets(topic, &[], OffsetSpec::Latest).await? {
                let log = read_partition(client, topic, partition, end, Isolation::ReadUncommitted).await?;
                if topic != OUTCOMES || !is_compacted {
                    findings.extend(log.holes(topic, partition));
                }
                let committed =
                    read_partition(client, topic, partition, end, Isolation::ReadCommitted).await?;
                let is_there = if topic == OUTCOMES && is_compacted {
                    // Compaction may have taken records between the two readings.
                    let after = read_partition(client, topic, partition, end, Isolation::ReadUncommitted);
                    Some(after.await?.offsets())
                } else {
                    None
                };
                let stayed = |record: &&Logged| {
                    is_there.as_ref().is_none_or(|offsets| offsets.contains(&record.offset))
                };
                let stayed = log.records.iter().filter(stayed);
                findings.extend(compare(topic, stayed, &committed.offsets()));
                records.extend(log.records);
            }
            logs.topics.insert(topic, records);
        }
        Ok((logs, findings))
    }

    /// Data records of a topic.
    pub fn of(&self, topic: &str) -> &[Logged] {
        self.topics.get(topic).map_or(&[], Vec::as_slice)
    }
}

#[derive(Default)]
struct PartitionLog {
    records: Vec<Logged>,
    ranges: Vec<(i64, i64)>,
}

impl PartitionLog {
    fn offsets(&self) -> BTreeSet<Offset> {
        self.records.iter().map(|record| record.offset).collect()
    }

    fn holes(&self, topic: &str, partition: PartitionIndex) -> Vec<Finding> {
        let mut next = 0;
        let mut found = Vec::new();
        for (base, end) in &self.ranges {
            if *base != next {
                let text = format!("{topic}/{partition}: offset {base} follows {next}");
                found.push(Finding::new(Checker::Log, text));
            }
            next = *end;
        }
        found
    }
}

async fn read_partition(
    client: &Client,
    topic: &str,
    partition: PartitionIndex,
    end: Offset,
    isolation: Isolation,
) -> anyhow::Result<PartitionLog> {
    let mut reader = PartitionReader::new(client.clone());
    let mut log = PartitionLog::default();
    let mut open: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    let mut next = Offset(0);
    while next < end {
        let fetched = reader.fetch(topic, partition, next, isolation, FETCH_BYTES, FETCH_WAIT).await?;
        let batches: Vec<&RawBatch> = match isolation {
            Isolation::ReadUncommitted => fetched.batches.iter().collect(),
            Isolation::ReadCommitted => committed_records(&fetched)?,
        };
        for batch in batches {
            log.ranges.push((batch.header.base_offset, batch.header.next_offset()));
            apply(&mut log, &mut open, partition, batch)?;
        }
        let after = fetched.next_offset(next);
        if after == next {
            break;
        }
        next = after;
    }
    Ok(log)
}

fn apply(
    log: &mut PartitionLog,
    open: &mut BTreeMap<i64, Vec<usize>>,
    partition: PartitionIndex,
    batch: &RawBatch,
) -> anyhow::Result<()> {
    let header = &batch.header;
    if header.is_control() {
        let (marker, _) = control::decode(batch)?;
        let fate = match marker {
            ControlMarker::Commit => Fate::Committed,
            ControlMarker::Abort => Fate::Aborted,
        };
        for index in open.remove(&header.producer_id).unwrap_or_default() {
            log.records[index].fate = fate;
        }
        return Ok(());
    }
    let records = batch.records()?;
    for record in &records {
        let record = record?;
        let delivery_count = record.headers.last(DELIVERY_COUNT.as_bytes()).flatten();
        if header.is_transactional() {
            open.entry(header.producer_id).or_default().push(log.records.len());
        }
        log.records.push(Logged {
            partition,
            offset: Offset(record.offset),
            writer: Writer { producer_id: header.producer_id, producer_epoch: header.producer_epoch },
            fate: if header.is_transactional() { Fate::Open } else { Fate::Plain },
            id: record.value.and_then(id_of),
            provenance: Provenance::of_headers(record.headers.iter()),
            delivery_count: delivery_count
                .and_then(|text| std::str::from_utf8(text).ok())
                .and_then(|text| text.parse().ok()),
            digest: digest(&record),
        });
    }
    Ok(())
}

/// A read-committed reader sees what committed, all of it and nothing else.
fn compare<'a>(
    topic: &str,
    log: impl Iterator<Item = &'a Logged>,
    committed: &BTreeSet<Offset>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for record in log {
        let (place, is_seen) =
            (format!("{topic}/{}/{}", record.partition, record.offset), committed.contains(&record.offset));
        match (record.fate, is_seen) {
            (Fate::Aborted, true) => {
                found.push(Finding::new(
                    Checker::Log,
                    format!("{place} was aborted and is read as committed"),
                ));
            }
            (Fate::Committed | Fate::Plain, false) => {
                found.push(Finding::new(Checker::Log, format!("{place} was committed and is not read")));
            }
            (Fate::Open, true) => {
                found.push(Finding::new(Checker::Log, format!("{place} is open and is read as committed")));
            }
            (Fate::Aborted | Fate::Open, false) | (Fate::Committed | Fate::Plain, true) => {}
        }
    }
    found
}

/// What was acknowledged to the loader is there, once, and what was aborted is not.
pub(super) fn check(logs: &Logs, loaded: &Loaded) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut at: BTreeMap<(PartitionIndex, Offset), &Logged> = BTreeMap::new();
    let mut ids: BTreeMap<i64, Vec<&Logged>> = BTreeMap::new();
    for record in logs.of(SOURCE) {
        at.insert((record.partition, record.offset), record);
        if let Some(id) = record.id {
            ids.entry(id).or_default().push(record);
        }
    }
    for ((partition, offset), id) in &loaded.acknowledged {
        let place = Place { partition: partition.0, offset: offset.0 };
        match at.get(&(*partition, *offset)) {
            Some(record) if record.id == Some(*id) && record.is_committed() => {}
            Some(record) => {
                let text = format!("the write of {id} was acknowledged here, but it holds {record:?}");
                found.push(Finding::about(Checker::Log, place, text));
            }
            None => {
                let text = format!("the write of {id} was acknowledged here and is lost");
                found.push(Finding::about(Checker::Log, place, text));
            }
        }
    }
    for (id, records) in &ids {
        if records.len() > 1 {
            let text = format!("record {id} was written once and is in the log {} times", records.len());
            found.push(Finding::new(Checker::Log, text));
        }
        if loaded.aborted.contains(id) && records.iter().any(|record| record.is_committed()) {
            found
                .push(Finding::new(Checker::Log, format!("record {id} was aborted and counts as committed")));
        }
    }
    found
}
