//! `sharestream checkpoint list|show|verify|delete`.

mod delete;
mod show;
mod verify;

use std::path::Path;

use anyhow::Context;
use serde_json::json;
use sharestream_base::Env;
use sharestream_checkpoints::{
    CheckpointStore, InspectedCheckpoint, Inspection, JobKey, OpenedStore, StoreLocation, StoredState,
};

use crate::args::checkpoints::{CheckpointCommand, CheckpointListArgs, StoreArgs};
use crate::exit::Exit;
use crate::failure::Refused;
use crate::job_file::{self, JobFile};
use crate::output;

/// Runs one of them.
pub(crate) async fn run(env: Env, command: CheckpointCommand) -> anyhow::Result<Exit> {
    match command {
        CheckpointCommand::List(args) => list(&env, args).await,
        CheckpointCommand::Show(args) => show::run(&env, args).await,
        CheckpointCommand::Verify(args) => verify::run(env, *args).await,
        CheckpointCommand::Delete(args) => delete::run(args).await,
    }
}

/// A store that was opened to look at.
struct Looked {
    store: CheckpointStore,
    opened: OpenedStore,
    /// The file that named it.
    job: Option<JobFile>,
}

impl Looked {
    async fn at(args: &StoreArgs) -> anyhow::Result<Looked> {
        let (location, job) = match (&args.job, &args.store) {
            (Some(path), _) => {
                let job = job_file::load(path, &[])?;
                let Some(location) = job.checkpoint.store.clone() else {
                    let text = format!(
                        "{} has no [checkpoint] store: the job's transactions are its checkpoints, and its outcome \
                         topic alone knows them (`sharestream verify`)",
                        path.display()
                    );
                    return Err(Refused::error(text));
                };
                (location, Some(job))
            }
            (None, Some(text)) => {
                let options = args.store_option.iter().cloned().collect();
                (StoreLocation::parse(text, Path::new(""), options)?, None)
            }
            (None, None) => {
                let text = "whose checkpoints? name a job file, or the store: --store URL".to_owned();
                return Err(Refused::error(text));
            }
        };
        let opened = location.open_existing().await?;
        let instance = args.instance.clone().or_else(|| job.as_ref().map(|job| job.instance.clone()));
        let instance = instance.unwrap_or_else(|| "main".to_owned());
        let name = match job.as_ref().map(|job| job.job.clone()).or_else(|| args.name.clone()) {
            Some(name) => name,
            None => CheckpointStore::job_of(&opened)
                .await?
                .with_context(|| Refused(format!("no checkpoints in {location}: no job has used it")))?,
        };
        let store = CheckpointStore::open_existing(&opened, JobKey::new(name, instance)).await?;
        Ok(Looked { store, opened, job })
    }

    async fn inspect(&self) -> anyhow::Result<Inspection> {
        Ok(Inspection::of(&self.store).await?)
    }

    /// Says where else there is something, if this instance has nothing.
    async fn refuse_empty(&self, seen: &Inspection) -> anyhow::Result<()> {
        if !seen.checkpoints.is_empty() || !seen.owners.is_empty() {
            return Ok(());
        }
        let key = self.store.key();
        let there = CheckpointStore::instances_of(&self.opened).await?;
        let hint = match &there[..] {
            [] => "no instance of the job has begun here".to_owned(),
            names => format!("--instance takes one of: {}", names.join(", ")),
        };
        Err(Refused::error(format!("nothing is stored of {key}; {hint}")))
    }
}

async fn list(env: &Env, args: CheckpointListArgs) -> anyhow::Result<Exit> {
    let looked = Looked::at(&args.store).await?;
    let seen = looked.inspect().await?;
    looked.refuse_empty(&seen).await?;
    let now_ms = env.clock.wall_ms();
    if args.json {
        for checkpoint in &seen.checkpoints {
            output::line(&as_json(checkpoint).to_string());
        }
        return Ok(Exit::Done);
    }
    let rows = seen.checkpoints.iter().map(|checkpoint| {
        let (partitions, offsets, age) = match &checkpoint.manifest {
            Ok((_, manifest)) => {
                let ranges = manifest.sources.iter().flat_map(|source| &source.decided);
                let offsets: i64 = ranges.map(|range| range.last.0 - range.first.0 + 1).sum();
                let age = age(now_ms - manifest.created_ms);
                (manifest.sources.len().to_string(), output::thousands(offsets), age)
            }
            Err(_) => ("?".to_owned(), "?".to_owned(), "?".to_owned()),
        };
        vec![
            checkpoint.stored.id.to_string(),
            checkpoint.stored.job_epoch.to_string(),
            state(checkpoint).to_owned(),
            age,
            partitions,
            offsets,
            bytes(checkpoint.bytes),
            bytes(checkpoint.state_bytes()),
        ]
    });
    let header =
        ["checkpoint", "job epoch", "state", "age", "partitions", "offsets decided", "size", "state"];
    output::line(&output::table(&header, rows.collect()));
    if let Some(owner) = seen.owners.last() {
        let by = owner.by.as_deref().unwrap_or("somebody");
        let since = owner.acquired_ms.map_or_else(String::new, |ms| format!(", {} ago", age(now_ms - ms)));
        output::line(&format!("{} is owned by job epoch {}: {by}{since}", looked.store.key(), owner.epoch));
    }
    Ok(Exit::Done)
}

/// The word for what is stored of it.
fn state(checkpoint: &InspectedCheckpoint) -> &'static str {
    match checkpoint.stored.state {
        _ if checkpoint.manifest.is_err() => "damaged",
        StoredState::Pending => "pending",
        StoredState::Completed => "completed",
        StoredState::CompletedWithoutManifest => "damaged",
    }
}

/// What programs read of a checkpoint.
fn as_json(checkpoint: &InspectedCheckpoint) -> serde_json::Value {
    let stored = &checkpoint.stored;
    let mut body = json!({
        "checkpoint": stored.id.0,
        "job_epoch": stored.job_epoch.0,
        "state": state(checkpoint),
        "manifest": stored.name,
        "bytes": checkpoint.bytes,
        "state_bytes": checkpoint.state_bytes(),
    });
    match &checkpoint.manifest {
        Ok((manifest_ref, manifest)) => {
            body["sha256"] = json!(manifest_ref.sha256);
            body["predecessor"] = json!(manifest.predecessor);
            body["created_ms"] = json!(manifest.created_ms);
            body["transactional_id"] = json!(manifest.transactional_id);
            body["partitions"] = json!(manifest.sources.len());
        }
        Err(why) => body["damage"] = json!(why),
    }
    body
}

/// A time that has passed, in its two largest units.
pub(super) fn age(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    match seconds {
        0 => format!("{} ms", ms.max(0)),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A size as people read it.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{} B", output::thousands(bytes)),
        10_000..10_000_000 => format!("{} kB", output::thousands(bytes / 1_000)),
        _ => format!("{} MB", output::thousands(bytes / 1_000_000)),
    }
}

/// A wall time as UTC.
pub(super) fn utc(ms: i64) -> String {
    let nanos = ms.checked_mul(1_000_000).and_then(arrow_time);
    nanos.unwrap_or_else(|| format!("{ms} ms"))
}

fn arrow_time(nanos: i64) -> Option<String> {
    let array = arrow_array::TimestampNanosecondArray::from(vec![nanos]);
    arrow_cast::display::array_value_to_string(&array, 0).ok().map(|text| format!("{text}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_are_told_in_their_largest_units() {
        for (ms, expected) in [
            (-5, "0 ms"),
            (999, "999 ms"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (7_260_000, "2 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(age(ms), expected);
        }
        assert_eq!(
            (bytes(9_999), bytes(10_000), bytes(12_345_678)),
            ("9,999 B".into(), "10 kB".into(), "12 MB".into())
        );
        assert_eq!(utc(1_767_225_600_000), "2026-01-01T00:00:00Z");
    }
}
