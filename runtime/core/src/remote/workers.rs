//! The coordinator's door: workers come here and wait for attempts.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_base::{
    BoxIo, CancellationToken, Clock, Env, HostPort, Listener, OwnedTask, TaskKind, TaskSet, watch,
};
use twox_hash::XxHash64;

use super::bytes::Malformed;
use super::frame::{CONTROL_BYTES_MAX, FrameReader, FrameWriter, GREETING_BYTES_MAX, framed};
use super::message::{Hello, ToCoordinator, ToWorker};
use super::{GREETING_MAX, Role};
use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::graph::JobId;

/// Who may work for the coordinator.
#[derive(Clone, Debug)]
pub struct WorkerIdentity {
    /// The job.
    pub id: JobId,
    /// What the job is, such as a hash of its file and settings: equal in all three processes, or they are refused.
    pub definition: String,
}

impl WorkerIdentity {
    /// An identity whose definition is a hash of what the job is made of, and of this program's version.
    pub fn of(id: JobId, made_of: &[&str]) -> Self {
        let mut hasher = XxHash64::with_seed(0);
        for part in made_of.iter().copied().chain([env!("CARGO_PKG_VERSION")]) {
            // With its length: two parts never look like two others.
            hasher.write_u64(part.len() as u64);
            hasher.write(part.as_bytes());
        }
        WorkerIdentity { id, definition: format!("{:016x}", hasher.finish()) }
    }
}

/// Connections that are being greeted at a time; more wait for `accept`.
const GREETINGS_MAX: usize = 32;
/// Workers of one role that wait: more than one are on standby.
const WAITING_MAX: usize = 4;
/// Pause between two looks at whether waiting workers are still there, which tells them the same of us.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// A worker that waits and does not answer for so long is gone.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A control connection and who is at its other end.
pub(super) struct Control {
    pub(super) hello: Hello,
    pub(super) reader: FrameReader,
    pub(super) writer: FrameWriter,
}

/// The workers of one job, over all attempts of this process. Cheap to clone; the last clone closes the door.
#[derive(Clone)]
pub struct Workers {
    shared: Arc<Shared>,
    _keeper: Arc<OwnedTask<()>>,
}

struct Shared {
    identity: WorkerIdentity,
    clock: Clock,
    address: HostPort,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    waiting: BTreeMap<Role, VecDeque<Control>>,
    has_ended: bool,
    /// Workers that were told so.
    told: Vec<Role>,
}

impl State {
    fn first(&mut self, role: Role) -> Option<Control> {
        self.waiting.get_mut(&role)?.pop_front()
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("address", &self.shared.address).finish_non_exhaustive()
    }
}

impl Workers {
    /// Opens the door at `address`; port 0 takes a free one. Errors: `InvalidInput`, the address cannot be taken.
    pub async fn listen(env: &Env, address: &HostPort, identity: WorkerIdentity) -> Result<Self> {
        let listener = env.network.bind(address).await.map_err(|error| {
            let context = format!("cannot listen for workers on {address}");
            Error::new(ErrorKind::InvalidInput, context).with_source(error)
        })?;
        let shared = Arc::new(Shared {
            identity,
            clock: env.clock.clone(),
            address: listener.local_address(),
            state: Mutex::default(),
            changed: watch::Sender::new(0),
        });
        let keeper = keep(shared.clone(), listener, env.clone());
        let keeper = OwnedTask::spawn(&env.spawner, "workers", TaskKind::Service, keeper);
        Ok(Workers { shared, _keeper: Arc::new(keeper) })
    }

    /// Where workers find the coordinator, with its real port.
    pub fn address(&self) -> &HostPort {
        &self.shared.address
    }

    /// The job has ended: workers that wait are told so, and those that come within `grace`. They end, too.
    pub async fn end(&self, grace: Duration) {
        let mut changed = self.shared.changed.subscribe();
        let waiting = {
            let mut state = self.shared.lock();
            state.has_ended = true;
            std::mem::take(&mut state.waiting)
        };
        for control in waiting.into_values().flatten() {
            self.shared.tell_ended(control).await;
        }
        let all_told =
            async { while self.shared.lock().told.len() < 2 && changed.changed().await.is_ok() {} };
        if self.shared.clock.timeout(grace, all_told).await.is_err() {
            tracing::debug!("a worker was not there to hear that the job has ended");
        }
    }

    /// Waits until a worker of each role waits, at most `limit`: none is taken while another is missing, because a worker
    /// that hears nothing goes away. Errors: `Retry`, which one is missing. Cancel safe.
    pub(super) async fn all_come(&self, limit: Duration) -> Result<()> {
        let mut changed = self.shared.changed.subscribe();
        let coming = async {
            while self.missing().is_some() {
                // The sender lives as long as we do.
                let _changed = changed.changed().await;
            }
        };
        let come = self.shared.clock.timeout(limit, coming).await;
        come.map_err(|elapsed| {
            self.is_missing(self.missing().unwrap_or(Role::Sources), limit).with_source(elapsed)
        })
    }

    fn missing(&self) -> Option<Role> {
        let state = self.shared.lock();
        let waits = |role: &Role| state.waiting.get(role).is_some_and(|waiting| !waiting.is_empty());
        [Role::Sources, Role::Sinks].into_iter().find(|role| !waits(role))
    }

    fn is_missing(&self, role: Role, limit: Duration) -> Error {
        let address = &self.shared.address;
        let context = format!(
            "no {role} worker has come to {address} within {limit:?}: start `sharestream run JOB.toml --role {role} \
             --coordinator {address}`"
        );
        Error::new(ErrorKind::Retry, context)
    }

    /// A worker of this role that answers; waits for one at most `limit`. Errors: `Retry`, none came. Cancel safe: a worker
    /// that is lost by it comes again.
    pub(super) async fn take(&self, role: Role, limit: Duration) -> Result<Control> {
        let mut changed = self.shared.changed.subscribe();
        let taking = async {
            loop {
                let control = self.shared.lock().first(role);
                let Some(mut control) = control else {
                    // The sender lives as long as we do.
                    let _changed = changed.changed().await;
                    continue;
                };
                if self.shared.answers(&mut control).await {
                    return control;
                }
                tracing::info!(%role, process = control.hello.process, "a worker that waited is gone");
            }
        };
        let taken = self.shared.clock.timeout(limit, taking).await;
        taken.map_err(|elapsed| self.is_missing(role, limit).with_source(elapsed))
    }

    /// A worker has done with an attempt and waits for the next.
    pub(super) async fn put_back(&self, control: Control) {
        self.shared.wait(control).await;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is one operation of a map.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a waiting worker for a sign of life.
    async fn answers(&self, control: &mut Control) -> bool {
        let asking = async {
            control.writer.write(&ToWorker::Ping.to_frame(0, self.clock.now())).await?;
            while let Some(frame) = control.reader.next().await? {
                if let ToCoordinator::Ping = ToCoordinator::of_frame(frame, self.clock.now())? {
                    return Ok(true);
                }
            }
            Ok::<bool, Error>(false)
        };
        matches!(self.clock.timeout(ANSWER_MAX, asking).await, Ok(Ok(true)))
    }

    /// Puts a worker where attempts find it. One too many is sent away, and tries again: a place gets free once a dead one
    /// was found out.
    async fn wait(&self, control: Control) {
        let has_ended = {
            let mut state = self.lock();
            if state.has_ended {
                Some(control)
            } else {
                let role = control.hello.role;
                let waiting = state.waiting.entry(role).or_default();
                if waiting.len() < WAITING_MAX {
                    waiting.push_back(control);
                } else {
                    tracing::warn!(%role, "more workers wait than there is room for, one is sent away");
                }
                None
            }
        };
        if let Some(control) = has_ended {
            self.tell_ended(control).await;
        }
        self.changed.send_modify(|version| *version += 1);
    }

    async fn tell_ended(&self, mut control: Control) {
        let telling = async {
            control.writer.write(&ToWorker::JobEnded.to_frame(0, self.clock.now())).await?;
            control.writer.shutdown().await
        };
        if let Ok(Ok(())) = self.clock.timeout(ANSWER_MAX, telling).await {
            let mut state = self.lock();
            if !state.told.contains(&control.hello.role) {
                state.told.push(control.hello.role);
            }
        }
        self.changed.send_modify(|version| *version += 1);
    }

    /// What is wrong with a worker.
    fn fault(&self, hello: &Hello) -> Option<String> {
        let WorkerIdentity { id, definition } = &self.identity;
        if (&hello.job, &hello.instance) != (&id.job, &id.instance) {
            return Some(format!(
                "this is the coordinator of {id}, and the worker is one of {}/{}",
                hello.job, hello.instance
            ));
        }
        if hello.definition != *definition {
            return Some(format!(
                "the job file, its settings or the program differ (coordinator {definition}, {} worker {}): start all \
                 three with the same file, the same settings and the same sharestream",
                hello.role, hello.definition
            ));
        }
        if hello.role == Role::Sinks && hello.data_address.is_none() {
            return Some("a sinks worker must say where it takes rows".to_owned());
        }
        None
    }

    /// Greets whoever has connected. Errors: it is no worker of ours.
    async fn greet(&self, io: BoxIo) -> Result<Control> {
        let (mut reader, mut writer) = framed(io, CONTROL_BYTES_MAX);
        reader.allow(GREETING_BYTES_MAX);
        let greeting = async {
            let now = self.clock.now();
            let Some(frame) = reader.next().await? else {
                return Err(Error::new(ErrorKind::Retry, "it closed the connection"));
            };
            let ToCoordinator::Hello(hello) = ToCoordinator::of_frame(frame, now)? else {
                return Err(Malformed::new("a worker begins with a greeting").into());
            };
            if let Some(fault) = self.fault(&hello) {
                let error = Error::new(ErrorKind::InvalidInput, fault);
                writer
                    .write(&ToWorker::Refused(Error::new(error.kind(), error.context())).to_frame(0, now))
                    .await?;
                writer.shutdown().await?;
                return Err(error);
            }
            writer.write(&ToWorker::Welcome.to_frame(0, now)).await?;
            Ok(hello)
        };
        match self.clock.timeout(GREETING_MAX, greeting).await {
            Ok(hello) => {
                let hello = hello?;
                reader.allow(CONTROL_BYTES_MAX);
                Ok(Control { hello, reader, writer })
            }
            Err(elapsed) => {
                Err(Error::new(ErrorKind::Retry, "it did not greet in time").with_source(elapsed))
            }
        }
    }

    /// Looks at whether who waits is still there.
    async fn look_at_waiting(&self) {
        for role in [Role::Sources, Role::Sinks] {
            let count = self.lock().waiting.get(&role).map_or(0, VecDeque::len);
            for _ in 0..count {
                // Taken by an attempt meanwhile, there may be fewer.
                let Some(mut control) = self.lock().first(role) else { break };
                if self.answers(&mut control).await {
                    self.wait(control).await;
                } else {
                    tracing::info!(%role, process = control.hello.process, "a worker that waited is gone");
                }
            }
        }
    }
}

/// Greets whoever comes, and looks after those who wait, until it is dropped.
async fn keep(shared: Arc<Shared>, mut listener: Box<dyn Listener>, env: Env) {
    let mut greetings: TaskSet<()> = TaskSet::new(&env.spawner, CancellationToken::new());
    let looking = {
        let shared = shared.clone();
        async move {
            loop {
                shared.clock.sleep(LOOK_INTERVAL).await;
                shared.look_at_waiting().await;
            }
        }
    };
    tokio::pin!(looking);
    loop {
        tokio::select! {
            biased;
            Some(exit) = greetings.join_next() => {
                if let Err(panic) = exit.result {
                    tracing::error!(%panic, "greeting a worker");
                }
            }
            accepted = listener.accept(), if greetings.len() < GREETINGS_MAX => match accepted {
                Ok((io, peer)) => {
                    let shared = shared.clone();
                    greetings.spawn(format!("greet {peer}"), TaskKind::Connection, async move {
                        match shared.greet(io).await {
                            Ok(control) => {
                                let Hello { role, process, .. } = &control.hello;
                                tracing::info!(%role, process, peer, "a worker has come");
                                shared.wait(control).await;
                            }
                            Err(error) => tracing::warn!(peer, %error, "a connection was refused"),
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a worker's connection could not be accepted");
                    shared.clock.sleep(ACCEPT_PAUSE).await;
                }
            },
            () = &mut looking => {}
        }
    }
}
