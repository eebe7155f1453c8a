//! Clients that others wrote, unmodified, against the embedded broker. The docs of the crate have a table of what is
//! exercised here and elsewhere.
//!
//! The Java ones need a JDK and the folder with Kafka's jars that `SHARESTREAM_KAFKA_JARS` names; without it their
//! tests say so and pass, unless `SHARESTREAM_REQUIRE_WITNESSES` is set, as CI does.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod java;
mod krafka_client;

use std::time::Duration;

use sharestream_base::Env;
use sharestream_broker::{Broker, BrokerConfig, RunningBroker, ShareDefaults};

/// How long records are locked: short, so that a renewal that does nothing is seen.
const LOCK: Duration = Duration::from_millis(2_500);

async fn broker(env: &Env, nodes: u16) -> RunningBroker {
    let share = ShareDefaults { record_lock_duration: LOCK, ..ShareDefaults::default() };
    let config = BrokerConfig { share, ..BrokerConfig::default() };
    Broker::builder(env.clone()).config(config).nodes(nodes).start().await.unwrap()
}
