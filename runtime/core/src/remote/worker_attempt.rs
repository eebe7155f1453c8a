//! One attempt in a worker: connect this part of the graph, run its tasks, join them to the coordinator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use sharestream_base::ids::{CheckpointId, JobEpoch};
use sharestream_base::{CancellationToken, Clock, Env, HostPort, Instant, Listener, TaskExit, TaskKind};
use sharestream_checkpoints::{CheckpointStore, Manifest, Owner};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::data::{DataConnection, Pair};
use super::frame::{FrameReader, FrameWriter};
use super::link::{ConnectorLink, Outbox, Peer};
use super::message::{Assignment, ToCoordinator, ToWorker};
use super::worker::lost;
use super::{GREETING_MAX, PING_INTERVAL, Role, SILENCE_MAX};
use crate::ErrorKind;
use crate::channel::{Receiver, Sender};
use crate::error::{Error, Result};
use crate::graph::{Blueprint, JobGraph, Parts, Restored, Running};
use crate::job::Job;
use crate::options::JobOptions;
use crate::sink::Sink;
use crate::task::context::{Interrupt, TaskContext, TaskEvent};

/// How an attempt ended here without an error of the connection.
pub(super) enum AttemptEnd {
    /// Its tasks have ended, the coordinator knows it, and the connection may be used again.
    Ended,
    Stopped,
}

/// An attempt that the coordinator asks for.
pub(super) struct WorkerAttempt<'a> {
    pub(super) env: &'a Env,
    pub(super) role: Role,
    pub(super) attempt: u64,
    pub(super) stop: &'a CancellationToken,
    pub(super) reader: &'a mut FrameReader,
    pub(super) writer: &'a mut FrameWriter,
}

/// What has become of an attempt whose part is connected.
enum Begun {
    Yes,
    Cancelled,
    Stopped,
}

/// What this worker has connected.
enum Connected {
    Sources(Box<Parts>),
    Sinks(Vec<Box<dyn Sink>>),
}

/// Messages of the coordinator that were read and not obeyed yet: obeying never waits, so one is enough.
const INBOX_MAX: usize = 16;
/// Data connections that are being greeted or wait for their task.
const ARRIVALS_MAX: usize = 64;
/// Figures for monitoring are sent with the load no more often.
const METRICS_INTERVAL: Duration = Duration::from_millis(200);
/// Pause after a data connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl WorkerAttempt<'_> {
    /// Errors: the connection to the coordinator broke. Everything is closed then.
    pub(super) async fn run(
        mut self,
        job: Job,
        assignment: Assignment,
        listener: Option<&mut (dyn Listener + 'static)>,
    ) -> Result<AttemptEnd> {
        let mut graph = job.into_graph();
        let blueprint = Blueprint::of(&mut graph);
        // What commits is the coordinator's alone.
        let JobGraph { link, store, options, .. } = graph;
        let (first, address) = (assignment.first, assignment.data_address.clone());
        let limit = options.connect_deadline;
        let connecting =
            connect(self.role, store.as_ref(), &blueprint, link.as_deref(), assignment, self.env.clock.now());
        let connected = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(AttemptEnd::Stopped),
            connected = self.env.clock.timeout(limit, connecting) => connected,
        };
        let connected = match connected {
            Ok(connected) => connected,
            Err(elapsed) => {
                let context = format!("connecting took longer than {limit:?}");
                Err(Error::new(ErrorKind::Retry, context).with_source(elapsed))
            }
        };
        let connected = match connected {
            Ok(connected) => connected,
            Err(error) => {
                self.say(&ToCoordinator::Failed(error)).await?;
                return Ok(AttemptEnd::Ended);
            }
        };
        let shape = blueprint.shape(self.role);
        self.say(&ToCoordinator::Connected(shape)).await?;
        // The coordinator may wait for the other worker meanwhile.
        match self.started(limit + SILENCE_MAX).await? {
            Begun::Yes => {}
            Begun::Cancelled => return Ok(AttemptEnd::Ended),
            Begun::Stopped => return Ok(AttemptEnd::Stopped),
        }
        let (outbox, [messages]) = Outbox::to([Peer::Coordinator]);
        if let Some(link) = &link {
            link.attach(outbox);
        }
        let joined = Joined { link, messages, options: &options };
        let env = self.env;
        match connected {
            Connected::Sources(parts) => {
                let (mut running, receivers, context) = match blueprint.start_sources(*parts, first, env) {
                    Ok(started) => started,
                    Err(error) => {
                        self.say(&ToCoordinator::Failed(error)).await?;
                        return Ok(AttemptEnd::Ended);
                    }
                };
                pass_on(&mut running, receivers, &context, &address, self.attempt, env);
                self.serve(running, joined, std::future::pending(), None).await
            }
            Connected::Sinks(sinks) => {
                let (running, senders, context) = blueprint.start_sinks(sinks, first, env);
                let (arrived, arrivals) = mpsc::channel(ARRIVALS_MAX);
                let accepting = accept(listener, self.attempt, &env.clock, arrived);
                let inputs = Inputs { arrivals, senders: by_pair(senders), context };
                self.serve(running, joined, accepting, Some(inputs)).await
            }
        }
    }

    /// Waits for the start.
    async fn started(&mut self, limit: Duration) -> Result<Begun> {
        let clock = self.env.clock.clone();
        let deadline = clock.now() + limit;
        loop {
            let frame = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(Begun::Stopped),
                frame = clock.timeout_at(deadline, self.reader.next()) => frame,
            };
            let frame = match frame {
                Ok(frame) => frame?.ok_or_else(|| lost("it closed the connection"))?,
                Err(_elapsed) => return Err(lost("it did not start what it had connected")),
            };
            if frame.attempt != self.attempt {
                continue;
            }
            match ToWorker::of_frame(frame, clock.now())? {
                ToWorker::Start => return Ok(Begun::Yes),
                ToWorker::Cancel => return Ok(Begun::Cancelled),
                _ => {}
            }
        }
    }

    async fn say(&mut self, message: &ToCoordinator) -> Result<()> {
        self.writer.write(&message.to_frame(self.attempt, self.env.clock.now())).await
    }

    /// Joins the running tasks to the coordinator until they have ended.
    async fn serve(
        self,
        mut running: Running,
        joined: Joined<'_>,
        accepting: impl Future<Output = ()>,
        mut inputs: Option<Inputs>,
    ) -> Result<AttemptEnd> {
        let clock = self.env.clock.clone();
        let close_deadline = joined.options.close_deadline;
        let (inbox, mut commands) = mpsc::channel(INBOX_MAX);
        let reading = read(self.reader, self.attempt, &clock, inbox);
        let mut says = Says {
            writer: self.writer,
            attempt: self.attempt,
            clock: &clock,
            metrics_at: None,
            silent_until: clock.now() + PING_INTERVAL,
        };
        tokio::pin!(reading, accepting);
        let mut end = Ok(AttemptEnd::Ended);
        // Set once the tasks were told to go.
        let mut gone_by: Option<Instant> = None;
        let mut messages = joined.messages;
        let has_load = self.role == Role::Sources;
        loop {
            let step = tokio::select! {
                biased;
                error = &mut reading, if gone_by.is_none() => Err(error),
                Some(command) = commands.recv() => match command {
                    ToWorker::Cancel => {
                        running.tasks.cancel();
                        gone_by = gone_by.or(Some(clock.now() + close_deadline));
                        Ok(())
                    }
                    command => match obey(command, &running, joined.link.as_ref()) {
                        Ok(()) => Ok(()),
                        Err(error) => says.failed(error).await,
                    },
                },
                Some(event) = running.events.recv() => says.event(event, has_load.then_some(&running)).await,
                Some(message) = messages.recv() => says.say(&ToCoordinator::Connector(message)).await,
                Some(arrival) = arrival(&mut inputs) => match take_in(&mut running, &mut inputs, arrival, &clock) {
                    Ok(()) => Ok(()),
                    Err(error) => says.failed(error).await,
                },
                exit = running.tasks.join_next() => match exit {
                    Some(TaskExit { result: Ok(_), .. }) => Ok(()),
                    Some(TaskExit { result: Err(panic), .. }) => says.failed(panic.into()).await,
                    None => break,
                },
                () = running.gauges.changed(), if has_load => says.load(&running).await,
                () = &mut accepting => Ok(()),
                () = self.stop.cancelled(), if gone_by.is_none() => {
                    running.tasks.cancel();
                    gone_by = Some(clock.now() + close_deadline);
                    end = Ok(AttemptEnd::Stopped);
                    Ok(())
                }
                () = clock.sleep_until_any(gone_by) => {
                    tracing::warn!(role = %self.role, "some tasks did not end in time");
                    break;
                }
                () = clock.sleep_until(says.silent_until) => says.say(&ToCoordinator::Ping).await,
            };
            if let Err(error) = step {
                // Nobody hears us any more: what is here is closed, so that it goes back.
                if gone_by.is_none() {
                    running.tasks.cancel();
                    gone_by = Some(clock.now() + close_deadline);
                }
                if matches!(end, Ok(AttemptEnd::Ended)) {
                    end = Err(error);
                }
            }
        }
        running.tasks.abort_all().await;
        if let Ok(AttemptEnd::Ended) = end {
            while let Ok(event) = running.events.try_recv() {
                says.event(event, has_load.then_some(&running)).await?;
            }
            says.say(&ToCoordinator::TasksEnded).await?;
        }
        end
    }
}

/// Connects the part of a role. Errors: those of its factories, of the store and of the connector.
async fn connect(
    role: Role,
    store: Option<&CheckpointStore>,
    blueprint: &Blueprint,
    link: Option<&dyn ConnectorLink>,
    assignment: Assignment,
    now: Instant,
) -> Result<Connected> {
    if let Some(link) = link {
        link.open(role, &assignment.opening).await?;
    }
    match role {
        Role::Sinks => Ok(Connected::Sinks(blueprint.connect_sinks().await?)),
        Role::Sources => {
            let owner = assignment.owner.map(|(epoch, by)| Owner { epoch: JobEpoch(epoch), by });
            let manifest = assignment.manifest.as_deref().map(Manifest::from_bytes).transpose()?;
            if owner.is_some() != store.is_some() {
                let context = "the coordinator has a checkpoint store and the worker has none, or the other way \
                               round: start both with the same settings";
                return Err(Error::new(ErrorKind::InvalidInput, context));
            }
            let watermark = blueprint.restored_watermark(manifest.as_ref(), now);
            let restored =
                Restored { store: store.zip(owner.as_ref()), manifest: manifest.as_ref(), watermark };
            Ok(Connected::Sources(Box::new(blueprint.connect_sources(restored, None, None).await?)))
        }
    }
}

/// What joins the tasks to the coordinator.
struct Joined<'a> {
    link: Option<Arc<dyn ConnectorLink>>,
    messages: mpsc::Receiver<Vec<u8>>,
    options: &'a JobOptions,
}

/// Says things to the coordinator.
struct Says<'a> {
    writer: &'a mut FrameWriter,
    attempt: u64,
    clock: &'a Clock,
    metrics_at: Option<Instant>,
    /// When to give a sign of life, if nothing else is to be said.
    silent_until: Instant,
}

impl Says<'_> {
    async fn say(&mut self, message: &ToCoordinator) -> Result<()> {
        let now = self.clock.now();
        self.silent_until = now + PING_INTERVAL;
        self.writer.write(&message.to_frame(self.attempt, now)).await
    }

    async fn failed(&mut self, error: Error) -> Result<()> {
        self.say(&ToCoordinator::Failed(error)).await
    }

    async fn load(&mut self, running: &Running) -> Result<()> {
        let now = self.clock.now();
        let is_due = self.metrics_at.is_none_or(|at| now.duration_since(at) >= METRICS_INTERVAL);
        if is_due {
            self.metrics_at = Some(now);
        }
        self.say(&ToCoordinator::Gauges(running.gauges.copy(is_due))).await
    }

    /// The load goes first: who hears of the event decides by a load that is at least as new.
    async fn event(&mut self, event: TaskEvent, with_load_of: Option<&Running>) -> Result<()> {
        if let Some(running) = with_load_of {
            self.load(running).await?;
        }
        self.say(&ToCoordinator::Event(event)).await
    }
}

/// Reads what the coordinator says until the connection breaks; then gives the error.
async fn read(reader: &mut FrameReader, attempt: u64, clock: &Clock, inbox: mpsc::Sender<ToWorker>) -> Error {
    loop {
        let frame = match clock.timeout(SILENCE_MAX, reader.next()).await {
            Ok(Ok(Some(frame))) => frame,
            Ok(Ok(None)) => return lost("it closed the connection"),
            Ok(Err(error)) => return error,
            Err(_elapsed) => return lost("there was no sign of life of it"),
        };
        if frame.attempt != attempt {
            tracing::debug!(of = frame.attempt, attempt, "a message of another attempt is refused");
            continue;
        }
        let is_last = match ToWorker::of_frame(frame, clock.now()) {
            Ok(message) => {
                let is_last = matches!(message, ToWorker::Cancel);
                if inbox.send(message).await.is_err() {
                    return lost("the attempt is over");
                }
                is_last
            }
            Err(malformed) => return malformed.into(),
        };
        if is_last {
            // What follows is for the next attempt, and is read by whoever waits for it.
            return std::future::pending().await;
        }
    }
}

/// Does what the coordinator asks for. Never waits.
fn obey(command: ToWorker, running: &Running, link: Option<&Arc<dyn ConnectorLink>>) -> Result<()> {
    match command {
        ToWorker::Command { subtask, command } => {
            let Some(sender) = running.commands.get(subtask as usize) else {
                return Err(Error::new(ErrorKind::Bug, format!("there is no source-{subtask} here")));
            };
            match sender.try_send(command) {
                // A source that has ended says so itself.
                Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
                Err(TrySendError::Full(_)) => {
                    Err(Error::new(ErrorKind::Bug, format!("source-{subtask} has too many commands waiting")))
                }
            }
        }
        ToWorker::Opened(checkpoint) => {
            raise(&running.opened, checkpoint);
            Ok(())
        }
        ToWorker::BarrierSent(checkpoint) => {
            raise(&running.barrier_sent, checkpoint);
            Ok(())
        }
        ToWorker::Connector(message) => match link {
            Some(link) => link.receive(&message),
            None => Err(Error::new(ErrorKind::Bug, "a connector's message came, and there is no connector")),
        },
        ToWorker::Cancel | ToWorker::Ping => Ok(()),
        other => Err(Error::new(ErrorKind::Abort, format!("{other:?} came behind the start"))),
    }
}

fn raise(watched: &sharestream_base::watch::Sender<CheckpointId>, checkpoint: CheckpointId) {
    watched.send_replace(checkpoint);
}

/// Starts a task for each pair that passes rows on to the sinks worker.
fn pass_on(
    running: &mut Running,
    receivers: Vec<Vec<Receiver>>,
    context: &TaskContext,
    address: &Option<String>,
    attempt: u64,
    env: &Env,
) {
    for (sink, of_sink) in (0u32..).zip(receivers) {
        for (upstream, receiver) in (0u32..).zip(of_sink) {
            let name = format!("subtask-{upstream}-to-sink-{sink}");
            let context = TaskContext { name: name.clone(), ..context.clone() };
            let (address, network) = (address.clone(), env.network.clone());
            running.tasks.spawn(name, TaskKind::Job, async move {
                let passing = async {
                    let address: HostPort = address
                        .as_deref()
                        .and_then(|address| address.parse().ok())
                        .ok_or_else(|| Error::new(ErrorKind::Bug, "the sinks worker has no address"))?;
                    let opening = async {
                        let io = network.connect(&address).await.map_err(|error| {
                            let context = format!("cannot connect to the sinks on {address}");
                            Error::new(ErrorKind::Abort, context).with_source(error)
                        })?;
                        DataConnection::open(io, attempt, Pair { upstream, sink }).await
                    };
                    let connection = match context.clock.timeout(GREETING_MAX, opening).await {
                        Ok(opened) => opened.map_err(ended)?,
                        Err(_elapsed) => {
                            let context = format!("the sinks on {address} did not answer in time");
                            return Err(Interrupt::Failed(Error::new(ErrorKind::Abort, context)));
                        }
                    };
                    Ok(connection.pass_on(receiver, &context.clock).await.map_err(ended)?)
                };
                let _ended = context.guard(passing).await;
            });
        }
    }
}

/// A connection that broke ends the attempt, not the job.
fn ended(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Retry => Error::new(ErrorKind::Abort, "rows cannot cross").with_source(error),
        _ => error,
    }
}

/// Where rows come in.
struct Inputs {
    arrivals: mpsc::Receiver<(DataConnection, Pair)>,
    /// Of pairs whose connection has not come.
    senders: BTreeMap<Pair, Sender>,
    context: TaskContext,
}

fn by_pair(senders: Vec<Vec<Sender>>) -> BTreeMap<Pair, Sender> {
    let mut by_pair = BTreeMap::new();
    for (sink, of_sink) in (0u32..).zip(senders) {
        for (upstream, sender) in (0u32..).zip(of_sink) {
            by_pair.insert(Pair { upstream, sink }, sender);
        }
    }
    by_pair
}

/// The next connection that has come; never, where none can. Cancel safe.
async fn arrival(inputs: &mut Option<Inputs>) -> Option<(DataConnection, Pair)> {
    match inputs {
        Some(inputs) => inputs.arrivals.recv().await,
        None => std::future::pending().await,
    }
}

/// Starts the task that takes rows in from a connection.
fn take_in(
    running: &mut Running,
    inputs: &mut Option<Inputs>,
    (connection, pair): (DataConnection, Pair),
    clock: &Clock,
) -> Result<()> {
    let Some(inputs) = inputs else { return Ok(()) };
    let Some(sender) = inputs.senders.remove(&pair) else {
        return Err(Error::new(ErrorKind::Abort, format!("there is no place for the rows of {pair:?}")));
    };
    let name = format!("sink-{}-from-subtask-{}", pair.sink, pair.upstream);
    let context = TaskContext { name: name.clone(), ..inputs.context.clone() };
    let clock = clock.clone();
    running.tasks.spawn(name, TaskKind::Job, async move {
        let taking = async { Ok(connection.take_in(sender, &clock).await.map_err(ended)?) };
        let _ended = context.guard(taking).await;
    });
    Ok(())
}

/// Accepts data connections of this attempt; others are told that they are not.
async fn accept(
    listener: Option<&mut (dyn Listener + 'static)>,
    attempt: u64,
    clock: &Clock,
    arrived: mpsc::Sender<(DataConnection, Pair)>,
) {
    let Some(listener) = listener else { return std::future::pending().await };
    let mut greetings = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(greeted) = greetings.next() => match greeted {
                Ok(Ok(connection)) => {
                    if arrived.send(connection).await.is_err() {
                        return std::future::pending().await;
                    }
                }
                Ok(Err(error)) => {
                    let error: Error = error;
                    tracing::info!(%error, "a data connection was refused");
                }
                Err(_elapsed) => tracing::info!("a data connection did not greet in time"),
            },
            accepted = listener.accept(), if greetings.len() < ARRIVALS_MAX => match accepted {
                Ok((io, _peer)) => {
                    greetings.push(clock.timeout(GREETING_MAX, DataConnection::accept(io, attempt)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a data connection could not be accepted");
                    clock.sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}
