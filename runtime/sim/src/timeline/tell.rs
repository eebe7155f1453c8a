//! What a request and its answer say about the record, in words.

use std::collections::BTreeSet;

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProduceRequest, WriteTxnMarkersRequest,
};
use sharestream_base::ids::TopicId;
use sharestream_kafka::outcome::OutcomeRecord;
use sharestream_wire::messages::read_share_group_state::{
    ReadShareGroupStateRequest, ReadShareGroupStateResponse,
};
use sharestream_wire::messages::share_acknowledge::ShareAcknowledgeRequest;
use sharestream_wire::messages::share_fetch::{PartitionData, ShareFetchRequest};
use sharestream_wire::messages::share_txn_outcome::ShareTxnOutcomeRequest;
use sharestream_wire::messages::write_share_group_state::WriteShareGroupStateRequest;
use sharestream_wire::messages::{AcknowledgementBatch, StateBatch};
use sharestream_wire::txn_share_acknowledge::TxnShareAcknowledgeRequest;

use super::frames::Moment;
use super::messages::{Answer, Request, verdict};
use super::subject::{BatchName, Subject, Transaction, batches_of, effects_of, outcomes_of, partitions_of};
use crate::workload::{OUTCOMES, SOURCE};

/// Characters of a member id that tell members apart.
const MEMBER_CHARS: usize = 8;
/// Characters of a value that are shown.
const VALUE_CHARS: usize = 40;

/// Words for a request and for its answer; none: it does not concern the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) request: Option<String>,
    pub(super) answer: Option<String>,
}

impl Told {
    /// The request is shown, and its answer, if there is one.
    fn both(request: String, answer: Option<String>) -> Told {
        Told { request: Some(request), answer }
    }
}

impl Subject {
    /// What the exchange says about the record.
    pub(super) fn tell(&self, request: &Request, answer: Option<&Answer>, moment: Moment) -> Told {
        match request {
            Request::Produce(request) => self.produce(request, answer),
            Request::InitProducerId(request) => self.init(request, answer),
            Request::AddPartitions(request) => self.add_partitions(request, answer),
            Request::EndTxn(request) => self.end(request, answer),
            Request::Markers(request) => self.markers(request, answer, moment),
            Request::ShareFetch(request) => self.share_fetch(request, answer),
            Request::ShareAcknowledge(request) => self.share_acknowledge(request, answer),
            Request::Stage(request) => self.stage(request, answer),
            Request::ReadState(request) => self.read_state(request, answer),
            Request::WriteState(request) => self.write_state(request, answer, moment),
            Request::Outcome(request) => self.outcome(request, answer, moment),
        }
    }

    fn produce(&self, request: &ProduceRequest, answer: Option<&Answer>) -> Told {
        let (mut parts, mut written) = (Vec::new(), Vec::new());
        for (topic, data) in partitions_of(request) {
            let before = parts.len();
            for batch in batches_of(data.records.as_ref()) {
                let place = format!("{topic}/{}", data.index);
                let transaction = Transaction(batch.header.producer_id, batch.header.producer_epoch);
                if topic == SOURCE && data.index == self.place.partition {
                    let delta = BatchName::of(&batch.header).and_then(|name| self.batches.get(&name));
                    parts.extend(delta.map(|delta| {
                        format!(
                            "the record to {place} with value {} by {transaction}",
                            value_at(&batch, *delta)
                        )
                    }));
                }
                let ordinals: Vec<String> = effects_of(&batch)
                    .filter(|effect| self.is_source_of(effect))
                    .map(|effect| effect.ordinal.to_string())
                    .collect();
                if !ordinals.is_empty() {
                    parts.push(format!("effect {} to {place} by {transaction}", ordinals.join(", ")));
                }
                let outcomes = if topic == OUTCOMES { outcomes_of(&batch) } else { Vec::new() };
                for outcome in &outcomes {
                    parts.extend(self.decision(outcome, &place, transaction));
                }
            }
            if parts.len() > before {
                written.push((topic, data.index));
            }
        }
        if parts.is_empty() {
            return Told::default();
        }
        let id =
            request.transactional_id.as_ref().map(|id| format!(" ({})", id.as_str())).unwrap_or_default();
        Told::both(format!("{}{id}", parts.join("; ")), answer.map(|answer| written_at(answer, &written)))
    }

    fn decision(&self, outcome: &OutcomeRecord, place: &str, transaction: Transaction) -> Option<String> {
        let (first, last, decision) = self.decided(outcome)?;
        let OutcomeRecord { checkpoint, job, instance, manifest, .. } = outcome;
        let manifest = manifest.as_ref().map(|it| format!(", manifest {}", it.name)).unwrap_or_default();
        let what =
            format!("outcome of checkpoint {checkpoint} of {job}/{instance} to {place} by {transaction}");
        Some(format!("{what}: {decision} {first}..{last}{manifest}"))
    }

    fn init(&self, request: &InitProducerIdRequest, answer: Option<&Answer>) -> Told {
        let Some(id) =
            request.transactional_id.as_ref().filter(|id| self.transactional_ids.contains(id.as_str()))
        else {
            return Told::default();
        };
        let answer = answer.map(|answer| match answer {
            Answer::InitProducerId(answer) if answer.error_code == 0 => {
                format!("{} is now {}", id.as_str(), Transaction(answer.producer_id.0, answer.producer_epoch))
            }
            Answer::InitProducerId(answer) => verdict(answer.error_code),
            _ => String::new(),
        });
        Told::both(format!("takes {} and fences who had it", id.as_str()), answer)
    }

    fn add_partitions(&self, request: &AddPartitionsToTxnRequest, answer: Option<&Answer>) -> Told {
        let old = Transaction(request.v3_and_below_producer_id.0, request.v3_and_below_producer_epoch);
        let mut parts = Vec::new();
        let list = |topics: &[AddPartitionsToTxnTopic]| {
            let texts: Vec<String> = topics
                .iter()
                .map(|topic| format!("{} {:?}", topic.name.as_str(), topic.partitions))
                .collect();
            texts.join(", ")
        };
        if self.transactions.contains_key(&old) && !request.v3_and_below_topics.is_empty() {
            parts.push(format!("{} to {old}", list(&request.v3_and_below_topics)));
        }
        for it in &request.transactions {
            let transaction = Transaction(it.producer_id.0, it.producer_epoch);
            if self.transactions.contains_key(&transaction) {
                let (verb, id) =
                    (if it.verify_only { "verifies " } else { "" }, it.transactional_id.as_str());
                parts.push(format!("{verb}{} to {transaction} ({id})", list(&it.topics)));
            }
        }
        if parts.is_empty() {
            return Told::default();
        }
        let answer = answer.map(|answer| match answer {
            Answer::AddPartitions(answer) => {
                let topics = answer.results_by_transaction.iter().flat_map(|it| &it.topic_results);
                let topics = topics.chain(&answer.results_by_topic_v3_and_below);
                let codes =
                    topics.flat_map(|topic| &topic.results_by_partition).map(|it| it.partition_error_code);
                worst(std::iter::once(answer.error_code).chain(codes))
            }
            _ => String::new(),
        });
        Told::both(parts.join("; "), answer)
    }

    fn end(&self, request: &EndTxnRequest, answer: Option<&Answer>) -> Told {
        let transaction = Transaction(request.producer_id.0, request.producer_epoch);
        if !self.transactions.contains_key(&transaction) {
            return Told::default();
        }
        let verb = if request.committed { "commit" } else { "abort" };
        let answer = answer.map(|answer| match answer {
            Answer::EndTxn(answer) if answer.error_code == 0 && answer.producer_id.0 >= 0 => {
                format!("ok, next is {}", Transaction(answer.producer_id.0, answer.producer_epoch))
            }
            Answer::EndTxn(answer) => verdict(answer.error_code),
            _ => String::new(),
        });
        Told::both(format!("{verb} {transaction} ({})", request.transactional_id.as_str()), answer)
    }

    /// Since KIP-890 a marker carries the epoch after that of its transaction. One with the same epoch ends
    /// the transaction before, unless it comes when ours has begun.
    fn is_ended_by(&self, producer_id: i64, marker_epoch: i16, at: Moment) -> bool {
        let has_begun = |transaction| self.transactions.get(&transaction).is_some_and(|first| *first < at);
        has_begun(Transaction(producer_id, marker_epoch))
            || has_begun(Transaction(producer_id, marker_epoch.wrapping_sub(1)))
    }

    fn markers(&self, request: &WriteTxnMarkersRequest, answer: Option<&Answer>, at: Moment) -> Told {
        let mut parts = Vec::new();
        for marker in &request.markers {
            if !self.is_ended_by(marker.producer_id.0, marker.producer_epoch, at) {
                continue;
            }
            let verb = if marker.transaction_result { "commit" } else { "abort" };
            let topics: Vec<String> = marker
                .topics
                .iter()
                .map(|topic| format!("{} {:?}", topic.name.as_str(), topic.partition_indexes))
                .collect();
            let transaction = Transaction(marker.producer_id.0, marker.producer_epoch);
            parts.push(format!("{verb} marker of {transaction} to {}", topics.join(", ")));
        }
        if parts.is_empty() {
            return Told::default();
        }
        let answer = answer.map(|answer| match answer {
            Answer::Markers(answer) => {
                let topics = answer.markers.iter().flat_map(|marker| &marker.topics);
                worst(topics.flat_map(|topic| &topic.partitions).map(|it| it.error_code))
            }
            _ => String::new(),
        });
        Told::both(parts.join("; "), answer)
    }

    fn share_fetch(&self, request: &ShareFetchRequest, answer: Option<&Answer>) -> Told {
        let topics = request.topics.iter().flat_map(|topic| {
            topic
                .partitions
                .iter()
                .map(|it| (topic.topic_id, it.partition_index, &it.acknowledgement_batches[..]))
        });
        let acknowledged = self.acknowledgement(topics.map(|(id, index, acks)| (TopicId(id), index, acks)));
        let Some(Answer::ShareFetch(answer)) = answer else {
            return Told { request: acknowledged, answer: None };
        };
        let mut parts = Vec::new();
        if answer.error_code != 0 && acknowledged.is_some() {
            parts.push(verdict(answer.error_code));
        }
        let partitions = answer
            .responses
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|it| (TopicId(topic.topic_id), it)));
        for (_, partition) in partitions.filter(|(id, it)| self.is_partition(*id, it.partition_index)) {
            if acknowledged.is_some() {
                parts.push(format!("acknowledgement {}", verdict(partition.acknowledge_error_code)));
            }
            parts.extend(self.acquired(partition, request.member_id.as_deref().unwrap_or_default()));
        }
        Told { request: acknowledged, answer: (!parts.is_empty()).then(|| parts.join("; ")) }
    }

    fn acquired(&self, partition: &PartitionData, member: &str) -> Option<String> {
        let range =
            partition.acquired_records.iter().find(|it| self.is_within(it.first_offset, it.last_offset))?;
        let member: String = member.chars().take(MEMBER_CHARS).collect();
        Some(format!(
            "member {member} acquires {}..{}, delivery {}",
            range.first_offset, range.last_offset, range.delivery_count
        ))
    }

    fn share_acknowledge(&self, request: &ShareAcknowledgeRequest, answer: Option<&Answer>) -> Told {
        let topics = request.topics.iter().flat_map(|topic| {
            topic
                .partitions
                .iter()
                .map(|it| (topic.topic_id, it.partition_index, &it.acknowledgement_batches[..]))
        });
        let Some(text) = self.acknowledgement(topics.map(|(id, index, acks)| (TopicId(id), index, acks)))
        else {
            return Told::default();
        };
        let answer = answer.map(|answer| match answer {
            Answer::ShareAcknowledge(answer) => {
                let partitions = answer.responses.iter().flat_map(|it| &it.partitions);
                let ours = partitions.filter(|it| it.partition_index == self.place.partition);
                worst(std::iter::once(answer.error_code).chain(ours.map(|it| it.error_code)))
            }
            _ => String::new(),
        });
        Told::both(text, answer)
    }

    fn stage(&self, request: &TxnShareAcknowledgeRequest, answer: Option<&Answer>) -> Told {
        let topics = request.topics.iter().flat_map(|topic| {
            topic
                .partitions
                .iter()
                .map(|it| (topic.topic_id, it.partition_index, &it.acknowledgement_batches[..]))
        });
        let Some(text) = self.acknowledgement(topics.map(|(id, index, acks)| (TopicId(id), index, acks)))
        else {
            return Told::default();
        };
        let id = request.transactional_id.as_deref().unwrap_or("no transactional id");
        let transaction = Transaction(request.producer_id, request.producer_epoch);
        let answer = answer.map(|answer| match answer {
            Answer::Stage(answer) => {
                let partitions = answer.responses.iter().flat_map(|it| &it.partitions);
                worst(std::iter::once(answer.error_code).chain(partitions.map(|it| it.error_code)))
            }
            _ => String::new(),
        });
        Told::both(format!("stages in {transaction} ({id}): {text}"), answer)
    }

    fn read_state(&self, request: &ReadShareGroupStateRequest, answer: Option<&Answer>) -> Told {
        let asks = request.topics.iter().any(|topic| {
            topic.partitions.iter().any(|it| self.is_partition(TopicId(topic.topic_id), it.partition))
        });
        if !asks {
            return Told::default();
        }
        let answer = answer.map(|answer| match answer {
            Answer::ReadState(answer) => self.read(answer),
            _ => String::new(),
        });
        Told::both(format!("asks for the state of {SOURCE}/{}", self.place.partition), answer)
    }

    fn read(&self, answer: &ReadShareGroupStateResponse) -> String {
        let topics = answer.results.iter();
        let mut partitions = topics.flat_map(|topic| {
            let partitions = topic.partitions.iter();
            partitions.filter(|it| self.is_partition(TopicId(topic.topic_id), it.partition))
        });
        match partitions.next() {
            None => "nothing".to_owned(),
            Some(it) if it.error_code != 0 => verdict(it.error_code),
            Some(it) if it.start_offset > self.place.offset => {
                format!("start {}: the record is done", it.start_offset)
            }
            Some(it) => {
                let state =
                    self.state(&it.state_batches).map_or_else(|| "no state of it".to_owned(), state_text);
                format!("start {}, {state}", it.start_offset)
            }
        }
    }

    fn write_state(
        &self,
        request: &WriteShareGroupStateRequest,
        answer: Option<&Answer>,
        at: Moment,
    ) -> Told {
        let mut parts = Vec::new();
        for topic in &request.topics {
            for it in
                topic.partitions.iter().filter(|it| self.is_partition(TopicId(topic.topic_id), it.partition))
            {
                parts.extend(self.state(&it.state_batches).map(state_text));
                if self.passed_at == Some(at) {
                    parts.push(format!("start {}: the record is done", it.start_offset));
                }
            }
        }
        if parts.is_empty() {
            return Told::default();
        }
        let answer = answer.map(|answer| match answer {
            Answer::WriteState(answer) => {
                worst(answer.results.iter().flat_map(|topic| &topic.partitions).map(|it| it.error_code))
            }
            _ => String::new(),
        });
        Told::both(parts.join("; "), answer)
    }

    fn outcome(&self, request: &ShareTxnOutcomeRequest, answer: Option<&Answer>, at: Moment) -> Told {
        let is_ours = self.is_partition(TopicId(request.topic_id), request.partition)
            && self.is_ended_by(request.producer_id, request.marker_epoch, at);
        if !is_ours {
            return Told::default();
        }
        let verb = if request.commit { "committed" } else { "aborted" };
        let topic = self.topics.name(TopicId(request.topic_id));
        let transaction = Transaction(request.producer_id, request.marker_epoch);
        let answer = answer.map(|answer| match answer {
            Answer::Outcome(answer) => verdict(answer.error_code),
            _ => String::new(),
        });
        Told::both(format!("{verb} by {transaction}: {topic}/{}", request.partition), answer)
    }

    fn acknowledgement<'a>(
        &self,
        mut partitions: impl Iterator<Item = (TopicId, i32, &'a [AcknowledgementBatch])>,
    ) -> Option<String> {
        partitions.find_map(|(topic_id, partition, batches)| {
            if !self.is_partition(topic_id, partition) {
                return None;
            }
            let (first, last, kind) = self.acknowledged(batches)?;
            Some(format!("{} {first}..{last}", acknowledge_type(kind)))
        })
    }
}

fn acknowledge_type(kind: i8) -> String {
    match kind {
        0 => "gap".to_owned(),
        1 => "accept".to_owned(),
        2 => "release".to_owned(),
        3 => "reject".to_owned(),
        4 => "renew".to_owned(),
        other => format!("acknowledgement of type {other}"),
    }
}

fn state_text(state: &StateBatch) -> String {
    let text = match state.delivery_state {
        0 => "available".to_owned(),
        1 => "acquired".to_owned(),
        2 => "acknowledged".to_owned(),
        3 => "archiving".to_owned(),
        4 => "archived".to_owned(),
        5 => {
            let owner = Transaction(state.producer_id, state.producer_epoch);
            format!("pending in {owner} ({})", acknowledge_type(state.ack_type))
        }
        other => format!("in state {other}"),
    };
    format!("{}..{} {text}, deliveries {}", state.first_offset, state.last_offset, state.delivery_count)
}

/// `ok`, or the errors.
fn worst(codes: impl Iterator<Item = i16>) -> String {
    let errors: BTreeSet<i16> = codes.filter(|code| *code != 0).collect();
    if errors.is_empty() {
        return verdict(0);
    }
    errors.into_iter().map(verdict).collect::<Vec<_>>().join(", ")
}

fn written_at(answer: &Answer, places: &[(&str, i32)]) -> String {
    let Answer::Produce(answer) = answer else { return String::new() };
    let mut parts = Vec::new();
    for topic in &answer.responses {
        for it in &topic.partition_responses {
            if places.contains(&(topic.name.as_str(), it.index)) {
                let place = format!("{}/{}", topic.name.as_str(), it.index);
                parts.push(match it.error_code {
                    0 => format!("{place} from offset {} on", it.base_offset),
                    code => format!("{place} {}", verdict(code)),
                });
            }
        }
    }
    parts.join("; ")
}

/// The value of a record of a batch, as far as it is text.
fn value_at(batch: &sharestream_wire::records::RawBatch, delta: i64) -> String {
    let Ok(records) = batch.records() else { return "?".to_owned() };
    let offset = batch.header.base_offset.saturating_add(delta);
    let record = records.iter().map_while(Result::ok).find(|record| record.offset == offset);
    let value = record.and_then(|record| record.value).unwrap_or_default();
    let text: String = String::from_utf8_lossy(value).chars().take(VALUE_CHARS).collect();
    format!("'{}'", text.escape_debug())
}
