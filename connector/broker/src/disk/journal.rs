//! What the cluster agrees on, as a journal of small JSON records in `meta.log`: topics and their settings, settings
//! of groups, leader epochs, producer ids that were given out.
//!
//! Live and at a start the same [`MetaState::apply`] takes records in. A start writes what it has read anew, and so
//! does a journal that has grown long.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sharestream_base::ErrorKind;
use tracing::warn;

use super::files::{Files, LogFile};
use super::frame::{self, FileKind, Reader, Unreadable};
use super::store::{Disk, plain, unusable};
use crate::error::{Error, ErrorCode, Result};

const META: &str = "meta.log";
const META_NEW: &str = "meta.new";
const RECORD: u8 = 1;
/// Records after which the journal is written anew; more when the state itself has half as many.
const RECORDS_MAX: usize = 100_000;

/// One change of what the cluster agrees on. Format 1; fields are never renamed, only added with another format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum MetaRecord {
    /// The cluster's id.
    Cluster {
        /// As Kafka prints it.
        id: String,
    },
    /// A topic was created.
    Topic {
        /// Its id.
        id: String,
        /// Its name.
        name: String,
        /// Owned by the broker itself.
        internal: bool,
        /// The node that shall lead each partition first.
        homes: Vec<i32>,
        /// Settings that were set.
        configs: BTreeMap<String, String>,
    },
    /// A topic was deleted.
    TopicDeleted {
        /// Its id.
        id: String,
    },
    /// The settings of a topic were replaced.
    TopicConfigs {
        /// Its id.
        id: String,
        /// All that are set now.
        configs: BTreeMap<String, String>,
    },
    /// A setting of a group was set, or with no value unset.
    GroupConfig {
        /// The group.
        group: String,
        /// Kafka's key.
        key: String,
        /// Its value.
        value: Option<String>,
    },
    /// A feature has another finalized level.
    Feature {
        /// Its name.
        name: String,
        /// The level.
        level: i16,
    },
    /// Producer ids below this one may have been given out.
    ProducerIds {
        /// The end, exclusive.
        end: i64,
    },
    /// A partition has a leader, or has lost it, under a new leader epoch.
    Leader {
        /// The topic's id.
        topic: String,
        /// The partition.
        partition: i32,
        /// The epoch.
        epoch: i32,
        /// Who leads, or led last.
        home: i32,
    },
}

/// A topic as the journal has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicMeta {
    /// Its name.
    pub(crate) name: String,
    /// Owned by the broker itself.
    pub(crate) internal: bool,
    /// Settings that were set.
    pub(crate) configs: BTreeMap<String, String>,
    /// Last leader and leader epoch of each partition.
    pub(crate) partitions: Vec<(i32, i32)>,
}

/// What all records of the journal say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MetaState {
    /// The cluster's id, once it is known.
    pub(crate) cluster_id: Option<String>,
    /// Topics by id.
    pub(crate) topics: BTreeMap<String, TopicMeta>,
    /// Topics that are gone, while a journal is read: their folders may still be there.
    pub(crate) deleted: Vec<String>,
    /// Settings of groups.
    pub(crate) group_configs: BTreeMap<String, BTreeMap<String, String>>,
    /// End of the producer ids that were given out.
    pub(crate) producer_ids_end: i64,
    /// Finalized levels that were set.
    pub(crate) features: BTreeMap<String, i16>,
}

impl MetaState {
    /// Takes a record in. What it says of an unknown topic is not taken in.
    pub(crate) fn apply(&mut self, record: MetaRecord) {
        match record {
            MetaRecord::Cluster { id } => self.cluster_id = Some(id),
            MetaRecord::Topic { id, name, internal, homes, configs } => {
                let partitions = homes.into_iter().map(|home| (home, -1)).collect();
                self.topics.insert(id, TopicMeta { name, internal, configs, partitions });
            }
            MetaRecord::TopicDeleted { id } => {
                self.topics.remove(&id);
                self.deleted.push(id);
            }
            MetaRecord::TopicConfigs { id, configs } => {
                if let Some(topic) = self.topics.get_mut(&id) {
                    topic.configs = configs;
                }
            }
            MetaRecord::GroupConfig { group, key, value } => {
                let set = self.group_configs.entry(group).or_default();
                match value {
                    Some(value) => set.insert(key, value),
                    None => set.remove(&key),
                };
            }
            MetaRecord::Feature { name, level } => {
                self.features.insert(name, level);
            }
            MetaRecord::ProducerIds { end } => self.producer_ids_end = self.producer_ids_end.max(end),
            MetaRecord::Leader { topic, partition, epoch, home } => {
                let partitions = self.topics.get_mut(&topic).map(|topic| &mut topic.partitions);
                let place = usize::try_from(partition).unwrap_or(usize::MAX);
                if let Some(known) = partitions.and_then(|partitions| partitions.get_mut(place)) {
                    *known = (home, epoch);
                }
            }
        }
    }

    /// Records that say all of it.
    fn records(&self) -> Vec<MetaRecord> {
        let mut records = Vec::new();
        records.extend(self.cluster_id.clone().map(|id| MetaRecord::Cluster { id }));
        records.push(MetaRecord::ProducerIds { end: self.producer_ids_end });
        let features = self.features.iter();
        records
            .extend(features.map(|(name, level)| MetaRecord::Feature { name: name.clone(), level: *level }));
        for (id, topic) in &self.topics {
            records.push(MetaRecord::Topic {
                id: id.clone(),
                name: topic.name.clone(),
                internal: topic.internal,
                homes: topic.partitions.iter().map(|(home, _)| *home).collect(),
                configs: topic.configs.clone(),
            });
            for (partition, (home, epoch)) in topic.partitions.iter().enumerate() {
                let partition = i32::try_from(partition).unwrap_or(i32::MAX);
                records.push(MetaRecord::Leader { topic: id.clone(), partition, epoch: *epoch, home: *home });
            }
        }
        for (group, set) in &self.group_configs {
            records.extend(set.iter().map(|(key, value)| MetaRecord::GroupConfig {
                group: group.clone(),
                key: key.clone(),
                value: Some(value.clone()),
            }));
        }
        records
    }
}

/// The journal, open at its end.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Arc<dyn LogFile>,
    number: u64,
    bytes: u64,
    records: usize,
    /// It is written anew when it has more.
    records_max: usize,
    state: MetaState,
}

impl Journal {
    /// Reads the journal, cuts what a crash tore off, and writes it anew. `clean`: nothing may be torn.
    pub(super) fn open(files: &dyn Files, clean: bool) -> Result<(Journal, MetaState)> {
        let state = match files.read(Path::new(META)).map_err(|source| unusable(files, source))? {
            Some(bytes) => read(files, Bytes::from(bytes), clean)?,
            None => MetaState::default(),
        };
        let kept = MetaState { deleted: Vec::new(), ..state.clone() };
        let journal = Journal::write_anew(files, kept, 0).map_err(|source| unusable(files, source))?;
        Ok((journal, state))
    }

    /// Writes a whole journal beside the old one, then takes its place.
    fn write_anew(files: &dyn Files, state: MetaState, number: u64) -> std::io::Result<Journal> {
        let mut bytes = FileKind::Meta.preamble().to_vec();
        let records = state.records();
        for record in &records {
            put(&mut bytes, record)?;
        }
        files.remove(Path::new(META_NEW))?;
        let file = files.open(Path::new(META_NEW))?;
        file.append(&bytes)?;
        file.sync()?;
        files.rename(Path::new(META_NEW), Path::new(META))?;
        files.sync_folder(Path::new(""))?;
        let records_max = RECORDS_MAX.max(2 * records.len());
        Ok(Journal { file, number, bytes: bytes.len() as u64, records: records.len(), records_max, state })
    }

    /// Adds a record. Errors: KAFKA_STORAGE_ERROR (nothing has changed).
    pub(super) fn append(&mut self, disk: &Disk, record: MetaRecord) -> Result<(), ErrorCode> {
        if self.number == 0 {
            self.number = disk.number_file();
        }
        let mut bytes = Vec::with_capacity(128);
        let written = put(&mut bytes, &record).and_then(|()| self.file.append(&bytes));
        if let Err(cause) = written {
            warn!(%cause, "{}", plain(&cause));
            if let Err(cause) = self.file.truncate(self.bytes) {
                disk.fail("the journal cannot be cut back", &cause);
            }
            return Err(ErrorCode::KafkaStorageError);
        }
        self.bytes += bytes.len() as u64;
        self.records += 1;
        self.state.apply(record);
        self.state.deleted.clear();
        disk.wrote(self.number, &self.file);
        if self.records > self.records_max {
            match Journal::write_anew(disk.files(), self.state.clone(), disk.number_file()) {
                Ok(journal) => *self = journal,
                // Which of the two files has the name is not known.
                Err(cause) => disk.fail("the journal cannot be written anew", &cause),
            }
        }
        Ok(())
    }
}

fn put(out: &mut Vec<u8>, record: &MetaRecord) -> std::io::Result<()> {
    let json = serde_json::to_vec(record).map_err(std::io::Error::other)?;
    frame::put(out, RECORD, &[&json]);
    Ok(())
}

fn read(files: &dyn Files, bytes: Bytes, clean: bool) -> Result<MetaState> {
    let path = files.root().join(META);
    let path = path.display();
    let corrupt = |text: String| Error::new(ErrorKind::Corrupt, text);
    let mut reader = match Reader::open(bytes, FileKind::Meta) {
        Ok(reader) => reader,
        // It is synced before it gets its name, so it is never torn at its beginning.
        Err(Unreadable::Torn | Unreadable::Foreign) => {
            return Err(corrupt(format!("{path} is no journal of a broker: is this its data folder?")));
        }
        Err(Unreadable::Newer(format)) => {
            let text = format!(
                "{path} has format {format}, this build reads up to {}: use a newer build",
                frame::FORMAT
            );
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
    };
    let mut state = MetaState::default();
    while let Some(frame) = reader.next() {
        let record = serde_json::from_slice(&frame.payload)
            .map_err(|source| corrupt(format!("a record of {path} cannot be read")).with_source(source))?;
        state.apply(record);
    }
    if reader.torn_bytes() > 0 {
        if clean {
            let text = format!(
                "{path} is damaged at byte {}, though the broker ended in good order",
                reader.whole_bytes()
            );
            return Err(corrupt(text));
        }
        warn!(file = %path, bytes = reader.torn_bytes(), "an unfinished write at the end of the journal is cut");
    }
    Ok(state)
}
