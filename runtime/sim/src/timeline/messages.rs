//! The messages that a timeline understands, decoded.
//!
//! Broker and client of the run have decoded the same bytes with the same code in the same process, so a
//! decoder cannot meet a count here that it did not survive there.

use std::collections::BTreeMap;

use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, MetadataRequest, ProduceRequest,
    WriteTxnMarkersRequest,
};
use kafka_protocol::protocol::Request as Api;
use sharestream_base::ids::TopicId;
use sharestream_wire::KafkaError;
use sharestream_wire::api::ApiKey;
use sharestream_wire::frame;
use sharestream_wire::messages::read_share_group_state::ReadShareGroupStateRequest;
use sharestream_wire::messages::share_acknowledge::ShareAcknowledgeRequest;
use sharestream_wire::messages::share_fetch::ShareFetchRequest;
use sharestream_wire::messages::share_txn_outcome::ShareTxnOutcomeRequest;
use sharestream_wire::messages::write_share_group_state::WriteShareGroupStateRequest;
use sharestream_wire::txn_share_acknowledge::TxnShareAcknowledgeRequest;

use super::frames::{Exchange, Recording};

/// A message that cannot be decoded, by its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undecodable(pub(super) usize);

impl std::fmt::Display for Undecodable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "undecodable ({} bytes)", self.0)
    }
}

macro_rules! known_messages {
    ($($name:ident: $request:ty;)*) => {
        /// A request; each other API is left out.
        #[derive(Clone, Debug)]
        pub(super) enum Request {
            $($name($request),)*
        }

        /// An answer.
        #[derive(Clone, Debug)]
        pub(super) enum Answer {
            $($name(<$request as Api>::Response),)*
        }

        fn decode_request(exchange: &Exchange) -> Option<Result<Request, Undecodable>> {
            let (version, body) = (exchange.header.api_version, exchange.body.clone());
            let failed = Undecodable(body.len());
            match exchange.header.api_key {
                $(<$request as Api>::KEY => {
                    let decoded = frame::decode_request_body::<$request>(body, version);
                    Some(decoded.map(Request::$name).map_err(|_| failed))
                })*
                _ => None,
            }
        }

        fn decode_answer(exchange: &Exchange) -> Option<Result<Answer, Undecodable>> {
            let (_, bytes) = exchange.answer.as_ref()?;
            let failed = Undecodable(bytes.len());
            match exchange.header.api_key {
                $(<$request as Api>::KEY => {
                    let version = exchange.header.api_version;
                    let decoded = frame::decode_response::<$request>(bytes.clone(), version);
                    Some(decoded.map(|(_, answer)| Answer::$name(answer)).map_err(|_| failed))
                })*
                _ => None,
            }
        }
    };
}

known_messages! {
    Produce: ProduceRequest;
    InitProducerId: InitProducerIdRequest;
    AddPartitions: AddPartitionsToTxnRequest;
    EndTxn: EndTxnRequest;
    Markers: WriteTxnMarkersRequest;
    ShareFetch: ShareFetchRequest;
    ShareAcknowledge: ShareAcknowledgeRequest;
    Stage: TxnShareAcknowledgeRequest;
    ReadState: ReadShareGroupStateRequest;
    WriteState: WriteShareGroupStateRequest;
    Outcome: ShareTxnOutcomeRequest;
}

/// An exchange of a known API.
#[derive(Clone, Debug)]
pub(super) struct Decoded<'a> {
    pub(super) exchange: &'a Exchange,
    pub(super) request: Result<Request, Undecodable>,
    /// None: nobody wrote an answer.
    pub(super) answer: Option<Result<Answer, Undecodable>>,
}

impl Decoded<'_> {
    /// The exchanges of known APIs, in the order of their requests.
    pub(super) fn all(recording: &Recording) -> Vec<Decoded<'_>> {
        let decode = |exchange| {
            let request = decode_request(exchange)?;
            Some(Decoded { exchange, request, answer: decode_answer(exchange) })
        };
        recording.exchanges.iter().filter_map(decode).collect()
    }

    /// The answer, if there is one that can be read.
    pub(super) fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref()?.as_ref().ok()
    }

    /// Name of the API.
    pub(super) fn name(&self) -> &'static str {
        ApiKey(self.exchange.header.api_key).name().unwrap_or("request")
    }
}

/// Names of topics by id, as brokers told them.
#[derive(Clone, Debug, Default)]
pub(super) struct Topics(BTreeMap<TopicId, String>);

impl Topics {
    /// What the answers of Metadata say.
    pub(super) fn of(recording: &Recording) -> Topics {
        let mut names = BTreeMap::new();
        for exchange in recording.exchanges.iter().filter(|it| it.header.api_key == MetadataRequest::KEY) {
            let Some((_, bytes)) = &exchange.answer else { continue };
            let version = exchange.header.api_version;
            let decoded = frame::decode_response::<MetadataRequest>(bytes.clone(), version);
            for topic in decoded.iter().flat_map(|(_, answer)| &answer.topics) {
                if let Some(name) = &topic.name {
                    names.insert(TopicId(topic.topic_id), name.to_string());
                }
            }
        }
        Topics(names)
    }

    /// True for a topic of this name, and for every topic of which no broker told the name.
    pub(super) fn may_be(&self, id: TopicId, name: &str) -> bool {
        self.0.get(&id).is_none_or(|known| known == name)
    }

    /// The name; of an unknown topic its id.
    pub(super) fn name(&self, id: TopicId) -> String {
        self.0.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// `ok`, or the name of the error.
pub(super) fn verdict(code: i16) -> String {
    if code == 0 { "ok".to_owned() } else { KafkaError(code).name().to_owned() }
}
