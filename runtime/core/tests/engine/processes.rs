//! One job as three parts that know each other by connections only: sources, sinks, coordinator. Each is lost at every
//! step of a commit.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use object_store::memory::InMemory;
use sharestream_base::{CancellationToken, HostPort, OwnedTask, TaskKind};
use sharestream_checkpoints::{CheckpointStore, JobKey};
use sharestream_core::commit::CommitStep;
use sharestream_core::remote::{
    ConnectorLink, Outbox, Role, WorkerEnd, WorkerIdentity, WorkerOptions, Workers, run_worker,
};
use sharestream_core::{
    Error, ErrorKind, JobControl, JobEnd, JobId, JobOptions, JobState, JobStatus, RestartOptions, Result,
    StepHook, Supervisor,
};

use crate::fixtures::{Fault, PartFault, Setup};
use crate::state::{self, COUNT};

const PARTITIONS: usize = 3;
const RECORDS: i64 = 90;

/// The producer epoch of one process: what the fakes have for transaction identities.
#[derive(Clone, Default)]
struct Incarnation(Arc<AtomicU64>);

#[async_trait]
impl ConnectorLink for Incarnation {
    fn opening(&self, _role: Role) -> Result<Vec<u8>> {
        Ok(self.0.load(Ordering::SeqCst).to_be_bytes().to_vec())
    }

    async fn open(&self, _role: Role, opening: &[u8]) -> Result<()> {
        let bytes =
            opening.try_into().map_err(|_| Error::new(ErrorKind::Bug, "eight bytes are an incarnation"))?;
        self.0.store(u64::from_be_bytes(bytes), Ordering::SeqCst);
        Ok(())
    }

    fn attach(&self, _outbox: Outbox) {}

    fn receive(&self, _message: &[u8]) -> Result<()> {
        Err(Error::new(ErrorKind::Bug, "these parts say nothing to each other"))
    }
}

fn identity(definition: &str) -> WorkerIdentity {
    WorkerIdentity::of(JobId::new("test", "0"), &[definition])
}

/// The door of the coordinator; the port is the same for every process that has it after another.
async fn door(setup: &Setup) -> Workers {
    let address = HostPort::new("coordinator", 7_000);
    loop {
        match Workers::listen(&setup.env, &address, identity("job")).await {
            Ok(workers) => return workers,
            // The process before is not quite gone.
            Err(_) => setup.env.clock.sleep(Duration::from_millis(1)).await,
        }
    }
}

fn options(role: Role, definition: &str) -> WorkerOptions {
    WorkerOptions {
        role,
        identity: identity(definition),
        coordinator: HostPort::new("coordinator", 7_000),
        listen: HostPort::new("sinks", 0),
        advertised_host: None,
        patience: Duration::from_secs(30),
    }
}

/// A worker process: aborted, nothing of it is left.
type Process = OwnedTask<Result<WorkerEnd>>;

fn start(setup: &Setup, role: Role) -> Process {
    let (worker, env) = (setup.clone(), setup.env.clone());
    let work = async move {
        let link = Incarnation::default();
        let factory =
            move |_attempt: u64| worker.builder_of(link.0.clone()).link(Arc::new(link.clone())).build();
        run_worker(env, options(role, "job"), factory, CancellationToken::new()).await
    };
    OwnedTask::spawn(&setup.env.spawner, format!("{role} process"), TaskKind::Job, work)
}

/// Both worker processes, either of which may be lost.
#[derive(Clone)]
struct Machine {
    setup: Setup,
    processes: Arc<Mutex<Vec<(Role, Process)>>>,
}

impl Machine {
    fn new(setup: &Setup) -> Self {
        let processes = [Role::Sources, Role::Sinks].map(|role| (role, start(setup, role)));
        Machine { setup: setup.clone(), processes: Arc::new(Mutex::new(processes.into())) }
    }

    /// Kills the process of this role and starts another.
    fn kill(&self, role: Role) {
        let mut processes = self.processes.lock().unwrap();
        for (of, process) in processes.iter_mut().filter(|(of, _)| *of == role) {
            process.abort();
            *process = start(&self.setup, *of);
        }
    }

    /// Kills the process of this role for good.
    fn lose(&self, role: Role) {
        self.processes.lock().unwrap().retain(|(of, _)| *of != role);
    }

    /// Both hear of the end of the job, and end.
    async fn ended(&self) {
        let processes = std::mem::take(&mut *self.processes.lock().unwrap());
        for (role, mut process) in processes {
            assert_eq!(process.join().await.unwrap().unwrap().unwrap(), WorkerEnd::JobEnded, "{role}");
        }
    }
}

fn assert_complete(setup: &Setup) {
    assert!(setup.broker.all_decided(), "something was never processed");
    setup.broker.assert_exactly_once();
    assert_eq!(setup.broker.open_count(), 0, "a transaction was left open");
}

async fn with_store(mut setup: Setup) -> Setup {
    let objects = Arc::new(InMemory::new());
    setup.store = Some(CheckpointStore::open(objects, JobKey::new("test", "0")).await.unwrap());
    setup
}

/// Runs the coordinator under a supervisor until everything is processed. `hook`: beside that of the setup.
async fn coordinate(setup: &Setup, hook: StepHook) -> JobStatus {
    let workers = door(setup).await;
    let control = JobControl::new();
    let (factory, door) = (setup.clone(), workers.clone());
    let link = Incarnation::default();
    let build = move |_attempt: u64| {
        let builder = factory.builder_of(link.0.clone()).link(Arc::new(link.clone())).workers(door.clone());
        builder.step_hook(hook.clone()).build()
    };
    let options = RestartOptions::default().with_attempts_without_commit_max(20);
    let run = Supervisor::new(build, options).run(setup.env.clone(), control.clone());
    let (report, ()) = tokio::join!(run, drain_when_done(setup, &control));
    let report = report.unwrap();
    assert_eq!(report.end, JobEnd::Drained);
    workers.end(Duration::from_secs(5)).await;
    report.status
}

/// As that of the setup, looking less often: what is waited for here are other processes.
async fn drain_when_done(setup: &Setup, control: &JobControl) {
    while !setup.broker.all_decided() || control.status().borrow().state != JobState::Running {
        setup.env.clock.sleep(Duration::from_millis(5)).await;
    }
    control.drain();
}

fn no_hook() -> StepHook {
    Arc::new(|_, _| {})
}

#[tokio::test(start_paused = true)]
async fn without_faults_three_processes_count_as_one_does() {
    let setup = with_store(Setup::new(PARTITIONS, RECORDS)).await;
    let machine = Machine::new(&setup);
    let status = coordinate(&setup, no_hook()).await;
    machine.ended().await;
    assert_complete(&setup);
    assert_eq!(status.attempts, 1, "{:?}", status.last_error);
    assert_eq!(status.rows_out, setup.broker.output_count() as u64);
    assert_eq!(status.records_in, status.rows_out + status.dead_letters + status.filtered);
    assert_eq!(status.commits, setup.broker.commit_count() as u64);
    assert!(status.dead_letters > 0 && status.filtered > 0 && status.commits > 3, "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_lost_at_any_step_of_a_commit_costs_nothing() {
    for step in CommitStep::ALL {
        for role in [Role::Sources, Role::Sinks] {
            let setup = with_store(Setup::new(PARTITIONS, RECORDS)).await;
            let machine = Machine::new(&setup);
            let (killer, seen) = (machine.clone(), AtomicU32::new(0));
            let killed = Arc::new(AtomicU32::new(0));
            let count = killed.clone();
            let hook: StepHook = Arc::new(move |_, reached| {
                if reached == step && [1, 3].contains(&seen.fetch_add(1, Ordering::SeqCst)) {
                    count.fetch_add(1, Ordering::SeqCst);
                    killer.kill(role);
                }
            });
            let status = coordinate(&setup, hook).await;
            machine.ended().await;
            assert_complete(&setup);
            // The protocol of the fixtures has its own hook for this one, which only plans faults.
            let is_told = step != CommitStep::DuringEndTxn && step != CommitStep::BetweenStagedLeaders;
            if is_told {
                assert_eq!(killed.load(Ordering::SeqCst), 2, "{step:?} {role}");
                assert!(status.attempts > 1, "{step:?} {role}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn state_is_kept_and_restored_where_the_operators_are() {
    for role in [Role::Sources, Role::Sinks] {
        let (setup, _objects) = state::setup().await;
        let machine = Machine::new(&setup);
        let (killer, seen) = (machine.clone(), AtomicU32::new(0));
        let hook: StepHook = Arc::new(move |_, reached| {
            let steps = [CommitStep::AfterManifest, CommitStep::AfterStaging, CommitStep::BeforeEndTxn];
            if steps.contains(&reached) && [2, 6, 9].contains(&seen.fetch_add(1, Ordering::SeqCst)) {
                killer.kill(role);
            }
        });
        let status = coordinate(&setup, hook).await;
        machine.ended().await;
        assert_complete(&setup);
        assert!(status.attempts > 1, "{role}");
        assert_eq!(state::counts(&setup, &COUNT).await, state::expected(), "{role}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_lost_at_any_step_of_a_commit_costs_nothing() {
    for step in CommitStep::ALL {
        // Only one step has a request under way.
        let reaching = if step == CommitStep::DuringEndTxn { &[false, true][..] } else { &[false] };
        for reaches_broker in reaching.iter().copied() {
            let setup = with_store(Setup::new(PARTITIONS, RECORDS)).await;
            let machine = Machine::new(&setup);
            setup.faults.plan(step, Fault::Crash, 1, reaches_broker);
            setup.faults.plan(step, Fault::Crash, 0, reaches_broker);
            let mut crashes = 0;
            loop {
                // Each time another process: nothing but the checkpoint store and the brokers is kept.
                let workers = door(&setup).await;
                let control = JobControl::new();
                let link = Incarnation::default();
                let builder = setup.builder_of(link.0.clone()).link(Arc::new(link)).workers(workers.clone());
                let run = builder.build().unwrap().run(setup.env.clone(), control.clone());
                let ended = tokio::select! {
                    ended = run => ended,
                    () = async { drain_when_done(&setup, &control).await; std::future::pending().await } => unreachable!(),
                };
                setup.broker.assert_exactly_once();
                match ended {
                    Ok(_) => {
                        workers.end(Duration::from_secs(5)).await;
                        break;
                    }
                    Err(error) => assert!(error.to_string().contains("planned"), "{error}"),
                }
                crashes += 1;
            }
            machine.ended().await;
            assert_complete(&setup);
            assert_eq!(crashes, 2, "{step:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_part_keeps_its_kind_over_the_connection() {
    let setup = Setup::new(PARTITIONS, RECORDS);
    for (fault, after) in [
        (PartFault::SourceError(ErrorKind::Abort), 9),
        (PartFault::SinkError(ErrorKind::Retry), 3),
        (PartFault::SinkError(ErrorKind::Indeterminate), 5),
    ] {
        setup.part_faults.plan(fault, after);
    }
    let machine = Machine::new(&setup);
    let status = coordinate(&setup, no_hook()).await;
    machine.ended().await;
    assert_complete(&setup);
    assert!(!setup.part_faults.are_left());
    assert_eq!(status.attempts, 4);
    let setup = Setup::new(PARTITIONS, RECORDS);
    setup.part_faults.plan(PartFault::OperatorPanic, 2);
    let _machine = Machine::new(&setup);
    let workers = door(&setup).await;
    let link = Incarnation::default();
    let builder = setup.builder_of(link.0.clone()).link(Arc::new(link)).workers(workers);
    let error = builder.build().unwrap().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
    assert!(error.to_string().contains("planned panic"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_second_worker_of_a_role_takes_over() {
    for role in [Role::Sources, Role::Sinks] {
        let setup = Setup::new(PARTITIONS, RECORDS);
        let machine = Machine::new(&setup);
        // Comes when the first attempt runs with the other one.
        let standby: Arc<Mutex<Option<Process>>> = Arc::default();
        let (killer, second, comes, seen) =
            (machine.clone(), setup.clone(), standby.clone(), AtomicU32::new(0));
        let hook: StepHook = Arc::new(move |_, reached| {
            if reached == CommitStep::AfterOutcome {
                match seen.fetch_add(1, Ordering::SeqCst) {
                    0 => *comes.lock().unwrap() = Some(start(&second, role)),
                    2 => killer.lose(role),
                    _ => {}
                }
            }
        });
        let status = coordinate(&setup, hook).await;
        let mut standby = standby.lock().unwrap().take().unwrap();
        assert_eq!(standby.join().await.unwrap().unwrap().unwrap(), WorkerEnd::JobEnded);
        machine.ended().await;
        assert_complete(&setup);
        assert_eq!(status.attempts, 2, "{role}: {:?}", status.last_error);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_another_job_or_definition_is_refused() {
    let setup = Setup::new(PARTITIONS, RECORDS);
    let _workers = door(&setup).await;
    let factory = |_attempt: u64| Err(Error::new(ErrorKind::Bug, "it is never asked"));
    let token = CancellationToken::new;
    let other = options(Role::Sources, "another job file");
    let error = run_worker(setup.env.clone(), other, factory, token()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("job file"), "{error}");
    let mut other = options(Role::Sources, "job");
    other.identity.id = JobId::new("test", "1");
    let error = run_worker(setup.env.clone(), other, factory, token()).await.unwrap_err();
    assert!(error.to_string().contains("test/1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_missing_is_waited_for_and_named() {
    let mut setup = Setup::new(PARTITIONS, RECORDS);
    setup.options = JobOptions::default().with_connect_deadline(Duration::from_secs(10));
    let workers = door(&setup).await;
    let _sources = start(&setup, Role::Sources);
    let builder = setup.builder().link(Arc::new(Incarnation::default())).workers(workers.clone());
    let error = builder.build().unwrap().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert!(error.to_string().contains("no sinks worker"), "{error}");
    drop(workers);
    let error = {
        let factory = |_attempt: u64| Err(Error::new(ErrorKind::Bug, "it is never asked"));
        let mut alone = options(Role::Sinks, "job");
        alone.coordinator = HostPort::new("nobody", 1);
        run_worker(setup.env.clone(), alone, factory, CancellationToken::new()).await.unwrap_err()
    };
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert!(error.to_string().contains("no coordinator"), "{error}");
}
