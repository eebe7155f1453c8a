//! The client against the embedded broker, over TCP.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{client, groups, records, scenarios, topics};
use sharestream_base::Env;
use sharestream_broker::Broker;
use sharestream_client::Client;

/// Runs a scenario against a broker of its own.
async fn with_broker(scenario: impl AsyncFnOnce(Client)) {
    let broker = Broker::builder(Env::system()).start().await.unwrap();
    scenario(client(&broker.bootstrap()).await).await;
    broker.shutdown().await;
}

macro_rules! against_the_embedded_broker {
    ($($module:ident::$scenario:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $scenario() {
            with_broker(async |client| $module::$scenario(&client).await).await;
        }
    )*};
}

against_the_embedded_broker! {
    scenarios::topics_and_offsets_are_administered,
    scenarios::a_transaction_of_two_writers_is_visible_after_commit_and_never_after_abort,
    scenarios::a_second_session_fences_the_first,
    scenarios::shared_records_are_consumed_released_rejected_and_renewed,
    scenarios::aborted_records_and_markers_are_gaps_of_a_share_group,
    scenarios::records_of_a_consumer_that_vanished_go_to_another,
    scenarios::the_record_limit_is_kept_and_single_ranges_are_released,
    topics::a_topic_that_another_makes_meanwhile_is_taken,
    topics::a_pattern_finds_topics_that_come_later,
    topics::a_reader_never_goes_on_in_a_topic_that_was_created_again,
    topics::a_transaction_never_commits_into_two_topics_of_one_name,
    topics::a_share_consumer_goes_on_in_a_topic_that_was_created_again,
    records::every_codec_carries_keys_tombstones_and_repeated_headers,
    records::an_uncommitted_read_shows_markers_and_both_ends,
    records::aborted_records_never_reach_a_read_committed_group,
    records::acknowledgements_go_with_the_next_fetch,
    groups::the_brokers_limits_of_share_groups_are_told,
    groups::a_group_is_listed_described_and_reset,
    groups::an_open_transaction_is_ended_from_outside_and_its_producer_fenced,
}
