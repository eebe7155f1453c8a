//! `sharestream run --role`: one job in three processes.

use std::time::Duration;

use sharestream_base::{CancellationToken, Env, HostPort};
use sharestream_core::JobId;
use sharestream_core::remote::{
    Role, WorkerEnd, WorkerIdentity, WorkerOptions, Workers, run_worker as serve,
};
use sharestream_kafka::formats::{Format, OutputFormat};

use super::run::{Prepared, prepare};
use crate::args::RunArgs;
use crate::args::processes::{ProcessArgs, RunRole};
use crate::exit::Exit;
use crate::failure::{self, Refused};
use crate::job_file::{Brokers, JobFile};
use crate::output::{Reporter, Style};
use crate::signals::{StopSignals, parent_gone};

/// Longest wait for workers that have not heard that the job has ended.
pub(super) const FAREWELL_MAX: Duration = Duration::from_secs(3);

/// What this process does for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Everything.
    Whole,
    Coordinator,
    Worker(Role),
}

impl Place {
    /// As the command line says. Errors: settings that do not go together, all of them.
    pub(super) fn of(args: &RunArgs, job: &JobFile) -> anyhow::Result<Place> {
        let ProcessArgs { role, listen, coordinator, advertise, .. } = &args.processes;
        let Some(role) = role else { return Ok(Place::Whole) };
        let mut faults = Vec::new();
        let mut check = |is_fault: bool, text: &str| {
            if is_fault {
                faults.push(text.to_owned());
            }
        };
        let is_worker = *role != RunRole::Coordinator;
        check(
            job.source.brokers == Brokers::Embedded,
            "three processes need brokers that all of them reach: set source.brokers to addresses",
        );
        check(
            !is_worker && listen.is_none(),
            "a coordinator needs --listen HOST:PORT, where workers come to",
        );
        check(!is_worker && coordinator.is_some(), "--coordinator is for workers; this is the coordinator");
        check(is_worker && coordinator.is_none(), "a worker needs --coordinator HOST:PORT");
        check(
            *role == RunRole::Sources && listen.is_some(),
            "--listen is not for the role sources: nobody connects to it",
        );
        check(*role != RunRole::Sinks && advertise.is_some(), "--advertise is for the role sinks");
        check(
            is_worker && args.until_caught_up,
            "--until-caught-up is for the coordinator: workers end with it",
        );
        check(is_worker && args.metrics_listen.is_some(), "metrics are served by the coordinator");
        check(
            is_worker && (args.crash_at.is_some() || args.pause_at.is_some()),
            "steps of a commit are taken by the coordinator",
        );
        check(
            job.checkpoint.store.as_ref().is_some_and(|store| store.is_memory()),
            "three processes cannot share checkpoints that are kept in memory: set checkpoint.store to a folder or a bucket",
        );
        if !faults.is_empty() {
            return Err(Refused::error(faults.join("; ")));
        }
        Ok(match role {
            RunRole::Coordinator => Place::Coordinator,
            RunRole::Sources => Place::Worker(Role::Sources),
            RunRole::Sinks => Place::Worker(Role::Sinks),
        })
    }
}

/// What all three must agree on: the job file, what the command line sets in it, the mode, and the schemas that files and
/// registries gave.
fn identity(job: &JobFile) -> WorkerIdentity {
    let mode = format!("{:?}", job.ack_mode);
    let has_store = format!("{}", job.checkpoint.store.is_some());
    let schemas = match (&job.source.format, &job.sink.format) {
        (Format::Avro(_), _) | (_, OutputFormat::Avro(_)) => {
            format!("{:?}, {:?}", job.source.format, job.sink.format)
        }
        _ => String::new(),
    };
    WorkerIdentity::of(JobId::new(&job.job, &job.instance), &[&job.text, &mode, &has_store, &schemas])
}

/// The coordinator's door.
pub(super) async fn listen(env: &Env, job: &JobFile, args: &RunArgs) -> anyhow::Result<Workers> {
    // `Place::of` has seen that it is there.
    let address = args.processes.listen.clone().unwrap_or_else(any_port);
    Ok(Workers::listen(env, &address, identity(job)).await?)
}

fn any_port() -> HostPort {
    HostPort::new("127.0.0.1", 0)
}

/// Serves the coordinator until the job ends or this process is told to.
pub(super) async fn run_worker(
    env: Env,
    mut job: JobFile,
    args: RunArgs,
    role: Role,
    mut signals: StopSignals,
) -> anyhow::Result<Exit> {
    let mut reporter = Reporter::new(Style::choose(args.json), env.clock.clone());
    let (parent, _watch) = if args.with_parent {
        let (token, watch) = parent_gone();
        (token, Some(watch))
    } else {
        (CancellationToken::new(), None)
    };
    let prepared = tokio::select! {
        prepared = prepare(&env, &mut job, &args, &mut reporter, None) => prepared,
        () = signals.next() => return Ok(Exit::Done),
    };
    let result = match prepared {
        Ok(Prepared { attempts, .. }) => {
            let options = WorkerOptions {
                role,
                identity: identity(&job),
                coordinator: args.processes.coordinator.clone().unwrap_or_else(any_port),
                listen: args.processes.listen.clone().unwrap_or_else(any_port),
                advertised_host: args.processes.advertise.clone(),
                patience: Duration::from_secs(args.processes.coordinator_wait),
            };
            let stop = CancellationToken::new();
            let mut serving = Box::pin(serve(env, options, attempts, stop.clone()));
            loop {
                tokio::select! {
                    biased;
                    ended = &mut serving => break ended.map_err(anyhow::Error::from),
                    () = parent.cancelled() => return Ok(Exit::Interrupted),
                    () = signals.next() => {
                        if stop.is_cancelled() {
                            return Ok(Exit::Interrupted);
                        }
                        reporter.note("giving back what is held; interrupt again to stop at once");
                        stop.cancel();
                    }
                }
            }
        }
        Err(error) => Err(error),
    };
    match result {
        Ok(WorkerEnd::JobEnded) => {
            reporter.note("the job has ended");
            Ok(Exit::Done)
        }
        Ok(WorkerEnd::Stopped) => Ok(Exit::Done),
        Err(error) => {
            reporter.failed(&failure::judge(&error));
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn place(arguments: &[&str], settings: &[&str]) -> Result<Place, String> {
        let all = ["sharestream", "run", "job.toml"].iter().chain(arguments);
        let Command::Run(args) = Cli::try_parse_from(all).unwrap().command else {
            panic!("run was asked for")
        };
        let text = include_str!("../../../../examples/flights/job.toml");
        let text = &text.replace("directory = \"checkpoints\"", "");
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let job = crate::job_file::parse("job.toml".as_ref(), text, &settings).unwrap();
        Place::of(&args, &job).map_err(|error| error.to_string())
    }

    #[test]
    fn roles_need_what_they_need_and_nothing_else() {
        let brokers = &["source.brokers=localhost:9092"][..];
        assert_eq!(place(&[], brokers), Ok(Place::Whole));
        let coordinator = ["--role", "coordinator", "--listen", "localhost:0"];
        assert_eq!(place(&coordinator, brokers), Ok(Place::Coordinator));
        let sinks =
            ["--role", "sinks", "--coordinator", "localhost:1", "--listen", "0.0.0.0:7", "--advertise", "me"];
        assert_eq!(place(&sinks, brokers), Ok(Place::Worker(Role::Sinks)));
        let sources = ["--role", "sources", "--coordinator", "localhost:1"];
        assert_eq!(place(&sources, brokers), Ok(Place::Worker(Role::Sources)));
        for (arguments, settings, fault) in [
            (&["--role", "coordinator"][..], brokers, "needs --listen"),
            (&["--role", "sinks"], brokers, "needs --coordinator"),
            (
                &["--role", "sources", "--coordinator", "a:1", "--listen", "a:2"],
                brokers,
                "--listen is not for",
            ),
            (
                &["--role", "sources", "--coordinator", "a:1", "--advertise", "a"],
                brokers,
                "--advertise is for",
            ),
            (&["--role", "sinks", "--coordinator", "a:1", "--until-caught-up"], brokers, "--until-caught-up"),
            (&["--role", "sinks", "--coordinator", "a:1", "--metrics-listen", "a:1"], brokers, "metrics"),
            (&["--role", "sinks", "--coordinator", "a:1", "--pause-at", "after_staging"], brokers, "steps"),
            (&coordinator, &["source.brokers=embedded"], "source.brokers"),
        ] {
            let refused = place(arguments, settings).unwrap_err();
            assert!(refused.contains(fault), "{arguments:?}: {refused}");
        }
        let memory = ["source.brokers=a:1", "checkpoint.store=memory://"];
        assert!(place(&coordinator, &memory).unwrap_err().contains("in memory"));
        let both = place(&["--role", "coordinator", "--coordinator", "a:1"], brokers).unwrap_err();
        assert!(both.contains("--listen") && both.contains("--coordinator is for"), "every fault: {both}");
    }
}
