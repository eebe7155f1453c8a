//! ApiVersions (KIP-35, KIP-584): what is served, and which features are on.

use std::sync::Arc;

use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::StrBytes;

use super::{RequestContext, SERVED};
use crate::error::ErrorCode;
use crate::node::Node;

/// Features and their only level: KIP-1289 is on at `share.version` 3, implicit adding at `transaction.version` 2.
const FEATURES: [(&str, i16); 3] = [("group.version", 1), ("share.version", 3), ("transaction.version", 2)];

pub(crate) async fn handle(
    _node: &Arc<Node>,
    _context: &RequestContext,
    _request: ApiVersionsRequest,
) -> ApiVersionsResponse {
    let supported = FEATURES.map(|(name, level)| {
        SupportedFeatureKey::default().with_name(StrBytes::from_static_str(name)).with_max_version(level)
    });
    let finalized = FEATURES.map(|(name, level)| {
        FinalizedFeatureKey::default()
            .with_name(StrBytes::from_static_str(name))
            .with_min_version_level(level)
            .with_max_version_level(level)
    });
    ApiVersionsResponse::default()
        .with_api_keys(api_keys())
        .with_supported_features(supported.to_vec())
        .with_finalized_features_epoch(1)
        .with_finalized_features(finalized.to_vec())
}

/// The answer to a version that we do not know (KIP-511); encoded as version 0.
pub(crate) fn unsupported_version() -> ApiVersionsResponse {
    ApiVersionsResponse::default()
        .with_error_code(ErrorCode::UnsupportedVersion.code())
        .with_api_keys(api_keys())
}

fn api_keys() -> Vec<ApiVersion> {
    let shown = SERVED.iter().filter(|served| !served.hidden);
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
