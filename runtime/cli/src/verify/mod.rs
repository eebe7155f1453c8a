//! `sharestream verify`: is every record's fate what was promised? Trusts the topics and the share state only.

mod check;
mod collect;
mod facts;
mod ledger;
mod recompute;
mod report;
pub(crate) mod scan;
#[cfg(test)]
mod tests;

use std::time::Duration;

use sharestream_client::Client;
use sharestream_kafka::formats::SchemaRegistry;

pub(crate) use check::check;
pub(crate) use report::Report;

use crate::job_file::JobFile;

/// Collects the facts of a job and checks them. `registry`: of the source, if its records name schemas. `settle`: how long
/// the share state may lag behind the outcomes.
pub(crate) async fn verify(
    client: &Client,
    job: &JobFile,
    registry: Option<&dyn SchemaRegistry>,
    settle: Duration,
) -> anyhow::Result<Report> {
    let collected = collect::collect(client, job, registry, settle).await?;
    let mut report = check(&collected.facts);
    report.recomputed = collected.recomputed;
    report.notes.extend(collected.notes);
    Ok(report)
}
