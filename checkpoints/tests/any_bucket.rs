//! The conformance suite over a store of your choice: that of a cloud, of a server in your own cellar, of an emulator.
//!
//! ```text
//! SHARESTREAM_TEST_STORE=s3://bucket/an-empty-prefix SHARESTREAM_TEST_STORE_OPTIONS=endpoint=http://host:9000,allow_http=true \
//!   cargo test -p sharestream-checkpoints --features cloud,conformance --test any_bucket -- --ignored
//! ```
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use sharestream_checkpoints::{CheckpointStore, JobKey, StoreLocation, conformance};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs SHARESTREAM_TEST_STORE, the URL of an empty place"]
async fn the_store_of_your_choice_holds_checkpoints() {
    let url = std::env::var("SHARESTREAM_TEST_STORE").unwrap();
    let options = std::env::var("SHARESTREAM_TEST_STORE_OPTIONS").unwrap_or_default();
    let options = options.split(',').filter_map(|option| option.split_once('='));
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let location = StoreLocation::parse(&url, Path::new(""), options).unwrap();
    let opened = location.open().await.unwrap();
    conformance::run(opened.objects().clone()).await.unwrap();
    // Opened as a job opens it, which also asks whether it refuses to create what exists.
    CheckpointStore::open_in(&opened, JobKey::new("flights", "main")).await.unwrap();
    CheckpointStore::open_in(&opened, JobKey::new("flights", "main")).await.unwrap();
}
