//! `sharestream checkpoint verify`: the store against itself, and against the outcome topic.

use anyhow::Context;
use serde_json::json;
use sharestream_base::Env;
use sharestream_base::HostPort;
use sharestream_checkpoints::decide::{LastCommitted, Outcomes};
use sharestream_checkpoints::{ErrorKind, Inspection, JobKey};
use sharestream_client::{Client, SecuritySettings};
use sharestream_kafka::outcome::{JudgedOutcome, OutcomeLog, Verdict, outcome_partition, read_outcomes};

use super::super::topic::client_config;
use super::Looked;
use crate::args::checkpoints::CheckpointVerifyArgs;
use crate::exit::Exit;
use crate::failure::Refused;
use crate::job_file::{Brokers, JobFile};
use crate::output;

/// Outcome topic of jobs that name none.
const OUTCOME_TOPIC: &str = "sharestream.outcomes";

/// Where the outcomes are.
struct LogPlace {
    brokers: Vec<HostPort>,
    security: SecuritySettings,
    topic: String,
    group: String,
}

/// What was found.
#[derive(Default)]
struct Findings {
    faults: Vec<String>,
    notes: Vec<String>,
}

/// Checks and prints. Exit: right, faults, or could not check.
pub(super) async fn run(env: Env, args: CheckpointVerifyArgs) -> anyhow::Result<Exit> {
    let looked = Looked::at(&args.store).await?;
    let place = log_place(&args, looked.job.as_ref())?;
    // The log first: what is committed meanwhile is then in neither, or in the store only, and is told apart.
    let key = looked.store.key().clone();
    let before = match &place {
        Some(place) => Some(read_log(&env, place, &key).await?),
        None => None,
    };
    let seen = looked.inspect().await?;
    looked.refuse_empty(&seen).await?;
    let mut findings = Findings::default();
    let faults = seen.faults().into_iter().chain(seen.state_faults(&looked.store).await?);
    findings.faults.extend(faults.map(|fault| fault.what));
    let committed = match (&place, before) {
        (Some(place), Some(before)) => {
            let after = read_log(&env, place, &key).await?;
            against_log(&seen, &before, &after, &mut findings)
        }
        _ => {
            findings
                .notes
                .push("the outcome topic was not read: what is pending may be committed or not".to_owned());
            None
        }
    };
    report(&seen, &findings, committed, args.json);
    Ok(if findings.faults.is_empty() { Exit::Done } else { Exit::Failed })
}

/// Where to read outcomes; `None` when only the store is looked at.
fn log_place(args: &CheckpointVerifyArgs, job: Option<&JobFile>) -> anyhow::Result<Option<LogPlace>> {
    if args.store_only {
        return Ok(None);
    }
    let security = match (args.command_config.given(), job) {
        (Some(given), _) => given.clone(),
        (None, Some(job)) => job.source.security.clone(),
        (None, None) => SecuritySettings::default(),
    };
    let Some(job) = job else {
        return match (&args.group, args.brokers.is_empty()) {
            (_, true) => Ok(None),
            (None, false) => Err(Refused::error(
                "--brokers without a job file needs --group: it says which partition of the outcome topic is the job's"
                    .to_owned(),
            )),
            (Some(group), false) => Ok(Some(LogPlace {
                brokers: args.brokers.clone(),
                security,
                topic: args.outcome_topic.clone().unwrap_or_else(|| OUTCOME_TOPIC.to_owned()),
                group: group.clone(),
            })),
        };
    };
    let brokers = match (&job.source.brokers, args.brokers.is_empty()) {
        (_, false) => args.brokers.clone(),
        (Brokers::Addresses(addresses), true) => addresses.clone(),
        (Brokers::Embedded, true) => return Ok(None),
    };
    let topic = job.outcome_topic.clone().unwrap_or_else(|| OUTCOME_TOPIC.to_owned());
    Ok(Some(LogPlace { brokers, security, topic, group: job.source.group.clone() }))
}

/// The instance's outcomes, in order, and the topic's id.
struct Log {
    topic: sharestream_base::ids::TopicId,
    outcomes: Vec<JudgedOutcome>,
}

async fn read_log(env: &Env, place: &LogPlace, key: &JobKey) -> anyhow::Result<Log> {
    let config = client_config(&place.brokers, place.security.clone());
    let client = Client::connect(env.clone(), config).await?;
    let read = async {
        let topic = client.topic(&place.topic).await?;
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let mut log = OutcomeLog::of(&key.job, &key.instance);
        read_outcomes(&client, &place.topic, outcome_partition(&place.group, count), &mut log).await?;
        anyhow::Ok(Log { topic: topic.topic_id, outcomes: log.into_outcomes() })
    };
    read.await.with_context(|| {
        format!("cannot read the outcome topic {} (--store-only leaves it out)", place.topic)
    })
}

impl Log {
    fn committed(&self) -> impl Iterator<Item = &JudgedOutcome> {
        self.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Committed)
    }

    /// As a start reads it.
    fn outcomes(&self) -> Outcomes {
        let last_committed = self.committed().last().map(|outcome| LastCommitted {
            checkpoint: outcome.record.checkpoint,
            manifest: outcome.record.manifest.clone(),
        });
        let highest_seen = self.outcomes.iter().map(|outcome| outcome.record.checkpoint).max();
        Outcomes { topic_id: Some(self.topic), last_committed, highest_seen }
    }
}

/// Holds what is stored against what is committed. Returns the last committed checkpoint.
fn against_log(seen: &Inspection, before: &Log, after: &Log, findings: &mut Findings) -> Option<u64> {
    for outcome in after.committed() {
        let Some(named) = &outcome.record.manifest else { continue };
        let stored = seen.checkpoints.iter().find(|one| one.stored.name == named.name);
        if let Some(Ok((stored, _))) = stored.map(|one| &one.manifest)
            && stored.sha256 != named.sha256
        {
            findings.faults.push(format!(
                "manifest {} has sha256 {}, its committed outcome at offset {} says {}",
                named.name, stored.sha256, outcome.offset, named.sha256
            ));
        }
    }
    // A running job commits while we look: what the store held must fit the log of before, of after, or of between.
    let mut logs = vec![before.outcomes()];
    let last = |outcomes: &Outcomes| outcomes.last_committed.as_ref().map(|last| last.checkpoint);
    let known = last(&logs[0]);
    for outcome in after.committed().filter(|outcome| Some(outcome.record.checkpoint) > known) {
        let manifest = outcome.record.manifest.clone();
        let last_committed = Some(LastCommitted { checkpoint: outcome.record.checkpoint, manifest });
        logs.push(Outcomes { last_committed, ..after.outcomes() });
    }
    let is_running = logs.len() > 1 || after.outcomes.iter().any(|outcome| outcome.verdict == Verdict::Open);
    if is_running {
        findings.notes.push("the job commits while its checkpoints are looked at".to_owned());
    }
    let mut refusal = None;
    for outcomes in logs {
        match seen.recovery(outcomes) {
            Ok(decision) => {
                if let Some(manifest_ref) = decision.complete {
                    findings
                        .notes
                        .push(format!("{} is committed; its completion is not noted yet", manifest_ref.name));
                }
                for name in decision.delete {
                    findings
                        .notes
                        .push(format!("{name} is not committed, or left over: the next start deletes it"));
                }
                refusal = None;
                break;
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => refusal = Some(error.to_string()),
            Err(error) => refusal = Some(format!("what a start would do cannot be told: {error}")),
        }
    }
    if let Some(why) = refusal {
        findings.faults.push(format!("the job would not start: {why}"));
    }
    last(&after.outcomes()).map(|id| id.0)
}

fn report(seen: &Inspection, findings: &Findings, committed: Option<u64>, json: bool) {
    let is_right = findings.faults.is_empty();
    if json {
        let body = json!({
            "right": is_right, "checkpoints": seen.checkpoints.len(), "owners": seen.owners.len(),
            "last_completed": seen.last_completed().map(|one| one.stored.id.0), "last_committed": committed,
            "faults": findings.faults, "notes": findings.notes,
        });
        output::line(&body.to_string());
        return;
    }
    for note in &findings.notes {
        output::line(&format!("note: {note}"));
    }
    for fault in &findings.faults {
        output::line(&format!("fault: {fault}"));
    }
    let last = seen.last_completed().map_or_else(|| "none".to_owned(), |one| one.stored.id.to_string());
    let log = committed.map_or_else(String::new, |id| format!(", last committed {id}"));
    let verdict = if is_right { "right" } else { "DAMAGED" };
    output::line(&format!("{verdict}: {} checkpoints, last completed {last}{log}", seen.checkpoints.len()));
}
