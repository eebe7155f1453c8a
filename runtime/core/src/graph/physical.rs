//! From the graph to tasks and channels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use futures::future::try_join_all;
use futures::stream::FuturesUnordered;
use sharestream_base::ids::CheckpointId;
use sharestream_base::{CancellationToken, Env, Instant, TaskKind, TaskSet, watch};
use sharestream_checkpoints::{CheckpointStore, Manifest, Owner};
use tokio::sync::mpsc;

use super::logical::JobGraph;
use super::stages::{Plan, PlannedSource, Stage, StageWork, Upstream};
use super::stream::Exchange;
use crate::ErrorKind;
use crate::async_map::{Assembler, Line};
use crate::channel::{Bounds, Receiver, Sender, channel};
use crate::error::{Error, Result};
use crate::kept::KeptSources;
use crate::operator::{KeyedOperatorFactory, Operator, StatefulOperatorFactory};
use crate::remote::{Role, Shape};
use crate::sink::{Router, Sink, SinkFactory};
use crate::source::{Source, SourceFactory};
use crate::state::{KeyEncoder, KeyRouter, ListWriter, RestoredOperator, StateWriter, restore, restore_list};
use crate::task::async_map::AsyncMapTask;
use crate::task::context::{TaskContext, TaskEvent};
use crate::task::gauges::Gauges;
use crate::task::inputs::Inputs;
use crate::task::keyed::{AsList, ByKey, StateTask};
use crate::task::operator::OperatorTask;
use crate::task::output::Output;
use crate::task::sink::SinkTask;
use crate::task::source::{COMMANDS_MAX, SourceCommand, SourceTask};
use crate::watermark::{EventTime, EventTimeReader, EventTimesOfEpoch, Watermark, Watermarks};

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
    Stateful(Box<(AsList, ListWriter)>),
    Keyed(Box<(ByKey, StateWriter)>),
}

/// The checkpoint that a job goes on from.
#[derive(Clone, Copy)]
pub(crate) struct Restored<'a> {
    /// `None`: the job has no checkpoint store, and so no operator that keeps state.
    pub(crate) store: Option<(&'a CheckpointStore, &'a Owner)>,
    /// The last committed checkpoint; `None`: there is none.
    pub(crate) manifest: Option<&'a Manifest>,
    /// Its watermark.
    pub(crate) watermark: Option<Watermark>,
}

/// What an attempt needs to make the tasks.
pub(crate) struct Blueprint {
    plan: Plan,
    last: Upstream,
    sink: Arc<dyn SinkFactory>,
    sink_parallelism: usize,
    bounds: Bounds,
    close_deadline: Duration,
    event_time: Option<EventTime>,
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
            event_time: graph.options.event_time.clone(),
        }
    }

    /// The watermark of a checkpoint, where the job has event time.
    pub(crate) fn restored_watermark(&self, manifest: Option<&Manifest>, now: Instant) -> Option<Watermark> {
        let event_time = manifest.and_then(|manifest| manifest.event_time.as_ref());
        Watermarks::restore(self.event_time.clone()?, event_time, now).watermark()
    }

    /// True when an operator keeps state, and so hears of watermarks.
    pub(crate) fn has_state(&self) -> bool {
        self.plan.has_state()
    }

    /// The sources, to ask where the group stands.
    pub(crate) fn sources(&self) -> Vec<Arc<dyn SourceFactory>> {
        self.plan.sources.iter().map(|source| source.factory.clone()).collect()
    }

    /// Ids of the operators that keep state.
    pub(crate) fn state_ids(&self) -> BTreeSet<&str> {
        self.plan
            .stages
            .iter()
            .filter_map(|stage| match &stage.work {
                StageWork::Keyed(operator) => Some(operator.id()),
                StageWork::Stateful(operator) => Some(operator.id()),
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
        // Sources last: nobody looks after the locks of one that was kept until its task runs.
        let sinks = self.connect_sinks().await?;
        let sources = self.connect_sources(restored, last_committed, kept).await?;
        Ok(Parts { sinks, ..sources })
    }

    /// Connects the sinks. Errors: those of the factory.
    pub(crate) async fn connect_sinks(&self) -> Result<Vec<Box<dyn Sink>>> {
        try_join_all((0..self.sink_parallelism).map(async |subtask| {
            let sink = self.sink.create(subtask, self.sink_parallelism).await;
            sink.map_err(|error| error.within(&format!("sink {} subtask {subtask}", self.sink.name())))
        }))
        .await
    }

    /// Connects everything but the sinks. Errors: those of the factories and of the store.
    pub(crate) async fn connect_sources(
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
        Ok(Parts { sources, stages, sink_routers, sinks: Vec::new() })
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
        let Parts { sources, stages, sink_routers, sinks } = parts;
        let receivers = start.outputs_to_sinks(sink_routers);
        start.sinks(sinks, receivers);
        let commands = start.all_but_sinks(stages, sources, kept)?;
        Ok(start.running(commands))
    }

    /// Starts everything but the sinks: their ends of the channels are given out, by sink subtask and by the subtask in
    /// front of it. With them comes what a task needs that passes them on.
    pub(crate) fn start_sources(
        &self,
        parts: Parts,
        first: CheckpointId,
        env: &Env,
    ) -> Result<(Running, Vec<Vec<Receiver>>, TaskContext)> {
        let mut start = Start::new(self, first, env);
        let Parts { sources, stages, sink_routers, .. } = parts;
        let receivers = start.outputs_to_sinks(sink_routers);
        let commands = start.all_but_sinks(stages, sources, None)?;
        let context = start.context("to-sink", 0);
        Ok((start.running(commands), receivers, context))
    }

    /// Starts the sinks alone. Their inputs are the other ends of what is given out, by sink subtask and by the subtask in
    /// front of it; likewise.
    pub(crate) fn start_sinks(
        &self,
        sinks: Vec<Box<dyn Sink>>,
        first: CheckpointId,
        env: &Env,
    ) -> (Running, Vec<Vec<Sender>>, TaskContext) {
        let mut start = Start::new(self, first, env);
        let upstream_count = self.plan.parallelism(self.last);
        let (senders, receivers) = (0..self.sink_parallelism)
            .map(|_| (0..upstream_count).map(|_| channel(self.bounds)).unzip())
            .unzip();
        start.sinks(sinks, receivers);
        let context = start.context("from-source", 0);
        (start.running(Vec::new()), senders, context)
    }

    /// The ends that a coordinator holds of tasks in other processes, without the tasks: the commands of each source as
    /// they come out; likewise.
    pub(crate) fn start_elsewhere(
        &self,
        first: CheckpointId,
        env: &Env,
    ) -> (Running, Vec<mpsc::Receiver<SourceCommand>>, TaskContext) {
        let start = Start::new(self, first, env);
        let context = start.context("worker", 0);
        let source_count: usize = self.plan.sources.iter().map(|source| source.parallelism).sum();
        let (senders, commands) = (0..source_count).map(|_| mpsc::channel(COMMANDS_MAX)).unzip();
        let mut running = start.running(senders);
        // As `Start::stage` numbers them: the last stage first.
        for stage in self.plan.stages.iter().rev() {
            if let StageWork::AsyncMap { map, .. } = &stage.work {
                running.callers.extend(std::iter::repeat_n(map.name().to_owned(), stage.parallelism));
            }
        }
        (running, commands, context)
    }

    /// How many tasks the worker of a role runs.
    pub(crate) fn shape(&self, role: Role) -> Shape {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let sources = self.plan.sources.iter().map(|source| source.parallelism).sum();
        match role {
            Role::Sources => {
                Shape { sources: count(sources), operators: count(self.operator_count()), sinks: 0 }
            }
            Role::Sinks => Shape { sources: 0, operators: 0, sinks: count(self.sink_parallelism) },
        }
    }

    fn operator_count(&self) -> usize {
        self.plan.stages.iter().map(|stage| stage.parallelism).sum()
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
        StageWork::Stateful(factory) => {
            let place = format!("operator {} subtask {subtask}", factory.name());
            let body = stateful_body(stage, factory.as_ref(), subtask, restored).await;
            body.map_err(|error| error.within(&place))
        }
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
    let watermark = restored.watermark;
    let ((store, owner), restored) = state_of(factory.id(), restored)?;
    let keys = stage.keys_of_each_input()?;
    let (mut state, ledger) = restore(restored, factory, keys, subtask, stage.parallelism).await?;
    state.set_watermark(watermark);
    let operator = factory.create(subtask)?;
    let (id, version) = (factory.id().to_owned(), factory.state_version());
    let writer = StateWriter::new(store.clone(), owner.clone(), id, version, subtask, ledger);
    Ok(Body::Keyed(Box::new((ByKey { operator, state }, writer))))
}

async fn stateful_body(
    stage: &Stage,
    factory: &dyn StatefulOperatorFactory,
    subtask: usize,
    restored: Restored<'_>,
) -> Result<Body> {
    let watermark = restored.watermark;
    let (owned, restored) = state_of(factory.id(), restored)?;
    let (rows, part) = restore_list(restored, factory, subtask, stage.parallelism).await?;
    let mut operator = factory.create(subtask)?;
    operator.restore(rows.clone(), watermark)?;
    let writer = ListWriter::new(owned, factory, subtask, part.map(|part| (rows, part)));
    Ok(Body::Stateful(Box::new((AsList { operator }, writer))))
}

/// Where the state of operator `id` is written to, and what it is restored from.
fn state_of<'a>(
    id: &str,
    restored: Restored<'a>,
) -> Result<((&'a CheckpointStore, &'a Owner), RestoredOperator<'a>)> {
    let Some((store, owner)) = restored.store else {
        return Err(Error::new(ErrorKind::Bug, "it keeps state, and there is no checkpoint store"));
    };
    let operators = restored.manifest.map_or(&[][..], |manifest| &manifest.operators);
    let snapshot = operators.iter().find(|operator| operator.operator == id);
    Ok(((store, owner), RestoredOperator { store, snapshot }))
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

    /// The outputs of the last stage; gives the other ends, by sink subtask.
    fn outputs_to_sinks(&mut self, routers: Vec<Box<dyn Router>>) -> Vec<Vec<Receiver>> {
        let Blueprint { last, sink_parallelism, bounds, .. } = *self.blueprint;
        let (outputs, receivers) = all_to_all(routers, sink_parallelism, bounds);
        self.outputs.insert(last, outputs);
        receivers
    }

    fn sinks(&mut self, sinks: Vec<Box<dyn Sink>>, receivers: Vec<Vec<Receiver>>) {
        for (subtask, (sink, receivers)) in sinks.into_iter().zip(receivers).enumerate() {
            let (context, opened) = (self.context("sink", subtask), self.opened.subscribe());
            let inputs = Inputs::new(vec![receivers]);
            let task = SinkTask { context, sink, inputs, opened, writing: self.first };
            self.spawn(task.context.name.clone(), task.run());
        }
    }

    /// Stages and sources, from the last stage up.
    fn all_but_sinks(
        &mut self,
        stages: Vec<Vec<Body>>,
        sources: Vec<Vec<Box<dyn Source>>>,
        kept: Option<&KeptSources>,
    ) -> Result<Vec<mpsc::Sender<SourceCommand>>> {
        let blueprint = self.blueprint;
        let mut number = blueprint.operator_count();
        for (index, bodies) in stages.into_iter().enumerate().rev() {
            let stage = &blueprint.plan.stages[index];
            number -= stage.parallelism;
            self.stage(index, stage, bodies, number)?;
        }
        self.sources(sources, kept)
    }

    fn running(self, commands: Vec<mpsc::Sender<SourceCommand>>) -> Running {
        let Start { blueprint, tasks, events, gauges, opened, barrier_sent, callers, .. } = self;
        Running {
            tasks,
            commands,
            events,
            gauges,
            opened,
            barrier_sent,
            operator_count: blueprint.operator_count(),
            sink_count: blueprint.sink_parallelism,
            callers,
        }
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
                (Body::Stateful(body), _) => {
                    let task = StateTask::new(context, self.env.spawner.clone(), *body, inputs, output);
                    self.spawn(name, task.run());
                }
                (Body::Keyed(body), _) => {
                    let task = StateTask::new(context, self.env.spawner.clone(), *body, inputs, output);
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
                (Body::AsyncMap, StageWork::Chain(_) | StageWork::Stateful(_) | StageWork::Keyed(_)) => {
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
    ) -> Result<Vec<mpsc::Sender<SourceCommand>>> {
        let mut senders = Vec::new();
        for (index, subtasks) in sources.into_iter().enumerate() {
            let schema = self.blueprint.plan.sources[index].factory.schema();
            let reader = |event_time: &EventTime| EventTimeReader::new(&schema, &event_time.column);
            let event_time = self.blueprint.event_time.as_ref().map(reader).transpose()?;
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
                    event_time,
                    times: EventTimesOfEpoch::default(),
                    is_acquiring: true,
                    is_stopping: false,
                    is_in_call: false,
                    kept: kept.cloned().zip(maker),
                };
                senders.push(sender);
                self.spawn(task.context.name.clone(), task.run());
            }
        }
        Ok(senders)
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
