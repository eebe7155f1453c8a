//! TLS, SASL and secrets against a broker and an identity provider that the test plays, over a network in memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/certificates.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the test against a real Kafka")]
mod certificates;
mod fake;
mod oidc;
mod sasl;
mod tls;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use sharestream_base::{Env, HostPort};
use sharestream_client::{Client, ClientConfig, Error, SecuritySettings};

/// Where the fake broker listens.
fn broker() -> HostPort {
    HostPort::new("broker", 9092)
}

fn settings(properties: &[(&str, &str)]) -> SecuritySettings {
    let properties: BTreeMap<String, String> =
        properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    SecuritySettings::from_properties(&properties).unwrap()
}

fn config(properties: &[(&str, &str)]) -> ClientConfig {
    ClientConfig::with_bootstrap("broker:9092")
        .unwrap()
        .with_request_timeout(Duration::from_secs(2))
        .with_operation_timeout(Duration::from_secs(4))
        .with_security(settings(properties))
}

async fn connect(env: &Env, properties: &[(&str, &str)]) -> Result<Client, Error> {
    Client::connect(env.clone(), config(properties)).await
}

/// The error as a user sees it, causes included.
fn text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
