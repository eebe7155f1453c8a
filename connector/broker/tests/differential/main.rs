//! One scripted sequence of requests, played against Apache Kafka 4.4.0 and against the embedded broker; their answers
//! are compared field by field.
//!
//! Requests are raw: one TCP connection, no client, no retries but those that the script asks for. Ids, times and
//! epochs are mapped (`fields.rs`), texts of errors are left out. Every other difference is in `differences.txt` with
//! its reason; one that is not there fails the test, and so does a line there that is not true any more.
//!
//! `SHARESTREAM_KAFKA_BOOTSTRAP` names a single node; without it the test says so and passes, unless
//! `SHARESTREAM_REQUIRE_WITNESSES` is set, as CI does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod compare;
mod fields;
mod play;
mod script;

use std::io::Write;

use sharestream_base::{Env, HostPort};
use sharestream_broker::{Broker, BrokerConfig};

use crate::play::Play;

/// Fewest steps that the script must have.
const STEPS_MIN: usize = 300;

/// Past the test harness, which would swallow it: a skipped test must be seen.
fn say(text: &str) {
    let _unseen = writeln!(std::io::stderr(), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_broker_answers_as_apache_kafka_does() {
    let Ok(bootstrap) = std::env::var("SHARESTREAM_KAFKA_BOOTSTRAP") else {
        let needs = "needs SHARESTREAM_KAFKA_BOOTSTRAP=host:port of one node of Apache Kafka 4.4.0";
        assert!(std::env::var_os("SHARESTREAM_REQUIRE_WITNESSES").is_none(), "{needs}");
        say(&format!("skipped: {needs}"));
        return;
    };
    let env = Env::system();
    let kafka: HostPort = bootstrap.split(',').next().unwrap().parse().unwrap();
    let config = BrokerConfig { share_state_partitions: 4, ..BrokerConfig::default() };
    let broker = Broker::builder(env.clone()).config(config).start().await.unwrap();

    let theirs = Play::new(env.clone(), kafka);
    let ours = Play::new(env, broker.address().clone());
    let (theirs, ours) = tokio::join!(script::play(theirs), script::play(ours));
    broker.shutdown().await;

    let found = compare::differences(&theirs, &ours);
    say(&format!("{} steps, {} answers with a difference", theirs.len(), compare::steps_of(&found)));
    let faults = compare::unexplained(&found, include_str!("differences.txt"));
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(theirs.len() >= STEPS_MIN, "only {} steps", theirs.len());
}
