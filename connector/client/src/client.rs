//! The client handle: connects to a cluster, knows its topics, leaders and coordinators.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::{LeaderEpoch, NodeId, PartitionIndex, TopicId};
use sharestream_base::{Env, ErrorKind, HostPort, Instant};
use sharestream_wire::KafkaError;

use crate::admin::Admin;
use crate::backoff::Backoff;
use crate::cluster::{Cluster, Purpose, unknown_node};
use crate::config::ClientConfig;
use crate::connection::Connection;
use crate::coordinator::CoordinatorKey;
use crate::error::ErrorClass;
use crate::features::Features;
use crate::metadata::{MetadataCache, MetadataUpdate, PartitionInfo, TopicInfo};
use crate::security::Access;
use crate::{Error, Result};

/// A cheap handle to one cluster. Consumers, writers, sessions and readers are made from it.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cluster: Cluster,
    /// The bootstrap broker that answered.
    told_by: HostPort,
    features: Features,
    metadata: Mutex<MetadataCache>,
    coordinators: Mutex<BTreeMap<CoordinatorKey, NodeId>>,
}

/// Which topics a metadata request asks for.
#[derive(Clone, Copy, Debug)]
enum Wanted<'a> {
    None,
    All,
    Names(&'a [&'a str]),
    Ids(&'a [TopicId]),
}

impl Client {
    /// Connects to the first bootstrap broker that answers and learns the cluster.
    ///
    /// # Errors
    /// `InvalidInput` for wrong settings or a peer that is no Kafka broker; `Retry` when no broker can be reached.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is left behind.
    pub async fn connect(env: Env, config: ClientConfig) -> Result<Client> {
        config.validate()?;
        let cluster = Cluster::new(env, config);
        let (address, features) = first_reachable(&cluster).await?;
        tracing::debug!(%address, share_version = features.share_version, "connected");
        let client = Client {
            inner: Arc::new(Inner {
                cluster,
                told_by: address.clone(),
                features,
                metadata: Mutex::new(MetadataCache::default()),
                coordinators: Mutex::new(BTreeMap::new()),
            }),
        };
        client.first_metadata(&address).await?;
        Ok(client)
    }

    /// Topics, group configs, offsets and transactions.
    pub fn admin(&self) -> Admin {
        Admin::new(self.clone())
    }

    /// Adds to a refusal by the brokers' ACLs what this client's user needs.
    pub(crate) fn refused(&self, error: Error, access: &Access<'_>) -> Error {
        error.needing(access, self.config().security.principal().as_deref())
    }

    /// What the cluster can do.
    pub fn features(&self) -> &Features {
        &self.inner.features
    }

    /// The settings it was made with.
    pub fn config(&self) -> &ClientConfig {
        &self.inner.cluster.config
    }

    /// Time, chance and sockets it was made with.
    pub fn env(&self) -> &Env {
        &self.inner.cluster.env
    }

    /// The cluster's id, if it told one.
    pub fn cluster_id(&self) -> Option<String> {
        self.metadata().cluster_id().map(str::to_owned)
    }

    /// The topic with this name, from the cache while it is younger than `metadata_age_max`, or asked for; waits for
    /// partitions that have no leader yet.
    ///
    /// # Errors
    /// `InvalidInput` when it does not exist; the text names the command that creates it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn topic(&self, name: &str) -> Result<Arc<TopicInfo>> {
        let known = self.metadata().topic_and_age(name, self.env().clock.now());
        let Some((topic, age)) = known.filter(|(topic, _)| topic.has_all_leaders()) else {
            return self.fresh_topic(name).await;
        };
        if age < self.config().metadata_age_max {
            return Ok(topic);
        }
        // It may have got partitions, or be another topic by now.
        match self.ask_metadata(Wanted::Names(&[name])).await {
            Ok(()) => {}
            // What is old is better than nothing while no broker answers.
            Err(error) if error.is_retriable() => return Ok(topic),
            Err(error) => return Err(error),
        }
        let asked = self.metadata().topic(name).filter(|topic| topic.has_all_leaders());
        match asked {
            Some(topic) => Ok(topic),
            None => self.fresh_topic(name).await,
        }
    }

    /// The same, always asked for. Cancel safe.
    pub async fn fresh_topic(&self, name: &str) -> Result<Arc<TopicInfo>> {
        let mut backoff = self.backoff();
        let mut missing_count = 0;
        loop {
            let error = match self.ask_metadata(Wanted::Names(&[name])).await {
                Ok(()) => match self.metadata().topic(name) {
                    Some(topic) if topic.has_all_leaders() => return Ok(topic),
                    Some(_) => Error::new(
                        ErrorKind::Retry,
                        format!("topic '{name}' has a partition without a leader"),
                    ),
                    None => topic_missing(name),
                },
                Err(error) => error,
            };
            if error.kind() == ErrorKind::InvalidInput {
                // A topic that was just created may not be known to every broker yet; one look more is cheap.
                missing_count += 1;
                if missing_count > 2 {
                    return Err(error);
                }
            } else if !error.is_retriable() {
                return Err(error);
            }
            backoff.wait(error).await?;
        }
    }

    /// The topic with this id, from the cache or asked for. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` when there is none (any more).
    pub async fn topic_by_id(&self, id: TopicId) -> Result<Arc<TopicInfo>> {
        if let Some(known) = self.metadata().topic_by_id(id) {
            return Ok(known);
        }
        self.refresh(Wanted::Ids(&[id])).await?;
        self.metadata().topic_by_id(id).ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("no topic has the id {id}; it may have been deleted"))
        })
    }

    /// Every topic of the cluster, asked for. Cancel safe.
    pub(crate) async fn all_topics(&self) -> Result<Vec<Arc<TopicInfo>>> {
        let mut backoff = self.backoff();
        loop {
            match self.all_topics_once().await {
                Ok(topics) => return Ok(topics),
                Err(error) if error.is_retriable() => backoff.wait(error.with_kind(ErrorKind::Retry)).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The same in one attempt, by name. Cancel safe.
    pub(crate) async fn all_topics_once(&self) -> Result<Vec<Arc<TopicInfo>>> {
        let update = self.fetch_metadata(Wanted::All).await?;
        let mut topics: Vec<_> = update.topics.iter().cloned().map(Arc::new).collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        self.metadata().apply(update, self.env().clock.now());
        Ok(topics)
    }

    /// Asks again for topics by name; missing ones are forgotten. One attempt. Cancel safe.
    pub(crate) async fn refresh_topics(&self, names: &[&str]) -> Result<()> {
        self.ask_metadata(Wanted::Names(names)).await
    }

    /// Asks again for a topic by id. One attempt. Cancel safe.
    pub(crate) async fn refresh_topic_id(&self, id: TopicId) -> Result<()> {
        self.ask_metadata(Wanted::Ids(&[id])).await
    }

    /// Asks again for topics by id, in one request; those that nobody knows are forgotten. One attempt. Cancel safe.
    pub(crate) async fn refresh_topic_ids(&self, ids: &[TopicId]) -> Result<()> {
        self.ask_metadata(Wanted::Ids(ids)).await
    }

    /// Takes a broker's word for a new leader.
    pub(crate) fn leader_moved(&self, topic: TopicId, index: PartitionIndex, to: NodeId, epoch: LeaderEpoch) {
        self.metadata().leader_moved(topic, index, to, epoch);
    }

    /// Learns where a node listens from an answer that names it.
    pub(crate) fn learn_node(&self, node: NodeId, address: HostPort) {
        self.metadata().add_node(node, address);
    }

    /// What the cache holds; never held across an await.
    pub(crate) fn metadata(&self) -> MutexGuard<'_, MetadataCache> {
        // Every change of the cache is one call: a panic elsewhere leaves it whole.
        self.inner.metadata.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn coordinators(&self) -> MutexGuard<'_, BTreeMap<CoordinatorKey, NodeId>> {
        self.inner.coordinators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every broker known.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.metadata().nodes().map(|(node, _)| node).collect()
    }

    /// A pooled connection to `node`. Cancel safe.
    pub(crate) async fn node(&self, node: NodeId, purpose: Purpose) -> Result<Connection> {
        let address = self.address(node)?;
        let opened = self.inner.cluster.pooled(&address, purpose).await;
        opened.map_err(|error| self.advertised(node, &address, error))
    }

    /// A connection to `node` of the caller's own. Cancel safe.
    pub(crate) async fn open(&self, node: NodeId) -> Result<Connection> {
        let address = self.address(node)?;
        match self.inner.cluster.open(&address).await {
            Ok((connection, _features)) => Ok(connection),
            Err(error) => Err(self.advertised(node, &address, error)),
        }
    }

    /// What `node` says that it can do, over a connection that is opened for it. Cancel safe.
    pub(crate) async fn features_of(&self, node: NodeId) -> Result<Features> {
        let address = self.address(node)?;
        match self.inner.cluster.open(&address).await {
            Ok((_connection, features)) => Ok(features),
            Err(error) => Err(self.advertised(node, &address, error)),
        }
    }

    /// Whose word an address was that does not work: of the brokers' settings, not of ours.
    fn advertised(&self, node: NodeId, address: &HostPort, error: Error) -> Error {
        if error.code().is_some() || self.config().bootstrap.contains(address) {
            return error;
        }
        let told_by = &self.inner.told_by;
        error.within(format_args!(
            "broker {node} advertises {address} (told by {told_by}; if this machine cannot know that address, correct \
             advertised.listeners of the broker)"
        ))
    }

    pub(crate) fn address(&self, node: NodeId) -> Result<HostPort> {
        self.metadata().address(node).cloned().ok_or_else(|| unknown_node(node))
    }

    /// A connection to any broker: known ones first, in random order, then the bootstrap list. Cancel safe.
    pub(crate) async fn any(&self) -> Result<Connection> {
        let mut addresses: Vec<HostPort> =
            self.metadata().nodes().map(|(_, address)| address.clone()).collect();
        if !addresses.is_empty() {
            let first = self.env().rng.below(addresses.len() as u64);
            addresses.rotate_left(usize::try_from(first).unwrap_or(0));
        }
        addresses.extend(self.config().bootstrap.iter().cloned());
        let mut last_error = None;
        for address in &addresses {
            match self.inner.cluster.pooled(address, Purpose::General).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.unwrap_or_else(|| Error::new(ErrorKind::InvalidInput, "no broker is known")))
    }

    /// Pauses of one operation, from now.
    pub(crate) fn backoff(&self) -> Backoff {
        self.backoff_until(self.env().clock.now() + self.config().operation_timeout)
    }

    /// Pauses until `deadline`.
    pub(crate) fn backoff_until(&self, deadline: Instant) -> Backoff {
        Backoff::new(self.env(), &self.config().retry, deadline)
    }

    /// The first request: a listener that wants SASL hangs up on it without a word, so one failure is looked into.
    async fn first_metadata(&self, address: &HostPort) -> Result<()> {
        match self.ask_metadata(Wanted::None).await {
            Ok(()) => Ok(()),
            Err(error) if error.is_retriable() && error.code().is_none() => {
                match self.inner.cluster.missing_sasl(address).await {
                    Some(wants_sasl) => Err(wants_sasl),
                    None => self.refresh(Wanted::None).await,
                }
            }
            Err(error) if error.is_retriable() => self.refresh(Wanted::None).await,
            Err(error) => Err(error),
        }
    }

    async fn refresh(&self, wanted: Wanted<'_>) -> Result<()> {
        let mut backoff = self.backoff();
        loop {
            match self.ask_metadata(wanted).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_retriable() => backoff.wait(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn ask_metadata(&self, wanted: Wanted<'_>) -> Result<()> {
        let update = self.fetch_metadata(wanted).await?;
        self.metadata().apply(update, self.env().clock.now());
        Ok(())
    }

    async fn fetch_metadata(&self, wanted: Wanted<'_>) -> Result<MetadataUpdate> {
        let topics = match wanted {
            Wanted::None => Some(Vec::new()),
            Wanted::All => None,
            Wanted::Names(names) => Some(
                names
                    .iter()
                    .map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(name))))
                    .collect(),
            ),
            Wanted::Ids(ids) => Some(
                ids.iter()
                    .map(|id| MetadataRequestTopic::default().with_name(None).with_topic_id(id.0))
                    .collect(),
            ),
        };
        let request = MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false);
        let response = self.any().await?.call(&request).await?;
        let refused = |error: Error, name: &str| self.refused(error, &Access::topic("Describe", name));
        read_metadata(&response, refused)
    }
}

async fn first_reachable(cluster: &Cluster) -> Result<(HostPort, Features)> {
    let mut last_error: Option<Error> = None;
    for address in &cluster.config.bootstrap {
        match cluster.open(address).await {
            Ok((_connection, features)) => return Ok((address.clone(), features)),
            // What is wrong for good is worth more than that another broker is down.
            Err(error) if last_error.as_ref().is_none_or(Error::is_retriable) => last_error = Some(error),
            Err(_another) => {}
        }
    }
    let error =
        last_error.unwrap_or_else(|| Error::new(ErrorKind::InvalidInput, "bootstrap names no broker"));
    match cluster.config.bootstrap.len() {
        0 | 1 => Err(error),
        count => Err(error.within(format!("none of {count} bootstrap brokers answered"))),
    }
}

fn read_metadata(
    response: &MetadataResponse,
    refused: impl Fn(Error, &str) -> Error,
) -> Result<MetadataUpdate> {
    let mut update = MetadataUpdate {
        cluster_id: response.cluster_id.as_ref().map(ToString::to_string),
        nodes: BTreeMap::new(),
        topics: Vec::with_capacity(response.topics.len()),
        missing: Vec::new(),
        missing_ids: Vec::new(),
    };
    for broker in &response.brokers {
        let port = u16::try_from(broker.port).unwrap_or(0);
        update.nodes.insert(NodeId(broker.node_id.0), HostPort::new(broker.host.as_str(), port));
    }
    for topic in &response.topics {
        let name = topic.name.as_ref().map(|name| name.as_str()).unwrap_or_default();
        match crate::error::classify(topic.error_code) {
            ErrorClass::Success => {
                let mut partitions: Vec<PartitionInfo> = topic
                    .partitions
                    .iter()
                    .map(|partition| PartitionInfo {
                        index: PartitionIndex(partition.partition_index),
                        leader: known_node(partition.leader_id.0),
                        leader_epoch: LeaderEpoch(partition.leader_epoch),
                    })
                    .collect();
                partitions.sort_by_key(|partition| partition.index);
                update.topics.push(TopicInfo {
                    topic_id: TopicId(topic.topic_id),
                    name: name.into(),
                    is_internal: topic.is_internal,
                    partitions,
                });
            }
            // Asked for by id, it has no name.
            ErrorClass::RefreshMetadata if is_missing(topic.error_code) && name.is_empty() => {
                update.missing_ids.push(TopicId(topic.topic_id));
            }
            ErrorClass::RefreshMetadata if is_missing(topic.error_code) => {
                update.missing.push(name.to_owned());
            }
            _other => {
                let error = Error::from_code(topic.error_code, format!("metadata of topic '{name}'"));
                return Err(refused(error, name));
            }
        }
    }
    Ok(update)
}

fn is_missing(code: i16) -> bool {
    [KafkaError::UNKNOWN_TOPIC_OR_PARTITION, KafkaError::UNKNOWN_TOPIC_ID].contains(&KafkaError(code))
}

fn known_node(id: i32) -> Option<NodeId> {
    (id >= 0).then_some(NodeId(id))
}

/// A topic name as the messages want it.
pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

/// What a user can do about a topic that is not there.
pub(crate) fn topic_missing(name: &str) -> Error {
    let context = format!("topic '{name}' does not exist; create it with: sharestream topic create {name}");
    Error::new(ErrorKind::InvalidInput, context)
}
