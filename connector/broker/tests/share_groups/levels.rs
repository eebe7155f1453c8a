//! Levels of `share.version`: what is served at each, and how it is lowered (KIP-584, KIP-1289).

use std::time::Duration;

use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::messages::{ApiVersionsRequest, UpdateFeaturesRequest, UpdateFeaturesResponse};
use sharestream_broker::{ApiKey, BrokerConfig};
use sharestream_wire::KafkaError;

use crate::fixtures::Cluster;

const LONG: Duration = Duration::from_secs(10);
pub(crate) const UPGRADE: i8 = 1;
pub(crate) const DOWNGRADE: i8 = 2;
const INVALID_UPDATE_VERSION: i16 = 95;
const FEATURE_UPDATE_FAILED: i16 = 96;

async fn at_level(share_version: i16, partitions: i32) -> Cluster {
    let config = BrokerConfig { share_version, ..BrokerConfig::default() };
    Cluster::start_with(config, partitions, &[]).await
}

/// Whether the stage is listed, and the finalized level that is shown.
async fn shown(cluster: &mut Cluster) -> (bool, Option<i16>) {
    let answer = cluster.admin.call(ApiVersionsRequest::default(), 4).await;
    let listed = answer.api_keys.iter().any(|api| api.api_key == ApiKey::TXN_SHARE_ACKNOWLEDGE.0);
    let level = answer.finalized_features.iter().find(|feature| feature.name.as_str() == "share.version");
    (listed, level.map(|feature| feature.max_version_level))
}

pub(crate) async fn set_level(cluster: &mut Cluster, level: i16, upgrade_type: i8) -> UpdateFeaturesResponse {
    let update = FeatureUpdateKey::default()
        .with_feature("share.version".into())
        .with_max_version_level(level)
        .with_upgrade_type(upgrade_type);
    cluster.admin.call(UpdateFeaturesRequest::default().with_feature_updates(vec![update]), 2).await
}

#[tokio::test]
async fn below_level_3_the_stage_is_not_listed_and_refused_and_share_groups_go_on() {
    for level in [1, 2] {
        let mut cluster = at_level(level, 1).await;
        assert_eq!(shown(&mut cluster).await, (false, Some(level)));
        cluster.produce(0, 10).await;
        let mut member = cluster.member("alice").await;
        assert_eq!(member.fetch(LONG).await, [(0, 9, 1)]);
        let mut transaction = cluster.transaction("job-0", LONG).await;
        let staged = transaction.stage(&member, &[(0, 0, 9, 1)]).await;
        assert_eq!(staged, KafkaError::UNSUPPORTED_VERSION.0);
        assert_eq!(member.acknowledge(&[(0, 0, 9, 1)]).await, 0);
        assert_eq!(cluster.start_offset(0).await, 10);
        cluster.broker.shutdown().await;
    }
}

#[tokio::test]
async fn at_level_0_there_are_no_share_groups() {
    use kafka_protocol::messages::{GroupId, ShareGroupHeartbeatRequest, TopicName};
    let mut cluster = at_level(0, 1).await;
    assert_eq!(shown(&mut cluster).await, (false, None));
    let request = ShareGroupHeartbeatRequest::default()
        .with_group_id(GroupId("g".into()))
        .with_member_id("alice".into())
        .with_member_epoch(0)
        .with_subscribed_topic_names(Some(vec![TopicName("orders".into())]));
    let answer = cluster.admin.call(request.clone(), 1).await;
    assert_eq!(answer.error_code, KafkaError::UNSUPPORTED_VERSION.0);
    assert_eq!(set_level(&mut cluster, 3, UPGRADE).await.error_code, 0);
    assert_eq!(shown(&mut cluster).await, (true, Some(3)));
    assert_eq!(cluster.admin.call(request, 1).await.error_code, 0);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_downgrade_waits_for_staged_records_and_leaves_nothing_that_an_old_reader_refuses() {
    let mut cluster = at_level(3, 2).await;
    for partition in 0..2 {
        cluster.produce(partition, 10).await;
    }
    let mut member = cluster.member("alice").await;
    member.fetch_full(&[], LONG).await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    assert_eq!(transaction.stage(&member, &[(0, 0, 9, 1), (1, 0, 4, 1)]).await, 0);
    assert!(!cluster.broker.cluster().share_state_for_newer_readers().is_empty());

    let refused = set_level(&mut cluster, 2, DOWNGRADE).await;
    assert_eq!(refused.error_code, FEATURE_UPDATE_FAILED);
    assert!(refused.error_message.unwrap().contains("staged"));
    assert_eq!(shown(&mut cluster).await, (true, Some(3)), "the level stays");
    assert_eq!(transaction.stage(&member, &[(1, 5, 9, 1)]).await, 0, "and the transaction goes on");

    transaction.end(true).await;
    while cluster.start_offset(0).await + cluster.start_offset(1).await < 20 {
        cluster.env.clock.sleep(Duration::from_millis(5)).await;
    }
    assert!(
        !cluster.broker.cluster().share_state_for_newer_readers().is_empty(),
        "an idle group writes no snapshot by itself"
    );
    assert_eq!(set_level(&mut cluster, 2, DOWNGRADE).await.error_code, 0);
    assert_eq!(cluster.broker.cluster().share_state_for_newer_readers(), []);
    assert_eq!(shown(&mut cluster).await, (false, Some(2)));
    assert_eq!(cluster.start_offset(0).await, 10, "nothing is lost");

    cluster.produce(0, 1).await;
    assert_eq!(member.fetch(LONG).await, [(10, 10, 1)]);
    let staged = transaction.stage(&member, &[(0, 10, 10, 1)]).await;
    assert_eq!(staged, KafkaError::UNSUPPORTED_VERSION.0);
    assert_eq!(set_level(&mut cluster, 3, UPGRADE).await.error_code, 0);
    assert_eq!(transaction.stage(&member, &[(0, 10, 10, 1)]).await, 0);
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_level_that_there_is_not_or_in_the_wrong_direction_is_refused() {
    let mut cluster = at_level(2, 1).await;
    for (level, upgrade_type) in [(4, UPGRADE), (-1, DOWNGRADE), (1, UPGRADE), (3, DOWNGRADE), (3, 9)] {
        let answer = set_level(&mut cluster, level, upgrade_type).await;
        assert_eq!(answer.error_code, INVALID_UPDATE_VERSION, "{level} {upgrade_type}");
    }
    let update = FeatureUpdateKey::default().with_feature("transaction.version".into()).with_upgrade_type(2);
    let request = UpdateFeaturesRequest::default().with_feature_updates(vec![update]);
    assert_eq!(cluster.admin.call(request, 2).await.error_code, INVALID_UPDATE_VERSION);
    let update = FeatureUpdateKey::default()
        .with_feature("share.version".into())
        .with_max_version_level(3)
        .with_upgrade_type(UPGRADE);
    let request =
        UpdateFeaturesRequest::default().with_feature_updates(vec![update]).with_validate_only(true);
    assert_eq!(cluster.admin.call(request, 1).await.results[0].error_code, 0);
    assert_eq!(shown(&mut cluster).await, (false, Some(2)), "that was a question only");
    cluster.broker.shutdown().await;
}

#[tokio::test]
async fn a_data_folder_keeps_the_level() {
    let folder = tempfile::tempdir().unwrap();
    let at = |share_version| BrokerConfig {
        share_version,
        data: Some(folder.path().to_owned()),
        ..BrokerConfig::default()
    };
    let mut cluster = Cluster::start_with(at(2), 1, &[]).await;
    cluster.broker.shutdown().await;
    cluster = Cluster::connect(at(3)).await;
    assert_eq!(shown(&mut cluster).await, (false, Some(2)), "settings are for a fresh cluster");
    assert_eq!(set_level(&mut cluster, 1, DOWNGRADE).await.error_code, 0);
    cluster.broker.shutdown().await;
    cluster = Cluster::connect(at(3)).await;
    assert_eq!(shown(&mut cluster).await, (false, Some(1)));
    cluster.broker.shutdown().await;
}
