//! What the cluster can do: finalized features and the requests it serves (KIP-584).

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::ApiVersionsResponse;
use sharestream_wire::api::ApiKey;

use crate::versions::AgreedVersions;

/// Finalized features and served requests, as one broker told them at connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Level of `share.version`: 0 none, 1 share groups, 2 broker dead letters, 3 transactional acknowledgements.
    pub share_version: i16,
    /// Level of `transaction.version`: 2 is KIP-890 with an epoch of its own for each transaction.
    pub transaction_version: i16,
    /// Every finalized feature, by name.
    pub finalized: BTreeMap<String, i16>,
    served: BTreeSet<i16>,
}

impl Features {
    pub(crate) fn of(answer: &ApiVersionsResponse, versions: &AgreedVersions) -> Self {
        let finalized: BTreeMap<String, i16> = answer
            .finalized_features
            .iter()
            .map(|feature| (feature.name.to_string(), feature.max_version_level))
            .collect();
        let level = |name: &str| finalized.get(name).copied().unwrap_or(0);
        Features {
            share_version: level("share.version"),
            transaction_version: level("transaction.version"),
            served: versions.keys().collect(),
            finalized,
        }
    }

    /// True when the broker serves this request in a version that we speak.
    pub fn supports(&self, key: ApiKey) -> bool {
        self.served.contains(&key.0)
    }

    /// True when share acknowledgements can be part of a transaction (KIP-1289). The feature level decides as well
    /// as the request: its key is not assigned yet, so another broker may use it for something else.
    pub fn transactional_share_acknowledgements(&self) -> bool {
        self.share_version >= 3
            && self.transaction_version >= 2
            && self.supports(ApiKey::TXN_SHARE_ACKNOWLEDGE)
    }
}
