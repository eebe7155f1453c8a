//! `TransactionSession`: one transactional id, its producer id and epoch, and the transaction they are in.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kafka_protocol::messages::{
    EndTxnRequest, InitProducerIdRequest, ProducerId as WireProducerId, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ErrorKind;
use sharestream_base::ids::{NodeId, ProducerEpoch, ProducerId};
use sharestream_base::planted::{Bug, is_planted};

use super::stage::{self, StagingOrder};
use super::state::{Event, Identity, Outcome, State};
use crate::client::Client;
use crate::coordinator::CoordinatorKey;
use crate::error::ErrorClass;
use crate::share::{ShareAcknowledgements, ShareGroupMetadata};
use crate::{Error, Result};

/// First pause where a condition clears within a round trip: the markers of the transaction before.
pub(crate) const SHORT_PAUSE: Duration = Duration::from_millis(1);

/// Settings of a session.
#[derive(Clone, Debug)]
pub struct TransactionConfig {
    /// Name of the producer across restarts; a new session with the same name fences the older one. Kafka:
    /// `transactional.id`. Since 0.1.
    pub transactional_id: String,
    /// Longest life of one transaction; then the coordinator aborts it. Default 60 s; at most the broker's
    /// `transaction.max.timeout.ms`. Kafka: `transaction.timeout.ms`. Since 0.1.
    pub timeout: Duration,
    /// How long a commit or abort is repeated before it counts as unknown. Default 60 s. Since 0.1.
    pub end_deadline: Duration,
}

impl TransactionConfig {
    /// The defaults for this transactional id.
    pub fn new(transactional_id: impl Into<String>) -> Self {
        TransactionConfig {
            transactional_id: transactional_id.into(),
            timeout: Duration::from_secs(60),
            end_deadline: Duration::from_secs(60),
        }
    }
}

/// Under which identity writers write: give it to every [`crate::BatchWriter`] of the transaction. It changes with
/// each transaction (KIP-890).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerIdentity {
    /// Transactional id.
    pub transactional_id: Arc<str>,
    /// Producer id.
    pub producer_id: ProducerId,
    /// Epoch of this transaction.
    pub producer_epoch: ProducerEpoch,
}

/// Identity and life cycle of transactions, one after another. Record batching is apart: any number of writers, in
/// any process, use the identity on partitions of their own.
///
/// Calls that were dropped half way may be repeated: `init` and `abort` as they are, `commit` with `commit`.
#[derive(Debug)]
pub struct TransactionSession {
    client: Client,
    config: TransactionConfig,
    transactional_id: Arc<str>,
    coordinator: CoordinatorKey,
    state: State,
    /// An EndTxn of the transaction that is ending was sent and never answered: a refusal proves nothing then.
    end_unknown: bool,
}

impl TransactionSession {
    /// A session that is not initialized yet.
    ///
    /// # Errors
    /// `InvalidInput` when the cluster has no finalized `transaction.version` 2: without an epoch for each
    /// transaction, a delayed write could land in the next one.
    pub fn new(client: Client, config: TransactionConfig) -> Result<Self> {
        let level = client.features().transaction_version;
        if level < 2 {
            let context = format!(
                "transactional id '{}' needs a cluster with finalized transaction.version 2 (this one has {level}); \
                 upgrade it with kafka-features.sh upgrade --feature transaction.version=2",
                config.transactional_id
            );
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        Ok(TransactionSession {
            transactional_id: config.transactional_id.as_str().into(),
            coordinator: CoordinatorKey::Transaction(config.transactional_id.clone()),
            state: State::Fresh,
            end_unknown: false,
            client,
            config,
        })
    }

    /// The transactional id.
    pub fn transactional_id(&self) -> &str {
        &self.transactional_id
    }

    /// The identity of the current or next transaction; `None` before `init` and after a refusal.
    pub fn identity(&self) -> Option<ProducerIdentity> {
        match self.state {
            State::Ready(identity)
            | State::Open(identity)
            | State::Doomed(identity)
            | State::Ending(identity, _) => Some(self.public(identity)),
            State::Fresh | State::Stale => None,
        }
    }

    /// Takes the transactional id: fences older sessions, resolves what they left open (aborts it, or completes it
    /// when its end was already decided), and waits until that is done.
    ///
    /// # Errors
    /// `Retry` when the coordinator cannot be reached until the deadline, `InvalidInput` for a refused id or time-out.
    ///
    /// # Cancel safety
    /// May be dropped and called again; the epoch may then have been raised more than once.
    pub async fn init(&mut self) -> Result<ProducerIdentity> {
        self.init_while(|| Box::pin(std::future::ready(true))).await
    }

    /// The same as long as `goes_on` says so: it is asked before every repetition. Each InitProducerId fences
    /// whoever has the id, so someone who has lost the id for good must not repeat it until it succeeds.
    ///
    /// # Errors
    /// Those of `init`; `Fenced` when it does not go on.
    ///
    /// # Cancel safety
    /// As `init`.
    pub async fn init_while(
        &mut self,
        mut goes_on: impl FnMut() -> BoxFuture<'static, bool> + Send,
    ) -> Result<ProducerIdentity> {
        let timeout_ms = i32::try_from(self.config.timeout.as_millis()).unwrap_or(i32::MAX);
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(self.wire_id()))
            .with_transaction_timeout_ms(timeout_ms)
            .with_producer_id(WireProducerId(-1))
            .with_producer_epoch(-1);
        let what = format!("initialize transactional id '{}'", self.transactional_id);
        let mut backoff = self.client.backoff().starting_with(SHORT_PAUSE);
        loop {
            let attempt = async {
                let response = self.client.coordinator(&self.coordinator).await?.call(&request).await?;
                match response.error_code {
                    0 => Ok(Identity {
                        producer_id: ProducerId(response.producer_id.0),
                        producer_epoch: ProducerEpoch(response.producer_epoch),
                    }),
                    code => {
                        let error = Error::from_code(code, &what);
                        Err(self.client.refused(error, &self.coordinator.access("Write")))
                    }
                }
            };
            match attempt.await {
                Ok(identity) => {
                    self.end_unknown = false;
                    self.apply(Event::Initialized(identity))?;
                    return Ok(self.public(identity));
                }
                Err(error) if error.is_retriable() => {
                    self.client.reroute(&self.coordinator, &error);
                    // Repeating it is harmless, so at the deadline it is a plain failure.
                    backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
                    if !goes_on().await {
                        return Err(Error::new(
                            ErrorKind::Fenced,
                            format!("{what}: given up, another owns it"),
                        ));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins a transaction. No request: the first write or staged acknowledgement opens it at the coordinator.
    ///
    /// # Errors
    /// `InvalidInput` when one is open already or `init` is due.
    pub fn begin(&mut self) -> Result<ProducerIdentity> {
        self.apply(Event::Begin)?;
        match self.state {
            State::Open(identity) => Ok(self.public(identity)),
            State::Fresh | State::Ready(_) | State::Doomed(_) | State::Ending(..) | State::Stale => {
                Err(Error::new(ErrorKind::Bug, "begin did not open a transaction"))
            }
        }
    }

    /// Stages share acknowledgements into the open transaction, at every leader of an affected source partition at
    /// once. All or nothing: on an error that is not cleared by retries the transaction can only be aborted.
    ///
    /// Offsets are inclusive; each must be held by the member of `metadata`. Staging the same again succeeds.
    ///
    /// # Errors
    /// `Abort` (locks lost, stale member epoch; see [`Error::code`]), `Fenced` (producer epoch), `InvalidInput`
    /// (a type other than ACCEPT, REJECT and GAP, or a cluster without KIP-1289).
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, some leaders may have staged; stage again or abort. Source: KIP-1289 draft.
    pub async fn send_share_acknowledgements_to_transaction(
        &mut self,
        acknowledgements: &ShareAcknowledgements,
        metadata: &ShareGroupMetadata,
    ) -> Result<()> {
        self.stage_with(acknowledgements, metadata, StagingOrder::Concurrent, |_leader| {}).await
    }

    /// The same in a chosen order; `on_leader_staged` is called after each leader's success.
    ///
    /// A member epoch that is not the leader's (STALE_MEMBER_EPOCH, FENCED_MEMBER_EPOCH) leaves the transaction
    /// open, so that the caller may ask the consumer for its epoch and
    /// stage once more.
    pub async fn stage_with(
        &mut self,
        acknowledgements: &ShareAcknowledgements,
        metadata: &ShareGroupMetadata,
        order: StagingOrder,
        on_leader_staged: impl FnMut(NodeId) + Send,
    ) -> Result<()> {
        let identity = match self.state {
            State::Open(identity) => identity,
            State::Fresh | State::Ready(_) | State::Doomed(_) | State::Ending(..) | State::Stale => {
                return Err(self.not_allowed("stage acknowledgements"));
            }
        };
        let staging = stage::Staging {
            client: &self.client,
            identity: self.public(identity),
            acknowledgements,
            metadata,
            order,
        };
        let result = staging.run(on_leader_staged).await;
        if let Err(error) = &result {
            match error.class() {
                ErrorClass::Fenced => self.apply(Event::Refused)?,
                _open if stage::asks_for_member_epoch(error) => {}
                _failed => self.apply(Event::Doom)?,
            }
        }
        result
    }

    /// Commits the transaction. The identical request is repeated, at a coordinator found anew if need be, until its
    /// outcome is known: under transaction version 2 that is idempotent.
    ///
    /// # Errors
    /// `Abort` (the coordinator refused it: abort and process again), `Fenced` (a newer session, or the coordinator
    /// ended the transaction), `Indeterminate` (no answer until the deadline: `commit` again, or `init` and look).
    ///
    /// # Cancel safety
    /// Dropped, the outcome is unknown: call `commit` again.
    pub async fn commit(&mut self) -> Result<()> {
        self.commit_with(|| {}).await
    }

    /// The same; `on_sent` is called once, after the request was handed to the operating system and before its
    /// answer is read.
    pub async fn commit_with(&mut self, on_sent: impl FnOnce() + Send) -> Result<()> {
        self.end(Outcome::Commit, Some(on_sent)).await
    }

    /// Aborts the transaction: its writes and staged acknowledgements never become visible.
    ///
    /// # Errors
    /// `Fenced` when the coordinator no longer accepts the identity (the transaction is over either way; `init`
    /// is due), `Indeterminate` when no answer came until the deadline.
    ///
    /// # Cancel safety
    /// Dropped, call it again.
    pub async fn abort(&mut self) -> Result<()> {
        self.end(Outcome::Abort, None::<fn()>).await
    }

    async fn end(&mut self, outcome: Outcome, mut on_sent: Option<impl FnOnce() + Send>) -> Result<()> {
        self.apply(Event::End(outcome))?;
        let identity = match self.state {
            State::Ending(identity, _) => identity,
            State::Fresh | State::Ready(_) | State::Open(_) | State::Doomed(_) | State::Stale => {
                return Err(Error::new(ErrorKind::Bug, "end did not start to end the transaction"));
            }
        };
        let request = EndTxnRequest::default()
            .with_transactional_id(self.wire_id())
            .with_producer_id(WireProducerId(identity.producer_id.0))
            .with_producer_epoch(identity.producer_epoch.0)
            .with_committed(outcome == Outcome::Commit);
        let deadline = self.client.env().clock.now() + self.config.end_deadline;
        let mut backoff = self.client.backoff_until(deadline).starting_with(SHORT_PAUSE);
        loop {
            let error = match self.end_once(&request, &mut on_sent).await {
                Ok(next) => {
                    self.end_unknown = false;
                    let next = if is_planted(Bug::ReusedProducerEpoch) { identity } else { next };
                    return self.apply(Event::Ended(next));
                }
                Err(error) => error,
            };
            if error.kind() == ErrorKind::Indeterminate {
                self.end_unknown = true;
                if is_planted(Bug::LostEndTxnAnswerIsSuccess) && outcome == Outcome::Commit {
                    let producer_epoch = ProducerEpoch(identity.producer_epoch.0 + 1);
                    return self.apply(Event::Ended(Identity { producer_epoch, ..identity }));
                }
            }
            if error.is_retriable() {
                self.client.reroute(&self.coordinator, &error);
                // At the deadline: a request that never left, or that the coordinator put off, did not happen.
                let kind = if self.end_unknown { ErrorKind::Indeterminate } else { ErrorKind::Retry };
                backoff.wait(error.with_kind(kind)).await?;
                continue;
            }
            return Err(self.end_refused(outcome, error)?);
        }
    }

    /// One EndTxn; the identity of the next transaction.
    async fn end_once(
        &self,
        request: &EndTxnRequest,
        on_sent: &mut Option<impl FnOnce() + Send>,
    ) -> Result<Identity> {
        let verb = if request.committed { "commit" } else { "abort" };
        let connection = self.client.coordinator(&self.coordinator).await?;
        let mut pending = connection.send(request).await?;
        if on_sent.is_some() {
            // A socket that takes nothing must not hold us: then the answer's own time-out says what became of it.
            let limit = self.client.config().request_timeout;
            let written = self.client.env().clock.timeout(limit, pending.written()).await;
            if let Some(on_sent) = on_sent.take_if(|_| written.is_ok()) {
                on_sent();
            }
        }
        let response = pending.answer().await?;
        if response.error_code != 0 {
            let what = format!(
                "{verb} the transaction of '{}' (producer id {}, epoch {})",
                self.transactional_id, request.producer_id.0, request.producer_epoch
            );
            let error = Error::from_code(response.error_code, what);
            return Err(self.client.refused(error, &self.coordinator.access("Write")));
        }
        if response.producer_id.0 < 0 || response.producer_epoch < 0 {
            let context =
                format!("the coordinator of '{}' answered EndTxn without an epoch", self.transactional_id);
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        Ok(Identity {
            producer_id: ProducerId(response.producer_id.0),
            producer_epoch: ProducerEpoch(response.producer_epoch),
        })
    }

    /// What a refusal of EndTxn means.
    fn end_refused(&mut self, outcome: Outcome, error: Error) -> Result<Error> {
        match (outcome, error.class()) {
            (Outcome::Commit, ErrorClass::Abort) if error.code().is_some_and(|code| code.0 == 120) => {
                // TRANSACTION_ABORTABLE: it is still open.
                self.apply(Event::Doom)?;
            }
            (
                Outcome::Commit | Outcome::Abort,
                ErrorClass::Success
                | ErrorClass::Retry
                | ErrorClass::RefreshMetadata
                | ErrorClass::FindCoordinator
                | ErrorClass::Rejoin
                | ErrorClass::ResetSession
                | ErrorClass::Abort
                | ErrorClass::Fenced
                | ErrorClass::Indeterminate
                | ErrorClass::Fatal(_),
            ) => self.apply(Event::Refused)?,
        }
        // An earlier attempt may have committed before the refusal; only a fence says what to do next anyway.
        if outcome == Outcome::Commit && self.end_unknown && error.kind() != ErrorKind::Fenced {
            return Ok(error.with_kind(ErrorKind::Indeterminate));
        }
        Ok(error)
    }

    fn apply(&mut self, event: Event) -> Result<()> {
        self.state.apply(event).map_err(|refused| {
            let context = format!(
                "cannot {} with transactional id '{}' while it is {}",
                refused.event, self.transactional_id, refused.state
            );
            Error::new(ErrorKind::InvalidInput, context)
        })
    }

    fn not_allowed(&self, what: &str) -> Error {
        let context = format!(
            "cannot {what} with transactional id '{}' while it is {}",
            self.transactional_id, self.state
        );
        Error::new(ErrorKind::InvalidInput, context)
    }

    fn public(&self, identity: Identity) -> ProducerIdentity {
        ProducerIdentity {
            transactional_id: Arc::clone(&self.transactional_id),
            producer_id: identity.producer_id,
            producer_epoch: identity.producer_epoch,
        }
    }

    fn wire_id(&self) -> TransactionalId {
        TransactionalId(StrBytes::from_string(self.transactional_id.to_string()))
    }
}
