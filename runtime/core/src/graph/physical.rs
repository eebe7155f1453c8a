//! From the graph to tasks and channels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use futures::future::try_join_all;
use futures::stream::FuturesUnordered;
use sharestream_base::ids::CheckpointId;
use sharestream_base::{CancellationToken, Env, TaskKind, TaskSet, watch};
use sharestream_checkpoints::{CheckpointStore, Manifest, Owner};
use tokio::sync::mpsc;

use super::logical::JobGraph;
use super::stages::{Plan, PlannedSource, Stage, StageWork, Upstream};
use super::stream::Exchange;
use crate::ErrorKind;
use crate::async_map::{Assembler, Line};
use crate::channel::{Bounds, Receiver, channel};
use crate::error::{Error, Result};
use crate::kept::KeptSources;
use crate::operator::{KeyedOperator, KeyedOperatorFactory, Operator};
use crate::sink::{Router, Sink, SinkFactory};
use crate::source::Source;
use crate::state::{KeyEncoder, KeyRouter, KeyedState, RestoredOperator, StateWriter, restore};
use crate::task::async_map::AsyncMapTask;
use crate::task::context::{TaskContext, TaskEvent};
use crate::task::gauges::Gauges;
use crate::task::inputs::Inputs;
use crate::task::keyed::KeyedTask;
use crate::task::operator::OperatorTask;
use crate::task::output::Output;
use crate::task::sink::SinkTask;
use crate::task::source::{COMMANDS_MAX, SourceCommand, SourceTask};

/// Connected sources and sinks, and everything that a subtask owns.
pub(crate) struct Parts {
    /// For each source its subtasks.
    sources: Vec<Vec<Box<dyn Source>>>,
    /// For each stage its subtasks.
    stages: Vec<Vec<Body>>,
    /// For each subtask in front of the sink.
    sink_routers: Vec<Box<dyn Router>>,
    sinks: Vec<Box<dyn Sink>>,
}

/// What one subtask of a stage owns.
enum Body {
    Chain(Vec<Box<dyn Operator>>),
    /// Calls keep nothing between two starts.
    AsyncMap,
    Keyed(Box<KeyedBody>),
}

struct KeyedBody {
    operator: Box<dyn KeyedOperator>,
    state: KeyedState,
    writer: StateWriter,
}

/// The checkpoint that a job goes on from.
#[derive(Clone, Copy)]
pub(crate) struct Restored<'a> {
    /// `None`: the job has no checkpoint store, and so no operator that keeps state.
    pub(crate) store: Option<(&'a CheckpointStore, &'a Owner)>,
    /// The last committed checkpoint; `None`: there is none.
    pub(crate) manifest: Option<&'a Manifest>,
}

/// What an attempt needs to make the tasks.
pub(crate) struct Blueprint {
    plan: Plan,
    last: Upstream,
    sink: Arc<dyn SinkFactory>,
    sink_parallelism: usize,
    bounds: Bounds,
    close_deadline: Duration,
}

/// Running tasks, and the ends that the coordinator holds.
pub(crate) struct Running {
    pub(crate) tasks: TaskSet<()>,
    pub(crate) commands: Vec<mpsc::Sender<SourceCommand>>,
    pub(crate) events: mpsc::Receiver<TaskEvent>,
    pub(crate) gauges: Arc<Gauges>,
    /// Tells the sinks which epochs are open.
    pub(crate) opened: watch::Sender<CheckpointId>,
    /// Tells operators which barrier is on its way to them.
    pub(crate) barrier_sent: watch::Sender<CheckpointId>,
    /// Subtasks between sources and sinks, of all stages.
    pub(crate) operator_count: usize,
    pub(crate) sink_count: usize,
    /// Names of the stages that call out, by subtask, as [`Gauges::call_gauges`] numbers them.
    pub(crate) callers: Vec<String>,
}

/// Events on their way to the coordinator; full means that the task waits.
const EVENTS_MAX: usize = 1_024;

impl Blueprint {
    pub(crate) fn of(graph: &mut JobGraph) -> Self {
        Blueprint {
            plan: std::mem::take(&mut graph.plan),
            last: graph.last,
            sink: graph.sink.clone(),
            sink_parallelism: graph.sink_parallelism,
            bounds: Bounds {
                rows_max: graph.options.channel_rows_max,
                bytes_max: graph.options.channel_bytes_max,
            },
            close_deadline: graph.options.close_deadline,
        }
    }

    /// Ids of the operators that keep state.
    pub(crate) fn state_ids(&self) -> BTreeSet<&str> {
        self.plan
            .stages
            .iter()
            .filter_map(|stage| match &stage.work {
                StageWork::Keyed(operator) => Some(operator.id()),
                StageWork::Chain(_) | StageWork::AsyncMap { .. } => None,
            })
            .collect()
    }

    /// Connects all sources and sinks and reads the state of operators. Errors: those of the factories and of the store;
    /// what was connected is dropped.
    /// Sources that were `kept` by a failed attempt go on from `last_committed`.
    pub(crate) async fn connect(
        &self,
        restored: Restored<'_>,
        last_committed: Option<CheckpointId>,
        kept: Option<&KeptSources>,
    ) -> Result<Parts> {
        let mut stages = Vec::new();
        for stage in &self.plan.stages {
            let bodies = (0..stage.parallelism).map(|subtask| body(stage, subtask, restored));
            stages.push(try_join_all(bodies).await?);
        }
        let sink_routers = (0..self.plan.parallelism(self.last))
            .map(|_| self.sink.router(self.sink_parallelism))
            .collect::<Result<Vec<_>>>()?;
        let sinks = try_join_all((0..self.sink_parallelism).map(async |subtask| {
            let sink = self.sink.create(subtask, self.sink_parallelism).await;
            sink.map_err(|error| error.within(&format!("sink {} subtask {subtask}", self.sink.name())))
        }));
        // Sources last: nobody looks after the locks of one that was kept until its task runs.
        let sinks = sinks.await?;
        let mut first_subtask = 0;
        let planned = self.plan.sources.iter().map(|source| {
            let first = first_subtask;
            first_subtask += source.parallelism;
            (first, source)
        });
        let planned: Vec<(usize, &PlannedSource)> = planned.collect();
        let sources =
            try_join_all(planned.into_iter().map(async |(first, PlannedSource { factory, parallelism })| {
                try_join_all((0..*parallelism).map(async |subtask| {
                    if let (Some(kept), Some(maker)) = (kept, factory.maker())
                        && let Some(source) = kept.rewound(first + subtask, maker, last_committed).await
                    {
                        return Ok(source);
                    }
                    let source = factory.create(subtask).await;
                    source.map_err(|error| {
                        error.within(&format!("source {} subtask {subtask}", factory.name()))
                    })
                }))
                .await
            }))
            .await?;
        if let Some(kept) = kept {
            // Of a graph with more subtasks.
            kept.close_all().await;
        }
        Ok(Parts { sources, stages, sink_routers, sinks })
    }

    /// Starts all tasks, from the sink up. The first epoch is `first`, and is not open yet.
    pub(crate) fn start(
        &self,
        parts: Parts,
        first: CheckpointId,
        env: &Env,
        kept: Option<&KeptSources>,
    ) -> Result<Running> {
        let mut start = Start::new(self, first, env);
        start.sinks(parts.sinks, parts.sink_routers);
        let operator_count: usize = self.plan.stages.iter().map(|stage| stage.parallelism).sum();
        let mut number = operator_count;
        for (index, bodies) in parts.stages.into_iter().enumerate().rev() {
            let stage = &self.plan.stages[index];
            number -= stage.parallelism;
            start.stage(index, stage, bodies, number)?;
        }
        let commands = start.sources(parts.sources, kept);
        let Start { tasks, events, gauges, opened, barrier_sent, callers, .. } = start;
        let sink_count = self.sink_parallelism;
        Ok(Running {
            tasks,
            commands,
            events,
            gauges,
            opened,
            barrier_sent,
            operator_count,
            sink_count,
            callers,
        })
    }
}

async fn body(stage: &Stage, subtask: usize, restored: Restored<'_>) -> Result<Body> {
    match &stage.work {
        StageWork::Chain(operators) => {
            let chain = operators.iter().map(|operator| {
                let place = format!("operator {}", operator.name());
                operator.create(subtask).map_err(|error| error.within(&place))
            });
            Ok(Body::Chain(chain.collect::<Result<Vec<_>>>()?))
        }
        StageWork::AsyncMap { .. } => Ok(Body::AsyncMap),
        StageWork::Keyed(factory) => {
            let place = format!("operator {} subtask {subtask}", factory.name());
            keyed_body(stage, factory.as_ref(), subtask, restored).await.map_err(|error| error.within(&place))
        }
    }
}

async fn keyed_body(
    stage: &Stage,
    factory: &dyn KeyedOperatorFactory,
    subtask: usize,
    restored: Restored<'_>,
) -> Result<Body> {
    let Some((store, owner)) = restored.store else {
        return Err(Error::new(ErrorKind::Bug, "it keeps state, and there is no checkpoint store"));
    };
    let operators = restored.manifest.map_or(&[][..], |manifest| &manifest.operators);
    let snapshot = operators.iter().find(|operator| operator.operator == factory.id());
    let keys = stage.keys_of_each_input()?;
    let restored = RestoredOperator { store, snapshot };
    let (state, ledger) = restore(restored, factory, keys, subtask, stage.parallelism).await?;
    let operator = factory.create(subtask)?;
    let (id, version) = (factory.id().to_owned(), factory.state_version());
    let writer = StateWriter::new(store.clone(), owner.clone(), id, version, subtask, ledger);
    Ok(Body::Keyed(Box::new(KeyedBody { operator, state, writer })))
}

/// What is needed while tasks are started.
struct Start<'a> {
    blueprint: &'a Blueprint,
    first: CheckpointId,
    env: &'a Env,
    cancel: CancellationToken,
    event_sender: mpsc::Sender<TaskEvent>,
    events: mpsc::Receiver<TaskEvent>,
    opened: watch::Sender<CheckpointId>,
    barrier_sent: watch::Sender<CheckpointId>,
    gauges: Arc<Gauges>,
    tasks: TaskSet<()>,
    callers: Vec<String>,
    /// Outputs of what is not started yet, by its subtasks.
    outputs: BTreeMap<Upstream, Vec<Output>>,
}

impl<'a> Start<'a> {
    fn new(blueprint: &'a Blueprint, first: CheckpointId, env: &'a Env) -> Self {
        let cancel = CancellationToken::new();
        let (event_sender, events) = mpsc::channel(EVENTS_MAX);
        let before = CheckpointId(first.0.saturating_sub(1));
        let calls = |stage: &&Stage| matches!(stage.work, StageWork::AsyncMap { .. });
        let call_count = blueprint.plan.stages.iter().filter(calls).map(|stage| stage.parallelism).sum();
        let source_count = blueprint.plan.sources.iter().map(|source| source.parallelism).sum();
        Start {
            blueprint,
            first,
            env,
            event_sender,
            events,
            opened: watch::Sender::new(before),
            barrier_sent: watch::Sender::new(before),
            gauges: Gauges::new(source_count, call_count),
            tasks: TaskSet::new(&env.spawner, cancel.clone()),
            cancel,
            callers: Vec::new(),
            outputs: BTreeMap::new(),
        }
    }

    fn context(&self, name: &str, subtask: usize) -> TaskContext {
        TaskContext {
            name: format!("{name}-{subtask}"),
            subtask,
            clock: self.env.clock.clone(),
            cancel: self.cancel.clone(),
            events: self.event_sender.clone(),
            close_deadline: self.blueprint.close_deadline,
        }
    }

    fn spawn<F>(&mut self, name: String, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(name, TaskKind::Job, work);
    }

    fn sinks(&mut self, sinks: Vec<Box<dyn Sink>>, routers: Vec<Box<dyn Router>>) {
        let (outputs, receivers) = all_to_all(routers, sinks.len(), self.blueprint.bounds);
        for (subtask, (sink, receivers)) in sinks.into_iter().zip(receivers).enumerate() {
            let (context, opened) = (self.context("sink", subtask), self.opened.subscribe());
            let inputs = Inputs::new(vec![receivers]);
            let task = SinkTask { context, sink, inputs, opened, writing: self.first };
            self.spawn(task.context.name.clone(), task.run());
        }
        self.outputs.insert(self.blueprint.last, outputs);
    }

    /// Starts a stage, whose subtasks are numbered from `number` on.
    fn stage(&mut self, index: usize, stage: &Stage, bodies: Vec<Body>, number: usize) -> Result<()> {
        let outputs = self.outputs.remove(&Upstream::Stage(index)).unwrap_or_default();
        let inputs = self.inputs(stage)?;
        for (index, ((body, inputs), output)) in bodies.into_iter().zip(inputs).zip(outputs).enumerate() {
            let context = self.context(stage.work.name(), number + index);
            let name = context.name.clone();
            match (body, &stage.work) {
                (Body::Chain(operators), _) => {
                    let task = OperatorTask { context, operators, inputs, output, filtered_count: 0 };
                    self.spawn(name, task.run());
                }
                (Body::Keyed(body), _) => {
                    let KeyedBody { operator, state, writer } = *body;
                    let spawner = self.env.spawner.clone();
                    let task = KeyedTask::new(context, spawner, operator, state, writer, inputs, output);
                    self.spawn(name, task.run());
                }
                (Body::AsyncMap, StageWork::AsyncMap { map, rule, output: schema }) => {
                    let function = map.function();
                    let gauge = self.callers.len();
                    self.callers.push(map.name().to_owned());
                    let task = AsyncMapTask {
                        timeout: map.settings().timeout,
                        rule: *rule,
                        line: Line::new(map.settings().clone()),
                        assembler: Assembler::new(map.name(), schema.clone(), function.columns()),
                        function,
                        inputs,
                        output,
                        barrier_sent: self.barrier_sent.subscribe(),
                        passed: CheckpointId(self.first.0.saturating_sub(1)),
                        gauges: self.gauges.clone(),
                        gauge,
                        rng: self.env.rng.fork(&name),
                        calls: FuturesUnordered::new(),
                        filtered_count: 0,
                        context,
                    };
                    self.spawn(name, task.run());
                }
                (Body::AsyncMap, StageWork::Chain(_) | StageWork::Keyed(_)) => {
                    return Err(Error::new(ErrorKind::Bug, "a stage has the body of another"));
                }
            }
        }
        Ok(())
    }

    /// The inputs of each subtask of a stage; the outputs of what it reads from are kept for that.
    fn inputs(&mut self, stage: &Stage) -> Result<Vec<Inputs>> {
        let bounds = self.blueprint.bounds;
        let mut by_subtask: Vec<Vec<Vec<Receiver>>> = (0..stage.parallelism).map(|_| Vec::new()).collect();
        for (upstream, exchange) in &stage.inputs {
            let upstream_count = self.blueprint.plan.parallelism(*upstream);
            let (outputs, receivers) = match exchange {
                Exchange::Forward => (0..stage.parallelism)
                    .map(|_| {
                        let (sender, receiver) = channel(bounds);
                        (Output::Direct(sender), vec![receiver])
                    })
                    .unzip(),
                Exchange::Rebalance => {
                    let routers = (0..upstream_count)
                        .map(|first| RoundRobin::router(first, stage.parallelism))
                        .collect();
                    all_to_all(routers, stage.parallelism, bounds)
                }
                Exchange::Keyed { columns, schema } => {
                    let mut routers: Vec<Box<dyn Router>> = Vec::new();
                    for _ in 0..upstream_count {
                        let keys = KeyEncoder::new(schema, columns)?;
                        routers.push(Box::new(KeyRouter::new(keys, stage.parallelism)));
                    }
                    all_to_all(routers, stage.parallelism, bounds)
                }
            };
            self.outputs.insert(*upstream, outputs);
            for (of_subtask, of_input) in by_subtask.iter_mut().zip(receivers) {
                of_subtask.push(of_input);
            }
        }
        Ok(by_subtask.into_iter().map(Inputs::new).collect())
    }

    fn sources(
        &mut self,
        sources: Vec<Vec<Box<dyn Source>>>,
        kept: Option<&KeptSources>,
    ) -> Vec<mpsc::Sender<SourceCommand>> {
        let mut senders = Vec::new();
        for (index, subtasks) in sources.into_iter().enumerate() {
            let outputs = self.outputs.remove(&Upstream::Source(index)).unwrap_or_default();
            let maker = self.blueprint.plan.sources[index].factory.maker();
            for (source, output) in subtasks.into_iter().zip(outputs) {
                let (sender, commands) = mpsc::channel(COMMANDS_MAX);
                let task = SourceTask {
                    context: self.context("source", senders.len()),
                    source,
                    output,
                    commands,
                    gauges: self.gauges.clone(),
                    is_acquiring: true,
                    is_stopping: false,
                    is_in_call: false,
                    kept: kept.cloned().zip(maker),
                };
                senders.push(sender);
                self.spawn(task.context.name.clone(), task.run());
            }
        }
        senders
    }
}

/// One channel from each upstream subtask to each downstream one: the outputs by upstream, the receivers by downstream.
fn all_to_all(
    routers: Vec<Box<dyn Router>>,
    downstream: usize,
    bounds: Bounds,
) -> (Vec<Output>, Vec<Vec<Receiver>>) {
    let mut receivers: Vec<Vec<Receiver>> = (0..downstream).map(|_| Vec::new()).collect();
    let mut outputs = Vec::new();
    for (subtask, router) in routers.into_iter().enumerate() {
        let mut senders = Vec::new();
        for of_one in &mut receivers {
            let (sender, receiver) = channel(bounds);
            senders.push(sender);
            of_one.push(receiver);
        }
        outputs.push(Output::Routed { router, senders, rejected_to: subtask % downstream });
    }
    (outputs, receivers)
}

/// Batches to each subtask in turn.
struct RoundRobin {
    next: usize,
    subtask_count: usize,
}

impl RoundRobin {
    /// Upstream subtasks begin at different ones, so that few batches are spread, too.
    fn router(first: usize, subtask_count: usize) -> Box<dyn Router> {
        Box::new(RoundRobin { next: first % subtask_count, subtask_count })
    }
}

impl Router for RoundRobin {
    fn route(&mut self, rows: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let to = self.next;
        self.next = (to + 1) % self.subtask_count;
        Ok(vec![(to, rows)])
    }
}
