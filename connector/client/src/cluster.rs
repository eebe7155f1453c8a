//! Opens connections and keeps them, by node and purpose: a long poll must not stand in the way of a commit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sharestream_base::ids::NodeId;
use sharestream_base::{Env, ErrorKind, HostPort};

use crate::config::ClientConfig;
use crate::connection::{Connection, ConnectionOptions, Renewal, Setup, unreachable};
use crate::features::Features;
use crate::security::{Credentials, Tls, authenticate};
use crate::{Error, Result};

/// What a pooled connection is for. Long-lived streams of one owner (share fetches, a writer's batches) are opened
/// with [`Cluster::open`] and not pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Metadata and administration.
    General,
    /// Coordinators: heartbeats, InitProducerId, EndTxn.
    Coordinator,
    /// Staging of share acknowledgements.
    Staging,
}

/// Settings and open connections of one client.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) env: Env,
    pub(crate) config: ClientConfig,
    tls: Option<Tls>,
    credentials: Option<Arc<Credentials>>,
    pool: Mutex<BTreeMap<(HostPort, Purpose), Connection>>,
}

impl Cluster {
    pub(crate) fn new(env: Env, config: ClientConfig) -> Self {
        let security = &config.security;
        let tls = security.protocol.has_tls().then(|| Tls::new(security.tls.clone(), env.clock.clone()));
        let credentials = security.sasl.clone().map(|sasl| Arc::new(Credentials::new(&env, sasl)));
        Cluster { env, config, tls, credentials, pool: Mutex::new(BTreeMap::new()) }
    }

    /// A pooled connection, opened when there is none. Cancel safe.
    pub(crate) async fn pooled(&self, address: &HostPort, purpose: Purpose) -> Result<Connection> {
        let key = (address.clone(), purpose);
        if let Some(connection) = self.lock_pool().get(&key).filter(|connection| connection.is_open()) {
            return Ok(connection.clone());
        }
        let (opened, _features) = self.open(address).await?;
        let mut pool = self.lock_pool();
        // Two callers may have opened one each: the second takes the first one's, its own closes.
        match pool.get(&key).filter(|connection| connection.is_open()) {
            Some(first) => Ok(first.clone()),
            None => {
                pool.insert(key, opened.clone());
                Ok(opened)
            }
        }
    }

    /// A connection of the caller's own, with the versions agreed and ourselves known. Cancel safe.
    pub(crate) async fn open(&self, address: &HostPort) -> Result<(Connection, Features)> {
        // Before the broker waits for it.
        let login = match &self.credentials {
            Some(credentials) => Some(credentials.load().await?),
            None => None,
        };
        let opening = async {
            let mut setup = self.dial(address).await?;
            let answer = setup.agree_on_versions().await?;
            let since = self.env.clock.now();
            let authenticated = match login {
                Some(login) => Some((authenticate(&mut setup, login).await?, since)),
                None => None,
            };
            Ok((setup.finish(), answer, authenticated))
        };
        let ((io, versions), answer, authenticated) = self.in_time(address, opening).await?;
        let features = Features::of(&answer, &versions);
        let options = ConnectionOptions {
            address: address.clone(),
            tls: self.tls.as_ref().map(|tls| tls.settings().clone()),
            client_id: self.config.client_id.clone(),
            request_timeout: self.config.request_timeout,
        };
        let renewal = match (&self.credentials, authenticated) {
            (Some(credentials), Some((begun, since))) => {
                Some(Renewal::new(&self.env, Arc::clone(credentials), begun, since))
            }
            (Some(_) | None, None) | (None, Some(_)) => None,
        };
        Ok((Connection::start(io, &self.env, options, versions, renewal), features))
    }

    /// Looks whether the listener at `address` wants SASL and we have none: such a broker agrees on versions and hangs
    /// up on the first request. Cancel safe.
    pub(crate) async fn missing_sasl(&self, address: &HostPort) -> Option<Error> {
        if self.credentials.is_some() {
            return None;
        }
        let asking = async {
            let mut setup = self.dial(address).await?;
            setup.agree_on_versions().await?;
            Ok(setup.offered_mechanisms().await)
        };
        let offered = self.in_time(address, asking).await.ok()??;
        let protocol = if self.tls.is_some() { "SASL_SSL" } else { "SASL_PLAINTEXT" };
        let context = format!(
            "the listener at {address} wants SASL and none is set; set security.protocol to {protocol} and sasl.mechanism \
             to one that it offers: {offered}"
        );
        Some(Error::new(ErrorKind::InvalidInput, context))
    }

    async fn dial(&self, address: &HostPort) -> Result<Setup<'_>> {
        let io = self.env.network.connect(address).await;
        let mut io = io.map_err(|error| unreachable(address, &error))?;
        if let Some(tls) = &self.tls {
            io = tls.wrap(io, address).await?;
        }
        Ok(Setup::new(io, address.clone(), &self.config))
    }

    async fn in_time<T>(&self, address: &HostPort, opening: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.config.connect_timeout;
        match self.env.clock.timeout(limit, Box::pin(opening)).await {
            Ok(result) => result,
            Err(_elapsed) => {
                let context = format!(
                    "no answer from {address} within {limit:?}; check that a Kafka broker listens there and that no \
                     firewall is between"
                );
                Err(Error::new(ErrorKind::Retry, context))
            }
        }
    }

    fn lock_pool(&self) -> std::sync::MutexGuard<'_, BTreeMap<(HostPort, Purpose), Connection>> {
        // Every change of the map is one call: a panic elsewhere leaves it whole.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node that is not in the metadata (any more).
pub(crate) fn unknown_node(node: NodeId) -> Error {
    Error::new(ErrorKind::Retry, format!("broker {node} is not known to the cluster at the moment"))
}
