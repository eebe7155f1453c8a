//! `sharestream checkpoint show`: one manifest, for people or as it is stored.

use serde_json::json;
use sharestream_base::Env;
use sharestream_base::ids::CheckpointId;
use sharestream_checkpoints::{InspectedCheckpoint, Inspection, Manifest, OffsetDecision, StatePart};

use super::{Looked, age, as_json, bytes, state, utc};
use crate::args::checkpoints::CheckpointShowArgs;
use crate::exit::Exit;
use crate::failure::Refused;
use crate::output;

/// Ranges that a line shows of a partition.
const RANGES_SHOWN: usize = 8;

/// Prints one checkpoint. Exit: failed, when its manifest is damaged.
pub(super) async fn run(env: &Env, args: CheckpointShowArgs) -> anyhow::Result<Exit> {
    let looked = Looked::at(&args.store).await?;
    let seen = looked.inspect().await?;
    looked.refuse_empty(&seen).await?;
    let checkpoint = chosen(&seen, args.id.as_deref())?;
    let manifest = match &checkpoint.manifest {
        Ok((_, manifest)) => manifest,
        Err(why) => {
            if args.json {
                output::line(&as_json(checkpoint).to_string());
            } else {
                output::line(&format!("checkpoint {}: {why}", checkpoint.stored.id));
            }
            return Ok(Exit::Failed);
        }
    };
    if args.json {
        let mut body = as_json(checkpoint);
        body["content"] = json!(manifest);
        output::line(&body.to_string());
        return Ok(Exit::Done);
    }
    print(checkpoint, manifest, env.clock.wall_ms());
    Ok(Exit::Done)
}

fn chosen<'a>(seen: &'a Inspection, id: Option<&str>) -> anyhow::Result<&'a InspectedCheckpoint> {
    match id {
        Some(id) => Ok(seen.find(id)?),
        None => seen.last_completed().ok_or_else(|| {
            Refused::error("no checkpoint is completed yet; --id shows one that is pending".to_owned())
        }),
    }
}

fn print(checkpoint: &InspectedCheckpoint, manifest: &Manifest, now_ms: i64) {
    let named = |id: Option<CheckpointId>| id.map_or_else(|| "-".to_owned(), |id| id.to_string());
    let text = |text: Option<&String>| text.cloned().unwrap_or_else(|| "-".to_owned());
    let written = format!("{} ({} ago)", utc(manifest.created_ms), age(now_ms - manifest.created_ms));
    let sha256 = checkpoint.manifest.as_ref().map(|(manifest_ref, _)| manifest_ref.sha256.clone());
    let topic_id = manifest.outcome_topic_id.map(|id| id.to_string());
    let watermark_ms = manifest.event_time.as_ref().and_then(|times| times.watermark_ms);
    let rows = [
        ("checkpoint", checkpoint.stored.id.to_string()),
        ("state", state(checkpoint).to_owned()),
        ("job", format!("{}/{}", manifest.job, manifest.instance)),
        ("job epoch", manifest.job_epoch.to_string()),
        ("follows", named(manifest.predecessor)),
        ("written", written),
        ("transactional id", text(manifest.transactional_id.as_ref())),
        ("outcome topic id", text(topic_id.as_ref())),
        ("watermark", text(watermark_ms.map(|ms| format!("{ms} ms")).as_ref())),
        ("format", manifest.format_version.to_string()),
        ("size", bytes(checkpoint.bytes)),
        ("manifest", checkpoint.stored.name.clone()),
        ("sha256", sha256.unwrap_or_default()),
    ];
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    output::line(&output::table(&[], rows.collect()));
    let sources = manifest.sources.iter().map(|source| {
        let count = |decision: OffsetDecision| {
            let ranges = source.decided.iter().filter(|range| range.decision == decision);
            output::thousands(ranges.map(|range| range.last.0 - range.first.0 + 1).sum::<i64>())
        };
        let topic = source.topic.clone().unwrap_or_else(|| source.topic_id.to_string());
        let shown = source.decided.iter().take(RANGES_SHOWN).map(|range| match range.first == range.last {
            true => range.first.to_string(),
            false => format!("{}-{}", range.first, range.last),
        });
        let mut ranges = shown.collect::<Vec<_>>().join(", ");
        if source.decided.len() > RANGES_SHOWN {
            ranges.push_str(&format!(", ... ({} ranges; --json shows all)", source.decided.len()));
        }
        vec![
            topic,
            source.partition.to_string(),
            count(OffsetDecision::Accept),
            count(OffsetDecision::Reject),
            count(OffsetDecision::Gap),
            ranges,
        ]
    });
    let sources: Vec<_> = sources.collect();
    if sources.is_empty() {
        output::line("it decided no offsets");
    } else {
        let header = ["topic", "partition", "accepted", "rejected", "gaps", "offsets"];
        output::line(&output::table(&header, sources));
    }
    let operators = manifest.operators.iter().map(|operator| {
        let sum = |of: fn(&StatePart) -> u64| operator.parts.iter().map(of).sum::<u64>();
        vec![
            operator.operator.clone(),
            operator.state_version.to_string(),
            operator.key_groups.to_string(),
            operator.parts.len().to_string(),
            output::thousands(sum(|part| part.rows)),
            bytes(sum(|part| part.bytes)),
        ]
    });
    let operators: Vec<_> = operators.collect();
    if !operators.is_empty() {
        output::line(&output::table(
            &["operator", "version", "key groups", "parts", "rows", "state"],
            operators,
        ));
    }
}
