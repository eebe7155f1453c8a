//! Spawning. No task is detached: whoever spawns, joins, and a panic reaches the owner.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::{JoinError, JoinHandle, JoinSet};
/// Asks tasks to stop; cheap to clone. Re-exported so that no other crate needs tokio-util.
pub use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// What an error or a cancellation of the task means to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Serves one peer. Its end, good or bad, ends nothing else.
    Connection,
    /// Owns one state for others (a partition, a coordinator). Its error ends the service it belongs to.
    Service,
    /// Part of a job. Its error ends the job's attempt; its cancellation is an abort of the attempt.
    Job,
    /// Short work on a blocking thread (files). Cancellation does not stop it; its result is dropped.
    Blocking,
}

/// A task panicked. The message is kept; the owner decides what falls with it.
#[derive(Debug, thiserror::Error)]
#[error("task {name} panicked: {message}")]
pub struct TaskPanic {
    /// Name given at spawn.
    pub name: String,
    /// The panic's message, if it was text.
    pub message: String,
}

/// How one task of a [`TaskSet`] ended.
#[derive(Debug)]
pub struct TaskExit<T> {
    /// Name given at spawn.
    pub name: String,
    /// Kind given at spawn.
    pub kind: TaskKind,
    /// What it returned; `None` when it was aborted.
    pub result: Result<Option<T>, TaskPanic>,
}

/// Decides when the tasks of one simulated process may run.
///
/// A paused or dead process keeps its tasks, timers and sockets, and none of its code runs.
pub trait Gate: fmt::Debug + Send + Sync {
    /// A task starts: gives the number by which [`Gate::poll_ready`] is asked.
    fn enter(&self, name: &str) -> u64;
    /// Asked before each poll of a task. `Pending` means not now: the gate keeps the waker and wakes the task when it
    /// may be asked again.
    fn poll_ready(&self, task: u64, cx: &mut Context<'_>) -> Poll<()>;
    /// A task is gone: it has ended or was dropped.
    fn leave(&self, task: u64);
}

/// Where the tasks of one process run. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Spawner {
    gate: Option<Arc<dyn Gate>>,
}

impl Spawner {
    /// On the current runtime, whenever they are ready.
    pub fn system() -> Self {
        Spawner { gate: None }
    }

    /// On the current runtime, when they are ready and `gate` lets them.
    pub fn gated(gate: Arc<dyn Gate>) -> Self {
        Spawner { gate: Some(gate) }
    }

    fn admit<F: Future>(&self, name: &str, future: F) -> Gated<F> {
        let admission = self.gate.as_ref().map(|gate| (Arc::clone(gate), gate.enter(name)));
        Gated { future: Box::pin(future), admission: admission.map(Admission) }
    }
}

/// A task's future behind the gate of its process.
struct Gated<F> {
    // Dropped first, so that the gate hears of the end when everything of the task is gone.
    future: Pin<Box<F>>,
    admission: Option<Admission>,
}

struct Admission((Arc<dyn Gate>, u64));

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.0.leave(self.0.1);
    }
}

impl<F: Future> Future for Gated<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(Admission((gate, task))) = &self.admission
            && gate.poll_ready(*task, cx).is_pending()
        {
            return Poll::Pending;
        }
        self.future.as_mut().poll(cx)
    }
}

/// Tasks by their ids, which have no order; looked up by id only.
#[allow(clippy::disallowed_types, reason = "never iterated, so its order does not matter")]
type Names = std::collections::HashMap<tokio::task::Id, (String, TaskKind)>;

/// A set of tasks with one owner. Dropping the set aborts what still runs.
pub struct TaskSet<T> {
    spawner: Spawner,
    tasks: JoinSet<T>,
    names: Names,
    cancel: CancellationToken,
}

impl<T> fmt::Debug for TaskSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSet").field("running", &self.names.len()).finish()
    }
}

impl<T: Send + 'static> TaskSet<T> {
    /// An empty set; `cancel` is handed to its tasks by whoever writes them.
    pub fn new(spawner: &Spawner, cancel: CancellationToken) -> Self {
        TaskSet { spawner: spawner.clone(), tasks: JoinSet::new(), names: Names::new(), cancel }
    }

    /// The token that [`TaskSet::cancel`] triggers.
    pub fn token(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Starts a task. Must be called inside a runtime.
    pub fn spawn<F>(&mut self, name: impl Into<String>, kind: TaskKind, future: F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let name = name.into();
        let span = tracing::debug_span!("task", task = %name);
        let id = self.tasks.spawn(self.spawner.admit(&name, future.instrument(span))).id();
        self.names.insert(id, (name, kind));
    }

    /// Waits for the next task to end; `None` when the set is empty. Cancel safe.
    pub async fn join_next(&mut self) -> Option<TaskExit<T>> {
        let joined = self.tasks.join_next_with_id().await?;
        let id = match &joined {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let (name, kind) = self.names.remove(&id).expect("every task of the set was named at spawn");
        let result = match joined {
            Ok((_, value)) => Ok(Some(value)),
            Err(error) => panic_of(&name, error),
        };
        Some(TaskExit { name, kind, result })
    }

    /// Number of tasks not yet joined.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// True when every task has been joined.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Asks all tasks to stop.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Aborts what still runs and waits until it is gone.
    pub async fn abort_all(&mut self) {
        self.tasks.shutdown().await;
        self.names.clear();
    }
}

/// One task with one owner. Dropping the handle aborts the task.
#[derive(Debug)]
pub struct OwnedTask<T> {
    name: String,
    handle: JoinHandle<T>,
}

impl<T: Send + 'static> OwnedTask<T> {
    /// Starts the task. Must be called inside a runtime.
    #[allow(clippy::disallowed_methods, reason = "this is the door to spawning")]
    pub fn spawn<F>(spawner: &Spawner, name: impl Into<String>, kind: TaskKind, future: F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let name = name.into();
        let span = tracing::debug_span!("task", task = %name, kind = ?kind);
        let admitted = spawner.admit(&name, future.instrument(span));
        OwnedTask { handle: tokio::spawn(admitted), name }
    }

    /// Waits for the end; `None` when it was aborted. Cancel safe: the task goes on until the handle is dropped.
    pub async fn join(&mut self) -> Result<Option<T>, TaskPanic> {
        match (&mut self.handle).await {
            Ok(value) => Ok(Some(value)),
            Err(error) => panic_of(&self.name, error),
        }
    }

    /// True when the task has ended.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Aborts the task.
    pub fn abort(&self) {
        self.handle.abort();
    }
}

impl<T> Drop for OwnedTask<T> {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// Runs blocking work (files, hashing of large input) away from the reactor. Not cancel safe: the work goes on.
#[allow(clippy::disallowed_methods, reason = "this is the door to blocking threads")]
pub async fn run_blocking<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TaskPanic> {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => Ok(value),
        Err(error) => match panic_of(name, error)? {
            Some(value) => Ok(value),
            None => {
                Err(TaskPanic { name: name.to_owned(), message: "the runtime is shutting down".to_owned() })
            }
        },
    }
}

fn panic_of<T>(name: &str, error: JoinError) -> Result<Option<T>, TaskPanic> {
    match error.try_into_panic() {
        Ok(panic) => Err(TaskPanic { name: name.to_owned(), message: panic_message(&*panic) }),
        Err(_aborted) => Ok(None),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_reaches_the_owner_with_the_name_of_its_task() {
        let mut tasks = TaskSet::<()>::new(&Spawner::system(), CancellationToken::new());
        tasks.spawn("reader-3", TaskKind::Job, async { panic!("lost the plot") });
        let exit = tasks.join_next().await.expect("one task was spawned");
        let panic = exit.result.expect_err("it panicked");
        assert_eq!((panic.name.as_str(), panic.message.as_str()), ("reader-3", "lost the plot"));
    }

    #[tokio::test]
    async fn dropping_the_owner_ends_the_task() {
        let token = CancellationToken::new();
        let seen = token.clone();
        let task = OwnedTask::spawn(&Spawner::system(), "holder", TaskKind::Service, async move {
            let _cancelled_on_drop = seen.drop_guard();
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        drop(task);
        token.cancelled().await;
    }
}
