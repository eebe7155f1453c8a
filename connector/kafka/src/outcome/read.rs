//! Reading the outcome topic: uncommitted, with control batches, judging every record by its marker.
//!
//! Reading committed would wait for any hung replica; and a record's verdict must be known, not its visibility.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sharestream_base::ErrorKind;
use sharestream_base::ids::{Offset, PartitionIndex, ProducerId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_client::{Client, Isolation, OffsetSpec, PartitionReader};
use sharestream_wire::murmur2::partition_for_key;
use sharestream_wire::records::control::{self, ControlMarker};
use sharestream_wire::records::{RawBatch, RecordView};

use super::ledger_record::{
    Beginning, GenerationRecord, ReplayGeneration, RewindTo, is_generation, is_of_ledger,
};
use super::near_limit_record::{NearLimitRange, Noted};
use super::record::{LogEntry, ModeRecord, OutcomeRecord, OwnerRecord};
use crate::error::{client_error, wire_error};
use crate::{Error, Result};

/// What became of a transaction's outcome record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Its transaction committed.
    Committed,
    /// Its transaction aborted: it never happened.
    Aborted,
    /// No marker yet.
    Open,
}

/// An outcome record with its place and verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedOutcome {
    /// Offset in the outcome partition.
    pub offset: Offset,
    /// What became of it.
    pub verdict: Verdict,
    /// The record.
    pub record: OutcomeRecord,
}

/// The outcome partition as read so far. Pure: fed batch by batch, in order of offset.
///
/// ```text
/// record of producer p --> open --commit marker of p--> committed (end)
///                             \---abort marker of p---> aborted (end)
/// ```
/// A commit marker whose epoch is too high belongs to a later transaction of p (ADR 0010): that the record's own is missing
/// is an error.
#[derive(Debug, Default)]
pub struct OutcomeLog {
    /// Begins the keys of the records to keep; others are skipped unread.
    key_prefix: Option<String>,
    outcomes: Vec<JudgedOutcome>,
    /// Records without a marker yet, by producer, as indexes of `outcomes`.
    open: BTreeMap<ProducerId, Vec<usize>>,
    modes: BTreeMap<String, ModeRecord>,
    /// The last owner of each replica, by key.
    owners: BTreeMap<String, OwnerRecord>,
    /// Transactional ids that any owner record of a replica names, by the record's key.
    transactional_ids: BTreeMap<String, BTreeSet<String>>,
    /// What sources held near the delivery limit, by key.
    near_limit: BTreeMap<String, Noted>,
    /// The newest replay generation of each group.
    generations: BTreeMap<String, GroupGeneration>,
}

/// A replay generation as far as its records were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupGeneration {
    /// Which.
    pub generation: ReplayGeneration,
    /// False: it has begun, and its offsets may not be set yet.
    pub is_ready: bool,
    /// Where it begins; `None` for the first, and where the build that reset the group did not say it.
    pub begins: Option<Box<Beginning>>,
}

impl GroupGeneration {
    /// The savepoint that it goes back to, if it does.
    pub fn rewind(&self) -> Option<&RewindTo> {
        self.begins.as_ref()?.rewind.as_ref()
    }

    /// Takes one of the two records of a generation; one of an older generation changes nothing. Gives whether it begins
    /// a newer one than before.
    pub fn take(&mut self, record: &GenerationRecord) -> bool {
        let begins = record.generation > self.generation;
        if begins {
            *self = GroupGeneration { generation: record.generation, ..GroupGeneration::default() };
        }
        if record.generation == self.generation {
            if record.begins.is_some() && !self.is_ready {
                self.begins.clone_from(&record.begins);
            }
            self.is_ready |= record.ready;
        }
        begins
    }
}

impl OutcomeLog {
    /// A log that keeps the records of every job.
    pub fn new() -> Self {
        Self::default()
    }

    /// A log that keeps only the records of one replica, without their ranges (and all mode records): what recovery
    /// needs, whatever the length of the log.
    pub fn of(job: &str, instance: &str) -> Self {
        // Names have no slash, so the prefix belongs to this replica alone.
        OutcomeLog { key_prefix: Some(format!("{job}/{instance}/")), ..Self::default() }
    }

    /// Takes the next batch.
    ///
    /// # Errors
    /// `Corrupt` when a record cannot be read, or an outcome stands outside a transaction; `Retry` when the marker of an
    /// outcome was compacted away since the outcome was read: read again into a new log.
    pub fn apply(&mut self, batch: &RawBatch) -> Result<()> {
        let producer = ProducerId(batch.header.producer_id);
        if batch.header.is_control() {
            let (marker, _coordinator_epoch) =
                control::decode(batch).map_err(wire_error("outcome topic marker"))?;
            let verdict = match marker {
                ControlMarker::Commit => Verdict::Committed,
                ControlMarker::Abort => Verdict::Aborted,
            };
            return self.settle(producer, batch.header.producer_epoch, verdict);
        }
        let records = batch.records().map_err(wire_error("outcome topic batch"))?;
        for record in &records {
            let record = record.map_err(wire_error("outcome topic record"))?;
            self.apply_record(&record, producer, batch.header.is_transactional())?;
        }
        Ok(())
    }

    /// A marker with `epoch`: settles the open records of its producer. Under transaction version 2 a commit marker carries
    /// the epoch of its transaction plus one.
    fn settle(&mut self, producer: ProducerId, epoch: i16, verdict: Verdict) -> Result<()> {
        for index in self.open.remove(&producer).unwrap_or_default() {
            let JudgedOutcome { offset, record, verdict: judged } = &mut self.outcomes[index];
            if verdict == Verdict::Committed && i32::from(epoch) > i32::from(record.producer_epoch.0) + 1 {
                // The record's own marker was compacted away since the record was read: it aborted, or was tombstoned. A
                // reading from the start finds neither.
                return Err(Error::new(
                    ErrorKind::Retry,
                    format!(
                        "the outcome topic was compacted while it was read: the marker of the outcome at offset {offset}                          is gone; it has to be read again"
                    ),
                ));
            }
            *judged = verdict;
        }
        Ok(())
    }

    fn apply_record(
        &mut self,
        record: &RecordView<'_>,
        producer: ProducerId,
        transactional: bool,
    ) -> Result<()> {
        let corrupt = |what: String| {
            Error::new(
                ErrorKind::Corrupt,
                format!("outcome topic record at offset {}: {what}", record.offset),
            )
        };
        let key = record.key.ok_or_else(|| corrupt("no key".to_owned()))?;
        // A tombstone takes back nothing that recovery may still need.
        let Some(value) = record.value else { return Ok(()) };
        let is_outcome = !key.starts_with(b"#");
        let skipped = self.key_prefix.as_ref().is_some_and(|prefix| !key.starts_with(prefix.as_bytes()));
        if is_outcome && skipped {
            return Ok(());
        }
        if is_of_ledger(key) {
            // Floors are of no use to recovery, and not decoded: it need not understand those of a later version.
            if is_generation(key)
                && let LogEntry::Generation(begun) =
                    LogEntry::decode(key, value).map_err(|error| corrupt(error.to_string()))?
            {
                // A reset: deliveries are counted anew.
                self.near_limit.retain(|_, noted| noted.record.group != begun.group);
                self.generations.entry(begun.group.clone()).or_default().take(&begun);
            }
            return Ok(());
        }
        match LogEntry::decode(key, value).map_err(|error| corrupt(error.to_string()))? {
            // Of no use to recovery: the view of the ledger reads them.
            LogEntry::Floor(_) | LogEntry::Generation(_) | LogEntry::Unknown => {}
            LogEntry::Mode(mode) => {
                // A late record of an earlier era takes nothing back.
                if self.modes.get(&mode.group).is_none_or(|known| mode.era >= known.era) {
                    self.modes.insert(mode.group.clone(), mode);
                }
            }
            LogEntry::Owner(owner) => {
                let ids = self.transactional_ids.entry(owner.key()).or_default();
                ids.extend(owner.transactional_ids.iter().cloned());
                self.owners.insert(owner.key(), owner);
            }
            LogEntry::NearLimit(noted) => {
                self.near_limit.insert(noted.key(), Noted::new(noted));
            }
            LogEntry::Outcome(mut outcome) => {
                outcome.check_batch(producer, transactional).map_err(corrupt)?;
                for noted in self.near_limit.values_mut() {
                    noted.decided_by(self.outcomes.len(), &outcome);
                }
                if self.key_prefix.is_some() {
                    outcome.partitions.clear();
                }
                self.open.entry(producer).or_default().push(self.outcomes.len());
                let offset = Offset(record.offset);
                self.outcomes.push(JudgedOutcome { offset, verdict: Verdict::Open, record: *outcome });
            }
        }
        Ok(())
    }

    /// All outcomes kept, in order of offset.
    pub fn outcomes(&self) -> &[JudgedOutcome] {
        &self.outcomes
    }

    /// Takes the outcomes out.
    pub fn into_outcomes(self) -> Vec<JudgedOutcome> {
        self.outcomes
    }

    /// Who started a replica last, if anyone has.
    pub fn owner(&self, job: &str, instance: &str) -> Option<&OwnerRecord> {
        self.owners.get(&OwnerRecord::key_of(job, instance))
    }

    /// Transactional ids that the owners of a replica have named: an incarnation of it may commit under any of them.
    pub fn transactional_ids(&self, job: &str, instance: &str) -> BTreeSet<String> {
        self.transactional_ids.get(&OwnerRecord::key_of(job, instance)).cloned().unwrap_or_default()
    }

    /// What the sources of a replica held near the delivery limit when they were last heard of, and no committed outcome
    /// of it has decided since.
    pub fn undecided_near_limit(&self, job: &str, instance: &str) -> Vec<NearLimitRange> {
        let is_committed = |index: usize| {
            let judged = self.outcomes.get(index);
            judged.is_some_and(|judged| judged.verdict == Verdict::Committed)
        };
        let ours = self.near_limit.values();
        ours.filter(|noted| (noted.record.job.as_str(), noted.record.instance.as_str()) == (job, instance))
            .flat_map(|noted| noted.undecided(is_committed))
            .collect()
    }

    /// The replay generation of a group; `None` while it is the first, which begins without a record.
    pub fn generation(&self, group: &str) -> Option<&GroupGeneration> {
        self.generations.get(group)
    }

    /// Transactional ids that the owners of every replica of a job have named.
    pub fn transactional_ids_of_job(&self, job: &str) -> BTreeSet<String> {
        let owners = self.owners.values().filter(|owner| owner.job == job);
        owners.flat_map(|owner| self.transactional_ids(&owner.job, &owner.instance)).collect()
    }

    /// The rule of a group, if one was recorded.
    pub fn mode(&self, group: &str) -> Option<&ModeRecord> {
        self.modes.get(group)
    }
}

/// The partition of the outcome topic that holds the outcomes of a group.
pub fn outcome_partition(group: &str, partition_count: i32) -> PartitionIndex {
    PartitionIndex(partition_for_key(group.as_bytes(), partition_count))
}

/// Bytes of one fetch.
const FETCH_BYTES_MAX: i32 = 4 << 20;
/// The outcomes are there already, so a fetch has nothing to wait for.
const FETCH_WAIT: Duration = Duration::from_millis(100);

/// Reads the outcome partition, uncommitted and with control batches, from its start up to where its leader says it
/// ends now, into `log`. Gives the offset read up to. For recovery, `verify` and `status`.
///
/// # Errors
/// `Corrupt` (records that cannot be read), `InvalidInput` (no such topic), `Retry`.
///
/// # Cancel safety
/// Dropped, `log` holds a prefix; start again with a new one.
pub async fn read_outcomes(
    client: &Client,
    topic: &str,
    partition: PartitionIndex,
    log: &mut OutcomeLog,
) -> Result<Offset> {
    read_outcomes_from(client, topic, partition, Offset(0), log).await
}

/// The same from offset `from` on, for whoever knows what is before it. Errors and cancel safety as [`read_outcomes`].
pub(crate) async fn read_outcomes_from(
    client: &Client,
    topic: &str,
    partition: PartitionIndex,
    from: Offset,
    log: &mut OutcomeLog,
) -> Result<Offset> {
    let doing = || client_error(format!("read outcomes of {topic}/{partition}"));
    let (latest, isolation) = if is_planted(Bug::OutcomesReadToStableOffset) {
        (OffsetSpec::LatestStable, Isolation::ReadCommitted)
    } else {
        (OffsetSpec::Latest, Isolation::ReadUncommitted)
    };
    let ends = client.admin().list_offsets(topic, &[partition], latest).await.map_err(doing())?;
    let starts =
        client.admin().list_offsets(topic, &[partition], OffsetSpec::Earliest).await.map_err(doing())?;
    let missing = || Error::new(ErrorKind::Retry, format!("{topic}/{partition} told no offset"));
    let mut next = starts.get(&partition).copied().ok_or_else(missing)?.max(from);
    let end = ends.get(&partition).copied().ok_or_else(missing)?;
    let mut reader = PartitionReader::new(client.clone());
    while next < end {
        let fetched = reader
            .fetch(topic, partition, next, isolation, FETCH_BYTES_MAX, FETCH_WAIT)
            .await
            .map_err(doing())?;
        for batch in &fetched.batches {
            if batch.header.next_offset() > next.0 {
                log.apply(batch)?;
            }
        }
        next = fetched.next_offset(next);
    }
    Ok(end)
}
