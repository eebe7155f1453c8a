//! What the parts of one attempt tell each other beside the graph: the identity of each open epoch, the live epoch of
//! each member, and (at least once) the decisions that may be acknowledged.
//!
//! In one process it is shared memory. Where sources, sinks and coordinator are processes of their own, each has one, and
//! [`link`] carries what one of them learns to the one that needs it: identities from the coordinator to the sinks, decisions
//! from the coordinator to the sources, and back that they are acknowledged; the epoch of a member is asked for.

pub(crate) mod link;
mod message;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_base::ids::CheckpointId;
use sharestream_base::planted::{Bug, is_planted};
use sharestream_base::{Clock, ErrorKind, watch};
use sharestream_client::{MetadataHandle, ProducerIdentity, ShareGroupMetadata};
use sharestream_core::decision::{Decisions, MemberDecisions, ShareMember};
use sharestream_core::remote::{Outbox, Peer, Role};

use self::message::Message;
use crate::{Error, Result};

type Identities = BTreeMap<CheckpointId, ProducerIdentity>;

/// Shared by source tasks, sink tasks and the commit protocol. Locks are held for a few instructions only.
pub(crate) struct Attempt {
    identities: watch::Sender<Identities>,
    members: Mutex<BTreeMap<String, MetadataHandle>>,
    /// Committed, not yet acknowledged; by checkpoint, then member id.
    committed: Mutex<BTreeMap<CheckpointId, BTreeMap<String, Decisions>>>,
    /// Incarnations of the owner records that this process wrote, or tried to write, and of those that it took over from.
    /// Not forgotten between attempts: any other one was started after this process.
    owners: Mutex<BTreeSet<String>>,
    /// An incarnation before the present one is known.
    is_restarted: AtomicBool,
    /// What is decided although the group hands it out: the group was taken back to a savepoint that had decided it.
    decided: Mutex<Arc<Decisions>>,
    /// Members of the present attempt that may still acquire something.
    fetching: Mutex<Arc<watch::Sender<usize>>>,
    /// The way to the other processes of the job, where there are any.
    outbox: Mutex<Option<Outbox>>,
    /// What the sources have answered about members, by the number of the question, until it is taken.
    answers: watch::Sender<Answers>,
    questions: AtomicU64,
}

/// `None`: that member's consumer is gone.
type Answers = BTreeMap<u64, Option<ShareGroupMetadata>>;

/// Longest wait for what the sources worker knows of a member: it is one look at a value.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A member that may acquire something; dropped, it may no longer.
#[derive(Debug)]
pub(crate) struct Fetching(Arc<watch::Sender<usize>>);

impl Drop for Fetching {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Fetching {
    /// This member acquires nothing any more; waits until that is true of all members of the attempt, at most `limit`.
    /// Before that nothing may be given back: another member's fetch that is under way would acquire it at once, only to
    /// give it back as well, and each time costs a delivery. Cancel safe.
    pub(crate) async fn end_with_all(self, clock: &Clock, limit: Duration) {
        let mut members = self.0.subscribe();
        drop(self);
        let all = members.wait_for(|count| *count == 0);
        if clock.timeout(limit, all).await.is_err() {
            tracing::debug!("another member of the job may still acquire what is given back now");
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("identities", &*self.identities.borrow()).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each critical section is one map operation: a panic in it leaves a valid map.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attempt {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Attempt {
            identities: watch::Sender::new(Identities::new()),
            members: Mutex::default(),
            committed: Mutex::default(),
            owners: Mutex::default(),
            is_restarted: AtomicBool::new(false),
            decided: Mutex::default(),
            fetching: Mutex::new(Arc::new(watch::Sender::new(0))),
            outbox: Mutex::new(None),
            answers: watch::Sender::new(Answers::new()),
            questions: AtomicU64::new(0),
        })
    }

    /// True once an attempt of this process has begun to take the job.
    pub(crate) fn has_owned(&self) -> bool {
        !locked(&self.owners).is_empty()
    }

    /// Whether this owner is one of ours, or one that we followed.
    pub(crate) fn knows_owner(&self, incarnation: &str) -> bool {
        locked(&self.owners).contains(incarnation)
    }

    /// True when the replica has run before, in this process or another.
    pub(crate) fn is_restarted(&self) -> bool {
        self.is_restarted.load(Ordering::Relaxed)
    }

    /// Whether the replica has run before.
    pub(crate) fn set_restarted(&self, is_restarted: bool) {
        self.is_restarted.store(is_restarted, Ordering::Relaxed);
    }

    /// What is decided although the group hands it out.
    pub(crate) fn decided(&self) -> Arc<Decisions> {
        locked(&self.decided).clone()
    }

    /// Told by recovery, before sources are made.
    pub(crate) fn set_decided(&self, decided: Decisions) {
        *locked(&self.decided) = Arc::new(decided);
    }

    /// An owner that is ours from now on, or that we follow.
    pub(crate) fn remember_owner(&self, incarnation: &str) {
        locked(&self.owners).insert(incarnation.to_owned());
    }

    /// Forgets what an earlier attempt left.
    pub(crate) fn reset(&self) {
        *locked(&self.outbox) = None;
        self.answers.send_replace(Answers::new());
        self.identities.send_replace(Identities::new());
        locked(&self.members).clear();
        locked(&self.committed).clear();
        // Members of an earlier attempt that are still about count there.
        *locked(&self.fetching) = Arc::new(watch::Sender::new(0));
    }

    /// A member begins to acquire.
    pub(crate) fn start_fetching(&self) -> Fetching {
        let members = locked(&self.fetching).clone();
        members.send_modify(|count| *count += 1);
        Fetching(members)
    }

    /// Tells another process of the job, if this peer is one. Errors: those of [`Outbox::send`].
    fn tell(&self, peer: Peer, message: &Message) -> Result<bool> {
        match locked(&self.outbox).as_ref().filter(|outbox| outbox.reaches(peer)) {
            Some(outbox) => outbox.send(peer, message.encode()).map(|()| true),
            None => Ok(false),
        }
    }

    /// As [`Attempt::tell`], where a message that is not sent changes nothing: the attempt is over then, and whoever would
    /// have heard of it ends, too.
    fn mention(&self, peer: Peer, message: &Message) {
        if let Err(error) = self.tell(peer, message) {
            tracing::debug!(%error, "another process of the job was not told");
        }
    }

    /// The transaction of this epoch is open: sinks may write. Errors: they cannot be told.
    pub(crate) fn publish_identity(
        &self,
        checkpoint: CheckpointId,
        identity: ProducerIdentity,
    ) -> Result<()> {
        self.take_identity(checkpoint, identity.clone());
        self.tell(Peer::Worker(Role::Sinks), &Message::Opened(checkpoint, identity)).map(|_| ())
    }

    fn take_identity(&self, checkpoint: CheckpointId, identity: ProducerIdentity) {
        self.identities.send_modify(|identities| {
            identities.insert(checkpoint, identity);
        });
    }

    /// The transaction of this epoch is over: nobody may write into it.
    pub(crate) fn withdraw_identity(&self, checkpoint: CheckpointId) {
        self.forget_identity(checkpoint);
        self.mention(Peer::Worker(Role::Sinks), &Message::Closed(checkpoint));
    }

    fn forget_identity(&self, checkpoint: CheckpointId) {
        self.identities.send_modify(|identities| {
            identities.remove(&checkpoint);
        });
    }

    /// Waits until the transaction of this epoch is open. Cancel safe.
    pub(crate) async fn identity(&self, checkpoint: CheckpointId) -> Result<ProducerIdentity> {
        let mut identities = self.identities.subscribe();
        if is_planted(Bug::IdentityNotAwaited)
            && let Some((_, newest)) = identities.borrow().last_key_value()
        {
            return Ok(newest.clone());
        }
        let open = identities.wait_for(|identities| identities.contains_key(&checkpoint)).await;
        let identity = open.ok().and_then(|identities| identities.get(&checkpoint).cloned());
        identity
            .ok_or_else(|| Error::new(ErrorKind::Closed, format!("checkpoint {checkpoint} was never opened")))
    }

    /// A source task has joined.
    pub(crate) fn add_member(&self, handle: MetadataHandle) {
        locked(&self.members).insert(handle.current().member_id, handle);
    }

    /// The member as the group knows it now; as it was when it decided, if its consumer is gone. Errors: `Abort`, the
    /// sources are in another process, which does not answer; nothing is staged yet, so that costs no delivery. Cancel safe.
    pub(crate) async fn live_member(
        &self,
        member: &ShareMember,
        clock: &Clock,
    ) -> Result<ShareGroupMetadata> {
        let known = match self.ask_sources(&member.member_id, clock).await? {
            Some(answer) => answer,
            None => self.known_member(&member.member_id),
        };
        Ok(known.unwrap_or_else(|| ShareGroupMetadata {
            group_id: member.group_id.clone(),
            member_id: member.member_id.clone(),
            member_epoch: member.member_epoch,
        }))
    }

    fn known_member(&self, member_id: &str) -> Option<ShareGroupMetadata> {
        locked(&self.members).get(member_id).map(MetadataHandle::current)
    }

    /// What the sources worker knows of a member; `None`: the sources are here.
    async fn ask_sources(
        &self,
        member_id: &str,
        clock: &Clock,
    ) -> Result<Option<Option<ShareGroupMetadata>>> {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        let question = Message::AskMember { number, member_id: member_id.to_owned() };
        let silent = |why: String| {
            Error::new(
                ErrorKind::Abort,
                format!("the sources worker did not say of member {member_id}: {why}"),
            )
        };
        let is_asked = self.tell(Peer::Worker(Role::Sources), &question);
        if !is_asked.map_err(|error| silent(error.to_string()))? {
            return Ok(None);
        }
        let mut answers = self.answers.subscribe();
        let answered = answers.wait_for(|answers| answers.contains_key(&number));
        if clock.timeout(ANSWER_MAX, answered).await.is_err() {
            return Err(silent(format!("no answer within {ANSWER_MAX:?}")));
        }
        let mut answer = None;
        self.answers.send_if_modified(|answers| {
            answer = answers.remove(&number);
            false
        });
        Ok(answer)
    }

    /// The epoch has committed: its sources may acknowledge it (at least once).
    pub(crate) fn release_decisions(&self, checkpoint: CheckpointId, decided: &[MemberDecisions]) {
        self.take_released(checkpoint, decided);
        // Committed it is; untold, the records come again, and their claims are known, or it was at least once.
        self.mention(Peer::Worker(Role::Sources), &Message::Committed(checkpoint, decided.to_vec()));
    }

    fn take_released(&self, checkpoint: CheckpointId, decided: &[MemberDecisions]) {
        let by_member = decided
            .iter()
            .map(|member| (member.member.member_id.clone(), member.decisions.clone()))
            .collect();
        locked(&self.committed).insert(checkpoint, by_member);
    }

    /// What a member may acknowledge of this epoch, once.
    pub(crate) fn take_decisions(&self, checkpoint: CheckpointId, member_id: &str) -> Option<Decisions> {
        let mut committed = locked(&self.committed);
        let by_member = committed.get_mut(&checkpoint)?;
        by_member.remove(member_id)
    }

    /// A member has acknowledged what it took; the last one closes the epoch.
    pub(crate) fn acknowledged(&self, checkpoint: CheckpointId) {
        let is_closed = {
            let mut committed = locked(&self.committed);
            let is_last = committed.get(&checkpoint).is_some_and(BTreeMap::is_empty);
            if is_last {
                committed.remove(&checkpoint);
            }
            is_last
        };
        if is_closed {
            self.mention(Peer::Coordinator, &Message::Acknowledged(checkpoint));
        }
    }

    /// True when no member has acknowledgements of this epoch left.
    pub(crate) fn is_acknowledged(&self, checkpoint: CheckpointId) -> bool {
        !locked(&self.committed).contains_key(&checkpoint)
    }
}
