//! What a timeline is about: one source record, the batch that brought it, and the transactions that touch
//! it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kafka_protocol::messages::produce_request::PartitionProduceData;
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use sharestream_base::ids::{Offset, TopicId};
use sharestream_kafka::outcome::{LogEntry, OutcomeRecord};
use sharestream_kafka::provenance::Provenance;
use sharestream_wire::messages::share_fetch::ShareFetchResponse;
use sharestream_wire::messages::write_share_group_state::WriteShareGroupStateRequest;
use sharestream_wire::messages::{AcknowledgementBatch, StateBatch};
use sharestream_wire::records::{self, BatchHeader, RawBatch};
use sharestream_wire::txn_share_acknowledge::TxnShareAcknowledgeRequest;

use super::frames::Moment;
use super::messages::{Answer, Decoded, Request, Topics};
use crate::check::Place;
use crate::workload::{OUTCOMES, SOURCE};

/// A transaction: producer id and the epoch that its records carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Transaction(pub(super) i64, pub(super) i16);

impl std::fmt::Display for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "producer {}/{}", self.0, self.1)
    }
}

/// A batch as its producer names it: the same in a request, in its repetition and in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BatchName {
    transaction: Transaction,
    base_sequence: i32,
}

impl BatchName {
    /// None for a batch of nobody.
    pub(super) fn of(header: &BatchHeader) -> Option<BatchName> {
        let transaction = Transaction(header.producer_id, header.producer_epoch);
        (header.producer_id >= 0).then_some(BatchName { transaction, base_sequence: header.base_sequence })
    }
}

/// The record and what belongs to it.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) place: Place,
    pub(super) topics: Topics,
    /// The batches that hold the record, and where within them it is.
    pub(super) batches: BTreeMap<BatchName, i64>,
    /// The transactions that touch the record, and when each did first.
    pub(super) transactions: BTreeMap<Transaction, Moment>,
    pub(super) transactional_ids: BTreeSet<String>,
    /// Paths of manifests within the job's folder, without their endings.
    pub(super) manifests: BTreeSet<String>,
    /// When a leader first wrote a start offset beyond the record.
    pub(super) passed_at: Option<Moment>,
}

impl Subject {
    /// Collects what belongs to the record at `place`.
    pub(super) fn find(place: Place, topics: Topics, decoded: &[Decoded<'_>]) -> Subject {
        let mut subject = Subject {
            place,
            topics,
            batches: BTreeMap::new(),
            transactions: BTreeMap::new(),
            transactional_ids: BTreeSet::new(),
            manifests: BTreeSet::new(),
            passed_at: None,
        };
        for exchange in decoded {
            let Ok(request) = &exchange.request else { continue };
            let moment = exchange.exchange.moment;
            match (request, exchange.answer()) {
                (Request::Produce(request), Some(Answer::Produce(answer))) => {
                    subject.find_batches(request, answer);
                    subject.find_in_produce(request, moment);
                }
                (Request::Produce(request), _) => subject.find_in_produce(request, moment),
                (Request::ShareFetch(_), Some(Answer::ShareFetch(answer))) => subject.find_in_fetch(answer),
                (Request::Stage(request), _) => subject.find_in_stage(request, moment),
                (Request::WriteState(request), _) => subject.find_in_state(request, moment),
                _ => {}
            }
        }
        // The transactions of the producer of the record are found last: they need its batches.
        for exchange in decoded {
            if let Ok(Request::Produce(request)) = &exchange.request {
                subject.find_source_transaction(request, exchange.exchange.moment);
            }
        }
        subject
    }

    /// True for the share partition of the record.
    pub(super) fn is_partition(&self, topic_id: TopicId, partition: i32) -> bool {
        partition == self.place.partition && self.topics.may_be(topic_id, SOURCE)
    }

    /// True when the inclusive range holds the record.
    pub(super) fn is_within(&self, first: i64, last: i64) -> bool {
        (first..=last).contains(&self.place.offset)
    }

    /// The acknowledgement of the record: its range and type.
    pub(super) fn acknowledged(&self, batches: &[AcknowledgementBatch]) -> Option<(i64, i64, i8)> {
        let batch = batches.iter().find(|batch| self.is_within(batch.first_offset, batch.last_offset))?;
        let index = usize::try_from(self.place.offset.checked_sub(batch.first_offset)?).ok()?;
        let types = &batch.acknowledge_types;
        let kind = if types.len() == 1 { types.first() } else { types.get(index) };
        Some((batch.first_offset, batch.last_offset, kind.copied()?))
    }

    /// The durable state of the record.
    pub(super) fn state<'a>(&self, batches: &'a [StateBatch]) -> Option<&'a StateBatch> {
        batches.iter().find(|batch| self.is_within(batch.first_offset, batch.last_offset))
    }

    /// True when the provenance names the record.
    pub(super) fn is_source_of(&self, provenance: &Provenance) -> bool {
        provenance.offset.0 == self.place.offset
            && self.is_partition(provenance.topic_id, provenance.partition.0)
    }

    /// The range of the outcome that holds the record: first, last, decision.
    pub(super) fn decided(&self, outcome: &OutcomeRecord) -> Option<(i64, i64, String)> {
        let partitions = outcome.partitions.iter();
        let ranges =
            partitions.filter(|it| self.is_partition(it.topic_id, it.partition.0)).flat_map(|it| &it.ranges);
        let offset = Offset(self.place.offset);
        let range = ranges.into_iter().find(|range| range.first <= offset && offset <= range.last)?;
        Some((range.first.0, range.last.0, format!("{:?}", range.decision).to_lowercase()))
    }

    /// Producing to the source: which batch got the offset.
    fn find_batches(&mut self, request: &ProduceRequest, answer: &ProduceResponse) {
        let Some(base) = base_offset_in(answer, SOURCE, self.place.partition) else { return };
        for (topic, data) in partitions_of(request) {
            if topic == SOURCE && data.index == self.place.partition {
                self.remember_batches(data.records.as_ref(), Some(base));
            }
        }
    }

    fn remember_batches(&mut self, blob: Option<&Bytes>, base: Option<i64>) {
        let mut next = base;
        for batch in batches_of(blob) {
            // A producer counts from 0 in each batch; in a log the batch says where it is.
            let first = next.unwrap_or(batch.header.base_offset);
            let last = first.saturating_add(i64::from(batch.header.last_offset_delta));
            next = next.map(|_| last.saturating_add(1));
            if let Some(name) = BatchName::of(&batch.header)
                && self.is_within(first, last)
            {
                self.batches.insert(name, self.place.offset - first);
            }
        }
    }

    fn find_source_transaction(&mut self, request: &ProduceRequest, moment: Moment) {
        for (topic, data) in partitions_of(request) {
            if topic != SOURCE || data.index != self.place.partition {
                continue;
            }
            for batch in batches_of(data.records.as_ref()) {
                let is_ours =
                    BatchName::of(&batch.header).is_some_and(|name| self.batches.contains_key(&name));
                if is_ours && batch.header.is_transactional() {
                    self.touch(request, &batch.header, moment);
                }
            }
        }
    }

    fn find_in_produce(&mut self, request: &ProduceRequest, moment: Moment) {
        for (topic, data) in partitions_of(request) {
            if topic == SOURCE {
                continue;
            }
            for batch in batches_of(data.records.as_ref()) {
                let found = effects_of(&batch).any(|effect| self.is_source_of(&effect));
                let outcomes = if topic == OUTCOMES { outcomes_of(&batch) } else { Vec::new() };
                let deciding = outcomes.iter().filter(|outcome| self.decided(outcome).is_some());
                let manifests: Vec<Option<String>> = deciding.map(manifest_path).collect();
                if (found || !manifests.is_empty()) && batch.header.is_transactional() {
                    self.touch(request, &batch.header, moment);
                }
                self.manifests.extend(manifests.into_iter().flatten());
            }
        }
    }

    fn find_in_fetch(&mut self, answer: &ShareFetchResponse) {
        for topic in &answer.responses {
            for partition in &topic.partitions {
                if self.is_partition(TopicId(topic.topic_id), partition.partition_index) {
                    self.remember_batches(partition.records.as_ref(), None);
                }
            }
        }
    }

    fn find_in_stage(&mut self, request: &TxnShareAcknowledgeRequest, moment: Moment) {
        for topic in &request.topics {
            for partition in &topic.partitions {
                let is_ours = self.is_partition(TopicId(topic.topic_id), partition.partition_index);
                if is_ours && self.acknowledged(&partition.acknowledgement_batches).is_some() {
                    self.transactional_ids.extend(request.transactional_id.as_ref().map(|id| id.to_string()));
                    self.touched_by(Transaction(request.producer_id, request.producer_epoch), moment);
                }
            }
        }
    }

    fn find_in_state(&mut self, request: &WriteShareGroupStateRequest, moment: Moment) {
        for topic in &request.topics {
            for partition in &topic.partitions {
                if !self.is_partition(TopicId(topic.topic_id), partition.partition) {
                    continue;
                }
                if partition.start_offset > self.place.offset {
                    self.passed_at = self.passed_at.or(Some(moment));
                }
                let state = self.state(&partition.state_batches);
                let owner = state.map(|state| Transaction(state.producer_id, state.producer_epoch));
                if let Some(owner) = owner.filter(|owner| owner.0 >= 0) {
                    self.touched_by(owner, moment);
                }
            }
        }
    }

    fn touched_by(&mut self, transaction: Transaction, moment: Moment) {
        let first = self.transactions.entry(transaction).or_insert(moment);
        *first = moment.min(*first);
    }

    fn touch(&mut self, request: &ProduceRequest, header: &BatchHeader, moment: Moment) {
        self.touched_by(Transaction(header.producer_id, header.producer_epoch), moment);
        self.transactional_ids.extend(request.transactional_id.as_ref().map(|id| id.to_string()));
    }
}

/// Partitions of a Produce request with their topic names.
pub(super) fn partitions_of(request: &ProduceRequest) -> impl Iterator<Item = (&str, &PartitionProduceData)> {
    let topics = request.topic_data.iter();
    topics.flat_map(|topic| topic.partition_data.iter().map(|data| (topic.name.as_str(), data)))
}

/// The base offset that the broker gave.
fn base_offset_in(answer: &ProduceResponse, topic: &str, partition: i32) -> Option<i64> {
    let topics = answer.responses.iter().filter(|it| it.name.as_str() == topic);
    let mut partitions = topics.flat_map(|it| &it.partition_responses).filter(|it| it.index == partition);
    partitions.find(|it| it.error_code == 0 && it.base_offset >= 0).map(|it| it.base_offset)
}

/// Batches up to the first that cannot be read.
pub(super) fn batches_of(blob: Option<&Bytes>) -> impl Iterator<Item = RawBatch> {
    records::split(blob.cloned().unwrap_or_default()).map_while(Result::ok)
}

/// Where the records of a batch come from, as far as they say.
pub(super) fn effects_of(batch: &RawBatch) -> impl Iterator<Item = Provenance> {
    let records = batch.records().ok();
    let mut found = Vec::new();
    for record in records.iter().flat_map(|records| records.iter()).map_while(Result::ok) {
        found.extend(Provenance::of_headers(record.headers.iter()));
    }
    found.into_iter()
}

/// The outcome records of a batch.
pub(super) fn outcomes_of(batch: &RawBatch) -> Vec<OutcomeRecord> {
    let records = batch.records().ok();
    let mut found = Vec::new();
    for record in records.iter().flat_map(|records| records.iter()).map_while(Result::ok) {
        if let (Some(key), Some(value)) = (record.key, record.value)
            && let Ok(LogEntry::Outcome(outcome)) = LogEntry::decode(key, value)
        {
            found.push(*outcome);
        }
    }
    found
}

/// Path of the manifest that an outcome names, without its ending: shared with the note that it is completed.
fn manifest_path(outcome: &OutcomeRecord) -> Option<String> {
    let name = outcome.manifest.as_ref()?.name.split('.').next()?;
    Some(format!("/{}/manifests/{name}", outcome.instance))
}
