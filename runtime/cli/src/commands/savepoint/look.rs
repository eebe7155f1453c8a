//! Savepoints that are there: listed, shown, checked, deleted.

use serde_json::json;
use sharestream_base::Env;
use sharestream_checkpoints::{LoadedSavepoint, Savepoints, StatePart};

use super::super::checkpoint::{age, bytes, utc};
use super::{as_json, location, place_of, store_to_look_at};
use crate::args::savepoints::{SavepointListArgs, SavepointOneArgs};
use crate::exit::Exit;
use crate::failure::Refused;
use crate::{job_file, output};

/// Ranges that a line shows of a partition.
const RANGES_SHOWN: usize = 8;

/// `savepoint list`.
pub(super) async fn list(env: &Env, args: SavepointListArgs) -> anyhow::Result<Exit> {
    let savepoints = match (&args.job, &args.place) {
        (Some(path), _) => Savepoints::of_store(&store_to_look_at(&job_file::load(path, &[])?).await?),
        (None, Some(place)) => Savepoints::at(&location(place, &args.option)?.open_existing().await?)?,
        (None, None) => {
            return Err(Refused::error(
                "whose savepoints? name a job file, or a place: --in LOCATION".to_owned(),
            ));
        }
    };
    let now_ms = env.clock.wall_ms();
    let mut rows = Vec::new();
    for one in savepoints.list().await? {
        match (&one.loaded, args.json) {
            (Ok(loaded), true) => {
                let mut body = as_json(loaded);
                body["bytes"] = json!(one.bytes);
                output::line(&body.to_string());
            }
            (Err(why), true) => {
                let body = json!({ "savepoint": one.name, "bytes": one.bytes, "damage": why });
                output::line(&body.to_string());
            }
            (Ok(loaded), false) => {
                let saved = &loaded.savepoint;
                rows.push(vec![
                    one.name,
                    format!("{}/{}", saved.job, saved.instance),
                    saved.checkpoint.to_string(),
                    age(now_ms - saved.created_ms),
                    saved.sources.len().to_string(),
                    bytes(one.bytes),
                ]);
            }
            (Err(_), false) => {
                let unknown = || "?".to_owned();
                let size = bytes(one.bytes);
                rows.push(vec![one.name, "damaged".to_owned(), unknown(), unknown(), unknown(), size]);
            }
        }
    }
    if !args.json {
        let header = ["savepoint", "job", "checkpoint", "age", "partitions", "size"];
        output::line(&output::table(&header, rows));
    }
    Ok(Exit::Done)
}

async fn load(args: &SavepointOneArgs) -> anyhow::Result<LoadedSavepoint> {
    let job = args.of.as_ref().map(|path| job_file::load(path, &[])).transpose()?;
    Ok(place_of(&args.savepoint, job.as_ref(), &args.option).await?.load().await?)
}

/// `savepoint show`.
pub(super) async fn show(env: &Env, args: SavepointOneArgs) -> anyhow::Result<Exit> {
    let loaded = load(&args).await?;
    if args.json {
        let mut body = as_json(&loaded);
        body["content"] = json!(loaded.savepoint);
        output::line(&body.to_string());
        return Ok(Exit::Done);
    }
    let saved = &loaded.savepoint;
    let rows = [
        ("savepoint", saved.name.clone()),
        ("place", loaded.place.to_string()),
        ("job", format!("{}/{}", saved.job, saved.instance)),
        ("group", saved.group.clone()),
        ("checkpoint", saved.checkpoint.to_string()),
        ("job epoch", saved.job_epoch.to_string()),
        ("generation", saved.generation.to_string()),
        (
            "outcome",
            format!(
                "{}/{} offset {}",
                saved.outcome.topic, saved.outcome.partition, saved.outcome.checkpoint
            ),
        ),
        (
            "written",
            format!("{} ({} ago)", utc(saved.created_ms), age(env.clock.wall_ms() - saved.created_ms)),
        ),
        ("format", saved.format_version.to_string()),
        ("sha256", loaded.sha256.clone()),
    ];
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    output::line(&output::table(&[], rows.collect()));
    let sources = saved.sources.iter().map(|source| {
        let shown = source.decided.iter().take(RANGES_SHOWN).map(|range| match range.first == range.last {
            true => range.first.to_string(),
            false => format!("{}-{}", range.first, range.last),
        });
        let mut ranges = shown.collect::<Vec<_>>().join(", ");
        if source.decided.len() > RANGES_SHOWN {
            ranges.push_str(&format!(", ... ({} ranges; --json shows all)", source.decided.len()));
        }
        let start = output::thousands(source.start_offset.0);
        vec![source.topic.clone(), source.partition.to_string(), start, ranges]
    });
    let header = ["topic", "partition", "start offset", "decided above it"];
    output::line(&output::table(&header, sources.collect()));
    let operators: Vec<Vec<String>> = saved
        .operators
        .iter()
        .map(|operator| {
            let sum = |of: fn(&StatePart) -> u64| operator.parts.iter().map(of).sum::<u64>();
            vec![
                operator.operator.clone(),
                operator.parts.len().to_string(),
                output::thousands(sum(|part| part.rows)),
                bytes(sum(|part| part.bytes)),
            ]
        })
        .collect();
    if !operators.is_empty() {
        output::line(&output::table(&["operator", "parts", "rows", "state"], operators));
    }
    Ok(Exit::Done)
}

/// `savepoint verify`. Exit: right, or damaged.
pub(super) async fn verify(args: SavepointOneArgs) -> anyhow::Result<Exit> {
    let loaded = load(&args).await?;
    let faults = loaded.verify().await?;
    if args.json {
        let mut body = as_json(&loaded);
        (body["right"], body["faults"]) = (json!(faults.is_empty()), json!(faults));
        output::line(&body.to_string());
    } else {
        for fault in &faults {
            output::line(&format!("fault: {fault}"));
        }
        let parts: usize = loaded.savepoint.operators.iter().map(|operator| operator.parts.len()).sum();
        let verdict = if faults.is_empty() { "right" } else { "DAMAGED" };
        let name = &loaded.savepoint.name;
        output::line(&format!("{verdict}: {name}, {parts} parts of state, {} faults", faults.len()));
    }
    Ok(if faults.is_empty() { Exit::Done } else { Exit::Failed })
}

/// `savepoint delete`: of what is no savepoint any more, too.
pub(super) async fn delete(args: SavepointOneArgs) -> anyhow::Result<Exit> {
    let job = args.of.as_ref().map(|path| job_file::load(path, &[])).transpose()?;
    let place = place_of(&args.savepoint, job.as_ref(), &args.option).await?;
    let is_place = job.is_none() || args.savepoint.contains('/');
    if is_place {
        // A folder of anything else that was named by mistake stays.
        place.load().await?;
    }
    let count = place.delete().await?;
    if count == 0 {
        return Err(Refused::error(format!("there is nothing in {place}")));
    }
    if args.json {
        output::line(&json!({ "place": place.to_string(), "objects": count, "deleted": true }).to_string());
    } else {
        output::line(&format!("deleted {place} ({count} objects)"));
    }
    Ok(Exit::Done)
}
