//! `sharestream verify`: collects the facts, checks them, prints what it found.

use std::time::Duration;

use anyhow::bail;
use sharestream_base::Env;
use sharestream_client::Client;

use super::topic::client_config;
use crate::args::VerifyArgs;
use crate::exit::Exit;
use crate::job_file::{self, Brokers};
use crate::output;
use crate::registry::{self, Purpose};
use crate::settings;
use crate::verify::{self, Report};

/// How long the share state may lag behind a committed outcome while the check waits for it.
pub(crate) const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Checks the job and prints the report. Exit: right, violated, or could not check.
pub(crate) async fn run(env: Env, args: VerifyArgs) -> anyhow::Result<Exit> {
    let report = match check(env, &args).await {
        Ok(report) => report,
        Err(error) => {
            let failure = crate::failure::judge(&error);
            if args.json {
                let body = serde_json::json!({ "error": failure.message, "hint": failure.hint });
                output::line(&body.to_string());
            }
            crate::failure::print(&failure);
            return Ok(Exit::Usage);
        }
    };
    if args.json {
        output::line(&serde_json::to_string(&report)?);
    } else {
        print(&report, args.show);
    }
    Ok(if report.is_right() { Exit::Done } else { Exit::Failed })
}

async fn check(env: Env, args: &VerifyArgs) -> anyhow::Result<Report> {
    let mut job = job_file::load(&args.job, &args.overrides.set)?;
    settings::apply(&mut job, &args.overrides);
    let Brokers::Addresses(bootstrap) = &job.source.brokers else {
        bail!("brokers = \"embedded\" ended with the run, so there is nothing left to check; use --brokers");
    };
    let client = Client::connect(env, client_config(bootstrap, job.source.security.clone())).await?;
    let registry = registry::settle(&mut job, &client.env().clock, Purpose::Look).await?;
    verify::verify(&client, &job, registry.as_deref(), SETTLE_MAX).await
}

fn print(report: &Report, show: usize) {
    let number = |number: u64| output::thousands(number);
    let rows = vec![
        vec!["records in".to_owned(), number(report.records_in)],
        vec!["records out".to_owned(), number(report.records_out)],
        vec!["filtered".to_owned(), number(report.filtered)],
        vec!["dead letters".to_owned(), number(report.dead_lettered)],
        vec!["parked".to_owned(), number(report.parked)],
        vec!["still to do".to_owned(), number(report.remaining)],
        vec!["lost".to_owned(), number(report.lost)],
        vec!["doubled".to_owned(), number(report.doubled)],
        vec!["torn".to_owned(), number(report.torn)],
        vec!["wrong".to_owned(), number(report.wrong)],
        vec!["decided twice".to_owned(), number(report.decided_twice)],
        vec!["open transactions".to_owned(), number(report.open_transactions)],
    ];
    output::line(&output::table(&[], rows));
    if report.below_floor > 0 {
        let count = number(report.below_floor);
        output::line(&format!(
            "note: {count} offsets lie below the ledger's floors: their effects tell what was decided"
        ));
    }
    if report.unacknowledged > 0 {
        let count = number(report.unacknowledged);
        output::line(&format!(
            "note: {count} decided offsets are acknowledged when they are delivered again"
        ));
    }
    for note in &report.notes {
        output::line(&format!("note: {note}"));
    }
    for violation in report.violations.iter().take(show) {
        output::line(&violation.to_string());
    }
    let hidden = report.violations.len().saturating_sub(show);
    if hidden > 0 || report.violation_count > report.violations.len() as u64 {
        output::line(&format!(
            "... {} violations in all; --show {} prints more",
            report.violation_count,
            show * 10
        ));
    }
    output::line(if report.is_right() { "right: one outcome for every record" } else { "VIOLATED" });
}
