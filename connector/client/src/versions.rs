//! The versions that this client speaks, and the agreement with one connection's broker (KIP-35, KIP-511).

use std::collections::BTreeMap;

use kafka_protocol::protocol::Request;
use sharestream_base::ErrorKind;
use sharestream_wire::api::ApiKey;
use sharestream_wire::versions::{VersionRange, negotiate};

use crate::{Error, Result};

/// Key, and our lowest and highest version of each request that we send.
#[rustfmt::skip]
const OURS: &[(ApiKey, i16, i16)] = &[
    (ApiKey::PRODUCE, 9, 13), // 12 adds the partition to the transaction by itself (KIP-890), 13 has topic ids
    (ApiKey::FETCH, 12, 18), // 13 has topic ids
    (ApiKey::LIST_OFFSETS, 6, 10),
    (ApiKey::METADATA, 12, 13), // 12 allows to ask by topic id
    (ApiKey::FIND_COORDINATOR, 4, 6),
    (ApiKey::SASL_HANDSHAKE, 1, 1), // 1 goes on with SaslAuthenticate (KIP-152)
    (ApiKey::API_VERSIONS, 3, 4),
    (ApiKey::CREATE_TOPICS, 5, 7),
    (ApiKey::DELETE_TOPICS, 4, 6),
    (ApiKey::DESCRIBE_GROUPS, 5, 5), // 6 says nothing of a group that is not there yet (KIP-430 is what we ask it for)
    (ApiKey::LIST_GROUPS, 5, 5), // 5 tells and filters the type of a group (KIP-848)
    (ApiKey::INIT_PRODUCER_ID, 4, 5),
    (ApiKey::END_TXN, 5, 5), // 5 answers with the next producer epoch (KIP-890)
    (ApiKey::DESCRIBE_CONFIGS, 4, 4),
    (ApiKey::CREATE_PARTITIONS, 2, 3),
    (ApiKey::DELETE_GROUPS, 2, 2),
    (ApiKey::SASL_AUTHENTICATE, 1, 2), // 1 tells the session's lifetime (KIP-368)
    (ApiKey::INCREMENTAL_ALTER_CONFIGS, 1, 1),
    (ApiKey::DESCRIBE_TRANSACTIONS, 0, 0),
    (ApiKey::LIST_TRANSACTIONS, 0, 1),
    (ApiKey::SHARE_GROUP_HEARTBEAT, 1, 1),
    (ApiKey::SHARE_GROUP_DESCRIBE, 1, 1),
    (ApiKey::SHARE_FETCH, 1, 2),
    (ApiKey::SHARE_ACKNOWLEDGE, 1, 2),
    (ApiKey::DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1), // 1 adds the lag (KIP-1226)
    (ApiKey::ALTER_SHARE_GROUP_OFFSETS, 0, 0),
    (ApiKey::DELETE_SHARE_GROUP_OFFSETS, 0, 0),
    (ApiKey::TXN_SHARE_ACKNOWLEDGE, 0, 0),
];

/// Name of a request for logs and errors.
pub(crate) fn api_name(key: i16) -> &'static str {
    ApiKey(key).name().unwrap_or("request")
}

/// What both sides of one connection speak.
#[derive(Debug, Default)]
pub(crate) struct AgreedVersions {
    agreed: BTreeMap<i16, i16>,
}

impl AgreedVersions {
    /// Agrees on the highest common version of each request; `theirs` is key, lowest, highest.
    pub(crate) fn agree(theirs: impl IntoIterator<Item = (i16, i16, i16)>) -> Self {
        let theirs: BTreeMap<i16, (i16, i16)> =
            theirs.into_iter().map(|(key, min, max)| (key, (min, max))).collect();
        let agreed = OURS.iter().filter_map(|(key, min, max)| {
            let (their_min, their_max) = theirs.get(&key.0)?;
            let ours = VersionRange { min: *min, max: *max };
            let common = negotiate(ours, VersionRange { min: *their_min, max: *their_max })?;
            Some((key.0, common))
        });
        AgreedVersions { agreed: agreed.collect() }
    }

    /// The version to use for `R`.
    ///
    /// # Errors
    /// `InvalidInput` when the broker does not serve it.
    pub(crate) fn of<R: Request>(&self, broker: &dyn std::fmt::Display) -> Result<i16> {
        self.agreed.get(&R::KEY).copied().ok_or_else(|| {
            let name = api_name(R::KEY);
            Error::new(
                ErrorKind::InvalidInput,
                format!("the broker at {broker} does not serve {name} in a version we know"),
            )
        })
    }

    /// True before the two sides have agreed.
    pub(crate) fn is_empty(&self) -> bool {
        self.agreed.is_empty()
    }

    /// Keys that both sides speak.
    pub(crate) fn keys(&self) -> impl Iterator<Item = i16> + '_ {
        self.agreed.keys().copied()
    }
}

#[cfg(test)]
mod witness;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{EndTxnRequest, ProduceRequest};

    use super::*;

    #[test]
    fn the_highest_common_version_is_used() {
        let versions = AgreedVersions::agree([(0, 0, 12), (26, 0, 4), (1, 0, 14)]);
        assert_eq!(versions.of::<ProduceRequest>(&"b").unwrap(), 12);
        assert!(versions.keys().any(|key| key == ApiKey::FETCH.0));
        let error = versions.of::<EndTxnRequest>(&"broker:9092").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "EndTxn below 5 tells no epoch");
        assert!(error.to_string().contains("EndTxn"));
    }
}
