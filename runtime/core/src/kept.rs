//! Sources between two attempts: they outlive an attempt that failed and hand on again, from memory and under the same
//! locks, what was not decided (DESIGN section 2, Abort; ADR 0026).
//!
//! ```text
//! source task --cancelled--> keep --> looked after (locks renewed) --next attempt--> rewind --> source task
//!                                        \--lost, a minute over, no next attempt--> closed: records go back to the group
//! ```
//! Whatever is in doubt is closed, which is always right and costs a delivery.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use sharestream_base::ids::CheckpointId;
use sharestream_base::{CancellationToken, Clock, Env, Instant, OwnedTask, Spawner, TaskKind, watch};

use crate::Result;
use crate::source::{Rewind, Source};

/// The longest that a source is kept without an attempt that takes it: a job that cannot come back for so long gives its
/// records to others.
const KEPT_MAX: Duration = Duration::from_secs(60);

/// The kept sources of one supervised job. Cheap to clone.
#[derive(Clone)]
pub(crate) struct KeptSources {
    clock: Clock,
    spawner: Spawner,
    shared: Arc<Shared>,
}

struct Shared {
    /// Sources of the present attempt may be kept when it fails without a commit.
    is_trusted: AtomicBool,
    /// The present attempt has failed, and another may follow.
    is_allowed: AtomicBool,
    /// The last commit that ended while its attempt was failing: sources acknowledge it.
    committed: watch::Sender<Option<CheckpointId>>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Staging was begun for this checkpoint last.
    staged_up_to: Option<CheckpointId>,
    /// By subtask, over all sources of the job.
    sources: BTreeMap<usize, Kept>,
}

/// One source and the task that looks after it.
struct Kept {
    /// Who made it: nobody else can take it.
    maker: usize,
    take: CancellationToken,
    task: OwnedTask<Option<Box<dyn Source>>>,
    close_deadline: Duration,
}

impl KeptSources {
    pub(crate) fn new(env: &Env) -> Self {
        let shared = Shared {
            is_trusted: AtomicBool::new(true),
            is_allowed: AtomicBool::new(false),
            committed: watch::Sender::new(None),
            inner: Mutex::default(),
        };
        KeptSources { clock: env.clock.clone(), spawner: env.spawner.clone(), shared: Arc::new(shared) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Each critical section is one operation: a panic in it leaves it valid.
        self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt begins. `is_trusted`: the one before did not fail without a commit, so memory may help; what fails again
    /// and again is given back, so that deliveries count and the record at fault is found (ADR 0019).
    pub(crate) fn begin_attempt(&self, is_trusted: bool) {
        self.shared.is_trusted.store(is_trusted, Ordering::Relaxed);
        self.shared.is_allowed.store(false, Ordering::Relaxed);
    }

    /// The attempt has failed, and another may follow. Said before its tasks are cancelled.
    pub(crate) fn allow(&self, has_committed: bool) {
        let is_allowed = has_committed || self.shared.is_trusted.load(Ordering::Relaxed);
        self.shared.is_allowed.store(is_allowed, Ordering::Relaxed);
    }

    /// Whether a source whose task was cancelled may be kept.
    pub(crate) fn is_allowed(&self) -> bool {
        self.shared.is_allowed.load(Ordering::Relaxed)
    }

    /// From now on acknowledgements of this epoch may be staged, whatever becomes of the call.
    pub(crate) fn staging(&self, checkpoint: CheckpointId) {
        let mut inner = self.inner();
        inner.staged_up_to = inner.staged_up_to.max(Some(checkpoint));
    }

    /// The commit of this epoch, which was under way when its attempt failed, is known.
    pub(crate) fn committed(&self, checkpoint: CheckpointId) {
        self.shared.committed.send_replace(Some(checkpoint));
    }

    /// Keeps the source of a subtask, and looks after it from now on.
    pub(crate) fn put(
        &self,
        subtask: usize,
        maker: usize,
        source: Box<dyn Source>,
        close_deadline: Duration,
    ) {
        let take = CancellationToken::new();
        let until = self.clock.now() + KEPT_MAX;
        let keeper = Keeper {
            source,
            clock: self.clock.clone(),
            take: take.clone(),
            committed: self.shared.committed.subscribe(),
            told: None,
        };
        let looking = keeper.run(until, close_deadline);
        let task = OwnedTask::spawn(&self.spawner, format!("kept-source-{subtask}"), TaskKind::Job, looking);
        let kept = Kept { maker, take, task, close_deadline };
        self.inner().sources.insert(subtask, kept);
    }

    /// The source of a subtask, taken back to the last commit, if it was kept and can be. Not cancel safe: a source that was
    /// taken and not given is dropped.
    pub(crate) async fn rewound(
        &self,
        subtask: usize,
        maker: usize,
        last_committed: Option<CheckpointId>,
    ) -> Option<Box<dyn Source>> {
        let (kept, staged_up_to) = {
            let mut inner = self.inner();
            (inner.sources.remove(&subtask)?, inner.staged_up_to)
        };
        let (kept_by, close_deadline) = (kept.maker, kept.close_deadline);
        let mut source = kept.take().await?;
        let rewound = if kept_by == maker {
            source.rewind(Rewind { last_committed, staged_up_to }).await
        } else {
            Ok(false)
        };
        match rewound {
            Ok(true) => return Some(source),
            Ok(false) => tracing::info!(subtask, "what the source held is given back"),
            Err(error) => tracing::info!(subtask, %error, "what the source held is lost or given back"),
        }
        close(source, &self.clock, close_deadline).await;
        None
    }

    /// Closes whatever is still kept: its records go back to the group. All at once, since members wait for each other.
    pub(crate) async fn close_all(&self) {
        let sources = std::mem::take(&mut self.inner().sources);
        join_all(sources.into_values().map(async |kept| {
            let close_deadline = kept.close_deadline;
            if let Some(source) = kept.take().await {
                close(source, &self.clock, close_deadline).await;
            }
        }))
        .await;
    }
}

impl Kept {
    async fn take(mut self) -> Option<Box<dyn Source>> {
        self.take.cancel();
        match self.task.join().await {
            Ok(source) => source.flatten(),
            Err(panic) => {
                tracing::warn!(error = %panic, "a kept source panicked");
                None
            }
        }
    }
}

/// Why a source is no longer looked after.
enum End {
    Taken,
    TooLong,
    Failed(crate::Error),
}

/// Looks after one source.
struct Keeper {
    source: Box<dyn Source>,
    clock: Clock,
    take: CancellationToken,
    committed: watch::Receiver<Option<CheckpointId>>,
    /// The last commit that the source was told of here.
    told: Option<CheckpointId>,
}

impl Keeper {
    async fn run(mut self, until: Instant, close_deadline: Duration) -> Option<Box<dyn Source>> {
        match self.work(until).await {
            End::Taken => return Some(self.source),
            End::TooLong => {
                tracing::warn!("no attempt has taken the source for a minute: its records go back")
            }
            End::Failed(error) => tracing::warn!(%error, "a source that was kept has lost what it held"),
        }
        close(self.source, &self.clock, close_deadline).await;
        None
    }

    async fn work(&mut self, until: Instant) -> End {
        loop {
            let committed = *self.committed.borrow();
            if let Some(checkpoint) = committed.filter(|_| committed > self.told) {
                self.told = committed;
                if let Err(error) = self.source.committed(checkpoint).await {
                    return End::Failed(error);
                }
            }
            let (source, told) = (&mut self.source, self.told);
            let maintained = async {
                self.clock.sleep_until_any(source.maintain_at()).await;
                source.maintain().await
            };
            let done: Result<()> = tokio::select! {
                biased;
                _newer = self.committed.wait_for(|committed| *committed > told) => Ok(()),
                () = self.take.cancelled() => return End::Taken,
                () = self.clock.sleep_until(until) => return End::TooLong,
                done = maintained => done,
            };
            if let Err(error) = done {
                return End::Failed(error);
            }
        }
    }
}

async fn close(mut source: Box<dyn Source>, clock: &Clock, limit: Duration) {
    match clock.timeout(limit, source.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "a kept source did not close cleanly"),
        Err(_elapsed) => tracing::warn!("a kept source did not close in time"),
    }
}
