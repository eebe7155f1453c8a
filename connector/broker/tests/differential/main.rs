//! One scripted sequence of requests, played against Apache Kafka 4.4.0 and against the embedded broker; their answers
//! are compared field by field.
//!
//! Requests are raw: one TCP connection, no client, no retries but those that the script asks for. Ids, times and
//! epochs are mapped (`fields.rs`), texts of errors are left out. Every other difference is in `differences.txt` with
//! its reason; one that is not there fails the test, and so does a line there that is not true any more.
//!
//! `SHARESTREAM_KAFKA_BOOTSTRAP` names a single node; without it the test says so and passes, unless
//! `SHARESTREAM_REQUIRE_WITNESSES` is set, as CI does. What Kafka answered when the list was made is kept in
//! `kafka-4.4.0.txt`, so that the embedded broker is compared also where there is no Kafka;
//! `SHARESTREAM_WRITE_TRANSCRIPT=FILE` writes that file anew.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod compare;
mod fields;
mod play;
mod script;

use std::io::Write;
use std::time::Duration;

use kafka_protocol::messages::InitProducerIdRequest;
use sharestream_base::{Env, HostPort};
use sharestream_broker::{Broker, BrokerConfig};

use crate::play::{Play, Step};

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
    let kafka: HostPort = bootstrap.split(',').next().unwrap().parse().unwrap();
    let env = Env::system();
    let mut theirs = Play::new(env.clone(), kafka, base_ms(&env));
    // The first producer id of a fresh cluster is 0, which answers that know of no producer carry as well.
    let unused = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(60_000)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    let mut is_taken = false;
    for _ in 0..100 {
        // It may still be getting its first block of them.
        is_taken = theirs.call(&unused, 4).await.is_some_and(|answer| answer.error_code == 0);
        if is_taken {
            break;
        }
        env.clock.sleep(Duration::from_millis(200)).await;
    }
    assert!(is_taken, "no producer id");
    let (theirs, ours) = tokio::join!(script::play(theirs), embedded(env));
    if let Some(file) = std::env::var_os("SHARESTREAM_WRITE_TRANSCRIPT") {
        std::fs::write(file, compare::written(&theirs)).unwrap();
    }
    check(&theirs, &ours);
}

#[tokio::test(start_paused = true)]
async fn the_embedded_broker_answers_as_apache_kafka_did() {
    check(&compare::read(include_str!("kafka-4.4.0.txt")), &embedded(Env::seeded(1)).await);
}

/// When the records were made: not now, which is when markers are written, and not long ago, which would begin a new
/// segment with each marker.
fn base_ms(env: &Env) -> i64 {
    env.clock.wall_ms() - 3_600_000
}

/// What the embedded broker answers.
async fn embedded(env: Env) -> Vec<Step> {
    let config = BrokerConfig { share_state_partitions: 4, ..BrokerConfig::default() };
    let broker = Broker::builder(env.clone()).config(config).start().await.unwrap();
    let base_ms = base_ms(&env);
    let steps = script::play(Play::new(env, broker.address().clone(), base_ms)).await;
    broker.shutdown().await;
    steps
}

/// Panics when the answers differ otherwise than the list says.
fn check(theirs: &[Step], ours: &[Step]) {
    let found = compare::differences(theirs, ours);
    say(&format!("{} steps, {} answers with a difference", theirs.len(), compare::steps_of(&found)));
    let faults = compare::unexplained(&found, include_str!("differences.txt"));
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(theirs.len() >= STEPS_MIN, "only {} steps", theirs.len());
}
