//! Finds the broker that coordinates a group or a transactional id, and forgets it when it has moved (KIP-699).

use kafka_protocol::messages::FindCoordinatorRequest;
use kafka_protocol::protocol::{Request, StrBytes};
use sharestream_base::ids::NodeId;
use sharestream_base::{ErrorKind, HostPort};

use crate::client::Client;
use crate::cluster::Purpose;
use crate::connection::{Connection, Throttled};
use crate::error::ErrorClass;
use crate::security::Access;
use crate::{Error, Result};

/// What is coordinated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CoordinatorKey {
    /// A group of any type.
    Group(String),
    /// A transactional id.
    Transaction(String),
}

impl CoordinatorKey {
    fn key_type(&self) -> i8 {
        match self {
            CoordinatorKey::Group(_) => 0,
            CoordinatorKey::Transaction(_) => 1,
        }
    }

    /// Leave to do `operation` with it.
    pub(crate) fn access(&self, operation: &'static str) -> Access<'_> {
        match self {
            CoordinatorKey::Group(key) => Access::group(operation, key),
            CoordinatorKey::Transaction(key) => Access::transactional_id(operation, key),
        }
    }

    fn key(&self) -> &str {
        match self {
            CoordinatorKey::Group(key) | CoordinatorKey::Transaction(key) => key,
        }
    }
}

impl std::fmt::Display for CoordinatorKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CoordinatorKey::Group(key) => write!(f, "coordinator of group '{key}'"),
            CoordinatorKey::Transaction(key) => write!(f, "coordinator of transactional id '{key}'"),
        }
    }
}

impl Client {
    /// A pooled connection to the coordinator, found first if need be. One attempt. Cancel safe.
    pub(crate) async fn coordinator(&self, key: &CoordinatorKey) -> Result<Connection> {
        let node = self.coordinator_node(key).await?;
        match self.node(node, Purpose::Coordinator).await {
            Ok(connection) => Ok(connection),
            Err(error) => {
                // The broker may be gone for good and its work moved.
                self.forget_coordinator(key);
                Err(error)
            }
        }
    }

    /// The coordinator's node, from the cache or asked for. One attempt. Cancel safe.
    pub(crate) async fn coordinator_node(&self, key: &CoordinatorKey) -> Result<NodeId> {
        if let Some(node) = self.coordinators().get(key).copied() {
            return Ok(node);
        }
        let request = FindCoordinatorRequest::default()
            .with_key_type(key.key_type())
            .with_coordinator_keys(vec![StrBytes::from_string(key.key().to_owned())]);
        let response = self.any().await?.call(&request).await?;
        let found = response
            .coordinators
            .first()
            .ok_or_else(|| Error::new(ErrorKind::Retry, format!("the answer does not name the {key}")))?;
        if found.error_code != 0 {
            let message = found.error_message.as_ref().map(|message| message.as_str());
            let error = Error::from_answer(found.error_code, message, format!("find the {key}"));
            return Err(self.refused(error, &key.access("Describe")));
        }
        let node = NodeId(found.node_id.0);
        let port = u16::try_from(found.port).unwrap_or(0);
        self.learn_node(node, HostPort::new(found.host.as_str(), port));
        self.coordinators().insert(key.clone(), node);
        Ok(node)
    }

    /// Asks the coordinator until `judge` takes the answer, it fails for good, or the operation time-out is over. For
    /// requests that may be repeated: what may have happened is asked for again. Cancel safe as the request is.
    pub(crate) async fn ask_coordinator<R, T>(
        &self,
        key: &CoordinatorKey,
        request: &R,
        judge: impl Fn(R::Response) -> Result<T>,
    ) -> Result<T>
    where
        R: Request,
        R::Response: Throttled,
    {
        let mut backoff = self.backoff();
        loop {
            let attempt = async { judge(self.coordinator(key).await?.call(request).await?) };
            match attempt.await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_retriable() => {
                    self.reroute(key, &error);
                    backoff.wait(error).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks again next time.
    pub(crate) fn forget_coordinator(&self, key: &CoordinatorKey) {
        self.coordinators().remove(key);
    }

    /// What every call to a coordinator does after an error, before it tries again.
    pub(crate) fn reroute(&self, key: &CoordinatorKey, error: &Error) {
        match error.class() {
            ErrorClass::FindCoordinator | ErrorClass::Indeterminate | ErrorClass::Retry
                if error.code().is_none() || error.class() == ErrorClass::FindCoordinator =>
            {
                self.forget_coordinator(key);
            }
            ErrorClass::Success
            | ErrorClass::Retry
            | ErrorClass::RefreshMetadata
            | ErrorClass::FindCoordinator
            | ErrorClass::Rejoin
            | ErrorClass::ResetSession
            | ErrorClass::Abort
            | ErrorClass::Fenced
            | ErrorClass::Indeterminate
            | ErrorClass::Fatal(_) => {}
        }
    }
}
