//! What the parts of a connector in different processes of a job tell each other. The runtime carries the bytes, in order,
//! and knows nothing of what they mean.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::Role;
use crate::ErrorKind;
use crate::error::{Error, Result};

/// A process of the job, as a connector addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// The process that commits.
    Coordinator,
    /// A worker.
    Worker(Role),
}

/// Messages that wait for a connection. A connector sends a few for each epoch, and at most two epochs are open.
const MESSAGES_MAX: usize = 256;

/// Where a connector's messages go out, for one attempt. Cheap to clone.
#[derive(Clone)]
pub struct Outbox {
    peers: BTreeMap<Peer, mpsc::Sender<Vec<u8>>>,
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("peers", &self.peers.keys()).finish()
    }
}

impl Outbox {
    /// An outbox to these peers, and what comes out for each, in the same order.
    pub(super) fn to<const N: usize>(peers: [Peer; N]) -> (Self, [mpsc::Receiver<Vec<u8>>; N]) {
        let mut senders = BTreeMap::new();
        let receivers = peers.map(|peer| {
            let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
            senders.insert(peer, sender);
            receiver
        });
        (Outbox { peers: senders }, receivers)
    }

    /// Whether this process has a connection to `peer`.
    pub fn reaches(&self, peer: Peer) -> bool {
        self.peers.contains_key(&peer)
    }

    /// Sends a message; what is sent to one peer arrives there in order, and before any command that the coordinator gives
    /// later. Errors: `Closed`, the attempt is over, or this process has no connection to `peer`; `Bug`, too many
    /// messages wait.
    pub fn send(&self, peer: Peer, message: Vec<u8>) -> Result<()> {
        let Some(sender) = self.peers.get(&peer) else {
            return Err(Error::new(ErrorKind::Closed, format!("there is no connection to {peer:?}")));
        };
        match sender.try_send(message) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(Error::new(ErrorKind::Closed, "the attempt is over")),
            Err(TrySendError::Full(_)) => {
                Err(Error::new(ErrorKind::Bug, format!("too many messages wait for {peer:?}")))
            }
        }
    }
}

/// A connector's own connection between its parts. One object in each process, for all attempts.
#[async_trait]
pub trait ConnectorLink: Send + Sync {
    /// In the coordinator, after recovery and before the workers connect: what the part of `role` must know to open.
    fn opening(&self, role: Role) -> Result<Vec<u8>>;

    /// In a worker: a new attempt begins, with what [`ConnectorLink::opening`] gave. What an older one left is forgotten.
    /// Called before sources or sinks are made. Errors: those bytes are malformed, or this part cannot open.
    async fn open(&self, role: Role, opening: &[u8]) -> Result<()>;

    /// Messages of the attempt go out here from now on.
    fn attach(&self, outbox: Outbox);

    /// A message from the part in another process. Must not wait. Errors end the attempt.
    fn receive(&self, message: &[u8]) -> Result<()>;
}
