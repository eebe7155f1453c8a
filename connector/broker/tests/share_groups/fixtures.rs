//! A broker on loopback and clients that speak to it byte by byte: no client library of ours is between.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    CreateTopicsRequest, EndTxnRequest, GroupId, IncrementalAlterConfigsRequest, InitProducerIdRequest,
    ProduceRequest, SaslAuthenticateRequest, SaslHandshakeRequest, ShareGroupHeartbeatRequest, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::Request;
use sharestream_base::{BoxIo, Env, HostPort};
use sharestream_broker::access::Principal;
use sharestream_broker::{Broker, BrokerConfig, RunningBroker};
use sharestream_wire::frame::{self, FrameDecoder};
use sharestream_wire::messages::AcknowledgementBatch;
use sharestream_wire::messages::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, RequestGroup, RequestTopic,
};
use sharestream_wire::messages::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest,
};
use sharestream_wire::messages::share_fetch::{
    FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse,
};
use sharestream_wire::records::{self, BatchBuilder, BatchMeta};
use sharestream_wire::txn_share_acknowledge::{
    TxnAcknowledgePartition, TxnAcknowledgeTopic, TxnShareAcknowledgeRequest,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

pub(crate) const GROUP: &str = "orders-workers";
pub(crate) const TOPIC: &str = "orders";

/// One connection.
pub(crate) struct Connection {
    io: BoxIo,
    buffer: BytesMut,
    correlation_id: i32,
}

impl Connection {
    pub(crate) async fn open(address: &HostPort, env: &Env) -> Self {
        let io = env.network.connect(address).await.unwrap();
        Connection { io, buffer: BytesMut::new(), correlation_id: 0 }
    }

    /// Opens one and says by SASL PLAIN who it is; the password is the name with `-secret` behind.
    pub(crate) async fn open_as(address: &HostPort, env: &Env, user: &str) -> Self {
        let mut connection = Self::open(address, env).await;
        let handshake = SaslHandshakeRequest::default().with_mechanism("PLAIN".into());
        assert_eq!(connection.call(handshake, 1).await.error_code, 0);
        let message = Bytes::from(format!("\0{user}\0{user}-secret"));
        let authenticate = SaslAuthenticateRequest::default().with_auth_bytes(message);
        let answer = connection.call(authenticate, 2).await;
        assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
        connection
    }

    /// True when the broker has closed it.
    pub(crate) async fn is_closed(&mut self) -> bool {
        matches!(self.io.read_buf(&mut self.buffer).await, Ok(0) | Err(_))
    }

    pub(crate) async fn send<R: Request>(&mut self, request: &R, version: i16) {
        self.correlation_id += 1;
        let frame = frame::encode_request(request, version, self.correlation_id, "test").unwrap();
        self.io.write_all(&frame).await.unwrap();
    }

    pub(crate) async fn receive<R: Request>(&mut self, version: i16) -> R::Response {
        let mut decoder = FrameDecoder::new(frame::FRAME_BYTES_MAX);
        loop {
            if let Some(frame) = decoder.next(&mut self.buffer).unwrap() {
                let (correlation_id, response) = frame::decode_response::<R>(frame, version).unwrap();
                assert_eq!(correlation_id, self.correlation_id);
                return response;
            }
            assert_ne!(
                self.io.read_buf(&mut self.buffer).await.unwrap(),
                0,
                "the broker closed the connection"
            );
        }
    }

    pub(crate) async fn call<R: Request>(&mut self, request: R, version: i16) -> R::Response {
        self.send(&request, version).await;
        self.receive::<R>(version).await
    }
}

/// A broker with one topic and group configs, and a connection for administration.
pub(crate) struct Cluster {
    pub(crate) env: Env,
    pub(crate) broker: RunningBroker,
    pub(crate) admin: Connection,
    pub(crate) topic_id: Uuid,
    /// Who members and producers are, where that matters.
    pub(crate) user: Option<&'static str>,
}

impl Cluster {
    pub(crate) async fn start(partitions: i32, configs: &[(&str, &str)]) -> Self {
        Self::start_with(BrokerConfig::default(), partitions, configs).await
    }

    pub(crate) async fn start_with(config: BrokerConfig, partitions: i32, configs: &[(&str, &str)]) -> Self {
        let env = Env::system();
        let broker = Broker::builder(env.clone()).config(config).start().await.unwrap();
        let admin = Connection::open(broker.address(), &env).await;
        Self::set_up(env, broker, admin, partitions, configs, None).await
    }

    /// A broker with the users `admin`, who may do everything, and `worker`, who may do nothing yet; members and
    /// producers are `worker`.
    pub(crate) async fn start_secured(config: BrokerConfig, partitions: i32) -> Self {
        let env = Env::system();
        let users = [("admin", "admin-secret"), ("worker", "worker-secret")];
        let builder = Broker::builder(env.clone()).config(config).users(users);
        let broker = builder.super_user(Principal::user("admin")).start().await.unwrap();
        let admin = Connection::open_as(broker.address(), &env, "admin").await;
        Self::set_up(env, broker, admin, partitions, &[], Some("worker")).await
    }

    async fn set_up(
        env: Env,
        broker: RunningBroker,
        mut admin: Connection,
        partitions: i32,
        configs: &[(&str, &str)],
        user: Option<&'static str>,
    ) -> Self {
        let topic = CreatableTopic::default()
            .with_name(TopicName(TOPIC.into()))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        let created = admin
            .call(CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000), 7)
            .await;
        assert_eq!(created.topics[0].error_code, 0);
        let topic_id = created.topics[0].topic_id;
        let mut cluster = Cluster { env, broker, admin, topic_id, user };
        cluster.alter_group(&[("share.auto.offset.reset", "earliest")]).await;
        cluster.alter_group(configs).await;
        cluster
    }

    /// A broker as it is, with its topic not made anew.
    pub(crate) async fn connect(config: BrokerConfig) -> Self {
        let env = Env::system();
        let broker = Broker::builder(env.clone()).config(config).start().await.unwrap();
        let admin = Connection::open(broker.address(), &env).await;
        Cluster { env, broker, admin, topic_id: Uuid::nil(), user: None }
    }

    /// Another connection.
    pub(crate) async fn open(&self) -> Connection {
        match self.user {
            Some(user) => Connection::open_as(self.broker.address(), &self.env, user).await,
            None => Connection::open(self.broker.address(), &self.env).await,
        }
    }

    pub(crate) async fn alter_group(&mut self, configs: &[(&str, &str)]) {
        const GROUP_RESOURCE: i8 = 32;
        let configs = configs.iter().map(|(name, value)| {
            AlterableConfig::default()
                .with_name((*name).to_owned().into())
                .with_config_operation(0)
                .with_value(Some((*value).to_owned().into()))
        });
        let resource = AlterConfigsResource::default()
            .with_resource_type(GROUP_RESOURCE)
            .with_resource_name(GROUP.into())
            .with_configs(configs.collect());
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        let response = self.admin.call(request, 1).await;
        assert_eq!(response.responses[0].error_code, 0, "{:?}", response.responses[0].error_message);
    }

    /// Produces `count` records as one batch; gives the base offset.
    pub(crate) async fn produce(&mut self, partition: i32, count: usize) -> i64 {
        let response = produce(&mut self.admin, partition, count, &BatchMeta::default(), None).await;
        assert_eq!(response.0, 0);
        response.1
    }

    pub(crate) async fn start_offset(&mut self, partition: i32) -> i64 {
        self.described(partition).await.0
    }

    /// Start offset and lag.
    pub(crate) async fn described(&mut self, partition: i32) -> (i64, i64) {
        let topic = RequestTopic { topic_name: TOPIC.into(), partitions: vec![partition] };
        let group = RequestGroup { group_id: GROUP.into(), topics: Some(vec![topic]) };
        let request = DescribeShareGroupOffsetsRequest { groups: vec![group] };
        let response = self.admin.call(request, 1).await;
        let partition = &response.groups[0].topics[0].partitions[0];
        assert_eq!(partition.error_code, 0);
        (partition.start_offset, partition.lag)
    }

    pub(crate) async fn member(&self, name: &str) -> Member {
        let mut connection = self.open().await;
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(GroupId(GROUP.into()))
            .with_member_id(name.to_owned().into())
            .with_member_epoch(0)
            .with_subscribed_topic_names(Some(vec![TopicName(TOPIC.into())]));
        let response = connection.call(request, 1).await;
        assert_eq!(response.error_code, 0);
        let assignment = response.assignment.expect("a join is answered with an assignment");
        Member {
            connection,
            name: name.to_owned(),
            epoch: response.member_epoch,
            session_epoch: 0,
            topic_id: self.topic_id,
            partitions: assignment.topic_partitions[0].partitions.clone(),
        }
    }

    pub(crate) async fn transaction(&self, id: &str, timeout: Duration) -> Transaction {
        let mut connection = self.open().await;
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(id.to_owned().into())))
            .with_transaction_timeout_ms(i32::try_from(timeout.as_millis()).unwrap());
        // A transaction left open under the id is aborted first; its markers have to be waited for.
        const CONCURRENT_TRANSACTIONS: i16 = 51;
        let mut response = connection.call(request.clone(), 4).await;
        while response.error_code == CONCURRENT_TRANSACTIONS {
            self.env.clock.sleep(Duration::from_millis(5)).await;
            response = connection.call(request.clone(), 4).await;
        }
        assert_eq!(response.error_code, 0);
        Transaction {
            connection,
            id: id.to_owned(),
            producer_id: response.producer_id.0,
            producer_epoch: response.producer_epoch,
        }
    }
}

pub(crate) async fn produce(
    connection: &mut Connection,
    partition: i32,
    count: usize,
    meta: &BatchMeta,
    transactional_id: Option<&str>,
) -> (i16, i64) {
    let mut builder = BatchBuilder::new();
    for index in 0..count {
        builder.append(1_000, None, Some(format!("order {index}").as_bytes()), &[]).unwrap();
    }
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(builder.build(meta).unwrap()));
    let topic =
        TopicProduceData::default().with_name(TopicName(TOPIC.into())).with_partition_data(vec![data]);
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(1_000)
        .with_transactional_id(transactional_id.map(|id| TransactionalId(id.to_owned().into())))
        .with_topic_data(vec![topic]);
    let response = connection.call(request, 12).await;
    let partition = &response.responses[0].partition_responses[0];
    (partition.error_code, partition.base_offset)
}

/// What was acquired of one partition: (first, last, delivery count).
pub(crate) type Acquired = Vec<(i64, i64, i16)>;

/// An acknowledgement: partition, first, last, type.
pub(crate) type Ack = (i32, i64, i64, i8);

/// A member with a share session on its own connection.
pub(crate) struct Member {
    pub(crate) connection: Connection,
    pub(crate) name: String,
    pub(crate) epoch: i32,
    pub(crate) session_epoch: i32,
    pub(crate) topic_id: Uuid,
    pub(crate) partitions: Vec<i32>,
}

fn batch(first: i64, last: i64, kind: i8) -> AcknowledgementBatch {
    AcknowledgementBatch { first_offset: first, last_offset: last, acknowledge_types: vec![kind] }
}

impl Member {
    /// Joins with epoch 0 and takes the epoch over.
    pub(crate) async fn join(&mut self) -> i16 {
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(GroupId(GROUP.into()))
            .with_member_id(self.name.clone().into())
            .with_member_epoch(0)
            .with_subscribed_topic_names(Some(vec![TopicName(TOPIC.into())]));
        let response = self.connection.call(request, 1).await;
        self.epoch = response.member_epoch;
        response.error_code
    }

    pub(crate) async fn heartbeat(&mut self) -> i16 {
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(GroupId(GROUP.into()))
            .with_member_id(self.name.clone().into())
            .with_member_epoch(self.epoch);
        let response = self.connection.call(request, 1).await;
        if response.error_code == 0 {
            self.epoch = response.member_epoch;
        }
        response.error_code
    }

    pub(crate) fn fetch_request(&mut self, acks: &[Ack], wait: Duration) -> ShareFetchRequest {
        let partitions = self.partitions.iter().map(|partition| FetchPartition {
            partition_index: *partition,
            acknowledgement_batches: acks
                .iter()
                .filter(|ack| ack.0 == *partition)
                .map(|ack| batch(ack.1, ack.2, ack.3))
                .collect(),
        });
        let request = ShareFetchRequest {
            group_id: Some(GROUP.into()),
            member_id: Some(self.name.clone().into()),
            share_session_epoch: self.session_epoch,
            max_wait_ms: i32::try_from(wait.as_millis()).unwrap(),
            min_bytes: 1,
            max_records: 500,
            batch_size: 500,
            topics: vec![FetchTopic { topic_id: self.topic_id, partitions: partitions.collect() }],
            ..ShareFetchRequest::default()
        };
        self.session_epoch += 1;
        request
    }

    /// Fetches and gives the first error code, of the request or of a partition.
    pub(crate) async fn fetch_code(&mut self, wait: Duration) -> i16 {
        let request = self.fetch_request(&[], wait);
        let response = self.connection.call(request, 2).await;
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        let codes = std::iter::once(response.error_code).chain(partitions.map(|data| data.error_code));
        codes.into_iter().find(|code| *code != 0).unwrap_or(0)
    }

    pub(crate) async fn fetch_full(&mut self, acks: &[Ack], wait: Duration) -> ShareFetchResponse {
        let request = self.fetch_request(acks, wait);
        let response = self.connection.call(request, 2).await;
        assert_eq!(response.error_code, 0);
        response
    }

    /// Fetches and gives what was acquired of partition 0.
    pub(crate) async fn fetch(&mut self, wait: Duration) -> Acquired {
        let response = self.fetch_full(&[], wait).await;
        acquired_of(&response, 0)
    }

    /// Acknowledges ranges of partitions; gives the first error code.
    pub(crate) async fn acknowledge(&mut self, acks: &[Ack]) -> i16 {
        let partitions = acks.iter().map(|(partition, first, last, kind)| AcknowledgePartition {
            partition_index: *partition,
            acknowledgement_batches: vec![batch(*first, *last, *kind)],
        });
        let request = ShareAcknowledgeRequest {
            group_id: Some(GROUP.into()),
            member_id: Some(self.name.clone().into()),
            share_session_epoch: self.session_epoch,
            is_renew_ack: acks.iter().any(|ack| ack.3 == 4),
            topics: vec![AcknowledgeTopic { topic_id: self.topic_id, partitions: partitions.collect() }],
        };
        self.session_epoch += 1;
        let response = self.connection.call(request, 2).await;
        if response.error_code != 0 {
            return response.error_code;
        }
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|partition| partition.error_code).find(|code| *code != 0).unwrap_or(0)
    }
}

/// What a response gave of a partition. The records must be whole batches that hold the acquired offsets.
pub(crate) fn acquired_of(response: &ShareFetchResponse, partition: i32) -> Acquired {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let Some(data) = partitions.filter(|data| data.partition_index == partition).find(|data| {
        assert_eq!(data.error_code, 0);
        !data.acquired_records.is_empty()
    }) else {
        return Vec::new();
    };
    let batches: Vec<_> =
        records::split(data.records.clone().unwrap()).map(|batch| batch.unwrap().header).collect();
    let acquired = data.acquired_records.iter();
    acquired
        .map(|range| {
            let inside = |offset: i64| {
                batches.iter().any(|batch| batch.base_offset <= offset && offset <= batch.last_offset())
            };
            assert!(inside(range.first_offset) && inside(range.last_offset));
            (range.first_offset, range.last_offset, range.delivery_count)
        })
        .collect()
}

/// A transactional producer.
pub(crate) struct Transaction {
    pub(crate) connection: Connection,
    pub(crate) id: String,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
}

impl Transaction {
    pub(crate) fn stage_request(&self, member: &Member, acks: &[Ack]) -> TxnShareAcknowledgeRequest {
        let partitions = acks.iter().map(|(partition, first, last, kind)| TxnAcknowledgePartition {
            partition_index: *partition,
            acknowledgement_batches: vec![batch(*first, *last, *kind)],
        });
        TxnShareAcknowledgeRequest {
            transactional_id: Some(self.id.clone().into()),
            group_id: GROUP.into(),
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            member_id: member.name.clone().into(),
            member_epoch: member.epoch,
            topics: vec![TxnAcknowledgeTopic { topic_id: member.topic_id, partitions: partitions.collect() }],
        }
    }

    /// Stages; gives the first error code. Waits out the markers of the transaction before.
    pub(crate) async fn stage(&mut self, member: &Member, acks: &[Ack]) -> i16 {
        const CONCURRENT_TRANSACTIONS: i16 = 51;
        loop {
            let code = self.try_stage(member, acks).await;
            if code != CONCURRENT_TRANSACTIONS {
                return code;
            }
        }
    }

    pub(crate) async fn try_stage(&mut self, member: &Member, acks: &[Ack]) -> i16 {
        let request = self.stage_request(member, acks);
        let response = self.connection.call(request, 0).await;
        if response.error_code != 0 {
            return response.error_code;
        }
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|partition| partition.error_code).find(|code| *code != 0).unwrap_or(0)
    }

    /// Ends the transaction and takes the bumped epoch over.
    pub(crate) async fn end(&mut self, commit: bool) {
        assert_eq!(self.try_end(commit).await, 0);
    }

    /// The same; gives the error code.
    pub(crate) async fn try_end(&mut self, commit: bool) -> i16 {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(self.id.clone().into()))
            .with_producer_id(self.producer_id.into())
            .with_producer_epoch(self.producer_epoch)
            .with_committed(commit);
        let response = self.connection.call(request, 5).await;
        if response.error_code == 0 {
            self.producer_id = response.producer_id.0;
            self.producer_epoch = response.producer_epoch;
        }
        response.error_code
    }

    pub(crate) async fn produce(&mut self, partition: i32, count: usize, base_sequence: i32) -> i64 {
        let meta = BatchMeta {
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence,
            transactional: true,
            ..BatchMeta::default()
        };
        let (code, offset) =
            produce(&mut self.connection, partition, count, &meta, Some(self.id.as_str())).await;
        assert_eq!(code, 0);
        offset
    }
}
