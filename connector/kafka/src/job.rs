//! A job's Kafka side: checked once, then asked for its parts by every attempt.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use sharestream_base::{Env, ErrorKind};
use sharestream_client::{Client, ClientConfig, KafkaError, TopicInfo};
use sharestream_core::JobOptions;
use sharestream_core::commit::{AckMode, CommitProtocol, StepHook};
use sharestream_core::coordinates::RejectKind;
use sharestream_core::remote::ConnectorLink;
use sharestream_core::sink::SinkFactory;
use sharestream_core::source::SourceFactory;

use crate::Result;
use crate::attempt::Attempt;
use crate::attempt::link::AttemptLink;
use crate::check::{client_id, mode_reason};
use crate::commit::{
    AtLeastOnceCommit, LedgerCommit, OutcomeTopic, RewindCommit, TransactionalCommit, Transactions,
    TransactionsConfig,
};
use crate::config::{KafkaJobConfig, ModeSupport, resolve_mode};
use crate::error::{client_error, invalid_input};
use crate::fit;
use crate::formats::SchemaRegistry;
use crate::formats::avro::registry::WriterSchemas;
use crate::group::{GroupSettings, ISOLATION_LEVEL, READ_COMMITTED, split_unknown_tuning, tells_limits};
use crate::ledger::{KeeperConfig, LedgerTail};
use crate::outcome_topic::outcome_topic;
use crate::parking_start;
use crate::sink::{BatchBounds, KafkaSinkFactory};
use crate::source::{DeliveryLimit, ShareSourceFactory};

/// A connected and checked job.
///
/// One attempt takes a source factory, a sink factory and a commit protocol; the next attempt takes new ones. Two
/// attempts must not run at once.
pub struct KafkaJob {
    client: Client,
    config: Arc<KafkaJobConfig>,
    mode: AckMode,
    sources: Vec<Arc<TopicInfo>>,
    output: Arc<TopicInfo>,
    dead_letters: Option<Arc<TopicInfo>>,
    /// One of the sources.
    parking: Option<Arc<TopicInfo>>,
    /// Of output, dead letters and parked records.
    bounds: BatchBounds,
    outcomes: OutcomeTopic,
    group: GroupSettings,
    attempt: Arc<Attempt>,
    /// Where source records name their schemas. One for all attempts, as the tail.
    schemas: Option<WriterSchemas>,
    /// One for all attempts: what was read stays read.
    tail: LedgerTail,
}

impl fmt::Debug for KafkaJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaJob")
            .field("job", &self.config.job)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl KafkaJob {
    /// Connects and checks everything that can be checked before the group is joined: brokers, acknowledgement mode,
    /// topics. Creates the outcome topic if it is not there, and sets the group's configs.
    ///
    /// # Errors
    /// `InvalidInput` naming every fault of the settings, or every topic that is missing, at once; `Retry` when no
    /// broker can be reached.
    ///
    /// # Cancel safety
    /// Dropped, the outcome topic may exist and group configs may be set; both are what the next call wants.
    pub async fn connect(env: Env, config: KafkaJobConfig) -> Result<KafkaJob> {
        Self::connect_with(env, config, None).await
    }

    /// As [`KafkaJob::connect`], for a job that will run with `options`: before anything is created it checks that their
    /// times, those of `config` and what the brokers allow fit together ([`crate::fit`]).
    ///
    /// # Errors
    /// As [`KafkaJob::connect`]; `InvalidInput` naming every relation that does not hold, with its numbers.
    ///
    /// # Cancel safety
    /// As [`KafkaJob::connect`].
    pub async fn connect_for(env: Env, config: KafkaJobConfig, options: &JobOptions) -> Result<KafkaJob> {
        Self::connect_with(env, config, Some(options)).await
    }

    async fn connect_with(
        env: Env,
        config: KafkaJobConfig,
        options: Option<&JobOptions>,
    ) -> Result<KafkaJob> {
        let faults = config.validate();
        if !faults.is_empty() {
            let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
            return Err(invalid_input(format!("job settings: {}", list.join("; "))));
        }
        let client_config = ClientConfig::with_bootstrap(&config.bootstrap.join(","))
            .map_err(client_error("bootstrap"))?
            .with_security(config.security.clone())
            .with_client_id(client_id(&config.job, &config.instance));
        let client = Client::connect(env, client_config).await.map_err(client_error("connect"))?;
        let support = mode_support(&client);
        let reason = mode_reason(config.mode, &support);
        let mode = resolve_mode(config.mode, support).map_err(invalid_input)?;
        if let Some(options) = options {
            fit::check(&client, &config, options).await?;
        }
        let JobTopics { sources, output, dead_letters } = find_topics(&client, &config).await?;
        let parking =
            sources.iter().find(|topic| Some(&*topic.name) == config.parking_topic.as_deref()).cloned();
        let written: Vec<_> = [&output].into_iter().chain(&dead_letters).chain(&parking).collect();
        let bounds = BatchBounds::of(&client, &written).await;
        let outcomes = outcome_topic(&client, &config, mode).await?;
        let (group, described) = set_group_configs(&client, &config).await?;
        if let Some(topic) = &parking {
            parking_start::check(&client, &config.group, topic, described.as_ref()).await?;
        }
        tracing::info!(job = %config.job, instance = %config.instance, group = %config.group, ?mode, reason, "job connected");
        let config = Arc::new(config);
        let attempt = Attempt::new();
        let tail = LedgerTail::new(client.clone(), &outcomes, &config.group);
        Ok(KafkaJob {
            client,
            config,
            mode,
            sources,
            output,
            dead_letters,
            parking,
            bounds,
            outcomes,
            group,
            attempt,
            schemas: None,
            tail,
        })
    }

    /// Asks `registry` for the schemas that source records name ([`AvroFraming::Registry`](crate::formats::AvroFraming)).
    #[must_use]
    pub fn with_registry(mut self, registry: Arc<dyn SchemaRegistry>) -> Self {
        self.schemas = Some(WriterSchemas::new(registry, self.client.env().clock.clone()));
        self
    }

    /// The settings.
    pub fn config(&self) -> &KafkaJobConfig {
        &self.config
    }

    /// The client, for tools that look at the same cluster.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The mode that the job runs with.
    pub fn mode(&self) -> AckMode {
        self.mode
    }

    /// Schema of the rows that the source gives: the user's columns, then the hidden ones.
    pub fn schema(&self) -> SchemaRef {
        self.config.format.schema()
    }

    /// The topics that the group reads as they were at the start, that of parked records included.
    pub fn source_topics(&self) -> &[Arc<TopicInfo>] {
        &self.sources
    }

    /// The source.
    pub fn source_factory(&self) -> Arc<dyn SourceFactory> {
        Arc::new(ShareSourceFactory {
            client: self.client.clone(),
            config: self.config.clone(),
            topics: self.sources.clone(),
            parking: self.parking.clone(),
            group: self.group,
            outcomes: self.outcomes.clone(),
            mode: self.mode,
            attempt: self.attempt.clone(),
            schemas: self.schemas.clone(),
            tail: self.tail.clone(),
        })
    }

    /// The sink.
    pub fn sink_factory(&self) -> Arc<dyn SinkFactory> {
        Arc::new(KafkaSinkFactory {
            client: self.client.clone(),
            config: self.config.clone(),
            output: self.output.clone(),
            dead_letters: self.dead_letters.clone(),
            parking: self.parking.clone(),
            bounds: self.bounds.clone(),
            group: self.group,
            attempt: self.attempt.clone(),
        })
    }

    /// The commit protocol of one attempt; forgets what the attempt before left. `hook` is called where only the
    /// protocol can: between staged leaders and while EndTxn is on its way.
    pub fn commit_protocol(&self, hook: Option<StepHook>) -> Box<dyn CommitProtocol> {
        let transactions = self.transactions(hook);
        match self.mode {
            AckMode::AtLeastOnce => Box::new(AtLeastOnceCommit::new(transactions)),
            AckMode::Ledger => {
                Box::new(LedgerCommit::new(transactions, self.tail.clone(), self.keeper_config()))
            }
            AckMode::Transactional => {
                let separately = self.config.stage_separately;
                Box::new(TransactionalCommit::new(transactions, separately, self.tail.clone()))
            }
        }
    }

    /// The commit protocol of whoever starts the job from a savepoint: it commits state, and decides nothing.
    pub(crate) fn rewind_protocol(&self) -> Box<dyn CommitProtocol> {
        Box::new(RewindCommit::new(self.transactions(None)))
    }

    /// The outcome topic and the group's partition of it.
    pub(crate) fn outcomes(&self) -> &OutcomeTopic {
        &self.outcomes
    }

    fn transactions(&self, hook: Option<StepHook>) -> Transactions {
        self.attempt.reset();
        let config = TransactionsConfig {
            job: self.config.job.clone(),
            instance: self.config.instance.clone(),
            group: self.config.group.clone(),
            mode: self.mode,
            outcome_topic: self.outcomes.clone(),
            topic_names: self.sources.iter().map(|topic| (topic.topic_id, topic.name.to_string())).collect(),
            transaction_timeout: self.config.transaction_timeout,
            commit_deadline: self.config.commit_deadline,
            delivery_limit: DeliveryLimit::new(
                self.group.delivery_count_limit,
                self.config.delivery_reserve,
                self.config.policy(RejectKind::DeliveryLimit),
            ),
        };
        Transactions::new(self.client.clone(), config, self.attempt.clone(), hook)
    }

    /// What carries the state that sources, sinks and commit protocol share, where they are in processes of their own: one
    /// for all attempts, given to the [`JobBuilder`](sharestream_core::JobBuilder) in each of the three.
    pub fn link(&self) -> Arc<dyn ConnectorLink> {
        Arc::new(AttemptLink { attempt: self.attempt.clone(), tail: self.tail.clone(), mode: self.mode })
    }

    fn keeper_config(&self) -> KeeperConfig {
        KeeperConfig {
            client: self.client.clone(),
            job: self.config.job.clone(),
            instance: self.config.instance.clone(),
            group: self.config.group.clone(),
            outcome_topic: self.outcomes.name.clone(),
            outcome_partition: self.outcomes.partition,
            sources: self.sources.clone(),
            keeps_history: self.config.outcome_history,
        }
    }
}

/// What the cluster can do.
pub(crate) fn mode_support(client: &Client) -> ModeSupport {
    ModeSupport { transactional: transactional_support(client), ledger: ledger_support(client) }
}

/// Whether the cluster has KIP-1289, or what it lacks.
pub(crate) fn transactional_support(client: &Client) -> Result<(), String> {
    let features = client.features();
    if features.transactional_share_acknowledgements() {
        return Ok(());
    }
    Err(format!(
        "it needs finalized share.version 3 (here {}), transaction.version 2 (here {}) and the TxnShareAcknowledge \
         request",
        features.share_version, features.transaction_version
    ))
}

/// Whether the cluster can do ledger mode, or what it lacks.
fn ledger_support(client: &Client) -> Result<(), String> {
    let features = client.features();
    if features.share_version >= 1 && features.transaction_version >= 2 {
        return Ok(());
    }
    Err(format!(
        "it needs finalized share.version 1 (KIP-932; here {}) and transaction.version 2 (KIP-890; here {}), before \
         which a late claim may land in the next transaction: upgrade with kafka-features.sh upgrade",
        features.share_version, features.transaction_version
    ))
}

struct JobTopics {
    /// That of parked records included.
    sources: Vec<Arc<TopicInfo>>,
    output: Arc<TopicInfo>,
    dead_letters: Option<Arc<TopicInfo>>,
}

/// How long a topic may be unknown to the broker that is asked: each hears a little later of a new one.
const TOPIC_PATIENCE: Duration = Duration::from_secs(2);
const TOPIC_PAUSE: Duration = Duration::from_millis(200);

/// Looks up every topic that the job needs; all missing ones are named in one error.
async fn find_topics(client: &Client, config: &KafkaJobConfig) -> Result<JobTopics> {
    let clock = client.env().clock.clone();
    let deadline = clock.now() + TOPIC_PATIENCE;
    loop {
        let mut missing = Vec::new();
        let found = find_topics_once(client, config, &mut missing).await?;
        match found {
            (sources, Some(output), dead_letters) if missing.is_empty() => {
                return Ok(JobTopics { sources, output, dead_letters });
            }
            _ if clock.now() < deadline => clock.sleep(TOPIC_PAUSE).await,
            _ => {
                return Err(invalid_input(format!(
                    "{}; create them first, for example with: sharestream topic create NAME",
                    missing.join("; ")
                )));
            }
        }
    }
}

type FoundTopics = (Vec<Arc<TopicInfo>>, Option<Arc<TopicInfo>>, Option<Arc<TopicInfo>>);

async fn find_topics_once(
    client: &Client,
    config: &KafkaJobConfig,
    missing: &mut Vec<String>,
) -> Result<FoundTopics> {
    let mut sources = Vec::new();
    for name in &config.topics {
        sources.extend(find_topic(client, name, "source", missing).await?);
    }
    if let Some(name) = &config.parking_topic {
        sources.extend(find_topic(client, name, "parking", missing).await?);
    }
    let output = find_topic(client, &config.sink.topic, "sink", missing).await?;
    let dead_letters = match &config.dead_letter_topic {
        Some(name) => find_topic(client, name, "dead letter", missing).await?,
        None => None,
    };
    Ok((sources, output, dead_letters))
}

async fn find_topic(
    client: &Client,
    name: &str,
    role: &str,
    missing: &mut Vec<String>,
) -> Result<Option<Arc<TopicInfo>>> {
    match client.fresh_topic(name).await {
        Ok(topic) => Ok(Some(topic)),
        Err(error) if is_missing(&error) => {
            missing.push(format!("{role} topic '{name}' does not exist"));
            Ok(None)
        }
        Err(error) => Err(client_error(format!("look up {role} topic {name}"))(error)),
    }
}

pub(crate) fn is_missing(error: &sharestream_client::Error) -> bool {
    error.kind() == ErrorKind::InvalidInput
        && error.code().is_none_or(|code| code == KafkaError::UNKNOWN_TOPIC_OR_PARTITION)
}

/// What the job sets for its group.
pub(crate) fn wanted_group_configs(config: &KafkaJobConfig) -> Vec<(String, String)> {
    let mut wanted: Vec<(String, String)> =
        config.group_configs.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    if config.parking_topic.is_some() && !config.group_configs.contains_key(ISOLATION_LEVEL) {
        wanted.push((ISOLATION_LEVEL.to_owned(), READ_COMMITTED.to_owned()));
    }
    wanted
}

/// Sets the group's configs before anyone joins, and reads the limits that hold then. Also gives what the brokers say of
/// the group, if they do.
async fn set_group_configs(
    client: &Client,
    config: &KafkaJobConfig,
) -> Result<(GroupSettings, Option<BTreeMap<String, String>>)> {
    let admin = client.admin();
    let wanted = wanted_group_configs(config);
    if !wanted.is_empty() {
        alter_group_configs(client, &config.group, wanted).await?;
    }
    let told = match admin.describe_group_config(&config.group).await {
        Ok(described) => Some(described),
        Err(error) => {
            // What the job file says is known anyway.
            tracing::warn!(%error, group = %config.group, "group configs cannot be read, Kafka's defaults are assumed");
            None
        }
    };
    let described = told.as_ref().unwrap_or(&config.group_configs);
    let mut brokers = BTreeMap::new();
    if !tells_limits(described) {
        // A record that is given up at another limit than the brokers' is given up too soon, or by them first.
        match admin.describe_broker_config().await {
            Ok(configs) => brokers = configs,
            Err(error) => tracing::warn!(
                %error,
                group = %config.group,
                "the brokers' limits of share groups cannot be read, Kafka's defaults are assumed"
            ),
        }
    }
    Ok((GroupSettings::of(described, &brokers), told))
}

/// Sets `wanted`, except for what this Kafka does not know and the job can do without.
async fn alter_group_configs(client: &Client, group: &str, wanted: Vec<(String, String)>) -> Result<()> {
    let doing = || client_error(format!("set configs of group {group}"));
    let admin = client.admin();
    let refused = match admin.alter_group_config(group, &wanted).await {
        Ok(()) => return Ok(()),
        Err(error) if error.code() == Some(KafkaError::INVALID_CONFIG) => error,
        Err(error) => return Err(doing()(error)),
    };
    // The brokers list every group config that they know, with its value.
    let known = admin.describe_group_config(group).await.map_err(doing())?;
    let (wanted, unknown) = split_unknown_tuning(wanted, &known);
    if unknown.is_empty() {
        return Err(doing()(refused));
    }
    tracing::warn!(
        group,
        configs = unknown.join(", "),
        "this Kafka does not know these group configs; what the brokers say under group.<name> holds: set it there"
    );
    if wanted.is_empty() {
        return Ok(());
    }
    admin.alter_group_config(group, &wanted).await.map_err(doing())
}
