//! A worker process: it serves the coordinator of one job, attempt after attempt.

use std::time::Duration;

use sharestream_base::{CancellationToken, Env, HostPort, Listener, Rng};

use super::frame::{CONTROL_BYTES_MAX, FrameReader, FrameWriter, framed};
use super::message::{Hello, ToCoordinator, ToWorker};
use super::worker_attempt::{AttemptEnd, WorkerAttempt};
use super::{GREETING_MAX, Role, SILENCE_MAX};
use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::supervisor::{AttemptFactory, describe};

use super::workers::WorkerIdentity;

/// What a worker is told at its start.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// What it does.
    pub role: Role,
    /// The job, and what it is.
    pub identity: WorkerIdentity,
    /// Where the coordinator is.
    pub coordinator: HostPort,
    /// Where a sinks worker takes rows; port 0 takes a free one.
    pub listen: HostPort,
    /// The host by which a sources worker reaches it; `None`: the one of `listen`.
    pub advertised_host: Option<String>,
    /// How long to try without a coordinator before giving up. Above zero.
    pub patience: Duration,
}

/// How a worker ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    /// The coordinator says that the job has ended.
    JobEnded,
    /// It was told to stop.
    Stopped,
}

/// Pause between two tries to reach the coordinator; it doubles up to the second.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);
const JITTER: f64 = 0.2;

/// Serves the coordinator until it says that the job has ended, or until `stop`: then what runs is closed, so that records
/// go back at once. `factory` builds the whole job for each attempt, as it does for the coordinator, and the worker takes
/// its part.
///
/// # Errors
/// `InvalidInput`: this worker's job is not the coordinator's, or the address for rows cannot be taken. `Retry`: no coordinator
/// was there for as long as the patience lasts.
///
/// # Cancel safety
/// Dropping the future ends all tasks at once; the coordinator finds the worker lost.
pub async fn run_worker<F: AttemptFactory>(
    env: Env,
    options: WorkerOptions,
    mut factory: F,
    stop: CancellationToken,
) -> Result<WorkerEnd> {
    let rng: Rng = env.rng.fork("worker");
    let mut listener = match options.role {
        Role::Sinks => Some(listen(&env, &options.listen).await?),
        Role::Sources => None,
    };
    let data_address = listener.as_ref().map(|listener| {
        let HostPort { host, port } = listener.local_address();
        HostPort::new(options.advertised_host.clone().unwrap_or(host), port).to_string()
    });
    let mut last_contact = env.clock.now();
    let mut pause = RECONNECT_PAUSE;
    let mut attempts = 0;
    loop {
        let serving = async {
            let (reader, writer) = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok((Ok(WorkerEnd::Stopped), false)),
                greeted = greet(&env, &options, data_address.clone()) => greeted?,
            };
            let mut session =
                Session { env: &env, options: &options, reader, writer, stop: &stop, has_served: false };
            let served = session.serve(&mut factory, listener.as_deref_mut(), &mut attempts).await;
            Ok::<_, Error>((served, session.has_served))
        };
        let error = match serving.await {
            Ok((Ok(end), _)) => return Ok(end),
            Ok((Err(error), has_served)) => {
                last_contact = env.clock.now();
                if has_served {
                    pause = RECONNECT_PAUSE;
                }
                error
            }
            Err(error) => error,
        };
        if error.kind() == ErrorKind::InvalidInput {
            return Err(error);
        }
        if env.clock.now().duration_since(last_contact) >= options.patience {
            let context = format!(
                "no coordinator on {} for {:?}; the last try: {}",
                options.coordinator,
                options.patience,
                describe(&error)
            );
            return Err(Error::new(ErrorKind::Retry, context).with_source(error));
        }
        tracing::info!(role = %options.role, error = describe(&error), "without a coordinator, connecting again");
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(WorkerEnd::Stopped),
            () = env.clock.sleep(rng.jitter(pause, JITTER)) => {}
        }
        pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
    }
}

async fn listen(env: &Env, address: &HostPort) -> Result<Box<dyn Listener>> {
    env.network.bind(address).await.map_err(|error| {
        let context = format!("cannot listen for rows on {address}");
        Error::new(ErrorKind::InvalidInput, context).with_source(error)
    })
}

/// Connects and is welcomed. Errors: `Retry`, not reached; `InvalidInput`, refused.
async fn greet(
    env: &Env,
    options: &WorkerOptions,
    data_address: Option<String>,
) -> Result<(FrameReader, FrameWriter)> {
    let address = &options.coordinator;
    let greeting = async {
        let io = env.network.connect(address).await.map_err(|error| {
            Error::new(ErrorKind::Retry, format!("cannot connect to the coordinator on {address}"))
                .with_source(error)
        })?;
        let (mut reader, mut writer) = framed(io, CONTROL_BYTES_MAX);
        let WorkerIdentity { id, definition } = options.identity.clone();
        let hello = Hello {
            role: options.role,
            job: id.job,
            instance: id.instance,
            definition,
            process: env.process_name(),
            data_address,
        };
        writer.write(&ToCoordinator::Hello(hello).to_frame(0, env.clock.now())).await?;
        let Some(frame) = reader.next().await? else {
            return Err(Error::new(ErrorKind::Retry, "the coordinator closed the connection"));
        };
        match ToWorker::of_frame(frame, env.clock.now())? {
            ToWorker::Welcome => Ok((reader, writer)),
            ToWorker::Refused(error) => Err(error.within(&format!("the coordinator on {address} refuses"))),
            other => Err(Error::new(ErrorKind::Retry, format!("{other:?} is no welcome"))),
        }
    };
    match env.clock.timeout(GREETING_MAX, greeting).await {
        Ok(greeted) => greeted,
        Err(elapsed) => {
            let context = format!("the coordinator on {address} did not greet in time");
            Err(Error::new(ErrorKind::Retry, context).with_source(elapsed))
        }
    }
}

/// A connection to the coordinator.
struct Session<'a> {
    env: &'a Env,
    options: &'a WorkerOptions,
    reader: FrameReader,
    writer: FrameWriter,
    stop: &'a CancellationToken,
    has_served: bool,
}

impl Session<'_> {
    /// Waits for attempts and runs them, until the connection or the job ends.
    async fn serve<F: AttemptFactory>(
        &mut self,
        factory: &mut F,
        mut listener: Option<&mut (dyn Listener + 'static)>,
        attempts: &mut u64,
    ) -> Result<WorkerEnd> {
        loop {
            let clock = &self.env.clock;
            let frame = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(WorkerEnd::Stopped),
                frame = clock.timeout(SILENCE_MAX, self.reader.next()) => frame,
            };
            let frame = match frame {
                Ok(Ok(Some(frame))) => frame,
                Ok(Ok(None)) => return Err(lost("it closed the connection")),
                Ok(Err(error)) => return Err(error),
                Err(_elapsed) => return Err(lost("there was no sign of life of it")),
            };
            let attempt = frame.attempt;
            match ToWorker::of_frame(frame, clock.now())? {
                ToWorker::Ping => self.say(&ToCoordinator::Ping, attempt).await?,
                ToWorker::JobEnded => return Ok(WorkerEnd::JobEnded),
                ToWorker::Refused(error) => return Err(error),
                ToWorker::Connect(assignment) => {
                    *attempts += 1;
                    self.has_served = true;
                    let served = WorkerAttempt {
                        env: self.env,
                        role: self.options.role,
                        attempt,
                        stop: self.stop,
                        reader: &mut self.reader,
                        writer: &mut self.writer,
                    };
                    let job = match factory.build(*attempts).await {
                        Ok(job) => job,
                        Err(error) => {
                            self.say(&ToCoordinator::Failed(error), attempt).await?;
                            continue;
                        }
                    };
                    match served.run(job, assignment, listener.as_deref_mut()).await? {
                        AttemptEnd::Ended => {}
                        AttemptEnd::Stopped => return Ok(WorkerEnd::Stopped),
                    }
                }
                // Of an attempt that is over: what it asks for is not done.
                ToWorker::Welcome
                | ToWorker::Start
                | ToWorker::Command { .. }
                | ToWorker::Opened(_)
                | ToWorker::BarrierSent(_)
                | ToWorker::Connector(_)
                | ToWorker::Cancel => {}
            }
        }
    }

    async fn say(&mut self, message: &ToCoordinator, attempt: u64) -> Result<()> {
        self.writer.write(&message.to_frame(attempt, self.env.clock.now())).await
    }
}

pub(super) fn lost(how: &str) -> Error {
    Error::new(ErrorKind::Retry, format!("the coordinator is lost: {how}"))
}
