//! A cluster whose every answer the test writes, over a network in memory.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "each test file uses its part of it")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse, ShareGroupHeartbeatResponse,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request, StrBytes};
use sharestream_base::{BoxIo, CancellationToken, Clock, Env, HostPort, Instant, Spawner, TaskKind, TaskSet};
use sharestream_client::{Client, ClientConfig};
use sharestream_wire::frame::{self, FrameDecoder, RequestHeader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

/// A request as a node received it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub node: i32,
    pub header: RequestHeader,
    pub body: Bytes,
    pub at: Instant,
}

impl Seen {
    pub fn is<R: Request>(&self) -> bool {
        self.header.api_key == R::KEY
    }

    pub fn read<R: Request>(&self) -> R {
        frame::decode_request_body::<R>(self.body.clone(), self.header.api_version).unwrap()
    }

    pub fn answer<M: Encodable + HeaderVersion>(&self, message: &M) -> Reply {
        let header = &self.header;
        Reply::Answer(frame::encode_response(message, header.api_version, header.correlation_id).unwrap())
    }
}

/// What a node does with a request.
#[derive(Debug)]
pub enum Reply {
    Answer(Bytes),
    /// The same after a while, while further requests of the connection wait.
    Later(Duration, Bytes),
    /// Never an answer.
    Silence,
    /// The connection ends.
    Disconnect,
}

type Handler = Box<dyn FnMut(&Seen) -> Reply + Send>;

/// The cluster, and what came to it.
pub struct Fake {
    pub env: Env,
    pub client: Client,
    seen: Arc<Mutex<Vec<Seen>>>,
    _tasks: TaskSet<()>,
}

/// Everything that this client speaks, as Kafka 4.4 serves it. The last range of a key counts.
const SERVED: &[(i16, i16, i16)] = &[
    (0, 3, 13),
    (1, 4, 18),
    (2, 1, 11),
    (3, 0, 13),
    (10, 0, 6),
    (16, 0, 5),
    (18, 0, 4),
    (22, 0, 5),
    (26, 0, 5),
    (76, 1, 1),
    (78, 1, 2),
    (79, 1, 2),
];

impl Fake {
    /// Starts `nodes` nodes and a client. `served` replaces ranges of versions; `handler` answers what comes.
    pub async fn start(
        nodes: i32,
        served: &[(i16, i16, i16)],
        handler: impl FnMut(&Seen) -> Reply + Send + 'static,
    ) -> Fake {
        let env = Env::seeded(11);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let handler: Arc<Mutex<Handler>> = Arc::new(Mutex::new(Box::new(handler)));
        let mut tasks = TaskSet::new(&Spawner::system(), CancellationToken::new());
        for node in 1..=nodes {
            let mut listener = env.network.bind(&HostPort::new(host(node), 9092)).await.unwrap();
            let (seen, handler, clock) = (Arc::clone(&seen), Arc::clone(&handler), env.clock.clone());
            let served = served.to_vec();
            tasks.spawn("fake-node", TaskKind::Service, async move {
                let mut connections = TaskSet::new(&Spawner::system(), CancellationToken::new());
                while let Ok((io, _peer)) = listener.accept().await {
                    let (seen, handler, clock) = (Arc::clone(&seen), Arc::clone(&handler), clock.clone());
                    let connection = serve(io, node, served.clone(), seen, handler, clock);
                    connections.spawn("fake-connection", TaskKind::Connection, connection);
                }
            });
        }
        let config = ClientConfig::with_bootstrap("node-1:9092")
            .unwrap()
            .with_request_timeout(Duration::from_secs(2))
            .with_operation_timeout(Duration::from_secs(10));
        let client = Client::connect(env.clone(), config).await.unwrap();
        Fake { env, client, seen, _tasks: tasks }
    }

    /// What came of one kind, in order.
    pub fn seen<R: Request>(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().iter().filter(|seen| seen.is::<R>()).cloned().collect()
    }
}

async fn serve(
    mut io: BoxIo,
    node: i32,
    served: Vec<(i16, i16, i16)>,
    all: Arc<Mutex<Vec<Seen>>>,
    handler: Arc<Mutex<Handler>>,
    clock: Clock,
) {
    let (mut decoder, mut buffer) = (FrameDecoder::new(frame::FRAME_BYTES_MAX), BytesMut::new());
    loop {
        let mut body = match decoder.next(&mut buffer).unwrap() {
            Some(frame) => frame,
            None if io.read_buf(&mut buffer).await.unwrap_or(0) == 0 => return,
            None => continue,
        };
        let header = frame::decode_request_header(&mut body).unwrap();
        let seen = Seen { node, header, body, at: clock.now() };
        let reply = if seen.header.api_key == 18 {
            seen.answer(&api_versions(&served))
        } else {
            all.lock().unwrap().push(seen.clone());
            let mut handler = handler.lock().unwrap();
            handler(&seen)
        };
        let answer = match reply {
            Reply::Answer(answer) => answer,
            Reply::Later(pause, answer) => {
                clock.sleep(pause).await;
                answer
            }
            Reply::Silence => continue,
            Reply::Disconnect => return,
        };
        if io.write_all(&answer).await.is_err() {
            return;
        }
    }
}

pub fn host(node: i32) -> String {
    format!("node-{node}")
}

fn api_versions(replaced: &[(i16, i16, i16)]) -> ApiVersionsResponse {
    let keys = SERVED.iter().map(|served| {
        let (key, min, max) = replaced.iter().find(|one| one.0 == served.0).unwrap_or(served);
        ApiVersion::default().with_api_key(*key).with_min_version(*min).with_max_version(*max)
    });
    let features = [("transaction.version", 2), ("share.version", 2)].map(|(name, level)| {
        FinalizedFeatureKey::default()
            .with_name(StrBytes::from_static_str(name))
            .with_max_version_level(level)
    });
    ApiVersionsResponse::default().with_api_keys(keys.collect()).with_finalized_features(features.to_vec())
}

/// The id of the one topic, `t`.
pub const TOPIC_ID: Uuid = Uuid::from_u128(7);

/// `nodes` nodes and a topic `t` with these leaders, by partition, at leader epoch `epoch`.
pub fn metadata(nodes: i32, leaders: &[i32], epoch: i32) -> MetadataResponse {
    let brokers = (1..=nodes).map(|node| {
        MetadataResponseBroker::default()
            .with_node_id(node.into())
            .with_host(StrBytes::from_string(host(node)))
            .with_port(9092)
    });
    let partitions = (0..).zip(leaders).map(|(index, leader)| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id((*leader).into())
            .with_leader_epoch(epoch)
    });
    let topic = MetadataResponseTopic::default()
        .with_name(Some(kafka_protocol::messages::TopicName(StrBytes::from_static_str("t"))))
        .with_topic_id(TOPIC_ID)
        .with_partitions(partitions.collect());
    MetadataResponse::default().with_brokers(brokers.collect()).with_topics(vec![topic])
}

/// Node 1 coordinates everything.
pub fn coordinator() -> FindCoordinatorResponse {
    let coordinator = Coordinator::default()
        .with_node_id(1.into())
        .with_host(StrBytes::from_string(host(1)))
        .with_port(9092);
    FindCoordinatorResponse::default().with_coordinators(vec![coordinator])
}

/// A heartbeat's answer with an epoch and, when given, the assigned partitions of `t`.
pub fn heartbeat(epoch: i32, partitions: Option<&[i32]>) -> ShareGroupHeartbeatResponse {
    use kafka_protocol::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};
    let assignment = partitions.map(|partitions| {
        let topic = TopicPartitions::default().with_topic_id(TOPIC_ID).with_partitions(partitions.to_vec());
        Assignment::default().with_topic_partitions(vec![topic])
    });
    ShareGroupHeartbeatResponse::default()
        .with_member_epoch(epoch)
        .with_heartbeat_interval_ms(1_000)
        .with_assignment(assignment)
}
