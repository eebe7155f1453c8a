//! A job's Kafka side: checked once, then asked for its parts by every attempt.

use std::fmt;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use sharestream_base::{Env, ErrorKind};
use sharestream_client::{Client, ClientConfig, KafkaError, NewTopic, TopicInfo};
use sharestream_core::commit::{AckMode, CommitProtocol, StepHook};
use sharestream_core::sink::SinkFactory;
use sharestream_core::source::SourceFactory;

use crate::attempt::Attempt;
use crate::commit::{AtLeastOnceCommit, OutcomeTopic, TransactionalCommit, Transactions, TransactionsConfig};
use crate::config::{KafkaJobConfig, resolve_mode};
use crate::error::{client_error, invalid_input};
use crate::group::GroupSettings;
use crate::outcome::outcome_partition;
use crate::sink::KafkaSinkFactory;
use crate::source::ShareSourceFactory;
use crate::{Error, Result};

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
    outcomes: OutcomeTopic,
    group: GroupSettings,
    attempt: Arc<Attempt>,
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
        let faults = config.validate();
        if !faults.is_empty() {
            let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
            return Err(invalid_input(format!("job settings: {}", list.join("; "))));
        }
        let client_config = ClientConfig::with_bootstrap(&config.bootstrap.join(","))
            .map_err(client_error("bootstrap"))?
            .with_security(config.security.clone())
            .with_client_id(format!("sharestream-{}-{}", config.job, config.instance));
        let client = Client::connect(env, client_config).await.map_err(client_error("connect"))?;
        let mode = resolve_mode(config.mode, transactional_support(&client)).map_err(invalid_input)?;
        let (sources, output, dead_letters) = find_topics(&client, &config).await?;
        let outcomes = outcome_topic(&client, &config).await?;
        let group = set_group_configs(&client, &config).await?;
        tracing::info!(job = %config.job, instance = %config.instance, group = %config.group, ?mode, "job connected");
        let config = Arc::new(config);
        let attempt = Attempt::new();
        Ok(KafkaJob { client, config, mode, sources, output, dead_letters, outcomes, group, attempt })
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

    /// The source topics as they were at the start.
    pub fn source_topics(&self) -> &[Arc<TopicInfo>] {
        &self.sources
    }

    /// The source.
    pub fn source_factory(&self) -> Arc<dyn SourceFactory> {
        Arc::new(ShareSourceFactory {
            client: self.client.clone(),
            config: self.config.clone(),
            topics: self.sources.clone(),
            group: self.group,
            mode: self.mode,
            attempt: self.attempt.clone(),
        })
    }

    /// The sink.
    pub fn sink_factory(&self) -> Arc<dyn SinkFactory> {
        Arc::new(KafkaSinkFactory {
            client: self.client.clone(),
            config: self.config.clone(),
            output: self.output.clone(),
            dead_letters: self.dead_letters.clone(),
            group: self.group,
            attempt: self.attempt.clone(),
        })
    }

    /// The commit protocol of one attempt; forgets what the attempt before left. `hook` is called where only the
    /// protocol can: between staged leaders and while EndTxn is on its way.
    pub fn commit_protocol(&self, hook: Option<StepHook>) -> Box<dyn CommitProtocol> {
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
        };
        let transactions = Transactions::new(self.client.clone(), config, self.attempt.clone(), hook);
        match self.mode {
            AckMode::AtLeastOnce => Box::new(AtLeastOnceCommit::new(transactions)),
            // `resolve_mode` gives no ledger.
            AckMode::Transactional | AckMode::Ledger => {
                Box::new(TransactionalCommit::new(transactions, self.config.stage_separately))
            }
        }
    }
}

/// Whether the cluster has KIP-1289, or what it lacks.
fn transactional_support(client: &Client) -> Result<(), String> {
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

type JobTopics = (Vec<Arc<TopicInfo>>, Arc<TopicInfo>, Option<Arc<TopicInfo>>);

/// Looks up every topic that the job needs; all missing ones are named in one error.
async fn find_topics(client: &Client, config: &KafkaJobConfig) -> Result<JobTopics> {
    let mut missing = Vec::new();
    let mut sources = Vec::new();
    for name in &config.topics {
        sources.extend(find_topic(client, name, "source", &mut missing).await?);
    }
    let output = find_topic(client, &config.sink.topic, "sink", &mut missing).await?;
    let dead_letters = match &config.dead_letter_topic {
        Some(name) => find_topic(client, name, "dead letter", &mut missing).await?,
        None => None,
    };
    match output {
        Some(output) if missing.is_empty() => Ok((sources, output, dead_letters)),
        Some(_) | None => Err(invalid_input(format!(
            "{}; create them first, for example with: sharestream topic create NAME",
            missing.join("; ")
        ))),
    }
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

fn is_missing(error: &sharestream_client::Error) -> bool {
    error.kind() == ErrorKind::InvalidInput
        && error.code().is_none_or(|code| code == KafkaError::UNKNOWN_TOPIC_OR_PARTITION)
}

/// Finds the outcome topic, or creates it: compacted, and in segments so small that compaction really runs.
async fn outcome_topic(client: &Client, config: &KafkaJobConfig) -> Result<OutcomeTopic> {
    let name = &config.outcome_topic;
    let doing = || client_error(format!("outcome topic {name}"));
    let topic = match client.fresh_topic(name).await {
        Ok(topic) => topic,
        Err(error) if is_missing(&error) => {
            let mut wanted = NewTopic::new(name, config.outcome_partition_count)
                .with_config("cleanup.policy", "compact")
                .with_config("segment.ms", "600000")
                .with_config("max.message.bytes", "8388608");
            wanted.replication = config.outcome_replication_factor;
            match client.admin().create_topic(wanted).await {
                Ok(topic) => topic,
                // Another replica was faster.
                Err(error) if error.code() == Some(KafkaError::TOPIC_ALREADY_EXISTS) => {
                    client.fresh_topic(name).await.map_err(doing())?
                }
                Err(error) => return Err(doing()(error)),
            }
        }
        Err(error) => return Err(doing()(error)),
    };
    let partition_count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    if partition_count == 0 {
        return Err(Error::new(ErrorKind::Retry, format!("outcome topic {name} has no partitions yet")));
    }
    Ok(OutcomeTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partition_count,
        partition: outcome_partition(&config.group, partition_count),
    })
}

/// Sets the group's configs before anyone joins, and reads the limits that hold then.
async fn set_group_configs(client: &Client, config: &KafkaJobConfig) -> Result<GroupSettings> {
    let admin = client.admin();
    let wanted: Vec<(String, String)> =
        config.group_configs.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    if !wanted.is_empty() {
        admin
            .alter_group_config(&config.group, &wanted)
            .await
            .map_err(client_error(format!("set configs of group {}", config.group)))?;
    }
    let described = match admin.describe_group_config(&config.group).await {
        Ok(described) => described,
        Err(error) => {
            // Only an estimate depends on them; what the job file says is known anyway.
            tracing::warn!(%error, group = %config.group, "group configs cannot be read, Kafka's defaults are assumed");
            config.group_configs.clone()
        }
    };
    Ok(GroupSettings::of(&described))
}
