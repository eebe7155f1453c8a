//! `sharestream transactions list|abort`.

use anyhow::bail;
use serde_json::json;
use sharestream_base::{Env, HostPort};
use sharestream_client::{Client, SecuritySettings, TransactionDescription};

use super::topic::client_config;
use crate::args::groups::{Owner, TransactionsAbortArgs, TransactionsCommand, TransactionsListArgs};
use crate::exit::Exit;
use crate::failure::Refused;
use crate::job_file::{self, Brokers, JobFile};
use crate::output;

/// Runs one of the two.
pub(crate) async fn run(env: Env, command: TransactionsCommand) -> anyhow::Result<Exit> {
    match command {
        TransactionsCommand::List(args) => list(env, args).await,
        TransactionsCommand::Abort(args) => abort(env, args).await,
    }
}

/// The job whose transactions may be touched (`None`: anybody's), and where the brokers are.
async fn owner(env: Env, owner: &Owner) -> anyhow::Result<(Option<JobFile>, Client)> {
    let job = owner.job.as_deref().map(|path| job_file::load(path, &[])).transpose()?;
    let bootstrap = match &job {
        _given if !owner.brokers.is_empty() => owner.brokers.clone(),
        None => vec![HostPort::new("127.0.0.1", 9092)],
        Some(job) => match &job.source.brokers {
            Brokers::Addresses(addresses) => addresses.clone(),
            Brokers::Embedded => {
                bail!(
                    "brokers = \"embedded\" ended with the run, and its transactions with it; use --brokers"
                )
            }
        },
    };
    let security = match (owner.command_config.given(), &job) {
        (Some(given), _) => given.clone(),
        (None, Some(job)) => job.source.security.clone(),
        (None, None) => SecuritySettings::default(),
    };
    let client = Client::connect(env, client_config(&bootstrap, security)).await?;
    Ok((job, client))
}

/// True for a transactional id of this job: job, instance and slot, with dots between (invariant J-TXN-ID).
fn is_of(job: &JobFile, transactional_id: &str) -> bool {
    let rest = transactional_id.strip_prefix(job.job.as_str()).and_then(|rest| rest.strip_prefix('.'));
    let Some((instance, slot)) = rest.and_then(|rest| rest.rsplit_once('.')) else { return false };
    let is_slot = !slot.is_empty() && slot.bytes().all(|byte| byte.is_ascii_digit());
    // Another job's name may begin with this one's and a dot; an instance of this one has none, unless the
    // file says so.
    is_slot && (instance == job.instance || (!instance.is_empty() && !instance.contains('.')))
}

async fn list(env: Env, args: TransactionsListArgs) -> anyhow::Result<Exit> {
    let (job, client) = owner(env, &args.owner).await?;
    let admin = client.admin();
    let listed = admin.list_transactions().await?;
    let ids: Vec<&str> = listed
        .iter()
        .map(|listing| listing.transactional_id.as_str())
        .filter(|id| job.as_ref().is_none_or(|job| is_of(job, id)))
        .collect();
    let mut described = admin.describe_transactions(&ids).await?;
    described.retain(|transaction| !args.open || transaction.is_open());
    let now_ms = client.env().clock.wall_ms();
    if args.json {
        for transaction in &described {
            output::line(&as_json(transaction, now_ms).to_string());
        }
        return Ok(Exit::Done);
    }
    let rows = described.iter().map(|transaction| {
        let age_ms = open_for_ms(transaction, now_ms);
        vec![
            transaction.transactional_id.clone(),
            transaction.state.clone(),
            transaction.producer_id.to_string(),
            transaction.producer_epoch.to_string(),
            age_ms.map_or_else(|| "-".to_owned(), |ms| format!("{}.{}", ms / 1_000, ms % 1_000 / 100)),
            transaction.timeout.as_secs().to_string(),
            transaction.partitions.len().to_string(),
        ]
    });
    let header =
        ["transactional id", "state", "producer id", "epoch", "open for s", "time-out s", "partitions"];
    output::line(&output::table(&header, rows.collect()));
    Ok(Exit::Done)
}

fn open_for_ms(transaction: &TransactionDescription, now_ms: i64) -> Option<i64> {
    transaction.start_ms.filter(|_| transaction.is_open()).map(|start| (now_ms - start).max(0))
}

fn as_json(transaction: &TransactionDescription, now_ms: i64) -> serde_json::Value {
    let partitions: Vec<String> =
        transaction.partitions.iter().map(|(topic, index)| format!("{topic}/{index}")).collect();
    json!({
        "transactional_id": transaction.transactional_id, "state": transaction.state,
        "producer_id": transaction.producer_id.0, "producer_epoch": transaction.producer_epoch.0,
        "open": transaction.is_open(), "open_for_ms": open_for_ms(transaction, now_ms),
        "timeout_ms": u64::try_from(transaction.timeout.as_millis()).unwrap_or(u64::MAX),
        "partitions": partitions,
    })
}

async fn abort(env: Env, args: TransactionsAbortArgs) -> anyhow::Result<Exit> {
    let (job, client) = owner(env, &args.owner).await?;
    let id = &args.transactional_id;
    if let Some(job) = job.as_ref().filter(|job| !is_of(job, id)) {
        let text = format!(
            "'{id}' is no transactional id of job {}; `sharestream transactions list` shows its ids, and --any in place \
             of the job file ends those of others",
            job.job
        );
        return Err(Refused::error(text));
    }
    let Some(ended) = client.admin().abort_transaction(id).await? else {
        output::line(&match args.json {
            true => json!({ "transactional_id": id, "ended": false }).to_string(),
            false => format!("{id} has no open transaction; nothing was changed"),
        });
        return Ok(Exit::Done);
    };
    // A commit that was decided before is completed: nobody can take it back.
    let outcome = if ended.before.state == "PrepareCommit" { "committed" } else { "aborted" };
    output::line(&match args.json {
        true => json!({
            "transactional_id": id, "ended": true, "outcome": outcome, "before": ended.before.state,
            "partitions": ended.before.partitions.len(),
            "producer_epoch": ended.after.producer_epoch.0,
        })
        .to_string(),
        false => format!(
            "{id}: {outcome} in {} partitions; its producer is fenced (epoch {} is the new one)",
            ended.before.partitions.len(),
            ended.after.producer_epoch
        ),
    });
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_ids_of_the_job_are_its_own() {
        let text = include_str!("../../../../examples/flights/job.toml");
        let mut job = job_file::parse(Path::new("job.toml"), text, &[]).unwrap();
        job.job = "late".to_owned();
        for own in ["late.main.0", "late.main.1", "late.other.12"] {
            assert!(is_of(&job, own), "{own}");
        }
        for foreign in
            ["late", "late.0", "late.main.x", "later.main.0", "late.by.main.0", "late..0", "x.late.0"]
        {
            assert!(!is_of(&job, foreign), "{foreign}");
        }
        job.instance = "by.main".to_owned();
        assert!(is_of(&job, "late.by.main.0"), "the file says so");
    }
}
