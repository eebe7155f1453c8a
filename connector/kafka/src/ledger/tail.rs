//! The tail: one task for each process that reads the group's outcome partition, uncommitted and with control batches,
//! into a view that the tasks of the job share.
//!
//! ```text
//! building --caught up--> live --the view must be rebuilt--> building (the old view stays until then)
//!     \--------error---------\--error--> failed (end; the next attempt starts another)
//! ```
//! A view is published when it is caught up for the first time, so that nobody sees half of a log: a prefix may not know
//! of a reset.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_base::ids::Offset;
use sharestream_base::planted::{Bug, is_planted};
use sharestream_base::{ErrorKind, OwnedTask, TaskKind, watch};
use sharestream_client::{Client, FetchedPartition, Isolation, OffsetSpec, PartitionReader};

use super::view::{ResponseEnd, View};
use crate::commit::OutcomeTopic;
use crate::error::{bug, client_error};
use crate::{Error, Result};

/// Bytes of one fetch.
const FETCH_BYTES_MAX: i32 = 4 << 20;
/// Longest wait of a fetch at the end of the log: who must know that nothing has come waits twice as long at most.
const FETCH_WAIT: Duration = Duration::from_millis(50);
/// Pause after a fetch that failed although the client had repeated it for its whole operation time-out.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How far the tail is.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// Number of the last fetch that was sent.
    sent: u64,
    /// Number of the last fetch that ended at its own high watermark, in a published view.
    caught_up: u64,
    /// End of that fetch.
    caught_up_to: Option<Offset>,
    /// Claims whose records are still in the log.
    backlog: usize,
    /// Why it reads no more, or why nobody may go on.
    failed: Option<(ErrorKind, String)>,
}

/// A handle to the tail; cheap to clone. The task ends with the last handle.
#[derive(Clone)]
pub(crate) struct LedgerTail {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    topic: OutcomeTopic,
    group: String,
    /// Of the task that runs now: an earlier one may still be on its way out.
    published: Mutex<Arc<Published>>,
    task: Mutex<Option<OwnedTask<()>>>,
}

/// What the task and its readers share; the task holds no handle to itself.
#[derive(Default)]
struct Published {
    /// `None` until a view was caught up. Held for single looks and batches only.
    view: Mutex<Option<View>>,
    progress: ProgressSender,
}

/// A sender with a default value.
struct ProgressSender(watch::Sender<Progress>);

impl Default for ProgressSender {
    fn default() -> Self {
        ProgressSender(watch::Sender::new(Progress::default()))
    }
}

impl std::fmt::Debug for LedgerTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerTail")
            .field("topic", &self.shared.topic.name)
            .field("group", &self.shared.group)
            .finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in `View::apply` ends the task, and its view is rebuilt by the next one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LedgerTail {
    /// A tail of `group`, not started.
    pub(crate) fn new(client: Client, topic: &OutcomeTopic, group: &str) -> Self {
        LedgerTail {
            shared: Arc::new(Shared {
                client,
                topic: topic.clone(),
                group: group.to_owned(),
                published: Mutex::default(),
                task: Mutex::new(None),
            }),
        }
    }

    /// Starts the task, or starts it anew after it has failed: then the partition is read from its start (rule 7). Must
    /// be called inside a runtime.
    pub(crate) fn ensure_running(&self) {
        let Shared { client, topic, group, published, task } = &*self.shared;
        let mut task = locked(task);
        let mut published = locked(published);
        let is_running = task.as_ref().is_some_and(|task| !task.is_finished());
        if is_running && published.progress.0.borrow().failed.is_none() {
            return;
        }
        *published = Arc::default();
        let reading = Reading {
            client: client.clone(),
            topic: topic.clone(),
            group: group.clone(),
            published: Arc::clone(&published),
        };
        let name = format!("ledger-tail-{group}");
        *task = Some(OwnedTask::spawn(&client.env().spawner, name, TaskKind::Service, reading.run()));
    }

    /// Whether it was ever started.
    pub(crate) fn is_started(&self) -> bool {
        locked(&self.shared.task).is_some()
    }

    /// Looks at the view. Errors: what the tail failed with; `Retry` before it was caught up for the first time.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&View) -> T) -> Result<T> {
        let published = self.published();
        published.check()?;
        let view = locked(&published.view);
        view.as_ref().map(look).ok_or_else(|| {
            Error::new(ErrorKind::Retry, format!("{} is not read to its end yet", self.shared.topic.name))
        })
    }

    /// Errors: what the tail, or who looks after the ledger, has failed with.
    pub(crate) fn check(&self) -> Result<()> {
        self.published().check()
    }

    fn published(&self) -> Arc<Published> {
        Arc::clone(&locked(&self.shared.published))
    }

    /// Nobody may go on: every task that looks from now on gets this error.
    pub(crate) fn fail(&self, error: &Error) {
        self.published().fail(error);
    }

    /// Waits until a fetch that is sent from now on has ended at its own high watermark. Cancel safe. Errors: as
    /// [`LedgerTail::check`].
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let published = self.published();
        let sent = published.progress.0.borrow().sent;
        published.wait_for(|progress| progress.caught_up > sent).await
    }

    /// Waits until the tail was caught up beyond `position`. Cancel safe. Errors: as [`LedgerTail::check`].
    pub(crate) async fn read_past(&self, position: Offset) -> Result<()> {
        self.published().wait_for(|progress| progress.caught_up_to.is_some_and(|end| end > position)).await
    }

    /// Waits until the tail was caught up once more since `seen` (0 the first time); gives the number to wait from next.
    /// Cancel safe. Errors: as [`LedgerTail::check`].
    pub(crate) async fn news(&self, seen: u64) -> Result<u64> {
        let published = self.published();
        published.wait_for(|progress| progress.caught_up > seen).await?;
        let caught_up = published.progress.0.borrow().caught_up;
        Ok(caught_up)
    }

    /// Waits until at least `backlog` claims are in the log. Cancel safe. Errors: as [`LedgerTail::check`].
    pub(crate) async fn backlog_of(&self, backlog: usize) -> Result<()> {
        self.published().wait_for(|progress| progress.backlog >= backlog).await
    }
}

impl Published {
    fn check(&self) -> Result<()> {
        match &self.progress.0.borrow().failed {
            Some((kind, context)) => Err(Error::new(*kind, context.clone())),
            None => Ok(()),
        }
    }

    async fn wait_for(&self, condition: impl Fn(&Progress) -> bool) -> Result<()> {
        let mut progress = self.progress.0.subscribe();
        let waited =
            progress.wait_for(|progress| progress.failed.is_some() || condition(progress)).await.is_ok();
        self.check()?;
        if waited { Ok(()) } else { Err(bug("the tail is gone while somebody holds it")) }
    }

    fn fail(&self, error: &Error) {
        self.progress.0.send_modify(|progress| {
            let failed = (error.kind(), error.to_string());
            progress.failed.get_or_insert(failed);
        });
    }
}

/// What a response led to.
enum Taken {
    /// It did not end at its own high watermark.
    More,
    /// It did, and the view is published.
    CaughtUp { to: Offset, backlog: usize },
    /// The view must be read from the start of the partition.
    Rebuild,
}

/// The task.
struct Reading {
    client: Client,
    topic: OutcomeTopic,
    group: String,
    published: Arc<Published>,
}

impl Reading {
    async fn run(self) {
        loop {
            match self.read().await {
                // The brokers could not be reached for long: what is known stays true, and nobody commits meanwhile.
                Err(error) if error.kind() == ErrorKind::Retry => {
                    tracing::warn!(%error, "the outcome partition cannot be read, trying again");
                    self.client.env().clock.sleep(RETRY_PAUSE).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "the outcome partition cannot be read");
                    self.published.fail(&error);
                    return;
                }
                Ok(never) => match never {},
            }
        }
    }

    /// Builds a view from the start of the partition and keeps it up to date.
    async fn read(&self) -> Result<std::convert::Infallible> {
        let mut reader = PartitionReader::new(self.client.clone());
        loop {
            let mut building = Some(View::new(&self.group, self.start().await?));
            loop {
                let number = self.sent();
                let from = match &building {
                    Some(view) => view.next(),
                    None => self.live_next()?,
                };
                let OutcomeTopic { name, partition, .. } = &self.topic;
                let isolation = Isolation::ReadUncommitted;
                let fetched = reader
                    .fetch(name, *partition, from, isolation, FETCH_BYTES_MAX, FETCH_WAIT)
                    .await
                    .map_err(client_error(format!("tail of {name}/{partition}")))?;
                self.check_topic().await?;
                match self.take(&mut building, &fetched)? {
                    Taken::More => {}
                    Taken::CaughtUp { to, backlog } => self.published.progress.0.send_modify(|progress| {
                        (progress.caught_up, progress.caught_up_to, progress.backlog) =
                            (number, Some(to), backlog);
                    }),
                    Taken::Rebuild => {
                        tracing::info!(topic = %self.topic.name, "the view of the ledger is built anew");
                        self.client.env().clock.sleep(FETCH_WAIT).await;
                        break;
                    }
                }
            }
        }
    }

    /// Feeds a response to the view under construction, else to the published one; publishes the former when it is
    /// caught up.
    fn take(&self, building: &mut Option<View>, fetched: &FetchedPartition) -> Result<Taken> {
        let mut published = locked(&self.published.view);
        let view = match (&mut *building, &mut *published) {
            (Some(view), _) | (None, Some(view)) => view,
            (None, None) => return Err(bug("the view of the ledger is gone")),
        };
        for batch in &fetched.batches {
            view.apply(batch)?;
        }
        view.response_ended(ResponseEnd {
            high_watermark: fetched.high_watermark,
            last_stable_offset: fetched.last_stable_offset,
        });
        if view.next() < fetched.high_watermark {
            return Ok(Taken::More);
        }
        if view.must_be_rebuilt() {
            return Ok(Taken::Rebuild);
        }
        let (to, backlog) = (view.next(), view.backlog());
        if let Some(view) = building.take() {
            *published = Some(view);
        }
        Ok(Taken::CaughtUp { to, backlog })
    }

    /// A topic that was created again under the same name knows nothing of what was decided.
    async fn check_topic(&self) -> Result<()> {
        let OutcomeTopic { name, topic_id, .. } = &self.topic;
        let known = self.client.topic(name).await.map_err(client_error(format!("topic {name}")))?;
        if known.topic_id == *topic_id {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "outcome topic {name} has id {} now, and had {topic_id}: it was created again",
                known.topic_id
            ),
        ))
    }

    /// Counts a fetch before it is sent.
    fn sent(&self) -> u64 {
        let mut number = 0;
        self.published.progress.0.send_if_modified(|progress| {
            progress.sent += 1;
            number = progress.sent;
            false
        });
        number
    }

    fn live_next(&self) -> Result<Offset> {
        locked(&self.published.view)
            .as_ref()
            .map(View::next)
            .ok_or_else(|| bug("the view of the ledger is gone"))
    }

    /// Where the partition begins (rule 7).
    async fn start(&self) -> Result<Offset> {
        let spec = if is_planted(Bug::LedgerReadFromEnd) { OffsetSpec::Latest } else { OffsetSpec::Earliest };
        let OutcomeTopic { name, partition, .. } = &self.topic;
        let doing = client_error(format!("start of {name}/{partition}"));
        let starts = self.client.admin().list_offsets(name, &[*partition], spec).await.map_err(doing)?;
        let start = starts.get(partition).copied();
        start.ok_or_else(|| Error::new(ErrorKind::Retry, format!("{name}/{partition} told no offset")))
    }
}
