//! From the graph to tasks and channels.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use futures::future::{try_join, try_join_all};
use futures::stream::FuturesUnordered;
use sharestream_base::ids::CheckpointId;
use sharestream_base::{CancellationToken, Env, TaskKind, TaskSet, watch};
use tokio::sync::mpsc;

use super::logical::JobGraph;
use super::stages::{Stage, StageWork};
use super::stream::Exchange;
use crate::async_map::{Assembler, Line};
use crate::channel::{Bounds, Receiver, channel};
use crate::error::Result;
use crate::operator::Operator;
use crate::sink::{Router, Sink, SinkFactory};
use crate::source::{Source, SourceFactory};
use crate::task::async_map::AsyncMapTask;
use crate::task::context::{TaskContext, TaskEvent};
use crate::task::gauges::Gauges;
use crate::task::inputs::Inputs;
use crate::task::operator::OperatorTask;
use crate::task::output::Output;
use crate::task::sink::SinkTask;
use crate::task::source::{COMMANDS_MAX, SourceCommand, SourceTask};

/// Connected sources and sinks, and everything that a subtask owns.
pub(crate) struct Parts {
    sources: Vec<Box<dyn Source>>,
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
}

/// What an attempt needs to make the tasks.
pub(crate) struct Blueprint {
    source: Arc<dyn SourceFactory>,
    source_parallelism: usize,
    stages: Vec<Stage>,
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
            source: graph.source.clone(),
            source_parallelism: graph.source_parallelism,
            stages: std::mem::take(&mut graph.stages),
            sink: graph.sink.clone(),
            sink_parallelism: graph.sink_parallelism,
            bounds: Bounds {
                rows_max: graph.options.channel_rows_max,
                bytes_max: graph.options.channel_bytes_max,
            },
            close_deadline: graph.options.close_deadline,
        }
    }

    /// Subtasks in front of the sink.
    fn last_parallelism(&self) -> usize {
        self.stages.last().map_or(self.source_parallelism, |stage| stage.parallelism)
    }

    /// Connects all sources and sinks. Errors: those of the factories; what was connected is dropped.
    pub(crate) async fn connect(&self) -> Result<Parts> {
        let stages = self.stages.iter().map(|stage| (0..stage.parallelism).map(|n| body(stage, n)).collect());
        let stages = stages.collect::<Result<Vec<Vec<Body>>>>()?;
        let sink_routers = (0..self.last_parallelism())
            .map(|_| self.sink.router(self.sink_parallelism))
            .collect::<Result<Vec<_>>>()?;
        let sinks = try_join_all((0..self.sink_parallelism).map(async |subtask| {
            let sink = self.sink.create(subtask, self.sink_parallelism).await;
            sink.map_err(|error| error.within(&format!("sink {} subtask {subtask}", self.sink.name())))
        }));
        let sources = try_join_all((0..self.source_parallelism).map(async |subtask| {
            let source = self.source.create(subtask).await;
            source.map_err(|error| error.within(&format!("source {} subtask {subtask}", self.source.name())))
        }));
        let (sinks, sources) = try_join(sinks, sources).await?;
        Ok(Parts { sources, stages, sink_routers, sinks })
    }

    /// Starts all tasks, from the sink up. The first epoch is `first`, and is not open yet.
    pub(crate) fn start(&self, parts: Parts, first: CheckpointId, env: &Env) -> Running {
        let mut start = Start::new(self, first, env);
        let mut to_next = start.sinks(parts.sinks, parts.sink_routers);
        let mut operator_count: usize = self.stages.iter().map(|stage| stage.parallelism).sum();
        let all_operators = operator_count;
        for (stage, bodies) in self.stages.iter().zip(parts.stages).rev() {
            operator_count -= stage.parallelism;
            to_next = start.stage(stage, bodies, to_next, operator_count);
        }
        let commands = start.sources(parts.sources, to_next);
        let Start { tasks, events, gauges, opened, barrier_sent, callers, .. } = start;
        let sink_count = self.sink_parallelism;
        let operator_count = all_operators;
        Running { tasks, commands, events, gauges, opened, barrier_sent, operator_count, sink_count, callers }
    }
}

fn body(stage: &Stage, subtask: usize) -> Result<Body> {
    match &stage.work {
        StageWork::Chain(operators) => {
            let chain = operators.iter().map(|operator| {
                let place = format!("operator {}", operator.name());
                operator.create(subtask).map_err(|error| error.within(&place))
            });
            Ok(Body::Chain(chain.collect::<Result<Vec<_>>>()?))
        }
        StageWork::AsyncMap { .. } => Ok(Body::AsyncMap),
    }
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
}

impl<'a> Start<'a> {
    fn new(blueprint: &'a Blueprint, first: CheckpointId, env: &'a Env) -> Self {
        let cancel = CancellationToken::new();
        let (event_sender, events) = mpsc::channel(EVENTS_MAX);
        let before = CheckpointId(first.0.saturating_sub(1));
        let calls = |stage: &&Stage| matches!(stage.work, StageWork::AsyncMap { .. });
        let call_count = blueprint.stages.iter().filter(calls).map(|stage| stage.parallelism).sum();
        Start {
            blueprint,
            first,
            env,
            event_sender,
            events,
            opened: watch::Sender::new(before),
            barrier_sent: watch::Sender::new(before),
            gauges: Gauges::new(blueprint.source_parallelism, call_count),
            tasks: TaskSet::new(&env.spawner, cancel.clone()),
            cancel,
            callers: Vec::new(),
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

    /// Starts the sinks; gives the outputs of what is in front of them.
    fn sinks(&mut self, sinks: Vec<Box<dyn Sink>>, routers: Vec<Box<dyn Router>>) -> Vec<Output> {
        let (outputs, inputs) = all_to_all(routers, sinks.len(), self.blueprint.bounds);
        for (subtask, (sink, inputs)) in sinks.into_iter().zip(inputs).enumerate() {
            let (context, opened) = (self.context("sink", subtask), self.opened.subscribe());
            let task = SinkTask { context, sink, inputs, opened, writing: self.first };
            self.tasks.spawn(task.context.name.clone(), TaskKind::Job, task.run());
        }
        outputs
    }

    /// Starts a stage, whose subtasks are numbered from `number` on; gives the outputs of what is in front of it.
    fn stage(
        &mut self,
        stage: &Stage,
        bodies: Vec<Body>,
        outputs: Vec<Output>,
        number: usize,
    ) -> Vec<Output> {
        let bounds = self.blueprint.bounds;
        let (to_stage, inputs) = match stage.from {
            Exchange::Forward => (0..stage.parallelism)
                .map(|_| {
                    let (sender, receiver) = channel(bounds);
                    (Output::Direct(sender), Inputs::new(vec![receiver]))
                })
                .unzip(),
            Exchange::Rebalance => {
                let upstream = self.parallelism_before(number);
                let routers =
                    (0..upstream).map(|first| RoundRobin::router(first, stage.parallelism)).collect();
                all_to_all(routers, stage.parallelism, bounds)
            }
        };
        for (index, ((body, inputs), output)) in bodies.into_iter().zip(inputs).zip(outputs).enumerate() {
            let context = self.context(stage.work.name(), number + index);
            match (body, &stage.work) {
                (Body::Chain(operators), _) => {
                    let task = OperatorTask { context, operators, inputs, output, filtered_count: 0 };
                    self.tasks.spawn(task.context.name.clone(), TaskKind::Job, task.run());
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
                        rng: self.env.rng.fork(&context.name),
                        calls: FuturesUnordered::new(),
                        filtered_count: 0,
                        context,
                    };
                    self.tasks.spawn(task.context.name.clone(), TaskKind::Job, task.run());
                }
                // Bodies are made of the same stages.
                (Body::AsyncMap, StageWork::Chain(_)) => {}
            }
        }
        to_stage
    }

    /// Subtasks of what is in front of the stage whose first subtask has this number.
    fn parallelism_before(&self, number: usize) -> usize {
        let mut before = self.blueprint.source_parallelism;
        let mut next = 0;
        for stage in &self.blueprint.stages {
            if next == number {
                break;
            }
            (before, next) = (stage.parallelism, next + stage.parallelism);
        }
        before
    }

    fn sources(
        &mut self,
        sources: Vec<Box<dyn Source>>,
        outputs: Vec<Output>,
    ) -> Vec<mpsc::Sender<SourceCommand>> {
        let mut senders = Vec::new();
        for (subtask, (source, output)) in sources.into_iter().zip(outputs).enumerate() {
            let (sender, commands) = mpsc::channel(COMMANDS_MAX);
            senders.push(sender);
            let task = SourceTask {
                context: self.context("source", subtask),
                source,
                output,
                commands,
                gauges: self.gauges.clone(),
                is_acquiring: true,
                is_in_call: false,
            };
            self.tasks.spawn(task.context.name.clone(), TaskKind::Job, task.run());
        }
        senders
    }
}

/// One channel from each upstream subtask to each downstream one: the outputs by upstream, the inputs by downstream.
fn all_to_all(
    routers: Vec<Box<dyn Router>>,
    downstream: usize,
    bounds: Bounds,
) -> (Vec<Output>, Vec<Inputs>) {
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
    (outputs, receivers.into_iter().map(Inputs::new).collect())
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
