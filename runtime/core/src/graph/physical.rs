//! From the graph to tasks and channels.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use sharestream_base::ids::CheckpointId;
use sharestream_base::{Env, Instant, TaskSet, watch};
use sharestream_checkpoints::{CheckpointStore, Manifest, Owner};
use tokio::sync::mpsc;

use super::bodies::body;
use super::logical::JobGraph;
use super::stages::{Plan, PlannedSource, StageWork, Upstream};
use super::start::Start;
use crate::channel::{Bounds, Receiver, Sender, channel};
use crate::error::Result;
use crate::kept::KeptSources;
use crate::operator::Operator;
use crate::remote::{Role, Shape};
use crate::sink::{Router, Sink, SinkFactory};
use crate::source::{Source, SourceFactory};
use crate::state::{ListWriter, StateWriter};
use crate::task::context::{TaskContext, TaskEvent};
use crate::task::gauges::Gauges;
use crate::task::keyed::{AsList, ByKey};
use crate::task::source::{COMMANDS_MAX, SourceCommand};
use crate::watermark::{EventTime, Watermark, Watermarks};

/// Connected sources and sinks, and everything that a subtask owns.
pub(crate) struct Parts {
    /// For each source its subtasks.
    pub(super) sources: Vec<Vec<Box<dyn Source>>>,
    /// For each stage its subtasks.
    stages: Vec<Vec<Body>>,
    /// For each subtask in front of the sink.
    sink_routers: Vec<Box<dyn Router>>,
    sinks: Vec<Box<dyn Sink>>,
}

/// What one subtask of a stage owns.
pub(super) enum Body {
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
    pub(super) plan: Plan,
    pub(super) last: Upstream,
    pub(super) sink: Arc<dyn SinkFactory>,
    pub(super) sink_parallelism: usize,
    pub(super) bounds: Bounds,
    pub(super) epoch_bytes_max: u64,
    pub(super) close_deadline: Duration,
    pub(super) event_time: Option<EventTime>,
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
            epoch_bytes_max: graph.options.epoch_bytes_max,
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

    pub(super) fn operator_count(&self) -> usize {
        self.plan.stages.iter().map(|stage| stage.parallelism).sum()
    }
}
