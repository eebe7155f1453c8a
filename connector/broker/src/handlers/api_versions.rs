//! ApiVersions (KIP-35, KIP-584): what is served, and which features are on.

use std::sync::Arc;

use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::StrBytes;

use super::{RequestContext, SERVED, STAGE, Served};
use crate::error::ErrorCode;
use crate::features::{STAGING, SUPPORTED};
use crate::node::Node;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    _request: ApiVersionsRequest,
) -> ApiVersionsResponse {
    let supported = SUPPORTED.map(|(name, min, max)| {
        let name = StrBytes::from_static_str(name);
        // Version 3 of the request has no way to say 0 (Kafka leaves such features out there).
        SupportedFeatureKey::default().with_name(name).with_min_version(min).with_max_version(max)
    });
    let supported = supported.into_iter().filter(|one| context.version >= 4 || one.min_version > 0);
    let (levels, epoch) = node.cluster.features.finalized();
    // Level 0 is "not there".
    let finalized = levels.into_iter().filter(|(_, level)| *level > 0).map(|(name, level)| {
        FinalizedFeatureKey::default()
            .with_name(StrBytes::from_static_str(name))
            .with_min_version_level(level)
            .with_max_version_level(level)
    });
    ApiVersionsResponse::default()
        .with_api_keys(api_keys(node))
        .with_supported_features(supported.collect())
        .with_finalized_features_epoch(epoch)
        .with_finalized_features(finalized.collect())
}

/// The answer to a version that we do not know (KIP-511); encoded as version 0.
pub(crate) fn unsupported_version(node: &Node) -> ApiVersionsResponse {
    ApiVersionsResponse::default()
        .with_error_code(ErrorCode::UnsupportedVersion.code())
        .with_api_keys(api_keys(node))
}

fn api_keys(node: &Node) -> Vec<ApiVersion> {
    let level = node.cluster.features.share_version();
    // As in Kafka, requests of share groups stay listed at level 0; the stage is not listed below its own.
    let listed = |served: &&Served| !served.hidden && (served.api_key != STAGE || level >= STAGING);
    let shown = SERVED.iter().filter(listed);
    let mut keys: Vec<_> = shown
        .map(|served| {
            ApiVersion::default()
                .with_api_key(served.api_key)
                .with_min_version(served.min)
                .with_max_version(served.max)
        })
        .collect();
    keys.sort_by_key(|key| key.api_key);
    keys
}
