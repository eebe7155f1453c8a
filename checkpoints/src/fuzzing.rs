//! What `fuzz/` needs of this crate's own codec. Built only for tests and by cargo-fuzz.

use crate::{Manifest, codec};

/// Reads a manifest whose body may be anything; the checksum before it is right, so that damage behind it is reached.
///
/// # Panics
/// When a manifest that was read does not read back from what is written of it.
pub fn manifest_of_body(body: &[u8]) -> Option<Manifest> {
    let mut bytes = format!("sharestream-manifest sha256={}\n", codec::sha256_hex(body)).into_bytes();
    bytes.extend_from_slice(body);
    manifest(&bytes)
}

/// Reads a manifest from an object of the store.
///
/// # Panics
/// As [`manifest_of_body`].
pub fn manifest(object: &[u8]) -> Option<Manifest> {
    let manifest: Manifest = codec::decode("fuzzed", object).ok()?;
    let written = codec::encode(&manifest).ok()?;
    assert_eq!(codec::decode("written", &written).ok().as_ref(), Some(&manifest), "a manifest reads back");
    Some(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_door_for_fuzzing_reaches_the_body() {
        let body = concat!(
            r#"{"format_version":1,"job":"j","instance":"i","job_epoch":1,"checkpoint":1,"predecessor":null,"#,
            r#""transactional_id":null,"sources":[],"operators":[],"created_ms":1}"#
        );
        assert!(manifest_of_body(body.as_bytes()).is_some());
        assert!(manifest(body.as_bytes()).is_none());
    }
}
