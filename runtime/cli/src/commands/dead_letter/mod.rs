//! `sharestream dead-letter list|show|replay`.
//!
//! A replay is one transaction of the records and of a mark for each: which dead letter was put back, as a record of a
//! compacted topic beside the dead letters. Whoever replays takes the transactional id of the dead letter topic first,
//! which ends what an earlier replay left open, and reads the marks then: so no dead letter is put back twice,
//! whatever became of the replay before.

mod letter;
mod list;
mod marks;
mod replay;
mod show;
mod target;

use std::sync::Arc;

use anyhow::{Context, bail};
use sharestream_base::{Env, HostPort};
use sharestream_client::{Client, SecuritySettings, TopicInfo};

use super::topic::client_config;
use crate::args::dead_letters::{DeadLetterCommand, LetterTopic};
use crate::exit::Exit;
use crate::failure::Refused;
use crate::job_file::{self, Brokers, JobFile};

/// Runs one of the three.
pub(crate) async fn run(env: Env, command: DeadLetterCommand) -> anyhow::Result<Exit> {
    match command {
        DeadLetterCommand::List(args) => list::run(env, args).await,
        DeadLetterCommand::Show(args) => show::run(env, args).await,
        DeadLetterCommand::Replay(args) => replay::run(env, args).await,
    }
}

/// A dead letter topic, and whose it is where a job file was named.
struct Place {
    client: Client,
    topic: Arc<TopicInfo>,
    job: Option<JobFile>,
}

impl Place {
    async fn find(env: Env, args: &LetterTopic) -> anyhow::Result<Place> {
        let job = args.job.as_deref().map(|path| job_file::load(path, &[])).transpose()?;
        let bootstrap = match &job {
            _given if !args.brokers.is_empty() => args.brokers.clone(),
            None => vec![HostPort::new("127.0.0.1", 9092)],
            Some(job) => match &job.source.brokers {
                Brokers::Addresses(addresses) => addresses.clone(),
                Brokers::Embedded => {
                    bail!(
                        "brokers = \"embedded\" ended with the run, and its dead letters with it; use --brokers"
                    )
                }
            },
        };
        let name = match (&args.topic, &job) {
            (Some(topic), _) => topic.clone(),
            (None, Some(JobFile { dead_letter_topic: Some(topic), .. })) => topic.clone(),
            (None, _) => {
                let text = "the job file has no [dead_letter] topic: its bad records are not kept anywhere";
                return Err(Refused::error(text.to_owned()));
            }
        };
        let security = match (args.command_config.given(), &job) {
            (Some(given), _) => given.clone(),
            (None, Some(job)) => job.source.security.clone(),
            (None, None) => SecuritySettings::default(),
        };
        let client = Client::connect(env, client_config(&bootstrap, security)).await?;
        let topic = client.topic(&name).await.with_context(|| format!("dead letter topic {name}"))?;
        Ok(Place { client, topic, job })
    }
}
