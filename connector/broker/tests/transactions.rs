//! Transactions over the protocol (KIP-98, KIP-890): visibility, fencing, repetition, time-outs.

mod fixtures;

use std::time::Duration;

use fixtures::{Client, Producer, READ_COMMITTED, READ_UNCOMMITTED, batch, in_memory, tcp, text};
use kafka_protocol::messages::*;
use sharestream_base::Env;

/// Produce and EndTxn versions of transaction version 2.
const V2: (i16, i16) = (12, 5);
const FENCED: i16 = 90;
const INVALID_EPOCH: i16 = 47;
const INVALID_STATE: i16 = 48;
const CONCURRENT: i16 = 51;

async fn write(
    client: &mut Client,
    id: &str,
    producer: Producer,
    partition: i32,
    sequence: i32,
    value: &str,
) -> i16 {
    let batch = batch(Some(producer), sequence, true, &[value]);
    client.produce(V2.0, Some(id), partition, batch).await.error_code
}

#[tokio::test]
async fn committed_records_become_visible_on_all_partitions_and_aborted_ones_never() {
    let (broker, mut client) = tcp().await;
    let first = client.init(Some("tx")).await.unwrap();
    assert_eq!(write(&mut client, "tx", first, 0, 0, "a").await, 0);
    assert_eq!(write(&mut client, "tx", first, 1, 0, "b").await, 0);
    client.produce(9, None, 0, batch(None, -1, false, &["plain"])).await;
    assert!(client.values(0, READ_COMMITTED).await.is_empty(), "held back by the open transaction");
    assert_eq!(client.values(0, READ_UNCOMMITTED).await, ["a", "plain"]);
    assert_eq!(client.fetch(0, 0, READ_COMMITTED).await.last_stable_offset, 0);

    let second = client.end(V2.1, "tx", first, true).await.unwrap();
    assert_eq!(second, Producer { id: first.id, epoch: first.epoch + 1 });
    assert_eq!(client.settled("tx").await, "CompleteCommit");
    assert_eq!(client.values(0, READ_COMMITTED).await, ["a", "plain"]);
    assert_eq!(client.values(1, READ_COMMITTED).await, ["b"]);

    // Sequence numbers restart with the epoch.
    assert_eq!(write(&mut client, "tx", second, 0, 0, "never").await, 0);
    let third = client.end(V2.1, "tx", second, false).await.unwrap();
    assert_eq!(client.settled("tx").await, "CompleteAbort");
    assert_eq!(write(&mut client, "tx", third, 0, 0, "c").await, 0);
    client.end(V2.1, "tx", third, true).await.unwrap();
    client.settled("tx").await;
    assert_eq!(client.values(0, READ_COMMITTED).await, ["a", "plain", "c"]);
    let data = client.fetch(0, 0, READ_COMMITTED).await;
    let aborted = data.aborted_transactions.unwrap();
    assert_eq!((aborted.len(), aborted[0].producer_id.0, aborted[0].first_offset), (1, first.id, 3));
    broker.shutdown().await;
}

#[tokio::test]
async fn a_repeated_end_gets_the_same_answer_and_the_opposite_is_refused() {
    let (broker, mut client) = tcp().await;
    let producer = client.init(Some("tx")).await.unwrap();
    write(&mut client, "tx", producer, 0, 0, "a").await;
    let next = client.end(V2.1, "tx", producer, true).await;
    assert_eq!(client.end(V2.1, "tx", producer, true).await, next);
    client.settled("tx").await;
    assert_eq!(client.end(V2.1, "tx", producer, true).await, next);
    assert_eq!(client.end(V2.1, "tx", producer, false).await, Err(INVALID_STATE));
    assert_eq!(client.values(0, READ_COMMITTED).await, ["a"]);
    // Once the producer has gone on, a repetition comes too late.
    write(&mut client, "tx", next.unwrap(), 0, 0, "b").await;
    assert_eq!(client.end(V2.1, "tx", producer, true).await, Err(FENCED));
    broker.shutdown().await;
}

#[tokio::test]
async fn a_write_that_is_later_than_its_transactions_end_is_refused() {
    let (broker, mut client) = tcp().await;
    let producer = client.init(Some("tx")).await.unwrap();
    write(&mut client, "tx", producer, 0, 0, "a").await;
    client.end(V2.1, "tx", producer, true).await.unwrap();
    client.settled("tx").await;
    assert_eq!(write(&mut client, "tx", producer, 0, 1, "late").await, INVALID_EPOCH);
    assert_eq!(write(&mut client, "tx", producer, 2, 0, "late elsewhere").await, INVALID_EPOCH);
    broker.shutdown().await;
}

#[tokio::test]
async fn the_next_transaction_may_begin_while_markers_are_under_way() {
    let (broker, mut client) = tcp().await;
    let mut producer = client.init(Some("tx")).await.unwrap();
    for round in 0..50 {
        for partition in 0..3 {
            assert_eq!(write(&mut client, "tx", producer, partition, 0, &round.to_string()).await, 0);
        }
        producer = client.end(V2.1, "tx", producer, true).await.unwrap();
    }
    client.settled("tx").await;
    assert_eq!(client.values(2, READ_COMMITTED).await.len(), 50);
    broker.shutdown().await;
}

#[tokio::test]
async fn init_aborts_what_is_open_and_fences_the_older_incarnation() {
    let (broker, mut client) = tcp().await;
    let old = client.init(Some("tx")).await.unwrap();
    write(&mut client, "tx", old, 0, 0, "zombie").await;
    assert_eq!(client.init(Some("tx")).await, Err(CONCURRENT), "first the open transaction is aborted");
    let new = client.init_patiently("tx").await;
    assert!(new.id == old.id && new.epoch > old.epoch);
    assert_eq!(client.end(V2.1, "tx", old, true).await, Err(FENCED));
    assert_eq!(write(&mut client, "tx", old, 0, 1, "zombie").await, INVALID_EPOCH);
    assert_eq!(client.init_as(Some("tx"), old).await, Err(FENCED));
    assert!(client.values(0, READ_COMMITTED).await.is_empty());
    assert_eq!(client.fetch(0, 0, READ_COMMITTED).await.last_stable_offset, 2);
    broker.shutdown().await;
}

#[tokio::test]
async fn clients_of_version_1_add_partitions_first_and_keep_their_epoch() {
    let (broker, mut client) = tcp().await;
    let producer = client.init(Some("tx")).await.unwrap();
    let unasked = client.produce(9, Some("tx"), 0, batch(Some(producer), 0, true, &["a"])).await;
    assert_eq!(unasked.error_code, INVALID_STATE, "the partition was not added");
    for round in 0..3 {
        assert_eq!(client.add_partitions("tx", producer, &[0]).await, 0);
        let appended = client.produce(9, Some("tx"), 0, batch(Some(producer), round, true, &["a"])).await;
        assert_eq!(appended.error_code, 0);
        assert_eq!(client.end(3, "tx", producer, round != 1).await, Ok(producer));
        client.settled("tx").await;
    }
    assert_eq!(client.values(0, READ_COMMITTED).await, ["a", "a"]);
    broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_takes_too_long_is_aborted_and_its_producer_told() {
    let (broker, mut client) = in_memory().await;
    let nobody = Producer { id: -1, epoch: -1 };
    let producer = client.init_with(Some("tx"), nobody, 2_000).await.unwrap();
    write(&mut client, "tx", producer, 0, 0, "slow").await;
    let clock = Env::seeded(1).clock;
    clock.sleep(Duration::from_millis(1_900)).await;
    assert_eq!(client.state("tx").await, "Ongoing");
    clock.sleep(Duration::from_millis(300)).await;
    assert_eq!(client.settled("tx").await, "CompleteAbort");
    assert_eq!(client.end(V2.1, "tx", producer, true).await, Err(FENCED));
    assert_eq!(write(&mut client, "tx", producer, 0, 1, "slow").await, INVALID_EPOCH);
    assert!(client.values(0, READ_COMMITTED).await.is_empty());
    // It may recover in place, from the abort's answer or by a new init.
    let next = client.end(V2.1, "tx", producer, false).await.unwrap();
    assert_eq!(next.epoch, producer.epoch + 1);
    let again = client.init_as(Some("tx"), producer).await.unwrap();
    assert_eq!(again.epoch, producer.epoch + 2);
    broker.shutdown().await;
}

#[tokio::test]
async fn time_outs_that_cannot_be_kept_and_half_identities_are_refused() {
    let (broker, mut client) = tcp().await;
    let nobody = Producer { id: -1, epoch: -1 };
    assert_eq!(client.init_with(Some("tx"), nobody, 0).await, Err(50), "INVALID_TRANSACTION_TIMEOUT");
    assert_eq!(client.init_with(Some("tx"), nobody, i32::MAX).await, Err(50));
    assert_eq!(client.init_as(Some("tx"), Producer { id: 5, epoch: -1 }).await, Err(42), "INVALID_REQUEST");
    assert_eq!(client.end(V2.1, "unknown", nobody, true).await, Err(49), "INVALID_PRODUCER_ID_MAPPING");
    broker.shutdown().await;
}

#[tokio::test]
async fn nothing_is_committed_without_partitions_but_an_empty_abort_moves_the_epoch() {
    let (broker, mut client) = tcp().await;
    let producer = client.init(Some("tx")).await.unwrap();
    assert_eq!(client.end(V2.1, "tx", producer, true).await, Err(INVALID_STATE));
    let next = client.end(V2.1, "tx", producer, false).await.unwrap();
    assert_eq!(next.epoch, producer.epoch + 1);
    assert_eq!(client.settled("tx").await, "CompleteAbort");
    broker.shutdown().await;
}

#[tokio::test]
async fn a_marker_for_a_deleted_topic_does_not_hold_the_transaction() {
    let (broker, mut client) = tcp().await;
    let producer = client.init(Some("tx")).await.unwrap();
    write(&mut client, "tx", producer, 0, 0, "a").await;
    client.call(DeleteTopicsRequest::default().with_topic_names(vec![TopicName(text("t"))]), 5).await;
    client.end(V2.1, "tx", producer, true).await.unwrap();
    assert_eq!(client.settled("tx").await, "CompleteCommit");
    broker.shutdown().await;
}

#[tokio::test]
async fn open_transactions_are_listed_and_their_producers_named() {
    use kafka_protocol::messages::describe_producers_request::TopicRequest;
    let (broker, mut client) = tcp().await;
    let producer = client.init(Some("open")).await.unwrap();
    client.init(Some("idle")).await.unwrap();
    write(&mut client, "open", producer, 1, 0, "a").await;
    let request = ListTransactionsRequest::default().with_state_filters(vec![text("Ongoing"), text("Odd")]);
    let response = client.call(request, 1).await;
    let ids: Vec<_> = response.transaction_states.iter().map(|one| one.transactional_id.as_str()).collect();
    assert_eq!(ids, ["open"]);
    assert_eq!(response.unknown_state_filters, [text("Odd")]);
    let topic = TopicRequest::default().with_name(TopicName(text("t"))).with_partition_indexes(vec![1]);
    let response = client.call(DescribeProducersRequest::default().with_topics(vec![topic]), 0).await;
    let known = &response.topics[0].partitions[0].active_producers[0];
    assert_eq!((known.producer_id.0, known.current_txn_start_offset), (producer.id, 0));
    broker.shutdown().await;
}

#[tokio::test]
async fn group_topic_and_broker_settings_are_described_and_altered() {
    use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
    use kafka_protocol::messages::incremental_alter_configs_request::{
        AlterConfigsResource, AlterableConfig,
    };
    let (broker, mut client) = tcp().await;
    let set = AlterableConfig::default().with_name(text("retention.bytes")).with_value(Some(text("100000")));
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configs(vec![set]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    assert_eq!(client.call(request, 1).await.responses[0].error_code, 0);
    let asked = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configuration_keys(Some(vec![text("retention.bytes")]));
    let response = client.call(DescribeConfigsRequest::default().with_resources(vec![asked]), 4).await;
    let config = &response.results[0].configs[0];
    assert_eq!((config.value.as_ref().unwrap().as_str(), config.config_source), ("100000", 1));
    // The log keeps to it.
    for _ in 0..30 {
        client.produce(9, None, 0, batch(None, -1, false, &[&"x".repeat(10_000)])).await;
    }
    assert!(client.list_offset(0, -2, READ_UNCOMMITTED).await.0 > 15);
    broker.shutdown().await;
}

#[tokio::test]
async fn one_request_may_begin_a_transaction_on_several_partitions() {
    let (broker, mut client) = tcp().await;
    let mut producer = client.init(Some("tx")).await.unwrap();
    for _ in 0..20 {
        let batches = (0..3).map(|partition| (partition, batch(Some(producer), 0, true, &["x"]))).collect();
        // Sent at once after the end of the last: the markers of that may arrive while the coordinator is asked.
        let answers = client.produce_to(V2.0, Some("tx"), batches).await;
        assert!(answers.iter().all(|answer| answer.error_code == 0), "{answers:?}");
        producer = client.end(V2.1, "tx", producer, true).await.unwrap();
    }
    client.settled("tx").await;
    assert_eq!(client.values(2, READ_COMMITTED).await.len(), 20);
    broker.shutdown().await;
}
