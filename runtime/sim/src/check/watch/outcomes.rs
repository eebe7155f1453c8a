//! The outcome topic, batch by batch as it is written: what source records it decides, and a copy of everything, for in
//! ledger mode its topic is compacted and tombstoned.

use std::collections::BTreeMap;

use sharestream_base::ids::{JobEpoch, Offset, PartitionIndex, ProducerId, TopicId};
use sharestream_broker::inspect::{BatchView, Fate, PartitionView, TransactionView};
use sharestream_core::decision::Decision;
use sharestream_kafka::outcome::{LogEntry, OutcomeRecord, ReplayGeneration};

use crate::check::Place;

type Key = (PartitionIndex, Offset);

/// All outcome records so far.
#[derive(Debug, Default)]
pub(super) struct OutcomeWatch {
    /// Also decisions that are not ACCEPT end in an acknowledgement of that kind: in ledger mode, where of a decision below
    /// the floor only the end is known.
    is_ledger: bool,
    batches: BTreeMap<Key, Batch>,
    entries: BTreeMap<Key, Entry>,
    /// End and last stable offset of each partition at the last reading.
    read: BTreeMap<PartitionIndex, (Offset, Offset)>,
    /// Outcomes that decide a source record, whatever became of them.
    deciding: BTreeMap<(TopicId, Place), Vec<Key>>,
    /// The newest replay generation that has begun.
    generation: ReplayGeneration,
    /// Incarnations by replica, in order of their owner records.
    owners: BTreeMap<String, Vec<JobEpoch>>,
}

#[derive(Debug)]
struct Batch {
    producer_id: Option<ProducerId>,
    fate: Fate,
    is_there: bool,
}

/// What one record of the outcome topic says.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// A record that decodes.
    Entry(LogEntry),
    /// A record without a value.
    Tombstone,
    /// A marker.
    Marker {
        /// Whose transaction it ends.
        producer: ProducerId,
    },
}

/// A record of the outcome topic, seen while it was there.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its key, if it is text.
    pub(crate) key: String,
    /// What it says.
    pub(crate) said: Said,
    /// First offset of its batch.
    batch: Offset,
}

/// A record with its place, and what was last known of its transaction.
#[derive(Clone, Debug)]
pub(crate) struct Seen<'a> {
    /// Its partition.
    pub(crate) partition: PartitionIndex,
    /// Its offset.
    pub(crate) offset: Offset,
    /// The record.
    pub(crate) entry: &'a Entry,
    /// What became of its transaction.
    pub(crate) fate: Fate,
}

impl OutcomeWatch {
    pub(super) fn new(is_ledger: bool) -> Self {
        OutcomeWatch { is_ledger, ..OutcomeWatch::default() }
    }

    /// Whether the partition has grown, or more of it is decided, since it was read.
    pub(super) fn has_grown(&self, view: &PartitionView) -> bool {
        self.read.get(&view.partition) != Some(&(view.high_watermark, view.last_stable_offset))
    }

    /// Notes how far a partition is read.
    pub(super) fn has_read(&mut self, view: &PartitionView) {
        self.read.insert(view.partition, (view.high_watermark, view.last_stable_offset));
    }

    /// Takes the batches of an outcome partition: those that are new, and what became of the others.
    pub(super) fn read(&mut self, partition: PartitionIndex, batches: &[BatchView]) {
        for (_, batch) in self.batches.range_mut((partition, Offset(0))..=(partition, Offset(i64::MAX))) {
            batch.is_there = false;
        }
        for batch in batches {
            let key = (partition, batch.first);
            if let Some(known) = self.batches.get_mut(&key) {
                (known.fate, known.is_there) = (batch.fate, true);
                continue;
            }
            let producer_id = batch.producer.map(|(producer_id, _)| producer_id);
            self.batches.insert(key, Batch { producer_id, fate: batch.fate, is_there: true });
            self.take_batch(partition, batch, producer_id);
        }
    }

    fn take_batch(&mut self, partition: PartitionIndex, batch: &BatchView, producer: Option<ProducerId>) {
        if let (Fate::CommitMarker | Fate::AbortMarker, Some(producer)) = (batch.fate, producer) {
            let said = Said::Marker { producer };
            let entry = Entry { key: String::new(), said, batch: batch.first };
            self.entries.insert((partition, batch.first), entry);
            return;
        }
        for record in batch.records() {
            let key = (partition, record.offset);
            // A batch of which compaction has taken the first records.
            if self.entries.contains_key(&key) {
                continue;
            }
            let Some(name) = record.key else { continue };
            let text = String::from_utf8_lossy(&name).into_owned();
            let said = match record.value {
                None => Said::Tombstone,
                Some(value) => match LogEntry::decode(&name, &value) {
                    Ok(entry) => {
                        self.learn(key, &entry);
                        Said::Entry(entry)
                    }
                    Err(_) => continue,
                },
            };
            self.entries.insert(key, Entry { key: text, said, batch: batch.first });
        }
    }

    fn learn(&mut self, key: Key, entry: &LogEntry) {
        match entry {
            LogEntry::Outcome(outcome) => self.take(key, outcome),
            LogEntry::Owner(owner) => {
                self.owners.entry(owner.instance.clone()).or_default().push(owner.job_epoch);
            }
            LogEntry::Generation(record) => self.generation = self.generation.max(record.generation),
            LogEntry::Mode(_) | LogEntry::Floor(_) | LogEntry::NearLimit(_) | LogEntry::Unknown => {}
        }
    }

    fn take(&mut self, key: Key, outcome: &OutcomeRecord) {
        for part in &outcome.partitions {
            let ends = |decision: Decision| decision == Decision::Accept || self.is_ledger;
            let ranges = part.ranges.iter().filter(|range| ends(range.decision));
            for offset in ranges.flat_map(|range| range.first.0..=range.last.0) {
                let place = Place { partition: part.partition.0, offset };
                self.deciding.entry((part.topic_id, place)).or_default().push(key);
            }
        }
    }

    /// Incarnations of a replica, in order of their owner records.
    pub(super) fn owners(&self, instance: &str) -> &[JobEpoch] {
        self.owners.get(instance).map_or(&[], Vec::as_slice)
    }

    /// The newest replay generation that has begun.
    pub(super) fn generation(&self) -> ReplayGeneration {
        self.generation
    }

    /// Everything that was seen, in order.
    pub(super) fn all(&self) -> Vec<Seen<'_>> {
        let seen = self.entries.iter().map(|((partition, offset), entry)| {
            let batch = self.batches.get(&(*partition, entry.batch));
            let fate = batch.map_or(Fate::Open, |batch| batch.fate);
            Seen { partition: *partition, offset: *offset, entry, fate }
        });
        seen.collect()
    }

    /// Why an acknowledged record must not be acknowledged, if so: no transaction that decides it was decided to commit.
    pub(super) fn contradicts(
        &self,
        topic_id: TopicId,
        place: Place,
        transactions: &[TransactionView],
    ) -> Option<String> {
        let deciding = self.deciding.get(&(topic_id, place)).map_or(&[][..], Vec::as_slice);
        let mut states = Vec::new();
        for key in deciding {
            let Some(entry) = self.entries.get(key) else { continue };
            let Some(batch) = self.batches.get(&(key.0, entry.batch)) else { continue };
            if let Said::Entry(LogEntry::Outcome(outcome)) = &entry.said
                && outcome.generation != self.generation
            {
                states.push(format!("of replay generation {}", outcome.generation));
                continue;
            }
            let of_producer = |view: &&TransactionView| Some(view.producer_id) == batch.producer_id;
            let state = transactions.iter().find(of_producer).map_or("unknown", |view| view.state);
            match batch.fate {
                Fate::Committed | Fate::Plain => return None,
                // The markers are under way.
                Fate::Open if state == "PrepareCommit" => return None,
                // How it ended was not seen.
                Fate::Open if !batch.is_there => return None,
                Fate::Open | Fate::Aborted | Fate::CommitMarker | Fate::AbortMarker => {
                    states.push(format!("{:?} ({state})", batch.fate));
                }
            }
        }
        Some(format!(
            "it is acknowledged durably and no transaction that decides it was committed: {}",
            if states.is_empty() { "none decides it".to_owned() } else { states.join(", ") }
        ))
    }
}
