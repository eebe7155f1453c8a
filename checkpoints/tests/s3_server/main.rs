//! Checkpoints in a real S3-compatible server: MinIO, over HTTP, in processes of its own and of ours.
//!
//! Needs MinIO (`SHARESTREAM_S3_SERVER` names the program). Without it the tests say so and pass, unless
//! `SHARESTREAM_REQUIRE_WITNESSES` is set, as CI does. Why MinIO: `docs/adr/0020-checkpoints-in-buckets.md`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod proxy;
#[path = "../races/mod.rs"]
mod races;
mod server;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures::future::join_all;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::signer::Signer;
use proxy::{Fault, Proxy};
use server::{BUCKET, PASSWORD, Server, options};
use sharestream_base::ids::{CheckpointId, JobEpoch};
use sharestream_base::{Env, run_blocking};
use sharestream_checkpoints::{
    CheckpointStore, ErrorKind, JobKey, Manifest, Result, StoreLocation, conformance,
};

fn key() -> JobKey {
    JobKey::new("flights", "main")
}

/// A store behind any port: the server's, or that of a proxy in front of it.
fn location(port: u16, bucket: &str, prefix: &str) -> StoreLocation {
    let url = format!("s3://{bucket}/{prefix}");
    StoreLocation::parse(&url, std::path::Path::new(""), options(port, PASSWORD)).unwrap()
}

/// The store below `prefix`, as a job file would name it.
fn location_at(server: &Server, prefix: &str) -> StoreLocation {
    location(server.port(), BUCKET, prefix)
}

async fn open(location: &StoreLocation) -> Result<CheckpointStore> {
    CheckpointStore::open_in(&location.open().await?, key()).await
}

/// The witness itself: without this, nothing that runs over it proves anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_refuses_to_create_what_exists() {
    let Some(server) = Server::start().await else { return };
    let mut builder = AmazonS3Builder::new().with_bucket_name(BUCKET);
    for (name, value) in options(server.port(), PASSWORD) {
        builder = builder.with_config(name.parse().unwrap(), value);
    }
    let s3 = builder.build().unwrap();
    let put = async |name: &str, condition: &str, body: &str| {
        let method = "PUT".parse().unwrap();
        let signed = s3.signed_url(method, &Path::from(name), Duration::from_secs(60)).await.unwrap();
        let target = &signed[url::Position::BeforePath..];
        server.status(&format!("PUT {target} HTTP/1.1\r\n{condition}"), body).await.unwrap()
    };
    const CONDITION: &str = "If-None-Match: *\r\n";
    assert_eq!(put("a", CONDITION, "first").await, 200, "what is absent is created");
    assert_eq!(put("a", CONDITION, "first").await, 412, "also the same bytes are refused");
    assert_eq!(put("a", "", "second").await, 200, "without the condition it is overwritten");
    for round in 0..20 {
        let name = format!("race-{round}");
        let bodies: Vec<String> = (0..8).map(|rival| rival.to_string()).collect();
        let answers = join_all(bodies.iter().map(|body| put(&name, CONDITION, body))).await;
        let created = answers.iter().filter(|status| **status == 200).count();
        assert_eq!(created, 1, "of rivals exactly one creates: {answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_holds_checkpoints() {
    let Some(server) = Server::start().await else { return };
    let opened = location_at(&server, "conformance").open().await.unwrap();
    conformance::run(opened.objects().clone()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_that_races_with_a_newer_owner_is_fenced() {
    let Some(server) = Server::start().await else { return };
    let empty = async |name: &str| location_at(&server, name).open().await.unwrap().objects().clone();
    races::a_pending_manifest_of_a_newer_owner_is_not_deleted(empty("race/1").await).await;
    races::commits_of_a_newer_owner_are_not_called_corrupt(empty("race/2").await).await;
    races::a_pending_manifest_that_a_newer_owner_deletes_meanwhile_is_not_called_corrupt(
        empty("race/3").await,
    )
    .await;
    races::a_restored_manifest_that_a_newer_owner_has_let_go_is_not_called_corrupt(empty("race/4").await)
        .await;
    races::whoever_is_to_recover_again_asks_first_whether_the_job_is_still_its_own(empty("race/5").await)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_used_is_refused_with_what_to_do() {
    let Some(server) = Server::start().await else { return };
    let wrong_password = StoreLocation::parse(
        &format!("s3://{BUCKET}/x"),
        std::path::Path::new(""),
        options(server.port(), "not-the-password"),
    );
    for (location, expected) in [
        (wrong_password.unwrap(), "are the credentials right"),
        (location(server.port(), "no-such-bucket", "x"), "does the bucket exist?"),
    ] {
        let error = open(&location).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let text = error.to_string();
        assert!(text.contains(expected) && text.contains("s3://"), "{text}");
        assert!(!text.contains("password"), "no secrets: {text}");
    }
}

/// The store, on a way that can lose answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_got_lost_is_found_out() {
    let Some(server) = Server::start().await else { return };
    let env = Env::system();
    let proxy = Proxy::start(&env, server.port()).await;
    let store = open(&location(proxy.port(), BUCKET, "unclear")).await.unwrap();
    let mut epoch = store.acquire_ownership("test", 1).await.unwrap().epoch;
    for fault in [Fault::AnswerLost, Fault::AnswerIs503, Fault::RequestLost] {
        proxy.spoil_next_put(fault);
        let owner = store.acquire_ownership("test", 1).await.unwrap();
        assert!(proxy.has_spoiled());
        // The object that may be another's is never taken for ours, whoever wrote it.
        let skipped = u64::from(fault != Fault::RequestLost);
        assert_eq!(owner.epoch, JobEpoch(epoch.0 + 1 + skipped), "{fault:?}");
        store.check_owner(&owner).await.unwrap();
        epoch = owner.epoch;

        let manifest = Manifest::new(store.key(), owner.epoch, CheckpointId(epoch.0), None, 1);
        proxy.spoil_next_put(fault);
        let published = store.publish_pending(&owner, &manifest).await.unwrap();
        assert!(proxy.has_spoiled());
        assert_eq!(store.load(&published.manifest_ref).await.unwrap(), manifest, "{fault:?}");
        proxy.spoil_next_put(fault);
        store.complete(&owner, &published.manifest_ref).await.unwrap();
        assert!(proxy.has_spoiled());
    }
}

const CONTENDER_PORT: &str = "SHARESTREAM_TEST_CONTENDER_PORT";
const ROUNDS: usize = 20;

/// Starts [`contender`] as a process of its own.
fn start_contender(server: &Server, mode: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "contender", "--ignored", "--nocapture"])
        .env(CONTENDER_PORT, server.port().to_string())
        .env("SHARESTREAM_TEST_CONTENDER_MODE", mode)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test]
#[ignore = "a process of the tests below"]
async fn contender() {
    let port = std::env::var(CONTENDER_PORT).unwrap().parse().unwrap();
    let is_holder = std::env::var("SHARESTREAM_TEST_CONTENDER_MODE").unwrap() == "hold";
    let prefix = if is_holder { "fenced" } else { "together" };
    let store = open(&location(port, BUCKET, prefix)).await.unwrap();
    if !is_holder {
        for _ in 0..ROUNDS {
            let owner = store.acquire_ownership("a twin", 1).await.unwrap();
            println!("epoch {}", owner.epoch);
        }
        return;
    }
    let owner = store.acquire_ownership("the older process", 1).await.unwrap();
    store.check_owner(&owner).await.unwrap();
    println!("held {}", owner.epoch);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let error = store.check_owner(&owner).await.unwrap_err();
    println!("{:?}: {error}", error.kind());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_never_own_the_same_epoch() {
    let Some(server) = Server::start().await else { return };
    let contenders: Vec<Child> = (0..3).map(|_| start_contender(&server, "race")).collect();
    let outputs = run_blocking("contenders", move || {
        contenders.into_iter().map(|child| child.wait_with_output().unwrap()).collect::<Vec<_>>()
    });
    let mut epochs = Vec::new();
    for output in outputs.await.unwrap() {
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let own = text.lines().filter_map(|line| line.strip_prefix("epoch ")?.parse::<u64>().ok());
        let own: Vec<u64> = own.collect();
        assert_eq!(own.len(), ROUNDS, "{text}");
        assert!(own.is_sorted_by(|a, b| a < b), "epochs rise within a process: {own:?}");
        epochs.extend(own);
    }
    assert_eq!(
        epochs.iter().collect::<BTreeSet<_>>().len(),
        3 * ROUNDS,
        "an epoch has one owner: {epochs:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_process_is_fenced_by_a_newer_one() {
    let Some(server) = Server::start().await else { return };
    let mut older = start_contender(&server, "hold");
    let mut lines = BufReader::new(older.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    assert_eq!(lines.find(|line| line.starts_with("held")).unwrap(), "held 1");
    let store = open(&location_at(&server, "fenced")).await.unwrap();
    let newer = store.acquire_ownership("the newer process", 2).await.unwrap();
    older.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let told = lines.next().unwrap();
    assert!(told.starts_with("Fenced: ") && told.contains("the newer process"), "{told}");
    store.check_owner(&newer).await.unwrap();
    older.wait().unwrap();
}
