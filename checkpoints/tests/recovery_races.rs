//! Recoveries that race with a newer owner, over a store in memory. The same scenarios run over a real server in
//! `s3_server`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod races;

use std::sync::Arc;

use object_store::memory::InMemory;

#[tokio::test]
async fn a_pending_manifest_of_a_newer_owner_is_not_deleted() {
    races::a_pending_manifest_of_a_newer_owner_is_not_deleted(Arc::new(InMemory::new())).await;
}

#[tokio::test]
async fn commits_of_a_newer_owner_are_not_called_corrupt() {
    races::commits_of_a_newer_owner_are_not_called_corrupt(Arc::new(InMemory::new())).await;
}

#[tokio::test]
async fn a_pending_manifest_that_a_newer_owner_deletes_meanwhile_is_not_called_corrupt() {
    races::a_pending_manifest_that_a_newer_owner_deletes_meanwhile_is_not_called_corrupt(Arc::new(
        InMemory::new(),
    ))
    .await;
}

#[tokio::test]
async fn a_restored_manifest_that_a_newer_owner_has_let_go_is_not_called_corrupt() {
    races::a_restored_manifest_that_a_newer_owner_has_let_go_is_not_called_corrupt(Arc::new(InMemory::new()))
        .await;
}

#[tokio::test]
async fn whoever_is_to_recover_again_asks_first_whether_the_job_is_still_its_own() {
    races::whoever_is_to_recover_again_asks_first_whether_the_job_is_still_its_own(Arc::new(InMemory::new()))
        .await;
}
