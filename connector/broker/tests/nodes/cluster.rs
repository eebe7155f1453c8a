//! Three nodes on one in-memory network, with topics `t` and `orders` of three partitions: partition 0 on node 1 or
//! the like, found by asking.

use std::time::Duration;

use sharestream_base::ids::{NodeId, PartitionIndex, TopicId};
use sharestream_base::{Env, HostPort};
use sharestream_broker::inspect::{DurableStateView, MemoryStateView, SharePartitionView};
use sharestream_broker::{BrokerCluster, BrokerClusterBuilder, GROUP_TOPIC, TRANSACTION_STATE_TOPIC};

use crate::raw::Client;
use crate::share::{Connection, GROUP, Member, TOPIC, Transaction};

pub(crate) const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
pub(crate) const LONG: Duration = Duration::from_secs(10);
pub(crate) const NOT_LEADER: i16 = 6;
pub(crate) const NOT_COORDINATOR: i16 = 16;
pub(crate) const UNKNOWN_MEMBER: i16 = 25;

pub(crate) struct Nodes {
    pub(crate) cluster: BrokerCluster,
    pub(crate) env: Env,
}

pub(crate) fn builder(seed: u64) -> (BrokerClusterBuilder, Env) {
    let env = Env::seeded(seed);
    let mut builder = BrokerCluster::builder(env.clone());
    for node in NODES {
        let own =
            Env { network: env.network.clone(), ..Env::seeded(seed + 1_000 + node.0.unsigned_abs() as u64) };
        builder = builder.node(node, HostPort::new(format!("broker-{node}"), 9092), own);
    }
    (builder, env)
}

impl Nodes {
    pub(crate) async fn start() -> Nodes {
        let (builder, env) = builder(7);
        Nodes::with_topics(builder.start().await.unwrap(), env).await
    }

    pub(crate) async fn with_topics(cluster: BrokerCluster, env: Env) -> Nodes {
        let nodes = Nodes { cluster, env };
        let mut client = nodes.client(NodeId(1)).await;
        assert_eq!(client.create_topic("t", 3).await, 0);
        assert_eq!(client.create_topic(TOPIC, 3).await, 0);
        nodes.alter_group("share.auto.offset.reset", "earliest").await;
        nodes
    }

    pub(crate) async fn client(&self, node: NodeId) -> Client {
        Client::connect(&self.env, &self.cluster.address(node).unwrap()).await
    }

    pub(crate) async fn connection(&self, node: NodeId) -> Connection {
        Connection::open(&self.cluster.address(node).unwrap(), &self.env).await
    }

    pub(crate) fn leader(&self, topic: &str, partition: i32) -> NodeId {
        self.cluster.leader(topic, PartitionIndex(partition)).unwrap()
    }

    /// A node that is neither of these.
    pub(crate) fn other(&self, not: &[NodeId]) -> NodeId {
        NODES.into_iter().find(|node| !not.contains(node)).unwrap()
    }

    pub(crate) fn coordinator(&self, transactional_id: &str) -> NodeId {
        self.leader(TRANSACTION_STATE_TOPIC, self.cluster.transaction_partition(transactional_id).0)
    }

    pub(crate) fn group_coordinator(&self) -> NodeId {
        self.leader(GROUP_TOPIC, self.cluster.group_partition(GROUP).0)
    }

    pub(crate) fn topic_id(&self) -> TopicId {
        self.cluster.partitions().into_iter().find(|one| one.topic == TOPIC).unwrap().topic_id
    }

    /// The `__share_group_state` partition of a partition of `orders`.
    pub(crate) fn state_partition(&self, partition: i32) -> PartitionIndex {
        self.cluster.share_state_partition(GROUP, self.topic_id(), PartitionIndex(partition))
    }

    /// Moves a partition to another node than its leader; gives that.
    pub(crate) fn move_away(&self, topic: &str, partition: PartitionIndex) -> NodeId {
        let to = self.other(&[self.cluster.leader(topic, partition).unwrap()]);
        self.cluster.move_leader(topic, partition, to).unwrap();
        to
    }

    async fn alter_group(&self, name: &str, value: &str) {
        use kafka_protocol::messages::IncrementalAlterConfigsRequest;
        use kafka_protocol::messages::incremental_alter_configs_request::{
            AlterConfigsResource, AlterableConfig,
        };
        let config = AlterableConfig::default()
            .with_name(name.to_owned().into())
            .with_config_operation(0)
            .with_value(Some(value.to_owned().into()));
        let resource = AlterConfigsResource::default()
            .with_resource_type(32)
            .with_resource_name(GROUP.into())
            .with_configs(vec![config]);
        // Whichever node is told: settings of groups are the cluster's.
        let mut connection = self.connection(NodeId(3)).await;
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        assert_eq!(connection.call(request, 1).await.responses[0].error_code, 0);
    }

    /// Ten records into a partition of `orders`.
    pub(crate) async fn produce(&self, partition: i32) {
        let mut connection = self.connection(self.leader(TOPIC, partition)).await;
        let meta = sharestream_wire::records::BatchMeta::default();
        let (code, _) = crate::share::produce(&mut connection, partition, 10, &meta, None).await;
        assert_eq!(code, 0);
    }

    /// A member that has joined, with its connection to the leader of one partition of `orders`.
    pub(crate) async fn member(&self, name: &str, partition: i32) -> Member {
        let mut member = Member {
            connection: self.connection(self.group_coordinator()).await,
            name: name.to_owned(),
            epoch: 0,
            session_epoch: 0,
            topic_id: self.topic_id().0,
            partitions: vec![partition],
        };
        assert_eq!(member.join().await, 0);
        member.connection = self.connection(self.leader(TOPIC, partition)).await;
        member
    }

    /// An initialised transactional producer, with its connection to its coordinator.
    pub(crate) async fn producer(&self, id: &str) -> Transaction {
        let node = self.coordinator(id);
        let mut client = self.client(node).await;
        let producer = client.init_patiently(id).await;
        let connection = self.connection(node).await;
        Transaction {
            connection,
            id: id.to_owned(),
            producer_id: producer.id,
            producer_epoch: producer.epoch,
        }
    }

    /// Stages all ten records of a partition, held by `member`, at the partition's leader.
    pub(crate) async fn stage(&self, transaction: &mut Transaction, member: &Member, partition: i32) -> i16 {
        transaction.connection = self.connection(self.leader(TOPIC, partition)).await;
        transaction.stage(member, &[(partition, 0, 9, 1)]).await
    }

    /// Ends a transaction at whoever coordinates it now.
    pub(crate) async fn end(&self, transaction: &mut Transaction, commit: bool) {
        transaction.connection = self.connection(self.coordinator(&transaction.id)).await;
        transaction.end(commit).await;
    }

    pub(crate) fn share(&self, partition: i32) -> SharePartitionView {
        let all = self.cluster.share_partitions();
        all.into_iter().find(|one| one.partition == PartitionIndex(partition)).unwrap()
    }

    /// True when all ten records of the partition are durably pending, and in memory where it is loaded.
    pub(crate) fn is_pending(&self, partition: i32) -> bool {
        let share = self.share(partition);
        let durable = match share.runs.as_slice() {
            [run] => matches!(run.state, DurableStateView::TxnPending(_)) && run.last.0 == 9,
            _ => false,
        };
        let memory = share.memory.is_none_or(|memory| {
            matches!(memory.runs.as_slice(), [run] if matches!(run.state, MemoryStateView::TxnPending(_)))
        });
        durable && memory
    }

    pub(crate) fn state(&self, id: &str) -> &'static str {
        let all = self.cluster.transactions();
        all.into_iter().find(|one| one.transactional_id == id).unwrap().state
    }

    /// Waits, at most ten seconds of the cluster's time.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Nodes) -> bool) {
        for _ in 0..1_000 {
            if holds(self) {
                return;
            }
            self.env.clock.sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}");
    }

    pub(crate) fn values(&self, topic: &str, partition: i32) -> Vec<String> {
        let records = self.cluster.committed_records(topic, PartitionIndex(partition));
        records.into_iter().map(|one| String::from_utf8(one.value.unwrap().to_vec()).unwrap()).collect()
    }
}
