//! librdkafka produces to, reads from and share-consumes from the embedded broker.
//!
//! Needs Python 3 with confluent-kafka 2.16 (`SHARESTREAM_WITNESS_PYTHON` names the interpreter, else `python3`).
//! Without it the test says so and passes, unless `SHARESTREAM_REQUIRE_WITNESSES` is set, as CI does.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::Command;

use sharestream_base::Env;
use sharestream_broker::Broker;
use sharestream_client::{Client, ClientConfig, NewTopic};

fn python() -> Option<String> {
    let python = std::env::var("SHARESTREAM_WITNESS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "from confluent_kafka import ShareConsumer"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let needs = "skipped: needs Python 3 with confluent-kafka 2.16 (SHARESTREAM_WITNESS_PYTHON names the interpreter)";
    assert!(std::env::var_os("SHARESTREAM_REQUIRE_WITNESSES").is_none(), "{needs}");
    println!("{needs}");
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn librdkafka_agrees_with_the_embedded_broker() {
    let Some(python) = python() else { return };
    let env = Env::system();
    let broker = Broker::builder(env.clone()).start().await.unwrap();
    let bootstrap = broker.bootstrap();
    let config = ClientConfig::with_bootstrap(&bootstrap).unwrap();
    let admin = Client::connect(env, config).await.unwrap().admin();
    admin.create_topic(NewTopic::new("witnessed", 2)).await.unwrap();
    let configs = [("share.auto.offset.reset", "earliest"), ("share.isolation.level", "read_committed")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    admin.alter_group_config("witnesses", &configs).await.unwrap();

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/witness/confluent.py");
    let run = move || {
        Command::new(python)
            .arg(script)
            .args([bootstrap.as_str(), "witnessed", "witnesses"])
            .output()
            .unwrap()
    };
    let output = sharestream_base::run_blocking("witness", run).await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the witness disagrees:\n{stdout}\n{stderr}");
    broker.shutdown().await;
}
