//! Where the demo runs: an embedded broker of its own, or a cluster that was there before and must look like before
//! afterwards.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use sharestream_base::{Clock, Env, ErrorKind, HostPort};
use sharestream_client::{Client, KafkaError, NewTopic};

use super::flights;
use super::process::Process;
use crate::args::{DemoArgs, Mode};
use crate::commands::topic::client_config;
use crate::job_file::{self, JobFile};
use crate::properties::CommandConfig;

/// Partitions of every topic of the demo.
const PARTITIONS: i32 = 8;
/// Copies of each partition, where the cluster has so many brokers.
const REPLICAS_MAX: usize = 3;
/// Pause between two tries to delete a group that still has members.
const GROUP_PAUSE: Duration = Duration::from_secs(1);

/// Brokers, a client for them, and what of the job's file has to be set for them.
pub(crate) struct Place {
    /// Where the brokers are, for people.
    pub(crate) addresses: String,
    /// A client of them.
    pub(crate) client: Client,
    /// Settings for `--set` and [`job_file::load`].
    pub(crate) settings: Vec<String>,
    /// What tells a worker how to speak to the brokers.
    pub(crate) security: Vec<String>,
    /// The mode, never `Auto`.
    pub(crate) mode: Mode,
    broker: Option<Process>,
    /// A mark in every name that is made on an outside cluster.
    mark: Option<String>,
}

impl Place {
    /// Starts a broker, or connects to the ones that the command line names.
    pub(crate) async fn open(env: &Env, args: &DemoArgs) -> anyhow::Result<Place> {
        let (broker, addresses, mark, command_config) = if args.brokers.is_empty() {
            let (broker, address) = start_broker().await?;
            // What the environment says about brokers elsewhere does not hold for this one.
            (Some(broker), vec![address], None, CommandConfig::default())
        } else {
            // The cluster may be shared, and the demo may run there twice.
            let mark = format!("demo-{:08x}", env.rng.next_u64() & 0xffff_ffff);
            (None, args.brokers.clone(), Some(mark), args.command_config.clone())
        };
        let client =
            Client::connect(env.clone(), client_config(&addresses, command_config.settings())).await?;
        let addresses = addresses.iter().map(HostPort::to_string).collect::<Vec<_>>().join(",");
        let mut settings = vec![format!("source.brokers={addresses}")];
        if let Some(mark) = &mark {
            settings.extend([
                format!("job.name={mark}"),
                format!("source.topics={mark}.flights"),
                format!("source.group={mark}"),
                format!("sink.topic={mark}.delayed-flights"),
                format!("dead_letter.topic={mark}.flights-rejected"),
                format!("ack.outcome_topic={mark}.outcomes"),
                // The shortest that Kafka allows by default: what a killed worker held comes back after it.
                "source.group_config.share.record.lock.duration.ms=15000".to_owned(),
            ]);
        }
        let mode = match args.mode {
            Mode::Auto if client.features().transactional_share_acknowledgements() => Mode::Transactional,
            Mode::Auto => Mode::Ledger,
            mode => mode,
        };
        settings.push(format!("ack.mode={}", mode.word()));
        let security = command_config.arguments();
        Ok(Place { addresses, client, settings, security, mode, broker, mark })
    }

    /// Puts the example's job where the workers read it, and reads it as they will.
    pub(crate) fn write_job(&self, folder: &Path) -> anyhow::Result<JobFile> {
        let path = folder.join("job.toml");
        std::fs::write(&path, flights::JOB).with_context(|| format!("cannot write {}", path.display()))?;
        job_file::load(&path, &self.settings)
    }

    /// Creates the topics of the job, each with as many replicas as make sense.
    pub(crate) async fn create_topics(&self, job: &JobFile) -> anyhow::Result<()> {
        let replicas = self.client.admin().node_count().clamp(1, REPLICAS_MAX);
        for topic in topics(job) {
            let mut wanted = NewTopic::new(topic, PARTITIONS);
            wanted.replication = i16::try_from(replicas)?;
            self.client.admin().create_topic(wanted).await?;
        }
        Ok(())
    }

    /// Ends the embedded broker; deletes what was made on an outside cluster unless `keep`. Gives what is left there. A
    /// share group goes once the brokers have forgotten the workers that were killed: within `group_wait`, or not at all
    /// when `is_stopped` comes first.
    pub(crate) async fn close(
        self,
        keep: bool,
        clock: &Clock,
        group_wait: Duration,
        is_stopped: impl Future<Output = ()>,
    ) -> anyhow::Result<Option<String>> {
        if let Some(broker) = self.broker {
            broker.kill().await?;
        }
        let Some(mark) = self.mark else { return Ok(None) };
        if keep {
            return Ok(Some(format!("kept: topics {mark}.* and share group {mark} on {}", self.addresses)));
        }
        // The group first: Kafka 4.4 may never answer DeleteGroups of a share group whose topics have just been deleted.
        let group = tokio::select! {
            gone = delete_group(&self.client, &mark, clock, group_wait) => gone,
            () = is_stopped => Ok(false),
        };
        let topics = delete_topics(&self.client, &mark).await;
        let is_gone = group?;
        topics?;
        Ok((!is_gone).then(|| {
            let addresses = &self.addresses;
            format!(
                "left: share group {mark}, which may still have members; in a minute: sharestream group delete {mark} \
                 --brokers {addresses}"
            )
        }))
    }
}

/// Deletes every topic of the demo; one that cannot be deleted does not keep the others.
async fn delete_topics(client: &Client, mark: &str) -> anyhow::Result<()> {
    let admin = client.admin();
    let prefix = format!("{mark}.");
    let mut result = Ok(());
    for topic in admin.list_topics().await?.iter().filter(|topic| topic.name.starts_with(&prefix)) {
        match admin.delete_topic(&topic.name).await {
            Ok(()) => {}
            // Gone already.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {}
            Err(error) => {
                let error = Err(error).with_context(|| format!("cannot delete topic {}", topic.name));
                result = result.and(error);
            }
        }
    }
    result
}

/// Deletes the group as soon as it is empty; false when it is not in time.
async fn delete_group(client: &Client, group: &str, clock: &Clock, wait: Duration) -> anyhow::Result<bool> {
    let deadline = clock.now() + wait;
    loop {
        match client.admin().delete_share_group(group).await {
            Ok(()) => return Ok(true),
            // Nobody joined it, or it is gone already.
            Err(error) if error.code() == Some(KafkaError::GROUP_ID_NOT_FOUND) => return Ok(true),
            // A coordinator that did not answer may have deleted it: the next try tells.
            Err(error)
                if error.code() == Some(KafkaError::NON_EMPTY_GROUP)
                    || matches!(error.kind(), ErrorKind::Retry | ErrorKind::Indeterminate) =>
            {
                if clock.now() >= deadline {
                    return Ok(false);
                }
                clock.sleep(GROUP_PAUSE).await;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot delete share group {group}")),
        }
    }
}

fn topics(job: &JobFile) -> impl Iterator<Item = &String> {
    job.source.topics.iter().chain([&job.sink.topic]).chain(&job.dead_letter_topic)
}

async fn start_broker() -> anyhow::Result<(Process, HostPort)> {
    let arguments = ["broker", "--port", "0", "--json", "--with-parent"].map(str::to_owned);
    let mut broker = Process::start("broker", &arguments)?;
    let event = broker.event().await?;
    let address = event.get("bootstrap").and_then(Value::as_str).context("the broker gave no address")?;
    Ok((broker, address.parse()?))
}
