//! One run of one plan: everything in one thread, on virtual time.
//!
//! ```text
//! set up -> busy (records come, faults happen) -> faults end -> settle (everything decided?) -> drain -> check
//! ```

mod faults;
mod nodes;
mod parts;
mod reset;
mod settle;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sharestream_base::planted::{self, Bug};
use sharestream_base::{CancellationToken, Clock, Env, Instant, OwnedTask, Rng, Spawner, TaskKind};
use sharestream_client::{Client, ClientConfig, NewTopic};

use crate::check::{self, Finding};
use crate::loader::{Loaded, Loader};
use crate::network::Fabric;
use crate::panics;
use crate::plan::{LedgerPlan, Plan};
use crate::store::Bucket;
use crate::trace::{Event, Totals, Trace};
use crate::traps::Traps;
use crate::workload::{DEAD_LETTERS, OUTCOMES, OUTPUT, SOURCE};
use faults::Action;
use nodes::Nodes;
use reset::Resetting;
use workers::WorkerSlot;

/// 2026-01-01T00:00:00Z: any fixed day does.
const START_MS: i64 = 1_767_225_600_000;
/// How often the harness looks at its processes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Findings of the harness that are kept; what follows the first ones is their echo.
const FINDINGS_MAX: usize = 20;

/// How to run a plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Keep events, for a timeline.
    pub recording: bool,
    /// A bug to plant.
    pub bug: Option<Bug>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// What the checkers found; nothing, in a right run.
    pub findings: Vec<Finding>,
    /// What follows from a known limit.
    pub known: Vec<Finding>,
    /// Hash and counts of events.
    pub totals: Totals,
    /// Virtual time that passed.
    pub virtual_time: Duration,
    /// Faults that happened, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Committed epochs, over all incarnations that were seen to their end.
    pub counts: check::Counts,
    /// Events, when recorded.
    pub events: Vec<Event>,
    /// How often the run came to the place of the planted bug: one that it never came to cannot show.
    pub asked: u64,
}

/// Runs a plan in this thread.
pub fn run(plan: &Plan, options: RunOptions) -> RunReport {
    panics::watch(|| planted::with(options.bug, || run_on_virtual_time(plan, options)))
}

fn run_on_virtual_time(plan: &Plan, options: RunOptions) -> RunReport {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets needs nothing that can be missing");
    runtime.block_on(async {
        let world = World::new(plan.clone(), options);
        Box::pin(world.run()).await
    })
}

/// Everything of one run.
pub(crate) struct World {
    plan: Plan,
    clock: Clock,
    rng: Rng,
    trace: Trace,
    traps: Traps,
    fabric: Fabric,
    bucket: Bucket,
    nodes: Nodes,
    workers: Vec<WorkerSlot>,
    actions: BTreeMap<(Instant, u64), Action>,
    next_action: u64,
    next_process: u64,
    fault_counts: BTreeMap<&'static str, u64>,
    findings: Vec<Finding>,
    watch: check::Watch,
    statuses: check::StatusWatch,
    turns: check::TurnWatch,
    /// Replicas that start from now on run in transactional mode, after ledger mode.
    rolled_out: bool,
    resetting: Resetting,
    operator: Option<Client>,
    /// The faults are over: whoever looks after the job has removed what made it stop.
    is_settling: bool,
}

/// The outcome topic as its job creates it, but for segments so small, and deletions so quick, that compaction has
/// something to do within a run.
fn outcome_topic(ledger: &LedgerPlan) -> NewTopic {
    NewTopic::new(OUTCOMES, ledger.outcome_partitions)
        .with_config("cleanup.policy", "compact")
        .with_config("unclean.leader.election.enable", "false")
        .with_config("segment.bytes", ledger.segment_bytes.to_string())
        .with_config("delete.retention.ms", ledger.delete_retention.as_millis().to_string())
        .with_config("min.cleanable.dirty.ratio", "0")
        // What the harness has not seen is not compacted.
        .with_config("min.compaction.lag.ms", "1000")
}

impl World {
    fn new(plan: Plan, options: RunOptions) -> Self {
        let clock = Clock::simulated(START_MS);
        let rng = Rng::seeded(plan.seed).fork("run");
        let trace = Trace::new(&clock, options.recording);
        let traps = Traps::default();
        let fabric = Fabric::new(&clock, rng.fork("network"), trace.clone()).with_traps(traps.clone());
        let bucket = Bucket::new(&clock, rng.fork("store"), trace.clone());
        let workers =
            plan.workers.iter().enumerate().map(|(index, plan)| WorkerSlot::new(index, plan)).collect();
        let controller = Env {
            clock: clock.clone(),
            rng: rng.fork("controller"),
            network: fabric.attach("controller"),
            spawner: Spawner::system(),
        };
        World {
            nodes: World::build_nodes(controller, plan.nodes),
            clock,
            rng,
            trace,
            traps,
            fabric,
            bucket,
            workers,
            actions: BTreeMap::new(),
            next_action: 0,
            next_process: 0,
            fault_counts: BTreeMap::new(),
            findings: Vec::new(),
            watch: check::Watch::new(&plan),
            statuses: check::StatusWatch::new(&plan),
            turns: check::TurnWatch::default(),
            rolled_out: false,
            resetting: Resetting::No,
            operator: None,
            is_settling: false,
            plan,
        }
    }

    async fn run(mut self) -> RunReport {
        self.start_nodes().await;
        let client = self.outsider("checker").await;
        self.create_topics(&client).await;
        self.hire_operator().await;
        let mut loader = self.start_loader().await;
        let (mut reader, stop_reader) = self.start_reader().await;
        let started_at = self.clock.now();
        for timed in self.plan.faults.clone() {
            self.schedule(started_at + timed.at, Action::Inject(timed.fault));
        }
        for (index, worker) in self.plan.workers.clone().iter().enumerate() {
            self.schedule(started_at + worker.starts_at, Action::StartWorker(index));
        }
        let busy_until = started_at + self.plan.busy_for;
        while self.clock.now() < busy_until
            || !self.actions.is_empty()
            || !loader.is_finished()
            || self.resetting.is_under_way()
        {
            self.step().await;
        }
        let loaded = match loader.join().await {
            Ok(Some(loaded)) => loaded,
            Ok(None) | Err(_) => Loaded::default(),
        };
        self.end_faults().await;
        self.settle(&client).await;
        self.drain().await;
        self.wind_down().await;
        stop_reader.cancel();
        let seen = reader.join().await.ok().flatten();
        for finding in self.watch.look_last(self.nodes.cluster()) {
            self.find(finding);
        }
        let objects = self.bucket.attach(Arc::default());
        let witnesses =
            check::Witnesses { loaded, seen, watch: self.watch, statuses: self.statuses, objects };
        let (findings, counts) = check::check(&client, &self.plan, &witnesses).await;
        self.findings.extend(findings);
        self.findings.extend(panics::seen().into_iter().map(Finding::panic));
        let virtual_time = self.trace.elapsed();
        self.nodes.shut_down().await;
        let (known, findings) = check::split_known(self.findings, &self.plan);
        RunReport {
            findings,
            known,
            totals: self.trace.totals(),
            virtual_time,
            faults: self.fault_counts,
            counts,
            events: self.trace.take_events(),
            asked: planted::asked_count(),
        }
    }

    /// What brokers and workers show now goes to the checkers.
    fn look(&mut self) {
        let mut found = self.watch.look(self.nodes.cluster());
        for (index, slot) in self.workers.iter().enumerate() {
            let owners = self.watch.owners(&slot.instance);
            for incarnation in slot.current.iter().chain(&slot.zombies) {
                let status = incarnation.control.snapshot();
                found.extend(self.statuses.look(&incarnation.host, &status));
                found.extend(self.turns.look(index, &incarnation.host, &status, owners));
            }
        }
        for finding in found {
            self.find(finding);
        }
    }

    /// One step of the harness: what is due happens, ended processes are noticed.
    async fn step(&mut self) {
        let now = self.clock.now();
        self.look();
        self.spring().await;
        while let Some(entry) = self.actions.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let action = entry.remove();
            self.act(action).await;
        }
        self.notice_exits().await;
        self.notice_exits_of_parts().await;
        self.go_on_with_reset();
        let next = self.actions.keys().next().map_or(now + LOOK_EVERY, |(at, _)| *at);
        tokio::select! {
            biased;
            () = self.traps.news() => {}
            () = self.clock.sleep_until(next.min(now + LOOK_EVERY)) => {}
        }
    }

    fn schedule(&mut self, at: Instant, action: Action) {
        self.next_action += 1;
        self.actions.insert((at, self.next_action), action);
    }

    fn after(&mut self, delay: Duration, action: Action) {
        let at = self.clock.now() + delay;
        self.schedule(at, action);
    }

    /// An environment for a process that nothing happens to.
    fn outsider_env(&self, host: &str) -> Env {
        Env {
            clock: self.clock.clone(),
            rng: self.rng.fork(host),
            network: self.fabric.attach(host),
            spawner: Spawner::system(),
        }
    }

    async fn outsider(&self, host: &str) -> Client {
        let config = ClientConfig::with_bootstrap(&self.nodes.bootstrap().join(","))
            .expect("simulated addresses are well formed");
        let connected = Client::connect(self.outsider_env(host), config).await;
        connected.expect("no fault happens before the first process is up")
    }

    async fn create_topics(&self, client: &Client) {
        let topics = [
            (SOURCE, self.plan.source_partitions),
            (OUTPUT, self.plan.output_partitions),
            (DEAD_LETTERS, self.plan.output_partitions),
        ];
        for (topic, partitions) in topics {
            let created = client.admin().create_topic(NewTopic::new(topic, partitions)).await;
            created.expect("no fault happens before the topics are there");
        }
        if let Some(ledger) = &self.plan.ledger {
            let created = client.admin().create_topic(outcome_topic(ledger)).await;
            created.expect("no fault happens before the topics are there");
        }
    }

    async fn start_loader(&self) -> OwnedTask<Loaded> {
        let env = self.outsider_env("loader");
        let client = self.outsider("loader").await;
        let loader = Loader::new(client, &env, &self.plan);
        OwnedTask::spawn(&Spawner::system(), "loader", TaskKind::Job, loader.run(env))
    }

    /// A consumer of the results, from now until the token is cancelled.
    async fn start_reader(&self) -> (OwnedTask<check::Seen>, CancellationToken) {
        let (env, stop) = (self.outsider_env("reader"), CancellationToken::new());
        let client = self.outsider("reader").await;
        let reader = check::Reader::new(client, env, self.plan.output_partitions).run(stop.clone());
        (OwnedTask::spawn(&Spawner::system(), "reader", TaskKind::Job, reader), stop)
    }

    fn find(&mut self, finding: Finding) {
        self.trace.note(format!("finding: {finding}"));
        // The same thing found again and again says nothing new.
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    fn gate(&mut self) -> Arc<crate::process::ProcessGate> {
        self.next_process += 1;
        let rng = self.rng.fork(&format!("gate {}", self.next_process));
        crate::process::ProcessGate::new(self.next_process, self.plan.yields, rng, self.trace.clone())
    }
}
