//! Features of the cluster, and where leader epochs end.

use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::messages::*;

use super::requests::*;
use crate::play::Play;

const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;

pub(crate) async fn play(p: &mut Play) {
    let data = topic(p, "epochs", 2).await;
    epochs(p, &data).await;
    features(p).await;
}

fn epoch_end(topic: &str, partition: i32, current: i32, epoch: i32) -> OffsetForLeaderEpochRequest {
    let asked = OffsetForLeaderPartition::default()
        .with_partition(partition)
        .with_current_leader_epoch(current)
        .with_leader_epoch(epoch);
    let topic = OffsetForLeaderTopic::default().with_topic(topic_name(topic)).with_partitions(vec![asked]);
    OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic])
}

async fn epochs(p: &mut Play, data: &Topic) {
    p.settled("end of an epoch of an empty log", epoch_end(&data.name, 1, -1, 0), 4).await;
    let request = produce(None, &data.name, 0, Some(batch(p.base_ms, NEW, -1, false, &["a", "b", "c"])), -1);
    p.quietly_until(&request, 9, |_| true).await.unwrap();
    for version in 2..=4 {
        let request = epoch_end(&data.name, 0, -1, 0);
        p.settled(&format!("end of an epoch, version {version}"), request, version).await;
    }
    let cases = [
        ("the current epoch, asked as its leader", 0, 0),
        ("an epoch, asked with a later one", 7, 0),
        ("a later epoch", -1, 7),
        ("no epoch", -1, -1),
        ("an epoch below none", -1, -5),
    ];
    for (what, current, epoch) in cases {
        p.step(&format!("end of {what}"), epoch_end(&data.name, 0, current, epoch), 4).await;
    }
    let unknown = p.name("unknown");
    p.step("end of an epoch of an unknown topic", epoch_end(&unknown, 0, -1, 0), 4).await;
    p.step("end of an epoch of an unknown partition", epoch_end(&data.name, 9, -1, 0), 4).await;
    let nothing = OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-1));
    p.step("end of no epoch at all", nothing, 4).await;
}

/// One feature to another level, only looked at.
fn update(feature: &str, level: i16, kind: i8) -> UpdateFeaturesRequest {
    let update = FeatureUpdateKey::default()
        .with_feature(text(feature))
        .with_max_version_level(level)
        .with_upgrade_type(kind);
    UpdateFeaturesRequest::default().with_timeout_ms(5_000).with_feature_updates(vec![update])
}

async fn features(p: &mut Play) {
    const SHARE: &str = "share.version";
    const TXN: &str = "transaction.version";
    for version in [1, 2] {
        let cases = [
            ("of nothing", UpdateFeaturesRequest::default().with_timeout_ms(5_000)),
            ("of an unknown feature", update("no.such.feature", 1, UPGRADE)),
            ("of a feature without a name", update("", 1, UPGRADE)),
            ("to a level that nobody has", update(SHARE, 1_000, UPGRADE)),
            ("to a negative level", update(SHARE, -1, SAFE_DOWNGRADE)),
            ("down without asking for it", update(SHARE, 1, UPGRADE)),
            ("up as a downgrade", update(TXN, 2, SAFE_DOWNGRADE)),
            ("to the level that it has", update(TXN, 2, UPGRADE)),
            ("of an unknown kind", update(SHARE, 1, 9)),
            ("of no kind", update(SHARE, 1, 0)),
            ("down, to look at", update(SHARE, 1, SAFE_DOWNGRADE).with_validate_only(true)),
            ("down unsafely, to look at", update(SHARE, 1, UNSAFE_DOWNGRADE).with_validate_only(true)),
        ];
        for (what, request) in cases {
            p.step(&format!("update {what}, version {version}"), request, version).await;
        }
        let mut two = update(TXN, 2, UPGRADE);
        two.feature_updates.extend(update("no.such.feature", 1, UPGRADE).feature_updates);
        p.step(&format!("update a known feature and an unknown one, version {version}"), two, version).await;
        let mut twice = update(SHARE, 1, SAFE_DOWNGRADE).with_validate_only(true);
        twice.feature_updates.extend(update(SHARE, 1, SAFE_DOWNGRADE).feature_updates);
        p.step(&format!("update one feature twice, version {version}"), twice, version).await;
    }
    p.step("lower share.version", update(SHARE, 1, SAFE_DOWNGRADE), 2).await;
    p.step("raise share.version", update(SHARE, 2, UPGRADE), 2).await;
}
