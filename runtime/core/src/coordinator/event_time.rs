//! Event time of an attempt: the machine, and the look at where the group stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sharestream_base::{Clock, Instant, OwnedTask, Spawner, TaskKind};

use super::pending_checkpoint::Sealed;
use crate::decision::{MemberDecisions, SourcePartition};
use crate::error::Result;
use crate::source::SourceFactory;
use crate::watermark::{SealedTimes, Standing, Watermark, Watermarks};

/// Pause between two looks at where the group stands.
pub(super) const LOOK_PAUSE: Duration = Duration::from_secs(1);

type Stand = BTreeMap<SourcePartition, Standing>;

/// Event time of an attempt of a job that has it.
pub(crate) struct EventTimes {
    machine: Watermarks,
    clock: Clock,
    /// What the newest look found, until it is taken in.
    found: Arc<Mutex<Option<Stand>>>,
    /// Ends when it is dropped. `None`: the sources cannot say where the group stands.
    _looking: Option<OwnedTask<()>>,
    /// As of the last sealed epoch.
    sealed: Option<Watermark>,
    /// As of the last committed checkpoint.
    committed: Option<Watermark>,
    /// What the last barrier carried; `None` before the first.
    told: Option<Watermark>,
    /// Somebody listens.
    has_state: bool,
}

impl EventTimes {
    /// Looks where the group stands, and goes on looking. Errors: those of the first look.
    pub(crate) async fn start(
        machine: Watermarks,
        sources: Vec<Arc<dyn SourceFactory>>,
        has_state: bool,
        (clock, spawner): (Clock, Spawner),
    ) -> Result<Self> {
        let mut machine = machine;
        let standing = look(&sources).await?;
        machine.begin(standing.as_ref());
        let found: Arc<Mutex<Option<Stand>>> = Arc::default();
        let looking = standing.is_some().then(|| {
            let (found, clock) = (found.clone(), clock.clone());
            OwnedTask::spawn(&spawner, "group-standing", TaskKind::Service, async move {
                loop {
                    clock.sleep(LOOK_PAUSE).await;
                    match look(&sources).await {
                        Ok(standing) => *found.lock().unwrap_or_else(PoisonError::into_inner) = standing,
                        // Without a newer look the watermark may stand still, and is never wrong.
                        Err(error) => tracing::warn!(%error, "where the group stands could not be read"),
                    }
                }
            })
        });
        let committed = machine.watermark();
        Ok(EventTimes {
            machine,
            clock,
            found,
            _looking: looking,
            sealed: committed,
            committed,
            told: None,
            has_state,
        })
    }

    /// Takes in what an epoch decides, and puts event time into its checkpoint.
    pub(super) fn seal(&mut self, sealed: &mut Sealed, deferred: &[MemberDecisions]) {
        self.take_in();
        let times = SealedTimes { decided: &sealed.decided, deferred, times: &sealed.times };
        self.machine.seal(times, self.clock.now());
        sealed.event_time = Some(self.machine.snapshot());
        let risen = self.machine.watermark();
        sealed.raises_watermark = self.has_state && risen > self.sealed;
        self.sealed = risen;
    }

    fn take_in(&mut self) {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner).take();
        if found.is_some() {
            self.machine.stands(found.as_ref());
        }
    }

    /// A checkpoint with this watermark is committed.
    pub(super) fn committed(&mut self, watermark: Option<Watermark>) {
        self.committed = watermark;
    }

    /// Whether a barrier is worth while though nothing was handed on: operators that keep state have not been told of the last
    /// committed watermark; or a partition has become idle, or the group's start offset known, and it has risen since the
    /// last sealed epoch, so that the next one carries it into a checkpoint.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        self.take_in();
        self.machine.advance(now);
        self.has_state && (self.committed > self.told || self.machine.watermark() > self.sealed)
    }

    /// What a barrier that is sent now carries.
    pub(super) fn tell(&mut self) -> Option<Watermark> {
        self.told = self.committed;
        self.told
    }
}

/// Where the group stands, in all sources; `None` when one cannot say.
async fn look(sources: &[Arc<dyn SourceFactory>]) -> Result<Option<Stand>> {
    let mut all = Stand::new();
    for source in sources {
        let place = format!("where the group of source {} stands", source.name());
        match source.standing().await.map_err(|error| error.within(&place))? {
            Some(standing) => all.extend(standing),
            None => return Ok(None),
        }
    }
    Ok(Some(all))
}
