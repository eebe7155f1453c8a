//! The client against the embedded broker, over TCP.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{client, scenarios};
use sharestream_base::Env;
use sharestream_broker::Broker;
use sharestream_client::Client;

/// Runs a scenario against a broker of its own.
async fn with_broker(scenario: impl AsyncFnOnce(Client)) {
    let broker = Broker::builder(Env::system()).start().await.unwrap();
    scenario(client(&broker.bootstrap()).await).await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_and_offsets_are_administered() {
    with_broker(async |client| scenarios::topics_and_offsets_are_administered(&client).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_two_writers_is_visible_after_commit_and_never_after_abort() {
    with_broker(async |client| {
        scenarios::a_transaction_of_two_writers_is_visible_after_commit_and_never_after_abort(&client).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_session_fences_the_first() {
    with_broker(async |client| scenarios::a_second_session_fences_the_first(&client).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_records_are_consumed_released_rejected_and_renewed() {
    with_broker(async |client| {
        scenarios::shared_records_are_consumed_released_rejected_and_renewed(&client).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_records_and_markers_are_gaps_of_a_share_group() {
    with_broker(async |client| {
        scenarios::aborted_records_and_markers_are_gaps_of_a_share_group(&client).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_consumer_that_vanished_go_to_another() {
    with_broker(async |client| scenarios::records_of_a_consumer_that_vanished_go_to_another(&client).await)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_limit_is_kept_and_single_ranges_are_released() {
    with_broker(async |client| {
        scenarios::the_record_limit_is_kept_and_single_ranges_are_released(&client).await
    })
    .await;
}
