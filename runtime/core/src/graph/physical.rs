//! From the graph to tasks and channels.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{try_join, try_join_all};
use sharestream_base::ids::CheckpointId;
use sharestream_base::{CancellationToken, Clock, Spawner, TaskKind, TaskSet, watch};
use tokio::sync::mpsc;

use super::logical::JobGraph;
use crate::channel::{Bounds, Receiver, Sender, channel};
use crate::error::Result;
use crate::operator::{Operator, OperatorFactory};
use crate::sink::{Router, Sink, SinkFactory};
use crate::source::{Source, SourceFactory};
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
    /// For each source the chain beside it; empty when the job has no operators.
    operators: Vec<Vec<Box<dyn Operator>>>,
    routers: Vec<Box<dyn Router>>,
    sinks: Vec<Box<dyn Sink>>,
}

/// What an attempt needs to make the tasks.
pub(crate) struct Blueprint {
    source: Arc<dyn SourceFactory>,
    source_parallelism: usize,
    operators: Vec<Arc<dyn OperatorFactory>>,
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
    /// True when operator chains run between sources and sinks.
    pub(crate) has_operators: bool,
    pub(crate) sink_count: usize,
}

/// Events on their way to the coordinator; full means that the task waits.
const EVENTS_MAX: usize = 1_024;

impl Blueprint {
    pub(crate) fn of(graph: &JobGraph) -> Self {
        Blueprint {
            source: graph.source.clone(),
            source_parallelism: graph.source_parallelism,
            operators: graph.operators.clone(),
            sink: graph.sink.clone(),
            sink_parallelism: graph.sink_parallelism,
            bounds: Bounds {
                rows_max: graph.options.channel_rows_max,
                bytes_max: graph.options.channel_bytes_max,
            },
            close_deadline: graph.options.close_deadline,
        }
    }

    /// Connects all sources and sinks. Errors: those of the factories; what was connected is dropped.
    pub(crate) async fn connect(&self) -> Result<Parts> {
        let mut operators = Vec::new();
        let mut routers = Vec::new();
        for subtask in 0..self.source_parallelism {
            let chain = self.operators.iter().map(|operator| {
                let place = format!("operator {}", operator.name());
                operator.create(subtask).map_err(|error| error.within(&place))
            });
            operators.push(chain.collect::<Result<Vec<_>>>()?);
            routers.push(self.sink.router(self.sink_parallelism)?);
        }
        let sinks = try_join_all((0..self.sink_parallelism).map(async |subtask| {
            let sink = self.sink.create(subtask, self.sink_parallelism).await;
            sink.map_err(|error| error.within(&format!("sink {} subtask {subtask}", self.sink.name())))
        }));
        let sources = try_join_all((0..self.source_parallelism).map(async |subtask| {
            let source = self.source.create(subtask).await;
            source.map_err(|error| error.within(&format!("source {} subtask {subtask}", self.source.name())))
        }));
        let (sinks, sources) = try_join(sinks, sources).await?;
        Ok(Parts { sources, operators, routers, sinks })
    }

    /// Starts all tasks. The first epoch is `first`, and is not open yet.
    pub(crate) fn start(
        &self,
        parts: Parts,
        first: CheckpointId,
        clock: &Clock,
        spawner: &Spawner,
    ) -> Running {
        let cancel = CancellationToken::new();
        let (event_sender, events) = mpsc::channel(EVENTS_MAX);
        let (opened, opened_receiver) = watch::channel(CheckpointId(first.0.saturating_sub(1)));
        let gauges = Gauges::new(self.source_parallelism);
        let mut tasks = TaskSet::new(spawner, cancel.clone());
        let context = |name: &str, subtask: usize| TaskContext {
            name: format!("{name}-{subtask}"),
            subtask,
            clock: clock.clone(),
            cancel: cancel.clone(),
            events: event_sender.clone(),
            close_deadline: self.close_deadline,
        };

        let (to_sinks, sink_inputs) = self.sink_channels();
        for (subtask, (sink, receivers)) in parts.sinks.into_iter().zip(sink_inputs).enumerate() {
            let context = context("sink", subtask);
            let inputs = Inputs::new(receivers);
            let task = SinkTask { context, sink, inputs, opened: opened_receiver.clone(), writing: first };
            tasks.spawn(task.context.name.clone(), TaskKind::Job, task.run());
        }

        let mut commands = Vec::new();
        let upstream = parts.sources.into_iter().zip(parts.operators).zip(parts.routers).zip(to_sinks);
        for (subtask, (((source, operators), router), sinks)) in upstream.enumerate() {
            let rejected_to = subtask % self.sink_parallelism;
            let mut output = Output::Routed { router, sinks, rejected_to };
            if !operators.is_empty() {
                let (sender, receiver) = channel(self.bounds);
                let context = context("operator", subtask);
                let inputs = Inputs::new(vec![receiver]);
                let task = OperatorTask { context, operators, inputs, output, filtered_count: 0 };
                tasks.spawn(task.context.name.clone(), TaskKind::Job, task.run());
                output = Output::Direct(sender);
            }
            let (command_sender, command_receiver) = mpsc::channel(COMMANDS_MAX);
            commands.push(command_sender);
            let task = SourceTask {
                context: context("source", subtask),
                source,
                output,
                commands: command_receiver,
                gauges: gauges.clone(),
                is_acquiring: true,
                is_stopping: false,
                is_in_call: false,
            };
            tasks.spawn(task.context.name.clone(), TaskKind::Job, task.run());
        }
        let has_operators = !self.operators.is_empty();
        Running { tasks, commands, events, gauges, opened, has_operators, sink_count: self.sink_parallelism }
    }

    /// One channel from each upstream subtask to each sink: the senders by upstream, the receivers by sink.
    fn sink_channels(&self) -> (Vec<Vec<Sender>>, Vec<Vec<Receiver>>) {
        let mut by_sink: Vec<Vec<Receiver>> = (0..self.sink_parallelism).map(|_| Vec::new()).collect();
        let mut by_upstream = Vec::new();
        for _ in 0..self.source_parallelism {
            let mut senders = Vec::new();
            for receivers in &mut by_sink {
                let (sender, receiver) = channel(self.bounds);
                senders.push(sender);
                receivers.push(receiver);
            }
            by_upstream.push(senders);
        }
        (by_upstream, by_sink)
    }
}
