//! In place of the clients where a build has none of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;

use crate::Result;
use crate::location::{Bucket, not_built};

/// Always an error: `InvalidInput`.
pub(crate) fn open(bucket: &Bucket, _options: &BTreeMap<String, String>) -> Result<Arc<dyn ObjectStore>> {
    Err(not_built(bucket))
}

/// Always an error: `InvalidInput`.
pub(crate) fn check_options(bucket: &Bucket, _options: &BTreeMap<String, String>) -> Result<()> {
    Err(not_built(bucket))
}
