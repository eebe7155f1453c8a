//! Starting the tasks of a graph and the channels between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::FuturesUnordered;
use sharestream_base::ids::CheckpointId;
use sharestream_base::{CancellationToken, Env, TaskKind, TaskSet, watch};
use tokio::sync::mpsc;

use super::exchange::{RoundRobin, all_to_all};
use super::physical::{Blueprint, Body, Running};
use super::stages::{Stage, StageWork, Upstream};
use super::stream::Exchange;
use crate::ErrorKind;
use crate::async_map::{Assembler, Line};
use crate::channel::{Receiver, channel};
use crate::error::{Error, Result};
use crate::kept::KeptSources;
use crate::sink::{Router, Sink};
use crate::source::Source;
use crate::state::{KeyEncoder, KeyRouter};
use crate::task::async_map::AsyncMapTask;
use crate::task::context::{TaskContext, TaskEvent};
use crate::task::gauges::Gauges;
use crate::task::inputs::Inputs;
use crate::task::keyed::StateTask;
use crate::task::operator::OperatorTask;
use crate::task::output::Output;
use crate::task::sink::SinkTask;
use crate::task::source::{COMMANDS_MAX, SourceCommand, SourceTask};
use crate::watermark::{EventTime, EventTimeReader, EventTimesOfEpoch};

/// Events on their way to the coordinator; full means that the task waits.
const EVENTS_MAX: usize = 1_024;

/// What is needed while tasks are started.
pub(super) struct Start<'a> {
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
    pub(super) fn new(blueprint: &'a Blueprint, first: CheckpointId, env: &'a Env) -> Self {
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

    pub(super) fn context(&self, name: &str, subtask: usize) -> TaskContext {
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
    pub(super) fn outputs_to_sinks(&mut self, routers: Vec<Box<dyn Router>>) -> Vec<Vec<Receiver>> {
        let Blueprint { last, sink_parallelism, bounds, .. } = *self.blueprint;
        let (outputs, receivers) = all_to_all(routers, sink_parallelism, bounds);
        self.outputs.insert(last, outputs);
        receivers
    }

    pub(super) fn sinks(&mut self, sinks: Vec<Box<dyn Sink>>, receivers: Vec<Vec<Receiver>>) {
        for (subtask, (sink, receivers)) in sinks.into_iter().zip(receivers).enumerate() {
            let (context, opened) = (self.context("sink", subtask), self.opened.subscribe());
            let inputs = Inputs::new(vec![receivers]);
            let task = SinkTask { context, sink, inputs, opened, writing: self.first };
            self.spawn(task.context.name.clone(), task.run());
        }
    }

    /// Stages and sources, from the last stage up.
    pub(super) fn all_but_sinks(
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

    pub(super) fn running(self, commands: Vec<mpsc::Sender<SourceCommand>>) -> Running {
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
                    epoch_bytes_max: self.blueprint.epoch_bytes_max,
                    epoch_bytes: 0,
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
