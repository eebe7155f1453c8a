//! The coordinator's side of an attempt: two workers that have connected, and a task for each that joins it to what the
//! coordinator holds.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sharestream_base::ids::{CheckpointId, JobEpoch};
use sharestream_base::{Clock, Env, TaskKind, watch};
use sharestream_checkpoints::{Manifest, Owner};
use tokio::sync::mpsc;

use super::bytes::Malformed;
use super::frame::{FrameReader, FrameWriter};
use super::link::{ConnectorLink, Outbox, Peer};
use super::message::{Assignment, Shape, ToCoordinator, ToWorker};
use super::workers::{Control, Workers};
use super::{PING_INTERVAL, Role, SILENCE_MAX};
use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::graph::{Blueprint, Running};
use crate::task::context::{Interrupt, TaskContext, TaskEvent};
use crate::task::gauges::Gauges;
use crate::task::source::SourceCommand;

/// Where the tasks of a job's attempts run: with workers.
#[derive(Clone)]
pub(crate) struct Posting {
    pub(crate) workers: Workers,
    /// What the connector has to tell between processes; `None`: nothing.
    pub(crate) link: Option<Arc<dyn ConnectorLink>>,
}

/// What the workers are told of the attempt.
pub(crate) struct Orders<'a> {
    pub(crate) job_epoch: JobEpoch,
    pub(crate) first: CheckpointId,
    pub(crate) owner: Option<&'a Owner>,
    pub(crate) manifest: Option<&'a Manifest>,
}

/// Workers that have connected their parts of an attempt and wait for its start.
pub(crate) struct Crew {
    posting: Posting,
    attempt: u64,
    sources: Control,
    sinks: Control,
}

impl Posting {
    /// Waits for both workers, at most `limit`, and has them connect. Errors: `Retry`, a worker is missing or was lost;
    /// what a worker failed with.
    pub(crate) async fn assemble(
        &self,
        blueprint: &Blueprint,
        orders: Orders<'_>,
        limit: Duration,
        clock: &Clock,
    ) -> Result<Crew> {
        let attempt = orders.job_epoch.0;
        let (workers, link) = (&self.workers, self.link.as_ref());
        workers.all_come(limit).await?;
        let (sources, sinks) =
            futures::future::try_join(workers.take(Role::Sources, limit), workers.take(Role::Sinks, limit))
                .await?;
        let manifest = orders.manifest.map(Manifest::to_bytes).transpose()?;
        let data_address = sinks.hello.data_address.clone();
        let assignment = |role| {
            let opening = link.map_or_else(|| Ok(Vec::new()), |link| link.opening(role))?;
            Ok::<_, Error>(Assignment {
                first: orders.first,
                owner: orders.owner.map(|owner| (owner.epoch.0, owner.by.clone())),
                manifest: manifest.clone(),
                opening,
                data_address: data_address.clone(),
            })
        };
        let (for_sources, for_sinks) = (assignment(Role::Sources)?, assignment(Role::Sinks)?);
        let (sources, sinks) = futures::future::try_join(
            connect(sources, attempt, for_sources, blueprint.shape(Role::Sources), clock),
            connect(sinks, attempt, for_sinks, blueprint.shape(Role::Sinks), clock),
        )
        .await?;
        Ok(Crew { posting: self.clone(), attempt, sources, sinks })
    }
}

/// Has one worker connect its part.
async fn connect(
    mut control: Control,
    attempt: u64,
    assignment: Assignment,
    expected: Shape,
    clock: &Clock,
) -> Result<Control> {
    let place = name_of(&control);
    let connecting = async {
        control.writer.write(&ToWorker::Connect(assignment).to_frame(attempt, clock.now())).await?;
        loop {
            let Some(frame) = control.reader.next().await? else {
                return Err(Error::new(ErrorKind::Retry, "it closed the connection while it connected"));
            };
            if frame.attempt != attempt {
                continue;
            }
            match ToCoordinator::of_frame(frame, clock.now())? {
                ToCoordinator::Connected(shape) if shape == expected => return Ok(()),
                ToCoordinator::Connected(shape) => {
                    let context = format!(
                        "it runs {shape:?} where the coordinator knows {expected:?}: the jobs differ"
                    );
                    return Err(Error::new(ErrorKind::InvalidInput, context));
                }
                ToCoordinator::Failed(error) => return Err(error),
                ToCoordinator::Ping => {}
                other => return Err(Malformed::new(format!("{other:?} came before the start")).into()),
            }
        }
    };
    connecting.await.map_err(|error| error.within(&place))?;
    Ok(control)
}

fn name_of(control: &Control) -> String {
    format!("{} worker ({})", control.hello.role, control.hello.process)
}

impl Crew {
    /// Starts the tasks of both workers, and gives the ends that a coordinator holds.
    pub(crate) fn start(self, blueprint: &Blueprint, first: CheckpointId, env: &Env) -> Running {
        let Crew { posting, attempt, sources, sinks } = self;
        let (mut running, commands, context) = blueprint.start_elsewhere(first, env);
        let peers = [Peer::Worker(Role::Sources), Peer::Worker(Role::Sinks)];
        let (outbox, [to_sources, to_sinks]) = Outbox::to(peers);
        if let Some(link) = &posting.link {
            link.attach(outbox);
        }
        for (control, commands, messages) in [(sources, commands, to_sources), (sinks, Vec::new(), to_sinks)]
        {
            let name = name_of(&control);
            let member = Member {
                context: TaskContext { name: name.clone(), ..context.clone() },
                attempt,
                posting: posting.clone(),
                gauges: running.gauges.clone(),
                orders: Outgoing {
                    opened: running.opened.subscribe(),
                    barrier_sent: running.barrier_sent.subscribe(),
                    commands,
                    messages,
                },
            };
            running.tasks.spawn(name, TaskKind::Job, member.run(control));
        }
        running
    }
}

/// What the coordinator gives out.
struct Outgoing {
    opened: watch::Receiver<CheckpointId>,
    barrier_sent: watch::Receiver<CheckpointId>,
    /// By source subtask.
    commands: Vec<mpsc::Receiver<SourceCommand>>,
    /// Of the connector.
    messages: mpsc::Receiver<Vec<u8>>,
}

/// Joins one worker to the coordinator.
struct Member {
    context: TaskContext,
    attempt: u64,
    posting: Posting,
    gauges: Arc<Gauges>,
    orders: Outgoing,
}

impl Member {
    async fn run(self, control: Control) {
        let Member { context, attempt, posting, gauges, orders } = self;
        let Control { hello, mut reader, mut writer } = control;
        let incoming =
            Incoming { context: &context, attempt, link: posting.link.as_deref(), gauges: &gauges };
        // Both directions at once: neither waits for the other, so two processes cannot wait for each other.
        let ended = tokio::select! {
            biased;
            ended = incoming.read(&mut reader) => ended,
            failed = write(orders, &mut writer, attempt, &context) => failed,
        };
        match ended {
            Ok(()) => posting.workers.put_back(Control { hello, reader, writer }).await,
            Err(_) if context.cancel.is_cancelled() => {}
            Err(error) => {
                let error = lost(error);
                // As a task that fails: it says so, and is there until it is told to go.
                let _told = context.guard(async { Err(Interrupt::Failed(error)) }).await;
                context.cancel.cancelled().await;
            }
        }
    }
}

/// Whatever has become of the connection, the attempt is over and another may follow.
fn lost(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Retry => Error::new(ErrorKind::Abort, "the worker is lost").with_source(error),
        _ => error,
    }
}

/// Sends what the coordinator gives out, until it cancels. A connector's messages go first: they were sent before the
/// command that they are for.
async fn write(
    orders: Outgoing,
    writer: &mut FrameWriter,
    attempt: u64,
    context: &TaskContext,
) -> Result<()> {
    let Outgoing { mut opened, mut barrier_sent, mut commands, mut messages } = orders;
    let clock = &context.clock;
    let mut message = ToWorker::Start;
    loop {
        writer.write(&message.to_frame(attempt, clock.now())).await?;
        if let ToWorker::Cancel = message {
            // The worker says when its tasks have ended.
            return std::future::pending().await;
        }
        message = tokio::select! {
            biased;
            () = context.cancel.cancelled() => ToWorker::Cancel,
            Some(bytes) = messages.recv() => ToWorker::Connector(bytes),
            Ok(()) = opened.changed() => ToWorker::Opened(*opened.borrow_and_update()),
            Ok(()) = barrier_sent.changed() => ToWorker::BarrierSent(*barrier_sent.borrow_and_update()),
            (subtask, command) = next_command(&mut commands) => ToWorker::Command { subtask, command },
            () = clock.sleep(PING_INTERVAL) => ToWorker::Ping,
        };
    }
}

/// The next command of any source; never, when there are none. Cancel safe.
async fn next_command(commands: &mut [mpsc::Receiver<SourceCommand>]) -> (u32, SourceCommand) {
    poll_fn(|cx| {
        for (subtask, receiver) in (0u32..).zip(commands.iter_mut()) {
            if let Poll::Ready(Some(command)) = receiver.poll_recv(cx) {
                return Poll::Ready((subtask, command));
            }
        }
        Poll::Pending
    })
    .await
}

/// Where what a worker says goes.
struct Incoming<'a> {
    context: &'a TaskContext,
    attempt: u64,
    link: Option<&'a dyn ConnectorLink>,
    gauges: &'a Gauges,
}

impl Incoming<'_> {
    /// Reads until the worker's tasks have ended. Errors: the worker is lost, or what it says makes no sense.
    async fn read(&self, reader: &mut FrameReader) -> Result<()> {
        let clock = &self.context.clock;
        loop {
            let frame = match clock.timeout(SILENCE_MAX, reader.next()).await {
                Ok(frame) => frame?,
                Err(elapsed) => {
                    let context = format!("no sign of life for {SILENCE_MAX:?}");
                    return Err(Error::new(ErrorKind::Retry, context).with_source(elapsed));
                }
            };
            let Some(frame) = frame else {
                return Err(Error::new(ErrorKind::Retry, "it closed the connection"));
            };
            if frame.attempt != self.attempt {
                tracing::debug!(
                    of = frame.attempt,
                    attempt = self.attempt,
                    "a message of another attempt is refused"
                );
                continue;
            }
            match ToCoordinator::of_frame(frame, clock.now())? {
                ToCoordinator::Event(event) => self.event(event).await,
                ToCoordinator::Gauges(copy) => {
                    if !self.gauges.take(copy) {
                        return Err(Malformed::new("a load has another number of tasks").into());
                    }
                }
                ToCoordinator::Connector(message) => match self.link {
                    Some(link) => link.receive(&message)?,
                    None => return Err(Malformed::new("a connector's message, and there is none").into()),
                },
                ToCoordinator::TasksEnded => return Ok(()),
                ToCoordinator::Ping => {}
                ToCoordinator::Failed(error) => return Err(error),
                other @ (ToCoordinator::Hello(_) | ToCoordinator::Connected(_)) => {
                    return Err(Malformed::new(format!("{other:?} came behind the start")).into());
                }
            }
        }
    }

    /// Nobody reads events of an attempt that is over.
    async fn event(&self, event: TaskEvent) {
        tokio::select! {
            biased;
            () = self.context.cancel.cancelled() => {}
            _sent = self.context.events.send(event) => {}
        }
    }
}
