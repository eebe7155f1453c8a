//! The broker's dead letters (KIP-1191), alone and after a commit (KIP-1289).

use std::time::Duration;

use kafka_protocol::messages::DescribeConfigsRequest;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use sharestream_broker::faults::{Fault, FaultAction};
use sharestream_broker::inspect::{DurableStateView, RecordView};
use sharestream_broker::{ApiKey, BrokerConfig};
use sharestream_wire::KafkaError;

use crate::fixtures::{Cluster, Member, Transaction, acquired_of};
use crate::levels::{DOWNGRADE, UPGRADE, set_level};

const LONG: Duration = Duration::from_secs(10);
const NO_WAIT: Duration = Duration::ZERO;
const LETTERS: &str = "dlq.orders";
const TOPIC_NAME: (&str, &str) = ("errors.deadletterqueue.topic.name", LETTERS);
const COPY: (&str, &str) = ("errors.deadletterqueue.copy.record.enable", "true");

fn creating() -> BrokerConfig {
    BrokerConfig { dead_letter_auto_create_topics: true, ..BrokerConfig::default() }
}

async fn holding(config: BrokerConfig, configs: &[(&str, &str)]) -> (Cluster, Member) {
    let mut cluster = Cluster::start_with(config, 1, configs).await;
    cluster.produce(0, 10).await;
    let mut member = cluster.member("alice").await;
    assert_eq!(acquired_of(&member.fetch_full(&[], LONG).await, 0), [(0, 9, 1)]);
    (cluster, member)
}

/// A transaction has ten rejects staged, and the leader has forgotten the share partition.
async fn rejected_and_forgotten() -> (Cluster, Transaction) {
    let (cluster, member) = holding(creating(), &[TOPIC_NAME]).await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    assert_eq!(transaction.stage(&member, &[(0, 0, 9, 3)]).await, 0);
    drop(member);
    // Without sessions the leader forgets the share partition; what is staged is durable.
    while cluster.broker.cluster().share_partitions()[0].memory.is_some() {
        cluster.env.clock.sleep(Duration::from_millis(20)).await;
    }
    (cluster, transaction)
}

fn letters(cluster: &Cluster) -> Vec<RecordView> {
    cluster.broker.cluster().committed_records(LETTERS, 0.into())
}

fn header(letter: &RecordView, name: &str) -> String {
    let found = letter.headers.iter().find(|(key, _)| key == name.as_bytes());
    String::from_utf8(found.unwrap().1.clone().unwrap().to_vec()).unwrap()
}

fn offsets(letters: &[RecordView]) -> Vec<i64> {
    letters.iter().map(|letter| header(letter, "__dlq.errors.offset").parse().unwrap()).collect()
}

async fn start_offset_becomes(cluster: &mut Cluster, expected: i64) {
    for _ in 0..400 {
        if cluster.start_offset(0).await == expected {
            return;
        }
        cluster.env.clock.sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(cluster.start_offset(0).await, expected);
}

#[tokio::test]
async fn a_rejected_record_has_one_dead_letter_with_its_source_in_the_headers() {
    let (mut cluster, mut member) = holding(creating(), &[TOPIC_NAME]).await;
    assert_eq!(member.acknowledge(&[(0, 0, 2, 3)]).await, 0);
    assert_eq!(member.acknowledge(&[(0, 3, 9, 1)]).await, 0);
    start_offset_becomes(&mut cluster, 10).await;
    let letters = letters(&cluster);
    assert_eq!(offsets(&letters), [0, 1, 2]);
    let names = letters[1].headers.iter().map(|(key, _)| String::from_utf8(key.to_vec()).unwrap());
    let expected = ["topic", "partition", "offset", "group", "delivery.count", "message"];
    assert_eq!(names.collect::<Vec<_>>(), expected.map(|name| format!("__dlq.errors.{name}")));
    assert_eq!(header(&letters[1], "__dlq.errors.topic"), "orders");
    assert_eq!(header(&letters[1], "__dlq.errors.partition"), "0");
    assert_eq!(header(&letters[1], "__dlq.errors.group"), crate::fixtures::GROUP);
    assert_eq!(header(&letters[1], "__dlq.errors.delivery.count"), "1");
    assert_eq!(header(&letters[1], "__dlq.errors.message"), "Offset rejected by client.");
    assert_eq!((&letters[1].key, &letters[1].value), (&None, &None), "not copied unless asked");
    assert_eq!(cluster.broker.cluster().metrics()[0].dead_letters_written_count, 3);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn records_out_of_deliveries_have_dead_letters_with_their_values_where_the_group_asks() {
    let configs =
        [TOPIC_NAME, COPY, ("share.delivery.count.limit", "1"), ("share.record.lock.duration.ms", "200")];
    let (mut cluster, member) = holding(creating(), &configs).await;
    start_offset_becomes(&mut cluster, 10).await;
    let letters = letters(&cluster);
    assert_eq!(offsets(&letters), (0..10).collect::<Vec<_>>());
    assert_eq!(letters[7].value.as_deref(), Some(&b"order 7"[..]));
    assert_eq!(header(&letters[7], "__dlq.errors.message"), "Offset delivery count exceeded the threshold.");
    drop(member);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_staged_reject_has_its_dead_letter_after_the_commit_and_none_after_an_abort() {
    let (mut cluster, mut member) = holding(creating(), &[TOPIC_NAME, COPY]).await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    assert_eq!(transaction.stage(&member, &[(0, 0, 4, 3)]).await, 0);
    transaction.end(false).await;
    assert_eq!(member.fetch(LONG).await, [(0, 4, 2)]);
    assert_eq!(letters(&cluster), [], "an abort gives back");
    for _ in 0..2 {
        assert_eq!(transaction.stage(&member, &[(0, 0, 4, 3)]).await, 0, "a repeat is a success");
    }
    assert_eq!(transaction.stage(&member, &[(0, 5, 9, 1)]).await, 0);
    assert_eq!(letters(&cluster), [], "nothing before the commit");
    transaction.end(true).await;
    start_offset_becomes(&mut cluster, 10).await;
    assert_eq!(offsets(&letters(&cluster)), [0, 1, 2, 3, 4]);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_commit_writes_its_dead_letters_also_where_nobody_consumes_any_more() {
    let (mut cluster, mut transaction) = rejected_and_forgotten().await;
    transaction.end(true).await;
    start_offset_becomes(&mut cluster, 10).await;
    assert_eq!(letters(&cluster).len(), 10);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn an_end_between_letter_and_note_leaves_a_second_letter_and_never_none() {
    let (mut cluster, mut member) = holding(creating(), &[TOPIC_NAME]).await;
    // The note that the records are archived does not get through: the second write of state from now on.
    assert_eq!(member.acknowledge(&[(0, 3, 9, 1)]).await, 0);
    let fault = Fault::new(FaultAction::Error(KafkaError::REQUEST_TIMED_OUT))
        .api(ApiKey::WRITE_SHARE_GROUP_STATE)
        .after(1);
    cluster.broker.faults().plant(fault).unwrap();
    assert_eq!(member.acknowledge(&[(0, 0, 2, 3)]).await, 0);
    while letters(&cluster).len() < 3 {
        cluster.env.clock.sleep(Duration::from_millis(5)).await;
    }
    let state = |cluster: &Cluster| cluster.broker.cluster().share_partitions()[0].runs[0].state;
    assert_eq!(state(&cluster), DurableStateView::Archiving);
    cluster.broker.kill_node(1.into()).await.unwrap();
    cluster.broker.faults().clear();
    cluster.broker.start_node(1.into()).await.unwrap();
    cluster = Cluster { admin: cluster.open().await, ..cluster };
    assert_eq!(cluster.start_offset(0).await, 0, "a start offset does not pass what has no letter");
    let mut bob = cluster.member("bob").await;
    assert_eq!(bob.fetch(NO_WAIT).await, [], "archiving records are not delivered");
    start_offset_becomes(&mut cluster, 10).await;
    assert_eq!(offsets(&letters(&cluster)), [0, 1, 2, 0, 1, 2]);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_topic_that_may_not_be_written_costs_the_letter_and_not_the_group() {
    let cases: [(BrokerConfig, &str); 3] = [
        (BrokerConfig::default(), LETTERS),
        (creating(), "letters"),
        (BrokerConfig { dead_letter_topic_prefix: String::new(), ..creating() }, crate::fixtures::TOPIC),
    ];
    for (config, name) in cases {
        let configs = [("errors.deadletterqueue.topic.name", name)];
        let (mut cluster, mut member) = holding(config, &configs).await;
        assert_eq!(member.acknowledge(&[(0, 0, 9, 3)]).await, 0);
        start_offset_becomes(&mut cluster, 10).await;
        assert_eq!(cluster.broker.cluster().metrics()[0].dead_letters_failed_count, 10, "{name}");
        cluster.broker.shutdown().await;
    }
}

#[tokio::test]
async fn below_level_2_there_are_no_dead_letters() {
    let config = BrokerConfig { share_version: 1, ..creating() };
    let (mut cluster, mut member) = holding(config, &[TOPIC_NAME]).await;
    assert_eq!(member.acknowledge(&[(0, 0, 9, 3)]).await, 0);
    assert_eq!(cluster.start_offset(0).await, 10, "archived at once");
    assert_eq!(letters(&cluster), []);
    cluster.broker.shutdown().await;
}

/// What the durable state says of the records from `first` on; none when they are done.
fn durable_state(cluster: &Cluster, first: i64) -> Option<DurableStateView> {
    let shares = cluster.broker.cluster().share_partitions();
    shares[0].runs.iter().find(|run| run.first.0 == first).map(|run| run.state)
}

async fn becomes(cluster: &Cluster, first: i64, expected: Option<DurableStateView>) {
    for _ in 0..1_000 {
        if durable_state(cluster, first) == expected {
            return;
        }
        cluster.env.clock.sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(durable_state(cluster, first), expected);
}

#[tokio::test]
async fn letters_under_way_are_written_to_the_end_when_the_level_falls() {
    for level in [1, 0] {
        let mut cluster = Cluster::start_with(creating(), 1, &[TOPIC_NAME]).await;
        // One more than a batch of letters holds: the second batch begins after the level has fallen.
        cluster.produce(0, 501).await;
        let mut member = cluster.member("alice").await;
        assert_eq!(acquired_of(&member.fetch_full(&[], LONG).await, 0), [(0, 500, 1)]);
        let slow = Fault::new(FaultAction::Delay(Duration::from_secs(1))).api(ApiKey::PRODUCE);
        let slow = cluster.broker.faults().plant(slow).unwrap();
        assert_eq!(member.acknowledge(&[(0, 0, 500, 3)]).await, 0);
        while cluster.broker.faults().struck(slow) == 0 {
            cluster.env.clock.sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(set_level(&mut cluster, level, DOWNGRADE).await.error_code, 0);
        becomes(&cluster, 0, None).await;
        assert_eq!(offsets(&letters(&cluster)), (0..=500).collect::<Vec<_>>(), "level {level}");
        cluster.broker.shutdown().await;
    }
}

#[tokio::test]
async fn what_is_archiving_where_nobody_leads_it_waits_through_lower_levels_for_its_letter() {
    for level in [1, 0] {
        let (mut cluster, mut member) = holding(creating(), &[TOPIC_NAME]).await;
        // The leader ends before its letters are noted.
        let lost = Fault::new(FaultAction::Error(KafkaError::REQUEST_TIMED_OUT))
            .api(ApiKey::WRITE_SHARE_GROUP_STATE)
            .after(1);
        cluster.broker.faults().plant(lost).unwrap();
        assert_eq!(member.acknowledge(&[(0, 0, 9, 3)]).await, 0);
        while letters(&cluster).len() < 10 {
            cluster.env.clock.sleep(Duration::from_millis(5)).await;
        }
        cluster.broker.kill_node(1.into()).await.unwrap();
        cluster.broker.faults().clear();
        cluster.broker.start_node(1.into()).await.unwrap();
        cluster = Cluster { admin: cluster.open().await, ..cluster };
        assert_eq!(set_level(&mut cluster, level, DOWNGRADE).await.error_code, 0);
        assert_eq!(durable_state(&cluster, 0), Some(DurableStateView::Archiving));
        if level == 0 {
            // There are no share groups now: nothing moves, and nothing is forgotten.
            assert_eq!(set_level(&mut cluster, 3, UPGRADE).await.error_code, 0);
        }
        let mut bob = cluster.member("bob").await;
        assert_eq!(bob.fetch(NO_WAIT).await, [], "archiving records are not delivered");
        start_offset_becomes(&mut cluster, 10).await;
        assert_eq!(letters(&cluster).len(), 20, "written again, for nobody knows of the first ones");
        assert_eq!(cluster.broker.cluster().metrics()[0].dead_letters_failed_count, 0);
        cluster.broker.shutdown().await;
    }
}

#[tokio::test]
async fn a_leader_that_hears_of_a_commit_after_the_level_fell_writes_its_letters() {
    let (mut cluster, mut transaction) = rejected_and_forgotten().await;
    let untold = Fault::new(FaultAction::Error(KafkaError::REQUEST_TIMED_OUT))
        .api(ApiKey::SHARE_TXN_OUTCOME)
        .times(u64::MAX);
    cluster.broker.faults().plant(untold).unwrap();
    transaction.end(true).await;
    becomes(&cluster, 0, Some(DurableStateView::Archiving)).await;
    assert_eq!(set_level(&mut cluster, 1, DOWNGRADE).await.error_code, 0);
    assert_eq!(letters(&cluster), []);
    cluster.broker.faults().clear();
    becomes(&cluster, 0, None).await;
    assert_eq!(letters(&cluster).len(), 10);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn what_is_given_up_after_the_level_fell_has_no_letter() {
    let configs = [TOPIC_NAME, ("share.delivery.count.limit", "1")];
    let (mut cluster, member) = holding(creating(), &configs).await;
    assert_eq!(set_level(&mut cluster, 1, DOWNGRADE).await.error_code, 0);
    // The leader decides by itself: no request tells it the settings.
    drop(member);
    start_offset_becomes(&mut cluster, 10).await;
    assert_eq!(letters(&cluster), []);
    assert_eq!(cluster.broker.cluster().metrics()[0].dead_letters_failed_count, 0);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn settings_of_dead_letters_have_kafkas_names_and_defaults() {
    const GROUP_RESOURCE: i8 = 32;
    let (mut cluster, member) = holding(BrokerConfig::default(), &[]).await;
    let resource = DescribeConfigsResource::default()
        .with_resource_type(GROUP_RESOURCE)
        .with_resource_name("anybody".into())
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = cluster.admin.call(request, 4).await;
    let value = |name: &str| {
        let found = answer.results[0].configs.iter().find(|config| config.name.as_str() == name);
        found.unwrap().value.clone().unwrap().to_string()
    };
    assert_eq!(value(TOPIC_NAME.0), "");
    assert_eq!(value(COPY.0), "false");
    drop(member);
    cluster.broker.shutdown().await;
}
