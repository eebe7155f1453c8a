//! UpdateFeatures (KIP-584, KIP-1022): finalizes another level of `share.version`.
//!
//! Below level 3 nothing may be staged. Lowering it closes the gate first, then looks at what is staged: with pending
//! records the old level comes back and the answer says which share partition has some (ADR 0014). Otherwise every
//! share coordinator writes snapshots that an older broker can read.

use std::sync::Arc;

use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::messages::update_features_response::UpdatableFeatureResult;
use kafka_protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::cluster::SHARE_STATE_TOPIC;
use crate::error::ErrorCode;
use crate::features::{SHARE_VERSION, STAGING, SUPPORTED};
use crate::node::Node;
use crate::share_coordinator::pending_of;

const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;
/// From this version on the answer is for the whole.
const WHOLE_FROM: i16 = 2;

type Refusal = (ErrorCode, String);

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: UpdateFeaturesRequest,
) -> UpdateFeaturesResponse {
    let updated = update(node, context.version, &request);
    let response = UpdateFeaturesResponse::default();
    match updated {
        Err((code, text)) => {
            let response = response.with_error_code(code.code());
            response.with_error_message(Some(StrBytes::from_string(text)))
        }
        Ok(()) if context.version >= WHOLE_FROM => response,
        Ok(()) => {
            let done = |update: &FeatureUpdateKey| {
                UpdatableFeatureResult::default().with_feature(update.feature.clone())
            };
            response.with_results(request.feature_updates.iter().map(done).collect())
        }
    }
}

/// All or nothing, as Kafka has it since version 2 of the request.
fn update(node: &Node, version: i16, request: &UpdateFeaturesRequest) -> Result<(), Refusal> {
    for update in &request.feature_updates {
        check(node, version, update)?;
    }
    if request.validate_only {
        return Ok(());
    }
    for update in request.feature_updates.iter().filter(|update| update.feature.as_str() == SHARE_VERSION) {
        set_share_version(node, update.max_version_level)?;
        // The other nodes follow when they hear of it.
        node.share.manager.follow_level(node);
    }
    Ok(())
}

fn check(node: &Node, version: i16, update: &FeatureUpdateKey) -> Result<(), Refusal> {
    let (name, level) = (update.feature.as_str(), update.max_version_level);
    let refused = |text: String| {
        let text = format!("Invalid update version {level} for feature {name}. {text}");
        (ErrorCode::InvalidUpdateVersion, text)
    };
    let known = SUPPORTED.iter().find(|(known, ..)| *known == name);
    let (_, min, max) = known.ok_or_else(|| refused("The embedded broker does not have it.".to_owned()))?;
    if !(*min..=*max).contains(&level) {
        return Err(refused(format!("The embedded broker has versions {min} to {max}.")));
    }
    let kind = match (version, update.allow_downgrade) {
        (0, true) => SAFE_DOWNGRADE,
        (0, false) => UPGRADE,
        _ => update.upgrade_type,
    };
    let (levels, _) = node.cluster.features.finalized();
    let now = levels.iter().find(|(known, _)| *known == name).map_or(0, |(_, level)| *level);
    match kind {
        UPGRADE if level < now => Err(refused(format!("It is {now}: ask for a downgrade."))),
        SAFE_DOWNGRADE | UNSAFE_DOWNGRADE if level > now => {
            Err(refused(format!("It is {now}: ask for an upgrade.")))
        }
        UPGRADE | SAFE_DOWNGRADE | UNSAFE_DOWNGRADE => Ok(()),
        _ => Err(refused("The type of the update is not known.".to_owned())),
    }
}

fn set_share_version(node: &Node, level: i16) -> Result<(), Refusal> {
    let features = &node.cluster.features;
    let failed = |code: ErrorCode| (code, format!("{SHARE_VERSION} {level} was not written: {code}"));
    let before = features.share_version();
    features.set_share_version(level).map_err(failed)?;
    if level >= STAGING || before < STAGING {
        return Ok(());
    }
    // From here on nothing more is staged, so what is found is all.
    let state = node.cluster.topics.by_name(SHARE_STATE_TOPIC);
    let mut logs = state.iter().flat_map(|topic| topic.partitions());
    let Some(held) = logs.find_map(|log| pending_of(log).transpose()) else {
        node.share.coordinator.snapshot_for_old_readers(node);
        return Ok(());
    };
    features.set_share_version(before).map_err(failed)?;
    let text = match held {
        Ok(key) => format!(
            "share partition {key} has acknowledgements staged in an open transaction: end it (ListTransactions says \
             which are open), then lower {SHARE_VERSION} again"
        ),
        Err(code) => {
            format!("a partition of {SHARE_STATE_TOPIC} cannot be read ({code}): {SHARE_VERSION} stays")
        }
    };
    Err((ErrorCode::FeatureUpdateFailed, text))
}
