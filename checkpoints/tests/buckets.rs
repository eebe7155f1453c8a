//! Buckets without a server: what is found before, or instead of, an answer.
#![cfg(feature = "cloud")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::Path;

use sharestream_checkpoints::{CheckpointStore, Error, ErrorKind, JobKey, StoreLocation};

/// Where nobody listens.
const NOBODY: &str = "http://127.0.0.1:1";

async fn refused(url: &str, options: &[(&str, &str)]) -> Error {
    let options: BTreeMap<String, String> =
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let opened = async {
        let location = StoreLocation::parse(url, Path::new(""), options)?;
        CheckpointStore::open_in(&location.open().await?, JobKey::new("flights", "main")).await
    };
    opened.await.unwrap_err()
}

#[tokio::test]
async fn an_option_that_the_service_does_not_know_is_named() {
    for (url, service) in
        [("s3://bucket/x", "Amazon S3"), ("gs://bucket", "Google Cloud Storage"), ("az://c/x", "Azure Blob")]
    {
        let error = refused(url, &[("regoin", "hush")]).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains("'regoin'") && text.contains(service) && !text.contains("hush"), "{text}");
    }
}

#[tokio::test]
async fn missing_credentials_are_named_with_the_variables_to_set() {
    let nobody = [("metadata_endpoint", NOBODY), ("allow_http", "true")];
    for (url, options, variable) in [
        ("s3://bucket/x", &nobody[..], "AWS_ACCESS_KEY_ID"),
        ("az://container/x", &[][..], "AZURE_STORAGE_ACCOUNT_NAME"),
    ] {
        let text = refused(url, options).await.to_string();
        assert!(text.contains(variable), "{text}");
    }
}

#[tokio::test]
async fn a_bucket_cannot_be_used_without_conditional_writes() {
    let error = refused("s3://bucket/x", &[("conditional_put", "disabled")]).await;
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("both own a job"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_and_costs_seconds() {
    let clock = sharestream_base::Clock::system();
    let started = clock.now();
    let options =
        [("endpoint", NOBODY), ("allow_http", "true"), ("access_key_id", "a"), ("secret_access_key", "hush")];
    let error = refused("s3://bucket/x", &options).await;
    assert_eq!(error.kind(), ErrorKind::Retry);
    let text = error.to_string();
    assert!(
        text.contains("s3://bucket/x") && text.contains("127.0.0.1:1") && !text.contains("hush"),
        "{text}"
    );
    assert!(clock.now().duration_since(started).as_secs() < 10);
}
