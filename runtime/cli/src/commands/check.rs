//! `sharestream check`: everything that can be known about a job before it starts.

use std::time::Duration;

use serde_json::json;
use sharestream_base::Env;
use sharestream_checkpoints::JobKey;
use sharestream_client::Client;
use sharestream_core::commit::AckMode;
use sharestream_kafka::check::{self, Area, Finding, Report, Weight};

use super::topic::client_config;
use crate::args::check::CheckArgs;
use crate::exit::Exit;
use crate::failure::{self, Refused};
use crate::job_file::{self, Brokers, JobFile};
use crate::registry::{self, Purpose};
use crate::signals::StopSignals;
use crate::{output, settings, transform};

/// Longest time for one question to the brokers: a person is waiting.
const QUESTION_MAX: Duration = Duration::from_secs(10);
/// As `run` has it without arguments; no finding depends on it.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// Checks and prints. Exit: nothing is refused, or something is.
pub(crate) async fn run(env: Env, args: CheckArgs) -> anyhow::Result<Exit> {
    let mut signals = StopSignals::listen()?;
    let checked = match check(&env, &args, &mut signals).await {
        Ok(Some(checked)) => checked,
        Ok(None) => return Ok(Exit::Interrupted),
        Err(error) => {
            if args.json {
                let failure = failure::judge(&error);
                let body = json!({ "error": failure.message, "hint": failure.hint });
                output::line(&body.to_string());
            }
            return Err(error);
        }
    };
    if args.json {
        output::line(&as_json(&checked).to_string());
    } else {
        print(&checked);
    }
    let is_refused = checked.count(Weight::Refused) > 0;
    Ok(if is_refused { Exit::Usage } else { Exit::Done })
}

/// What was found out, the heaviest first.
struct Checked {
    job: JobFile,
    mode: Option<AckMode>,
    findings: Vec<Finding>,
}

impl Checked {
    fn count(&self, weight: Weight) -> usize {
        self.findings.iter().filter(|finding| finding.weight == weight).count()
    }
}

/// `None`: interrupted.
async fn check(env: &Env, args: &CheckArgs, signals: &mut StopSignals) -> anyhow::Result<Option<Checked>> {
    let mut job = job_file::load(&args.job, &args.overrides.set)?;
    settings::apply(&mut job, &args.overrides);
    let client = tokio::select! {
        client = connect(env, &job) => client?,
        () = signals.next() => return Ok(None),
    };
    let schemas = tokio::select! {
        settled = Box::pin(registry::settle(&mut job, &env.clock, Purpose::Check)) => settled.map(drop),
        () = signals.next() => return Ok(None),
    };
    let key = JobKey::new(&job.job, &job.instance);
    let mut store = Box::pin(check::store(env, job.checkpoint.store.as_ref(), &key));
    let of_store = tokio::select! {
        findings = &mut store => findings,
        () = signals.next() => {
            // It takes its object away again; who interrupts twice does not wait for that.
            tokio::select! {
                _findings = &mut store => {}
                () = signals.next() => {}
            }
            return Ok(None);
        }
    };
    drop(store);
    let of_brokers = tokio::select! {
        report = Box::pin(ask_brokers(&job, &client)) => report,
        () = signals.next() => return Ok(None),
    };
    let Report { mode, findings: of_brokers, .. } = of_brokers;
    let mut findings = match schemas {
        Ok(()) => plan(env, &job, &client).await,
        Err(error) => {
            let message = format!("{error:#}").trim().to_owned();
            vec![Finding::new(Area::Job, "schemas", Weight::Refused, message, "")]
        }
    };
    findings.extend(of_brokers);
    findings.extend(of_store);
    // Within a weight as they were looked at.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    Ok(Some(Checked { job, mode, findings }))
}

async fn connect(env: &Env, job: &JobFile) -> anyhow::Result<Client> {
    let Brokers::Addresses(bootstrap) = &job.source.brokers else {
        let text = "the brokers of this job live only as long as its run; name others with --brokers";
        return Err(Refused::error(text.to_owned()));
    };
    let config = client_config(bootstrap, job.source.security.clone())
        .with_request_timeout(QUESTION_MAX)
        .with_operation_timeout(QUESTION_MAX);
    Ok(Client::connect(env.clone(), config).await?)
}

async fn ask_brokers(job: &JobFile, client: &Client) -> Report {
    let mut config = settings::kafka_config(job, &client.config().bootstrap, None);
    config.outcome_replication_factor = settings::outcome_replicas(client.admin().node_count());
    let options = settings::job_options(job, DRAIN_MAX);
    check::job(client, &config, &options, job.sink.partitions).await
}

/// Faults that show when the SQL is planned and the calls are made ready; the rest of the job is looked at all the same.
async fn plan(env: &Env, job: &JobFile, client: &Client) -> Vec<Finding> {
    let new = |name, weight, message: String| Finding::new(Area::Job, name, weight, message, "");
    let plan = match transform::plan(job) {
        Ok(plan) => plan,
        Err(error) => return vec![new("plan", Weight::Refused, format!("{error:#}").trim().to_owned())],
    };
    let what = if job.transform.is_some() { "the SQL is planned" } else { "there is no SQL" };
    let columns: Vec<&str> = plan.output.fields().iter().map(|field| field.name().as_str()).collect();
    let columns = columns.into_iter().filter(|name| !name.starts_with('_')).collect::<Vec<_>>().join(", ");
    let mut findings = vec![new("plan", Weight::Ok, format!("{what}; the sink gets {columns}"))];
    let cluster_id = client.cluster_id();
    match transform::calls(job, &plan, cluster_id.as_deref(), &env.clock).await {
        Ok(calls) if calls.is_empty() => {}
        Ok(_) => {
            let message = "whether the services of [[http]] answer: a call may have effects";
            findings.push(new("calls", Weight::NotChecked, message.to_owned()));
        }
        Err(error) => findings.push(new("calls", Weight::Refused, error.to_string())),
    }
    findings
}

fn print(checked: &Checked) {
    let rows = checked.findings.iter().map(|finding| {
        let Finding { area, weight, message, fix, .. } = finding;
        vec![area.name().to_owned(), weight.name().to_owned(), message.clone(), fix.clone()]
    });
    output::line(&output::wrapped_table(&["area", "weight", "finding", "what to do"], rows.collect()));
    let counts = [
        (Weight::Refused, "refused"),
        (Weight::Warning, "warnings"),
        (Weight::NotChecked, "not checked"),
        (Weight::Hint, "hints"),
        (Weight::Ok, "ok"),
    ];
    let counts = counts.map(|(weight, word)| format!("{word} {}", checked.count(weight))).join(", ");
    let job = &checked.job;
    let verdict = match (checked.count(Weight::Refused), checked.mode) {
        (0, Some(mode)) => format!("may run in {} mode", mode_name(mode)),
        _ => "cannot run like this".to_owned(),
    };
    output::line(&format!("{counts}: {}/{} {verdict}", job.job, job.instance));
}

fn mode_name(mode: AckMode) -> &'static str {
    match mode {
        AckMode::Transactional => "transactional",
        AckMode::Ledger => "ledger",
        AckMode::AtLeastOnce => "at-least-once",
    }
}

fn as_json(checked: &Checked) -> serde_json::Value {
    let findings = checked.findings.iter().map(|finding| {
        json!({
            "area": finding.area.name(), "name": finding.name, "weight": finding.weight.name(),
            "message": finding.message, "fix": finding.fix,
        })
    });
    let findings: Vec<serde_json::Value> = findings.collect();
    json!({
        "job": checked.job.job, "instance": checked.job.instance, "mode": checked.mode.map(mode_name),
        "refused": checked.count(Weight::Refused), "warnings": checked.count(Weight::Warning),
        "not_checked": checked.count(Weight::NotChecked), "findings": findings,
    })
}
