//! Clients of buckets, bounded in time: the commit path waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use crate::location::{Bucket, Service, invalid, not_built};
use crate::{Error, Result};

/// Longest time of one request, a part of an operator's state included, and of one connect, where neither the environment nor an option says otherwise.
const BOUNDS: [(&str, &str); 2] = [("timeout", "10s"), ("connect_timeout", "3s")];

/// Opens a client; nothing is contacted. Errors: `InvalidInput`, with what to set.
pub(crate) fn open(bucket: &Bucket, options: &BTreeMap<String, String>) -> Result<Arc<dyn ObjectStore>> {
    match bucket.service {
        #[cfg(feature = "s3")]
        Service::S3 => {
            let builder = s3(bucket, options)?.with_url(&bucket.url).with_retry(retry());
            Ok(below(builder.build().map_err(|error| unusable(bucket, error))?, &bucket.prefix))
        }
        #[cfg(feature = "gcs")]
        Service::Gcs => {
            let builder = gcs(bucket, options)?.with_url(&bucket.url).with_retry(retry());
            Ok(below(builder.build().map_err(|error| unusable(bucket, error))?, &bucket.prefix))
        }
        #[cfg(feature = "azure")]
        Service::Azure => {
            let builder = azure(bucket, options)?.with_url(&bucket.url).with_retry(retry());
            Ok(below(builder.build().map_err(|error| unusable(bucket, error))?, &bucket.prefix))
        }
        #[allow(unreachable_patterns, reason = "a build may have them all")]
        _ => Err(not_built(bucket)),
    }
}

/// Checks the names of options. Errors: `InvalidInput`, also for a service that this build lacks.
pub(crate) fn check_options(bucket: &Bucket, options: &BTreeMap<String, String>) -> Result<()> {
    match bucket.service {
        #[cfg(feature = "s3")]
        Service::S3 => s3(bucket, options).map(drop),
        #[cfg(feature = "gcs")]
        Service::Gcs => gcs(bucket, options).map(drop),
        #[cfg(feature = "azure")]
        Service::Azure => azure(bucket, options).map(drop),
        #[allow(unreachable_patterns, reason = "a build may have them all")]
        _ => Err(not_built(bucket)),
    }
}

/// The builders of `object_store` have the same methods and no trait for them.
macro_rules! configured {
    ($builder:ty, $key:ty, $variables:literal, $bucket:expr, $options:expr) => {{
        settings($variables, $options).into_iter().fold(
            Ok(<$builder>::from_env()),
            |builder: Result<$builder>, (name, value)| {
                let key = name.to_ascii_lowercase().parse::<$key>();
                let key = key.map_err(|error| unknown_option($bucket, name, error));
                builder.and_then(|builder| Ok(builder.with_config(key?, value)))
            },
        )
    }};
}

#[cfg(feature = "s3")]
fn s3(bucket: &Bucket, options: &BTreeMap<String, String>) -> Result<object_store::aws::AmazonS3Builder> {
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};

    let builder = configured!(AmazonS3Builder, AmazonS3ConfigKey, "AWS_", bucket, options)?;
    let conditional = builder.get_config_value(&AmazonS3ConfigKey::ConditionalPut);
    if conditional.is_some_and(|put| put != S3ConditionalPut::ETagMatch.to_string()) {
        return Err(invalid(
            &bucket.url,
            "is used with conditional_put switched off (option or AWS_CONDITIONAL_PUT): without it two processes could \
             both own a job; take the setting away",
        ));
    }
    Ok(builder)
}

#[cfg(feature = "gcs")]
fn gcs(
    bucket: &Bucket,
    options: &BTreeMap<String, String>,
) -> Result<object_store::gcp::GoogleCloudStorageBuilder> {
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

    configured!(GoogleCloudStorageBuilder, GoogleConfigKey, "GOOGLE_", bucket, options)
}

#[cfg(feature = "azure")]
fn azure(
    bucket: &Bucket,
    options: &BTreeMap<String, String>,
) -> Result<object_store::azure::MicrosoftAzureBuilder> {
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

    configured!(MicrosoftAzureBuilder, AzureConfigKey, "AZURE_", bucket, options)
}

/// The bounds that no variable of the environment replaces, and behind them the options, which do.
fn settings<'a>(variables: &str, options: &'a BTreeMap<String, String>) -> Vec<(&'a str, &'a str)> {
    let is_free =
        |name: &str| std::env::var_os(format!("{variables}{}", name.to_ascii_uppercase())).is_none();
    let bounds = BOUNDS.into_iter().filter(|(name, _)| is_free(name));
    bounds.chain(options.iter().map(|(name, value)| (name.as_str(), value.as_str()))).collect()
}

/// Three tries within the commit deadline of a job. What stays unclear then is read back or reported: nothing waits
/// for minutes, as `object_store`'s defaults would.
fn retry() -> RetryConfig {
    let (init_backoff, max_backoff) = (Duration::from_millis(100), Duration::from_secs(1));
    let backoff = BackoffConfig { init_backoff, max_backoff, base: 2.0 };
    RetryConfig { backoff, max_retries: 2, retry_timeout: Duration::from_secs(8) }
}

/// Only what lies below the bucket's prefix.
fn below(store: impl ObjectStore, prefix: &Path) -> Arc<dyn ObjectStore> {
    match prefix.as_ref() {
        "" => Arc::new(store),
        _ => Arc::new(PrefixStore::new(store, prefix.clone())),
    }
}

fn unknown_option(bucket: &Bucket, name: &str, error: object_store::Error) -> Error {
    let (service, ..) = bucket.service.facts();
    let what = format!(
        "has the option '{name}', which {service} does not know; options are those of object_store, such \
                        as endpoint, region, allow_http, timeout"
    );
    invalid(&bucket.url, &what).with_source(error)
}

/// A client that could not be made from what is set.
fn unusable(bucket: &Bucket, error: object_store::Error) -> Error {
    let (service, _, credentials) = bucket.service.facts();
    let what = format!("cannot be used with the settings for {service}: {error}; {credentials}");
    invalid(&bucket.url, &what).with_source(error)
}
