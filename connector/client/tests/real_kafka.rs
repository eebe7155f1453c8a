//! The client against a real Apache Kafka (4.2 or later), named by `SHARESTREAM_KAFKA_BOOTSTRAP`.

mod common;

use std::io::Write;

use common::{client, scenarios};
use sharestream_client::Client;

async fn kafka() -> Option<Client> {
    match std::env::var("SHARESTREAM_KAFKA_BOOTSTRAP") {
        Ok(bootstrap) => Some(client(&bootstrap).await),
        Err(_unset) => {
            // Past the test harness, which would swallow it: a skipped test must be seen.
            let text = "skipped: needs SHARESTREAM_KAFKA_BOOTSTRAP=host:port of an Apache Kafka 4.2 or later";
            let _unseen = writeln!(std::io::stderr(), "{text}");
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_and_offsets_are_administered() {
    if let Some(client) = kafka().await {
        scenarios::topics_and_offsets_are_administered(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_two_writers_is_visible_after_commit_and_never_after_abort() {
    if let Some(client) = kafka().await {
        scenarios::a_transaction_of_two_writers_is_visible_after_commit_and_never_after_abort(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_session_fences_the_first() {
    if let Some(client) = kafka().await {
        scenarios::a_second_session_fences_the_first(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_records_are_consumed_released_rejected_and_renewed() {
    if let Some(client) = kafka().await {
        scenarios::shared_records_are_consumed_released_rejected_and_renewed(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_records_and_markers_are_gaps_of_a_share_group() {
    if let Some(client) = kafka().await {
        scenarios::aborted_records_and_markers_are_gaps_of_a_share_group(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactional_acknowledgements_are_refused_where_the_cluster_lacks_them() {
    if let Some(client) = kafka().await {
        scenarios::transactional_acknowledgements_are_refused_where_the_cluster_lacks_them(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_consumer_that_vanished_go_to_another() {
    if let Some(client) = kafka().await {
        scenarios::records_of_a_consumer_that_vanished_go_to_another(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_limit_is_kept_and_single_ranges_are_released() {
    if let Some(client) = kafka().await {
        scenarios::the_record_limit_is_kept_and_single_ranges_are_released(&client).await;
    }
}
