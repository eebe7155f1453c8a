//! `sharestream checkpoint delete`: what nobody needs, or what the user forces.

use serde_json::json;

use super::{Looked, bytes, state};
use crate::args::checkpoints::CheckpointDeleteArgs;
use crate::exit::Exit;
use crate::failure::Refused;
use crate::output;

/// Deletes all that were named, or none: what is needed is refused before anything goes.
pub(super) async fn run(args: CheckpointDeleteArgs) -> anyhow::Result<Exit> {
    let looked = Looked::at(&args.store).await?;
    let seen = looked.inspect().await?;
    looked.refuse_empty(&seen).await?;
    let mut chosen = Vec::new();
    for id in &args.ids {
        let checkpoint = seen.find(id)?;
        if !chosen.iter().any(|(known, _)| *known == checkpoint) {
            chosen.push((checkpoint, seen.needed(&checkpoint.stored)));
        }
    }
    if !args.force && !args.dry_run {
        let refused: Vec<String> = chosen
            .iter()
            .filter_map(|(checkpoint, needed)| {
                Some(format!("checkpoint {}: {}", checkpoint.stored.id, needed.as_ref()?))
            })
            .collect();
        if !refused.is_empty() {
            let text =
                format!("{}. Nothing was deleted; --force deletes it all the same", refused.join(". "));
            return Err(Refused::error(text));
        }
    }
    for (checkpoint, needed) in &chosen {
        let goes = args.force || needed.is_none();
        if !args.dry_run {
            looked.store.remove(&checkpoint.stored).await?;
        }
        let stored = &checkpoint.stored;
        if args.json {
            let body = json!({
                "checkpoint": stored.id.0, "job_epoch": stored.job_epoch.0, "state": state(checkpoint),
                "bytes": checkpoint.bytes, "needed": needed, "deleted": !args.dry_run,
                "would_delete": args.dry_run && goes,
            });
            output::line(&body.to_string());
            continue;
        }
        let verb = match (args.dry_run, goes) {
            (false, _) => "deleted",
            (true, true) => "would delete",
            (true, false) => "would refuse to delete",
        };
        let why = needed.as_ref().map_or_else(String::new, |needed| format!(": {needed}"));
        let size = bytes(checkpoint.bytes);
        output::line(&format!("{verb} checkpoint {} ({}, {size}){why}", stored.id, state(checkpoint)));
    }
    Ok(Exit::Done)
}
