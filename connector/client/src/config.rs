//! Settings of a client. `Default` works for a broker on this machine.

use std::time::Duration;

use sharestream_base::{ErrorKind, HostPort};

use crate::security::SecuritySettings;
use crate::{Error, Result};

/// How to reach a cluster and how patient to be.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Brokers to ask first. Default `localhost:9092`; at least one. Kafka: `bootstrap.servers`. Since 0.1.
    pub bootstrap: Vec<HostPort>,
    /// Name in the brokers' logs and quotas. Default `sharestream`. Kafka: `client.id`. Since 0.1.
    pub client_id: String,
    /// Longest wait for one answer; then the connection is given up. Default 30 s; above zero. Kafka:
    /// `request.timeout.ms`. Since 0.1.
    pub request_timeout: Duration,
    /// Longest wait for a TCP connection and its version exchange. Default 5 s; above zero. Kafka:
    /// `socket.connection.setup.timeout.ms`. Since 0.1.
    pub connect_timeout: Duration,
    /// Longest time that one call spends on all its attempts. Default 60 s; not below `request_timeout`. Kafka:
    /// `default.api.timeout.ms` and `delivery.timeout.ms`. Since 0.1.
    pub operation_timeout: Duration,
    /// Age at which topic metadata is asked again. Default 5 min. Kafka: `metadata.max.age.ms`. Since 0.1.
    pub metadata_age_max: Duration,
    /// Pauses between attempts. Since 0.1.
    pub retry: RetryConfig,
    /// How connections are protected and who we are. Default plain text. Since 0.1.
    pub security: SecuritySettings,
}

/// Exponential pauses with jitter, so that many clients do not come back at the same moment.
#[derive(Clone, Debug)]
pub struct RetryConfig {
    /// First pause. Default 20 ms; above zero. Kafka: `retry.backoff.ms`. Since 0.1.
    pub initial: Duration,
    /// Longest pause. Default 1 s; not below `initial`. Kafka: `retry.backoff.max.ms`. Since 0.1.
    pub max: Duration,
    /// Growth from one pause to the next. Default 2.0; at least 1. Since 0.1.
    pub multiplier: f64,
    /// Share of a pause by which chance changes it, either way. Default 0.2; from 0 to 1. Since 0.1.
    pub jitter: f64,
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            bootstrap: vec![HostPort::new("localhost", 9092)],
            client_id: "sharestream".to_owned(),
            request_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            operation_timeout: Duration::from_secs(60),
            metadata_age_max: Duration::from_secs(300),
            retry: RetryConfig::default(),
            security: SecuritySettings::default(),
        }
    }
}

impl Default for RetryConfig {
    fn default() -> Self {
        RetryConfig {
            initial: Duration::from_millis(20),
            max: Duration::from_secs(1),
            multiplier: 2.0,
            jitter: 0.2,
        }
    }
}

impl ClientConfig {
    /// The defaults with these brokers, written `host:port,host:port`.
    ///
    /// # Errors
    /// `InvalidInput` when an address is not `host:port`.
    pub fn with_bootstrap(bootstrap: &str) -> Result<Self> {
        let addresses = bootstrap
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(|text| {
                text.parse::<HostPort>()
                    .map_err(|error| Error::new(ErrorKind::InvalidInput, error.to_string()))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(ClientConfig { bootstrap: addresses, ..ClientConfig::default() })
    }

    /// Sets the name in the brokers' logs.
    #[must_use]
    pub fn with_client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = client_id.into();
        self
    }

    /// Sets the longest wait for one answer.
    #[must_use]
    pub fn with_request_timeout(mut self, request_timeout: Duration) -> Self {
        self.request_timeout = request_timeout;
        self
    }

    /// Sets the longest wait for a connection.
    #[must_use]
    pub fn with_connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets how connections are protected and who we are.
    #[must_use]
    pub fn with_security(mut self, security: SecuritySettings) -> Self {
        self.security = security;
        self
    }

    /// Sets the longest time that one call spends on all its attempts.
    #[must_use]
    pub fn with_operation_timeout(mut self, operation_timeout: Duration) -> Self {
        self.operation_timeout = operation_timeout;
        self
    }

    /// Checks the relations between the fields.
    ///
    /// # Errors
    /// `InvalidInput` naming every fault at once.
    pub fn validate(&self) -> Result<()> {
        let mut faults = Vec::new();
        if self.bootstrap.is_empty() {
            faults.push("bootstrap names no broker");
        }
        if self.request_timeout.is_zero() {
            faults.push("request_timeout must be above zero");
        }
        if self.connect_timeout.is_zero() {
            faults.push("connect_timeout must be above zero");
        }
        if self.operation_timeout < self.request_timeout {
            faults.push("operation_timeout must not be below request_timeout");
        }
        if self.retry.initial.is_zero() || self.retry.max < self.retry.initial {
            faults.push("retry.initial must be above zero and not above retry.max");
        }
        if !(self.retry.multiplier >= 1.0 && (0.0..=1.0).contains(&self.retry.jitter)) {
            faults.push("retry.multiplier must be at least 1 and retry.jitter from 0 to 1");
        }
        faults.extend(self.security.validate());
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("client settings: {}", faults.join("; "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_reported_at_once() {
        let config = ClientConfig {
            bootstrap: Vec::new(),
            request_timeout: Duration::ZERO,
            ..ClientConfig::default()
        };
        let text = config.validate().unwrap_err().to_string();
        assert!(text.contains("bootstrap") && text.contains("request_timeout"), "{text}");
        ClientConfig::default().validate().unwrap();
    }

    #[test]
    fn bootstrap_is_a_list_of_addresses() {
        let config = ClientConfig::with_bootstrap("a:1, b:2").unwrap();
        assert_eq!(config.bootstrap, vec![HostPort::new("a", 1), HostPort::new("b", 2)]);
        assert!(ClientConfig::with_bootstrap("nonsense").is_err());
    }
}
