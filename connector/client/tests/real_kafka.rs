//! The client against a real Apache Kafka (4.2 or later), named by `SHARESTREAM_KAFKA_BOOTSTRAP`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "real_kafka/java.rs"]
mod java;
#[path = "real_kafka/nodes.rs"]
mod nodes;

use std::io::Write;

use common::{client, groups, records, scenarios, topics};
use sharestream_client::Client;

/// Past the test harness, which would swallow it: a skipped test must be seen.
fn say(text: &str) {
    let _unseen = writeln!(std::io::stderr(), "{text}");
}

async fn kafka() -> Option<Client> {
    match std::env::var("SHARESTREAM_KAFKA_BOOTSTRAP") {
        Ok(bootstrap) => Some(client(&bootstrap).await),
        Err(_unset) => {
            say("skipped: needs SHARESTREAM_KAFKA_BOOTSTRAP=host:port of an Apache Kafka 4.2 or later");
            None
        }
    }
}

macro_rules! against_a_real_kafka {
    ($($module:ident::$scenario:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $scenario() {
            if let Some(client) = kafka().await {
                $module::$scenario(&client).await;
            }
        }
    )*};
}

against_a_real_kafka! {
    scenarios::topics_and_offsets_are_administered,
    scenarios::a_transaction_of_two_writers_is_visible_after_commit_and_never_after_abort,
    scenarios::a_second_session_fences_the_first,
    scenarios::shared_records_are_consumed_released_rejected_and_renewed,
    scenarios::aborted_records_and_markers_are_gaps_of_a_share_group,
    scenarios::records_of_a_consumer_that_vanished_go_to_another,
    scenarios::the_record_limit_is_kept_and_single_ranges_are_released,
    scenarios::transactional_acknowledgements_are_refused_where_the_cluster_lacks_them,
    topics::a_topic_that_another_makes_meanwhile_is_taken,
    topics::a_pattern_finds_topics_that_come_later,
    topics::a_reader_never_goes_on_in_a_topic_that_was_created_again,
    topics::a_transaction_never_commits_into_two_topics_of_one_name,
    topics::a_share_consumer_goes_on_in_a_topic_that_was_created_again,
    topics::partitions_that_are_added_are_found_by_everyone,
    records::every_codec_carries_keys_tombstones_and_repeated_headers,
    records::an_uncommitted_read_shows_markers_and_both_ends,
    records::aborted_records_never_reach_a_read_committed_group,
    records::acknowledgements_go_with_the_next_fetch,
    records::compaction_leaves_gaps_that_are_acknowledged,
    groups::the_brokers_limits_of_share_groups_are_told,
    groups::a_group_is_listed_described_and_reset,
    groups::an_open_transaction_is_ended_from_outside_and_its_producer_fenced,
    groups::a_group_is_deleted_once_it_is_empty,
}
