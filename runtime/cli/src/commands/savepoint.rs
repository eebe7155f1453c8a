//! `sharestream savepoint JOB.toml` and `savepoint list|show|verify|delete`.

mod look;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use sharestream_base::Env;
use sharestream_checkpoints::{
    CheckpointStore, JobKey, LoadedSavepoint, SavepointPlace, Savepoints, StoreLocation,
};
use sharestream_client::Client;
use sharestream_kafka::savepoint::{SavepointOf, take};

use super::topic::client_config;
use crate::args::savepoints::{SavepointArgs, SavepointCommand, SavepointTakeArgs};
use crate::exit::Exit;
use crate::failure::Refused;
use crate::job_file::{self, Brokers, JobFile};
use crate::{output, settings};

/// Runs one of them.
pub(crate) async fn run(env: Env, args: SavepointArgs) -> anyhow::Result<Exit> {
    match args.command {
        None => make(env, args.take).await,
        Some(SavepointCommand::List(args)) => look::list(&env, args).await,
        Some(SavepointCommand::Show(args)) => look::show(&env, args).await,
        Some(SavepointCommand::Verify(args)) => look::verify(args).await,
        Some(SavepointCommand::Delete(args)) => look::delete(args).await,
    }
}

/// Where the savepoints in a place are that a user names; a folder is relative to where the command runs.
fn location(text: &str, options: &[(String, String)]) -> anyhow::Result<StoreLocation> {
    let options: BTreeMap<String, String> = options.iter().cloned().collect();
    let location = StoreLocation::parse(text, Path::new(""), options)?;
    if location.is_memory() {
        return Err(Refused::error("memory:// is gone with its process; a savepoint is kept".to_owned()));
    }
    Ok(location)
}

/// The savepoint that a user names: a place, or a name in the store of `job`.
pub(super) async fn place_of(
    savepoint: &str,
    job: Option<&JobFile>,
    options: &[(String, String)],
) -> anyhow::Result<SavepointPlace> {
    let is_place = savepoint.contains('/') || savepoint.contains('\\');
    if is_place {
        let opened = location(savepoint, options)?.open_existing().await?;
        return Ok(SavepointPlace::at(&opened)?);
    }
    let Some(job) = job else {
        return Err(Refused::error(format!(
            "where is savepoint '{savepoint}'? Name its place, ./{savepoint} for a folder here, or the job whose store has \
             it: --of JOB.toml"
        )));
    };
    Ok(Savepoints::of_store(&store_to_look_at(job).await?).named(savepoint)?)
}

/// The job's store, to look at.
async fn store_to_look_at(job: &JobFile) -> anyhow::Result<CheckpointStore> {
    let Some(location) = &job.checkpoint.store else {
        return Err(Refused::error(format!(
            "job {} has no [checkpoint] store, so its savepoints are where --to put them",
            job.job
        )));
    };
    let opened = location.open_existing().await?;
    Ok(CheckpointStore::open_existing(&opened, JobKey::new(&job.job, &job.instance)).await?)
}

async fn make(env: Env, args: SavepointTakeArgs) -> anyhow::Result<Exit> {
    let Some(path) = &args.job else {
        return Err(Refused::error("of which job? name its file".to_owned()));
    };
    let mut job = job_file::load(path, &args.overrides.set)?;
    settings::apply(&mut job, &args.overrides);
    let Brokers::Addresses(bootstrap) = &job.source.brokers else {
        return Err(Refused::error(
            "the brokers of this job live only as long as its run; name them with --brokers".to_owned(),
        ));
    };
    let store = match &job.checkpoint.store {
        Some(_) => Some(store_to_look_at(&job).await?),
        None => None,
    };
    let to = match (&args.to, &store) {
        (Some(to), _) => Savepoints::at(&location(to, &args.to_option)?.open().await?)?,
        (None, Some(store)) => Savepoints::of_store(store),
        (None, None) => {
            return Err(Refused::error(format!(
                "job {} has no [checkpoint] store: say where the savepoint is to be kept with --to LOCATION",
                job.job
            )));
        }
    };
    let client = Client::connect(env.clone(), client_config(bootstrap, job.source.security.clone())).await?;
    let of = SavepointOf {
        job: job.job.clone(),
        instance: job.instance.clone(),
        group: job.source.group.clone(),
        topics: job.source.topics.clone(),
        outcome_topic: settings::kafka_config(&job, bootstrap, None).outcome_topic,
    };
    let taken = take(&client, &of, store.as_ref(), &to).await?;
    if args.json {
        output::line(&as_json(&taken).to_string());
    } else {
        let saved = &taken.savepoint;
        output::line(&format!("{} holds checkpoint {} of {}", saved.name, saved.checkpoint, saved.key()));
        output::line(&format!("start from it: sharestream run {} --from {}", path.display(), taken.place));
    }
    Ok(Exit::Done)
}

/// What programs read of a savepoint.
fn as_json(loaded: &LoadedSavepoint) -> serde_json::Value {
    let saved = &loaded.savepoint;
    let decided = saved.sources.iter().flat_map(|source| &source.decided);
    json!({
        "savepoint": saved.name, "place": loaded.place.to_string(), "sha256": loaded.sha256, "job": saved.job,
        "instance": saved.instance, "group": saved.group, "checkpoint": saved.checkpoint.0,
        "job_epoch": saved.job_epoch.0, "generation": saved.generation, "partitions": saved.sources.len(),
        "decided_above_start": decided.map(|range| range.last.0 - range.first.0 + 1).sum::<i64>(),
        "state_bytes": saved.state_bytes(), "created_ms": saved.created_ms,
    })
}
