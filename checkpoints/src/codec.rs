//! Bytes of a manifest or a savepoint: one header line with a checksum, then JSON.
//!
//! ```text
//! sharestream-manifest sha256=<64 hex digits of the rest>\n
//! {"format_version":1, ...}\n
//! ```
//! A savepoint begins with `sharestream-savepoint`.
//!
//! The checksum finds damage also where no outcome record knows the hash of the whole object. The version is in
//! the body, read before anything else of it, so that a newer format is named and not reported as damage.

use std::fmt::Write;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, ErrorKind, Manifest, Result, Savepoint};

/// A kind of stored document.
pub(crate) trait Document: Serialize + DeserializeOwned {
    /// What people call it.
    const WHAT: &'static str;
    /// How its bytes begin.
    const MAGIC: &'static str;
    /// The newest version that this build reads, and the one that it writes.
    const FORMAT_VERSION: u32;
}

impl Document for Manifest {
    const WHAT: &'static str = "manifest";
    const MAGIC: &'static str = MAGIC;
    const FORMAT_VERSION: u32 = Manifest::FORMAT_VERSION;
}

impl Document for Savepoint {
    const WHAT: &'static str = "savepoint";
    const MAGIC: &'static str = "sharestream-savepoint sha256=";
    const FORMAT_VERSION: u32 = Savepoint::FORMAT_VERSION;
}

const MAGIC: &str = "sharestream-manifest sha256=";
/// SHA-256 as lower-case hex.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let mut hex = String::with_capacity(64);
    for byte in digest {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The stored bytes of `document`.
pub(crate) fn encode<D: Document>(document: &D) -> Result<Vec<u8>> {
    let mut body = serde_json::to_vec(document).map_err(|error| {
        Error::new(ErrorKind::Bug, format!("cannot write a {} as json", D::WHAT)).with_source(error)
    })?;
    body.push(b'\n');
    let mut bytes = Vec::with_capacity(D::MAGIC.len() + 65 + body.len());
    bytes.extend_from_slice(D::MAGIC.as_bytes());
    bytes.extend_from_slice(sha256_hex(&body).as_bytes());
    bytes.push(b'\n');
    bytes.append(&mut body);
    Ok(bytes)
}

/// Reads what [`encode`] wrote; `path` is for the error. Errors: `Corrupt`; `InvalidInput` for a newer format.
pub(crate) fn decode<D: Document>(path: &str, bytes: &[u8]) -> Result<D> {
    let name = D::WHAT;
    let corrupt = |what: &str| Error::new(ErrorKind::Corrupt, format!("{name} {path} is damaged: {what}"));
    let rest = bytes.strip_prefix(D::MAGIC.as_bytes()).ok_or_else(|| corrupt("it does not begin as one"))?;
    let (checksum, rest) = rest.split_at_checked(64).ok_or_else(|| corrupt("it ends in its first line"))?;
    let body = rest.strip_prefix(b"\n").ok_or_else(|| corrupt("its first line is too long"))?;
    if sha256_hex(body).as_bytes() != checksum {
        return Err(corrupt("its checksum does not match its content"));
    }

    #[derive(Deserialize)]
    struct Version {
        format_version: u32,
    }
    let not_json =
        |error: serde_json::Error| corrupt(&format!("it is not the json of a {name}")).with_source(error);
    let Version { format_version } = serde_json::from_slice(body).map_err(not_json)?;
    if format_version > D::FORMAT_VERSION {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "{name} {path} has format version {format_version}, this version reads up to {}: start the newer \
                 sharestream that wrote it",
                D::FORMAT_VERSION
            ),
        ));
    }
    serde_json::from_slice(body).map_err(not_json)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sharestream_base::ids::{CheckpointId, JobEpoch, Offset, PartitionIndex, TopicId};

    use super::*;
    use crate::{
        DecidedOffsets, JobKey, OffsetDecision, OperatorSnapshot, SourceSnapshot, StatePart, StatePartKind,
    };

    fn manifest() -> Manifest {
        let key = JobKey::new("flights", "pod-1");
        let mut manifest = Manifest::new(&key, JobEpoch(3), CheckpointId(8), Some(CheckpointId(6)), 17);
        manifest.transactional_id = Some("flights/pod-1/0".to_owned());
        manifest.outcome_topic_id = Some(TopicId(uuid::Uuid::from_u128(5)));
        manifest.sources.push(SourceSnapshot {
            topic: Some("flights".to_owned()),
            topic_id: TopicId::default(),
            partition: PartitionIndex(2),
            decided: vec![
                DecidedOffsets { first: Offset(0), last: Offset(9), decision: OffsetDecision::Accept },
                DecidedOffsets { first: Offset(10), last: Offset(10), decision: OffsetDecision::Gap },
            ],
        });
        let part = StatePart {
            name: "count-0".to_owned(),
            sha256: sha256_hex(b"state"),
            bytes: 5,
            rows: 1,
            kind: StatePartKind::Base,
            checkpoint: CheckpointId(7),
            first_group: 0,
            last_group: 127,
        };
        manifest.operators.push(OperatorSnapshot {
            operator: "count".to_owned(),
            state_version: 1,
            key_groups: 128,
            parts: vec![part],
        });
        manifest
    }

    #[test]
    fn a_manifest_reads_back_and_is_readable() {
        let bytes = encode(&manifest()).unwrap();
        assert_eq!(decode::<Manifest>("m", &bytes).unwrap(), manifest());
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains(r#"[0,9,"accept"],[10,10,"gap"]"#), "{text}");
    }

    #[test]
    fn the_first_format_stays_readable() {
        let body = concat!(
            r#"{"format_version":1,"job":"flights","instance":"main","job_epoch":2,"checkpoint":5,"#,
            r#""predecessor":4,"transactional_id":null,"sources":[{"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","#,
            r#""partition":0,"decided":[[7,9,"reject"]]}],"operators":[],"created_ms":1}"#,
            "\n"
        );
        let bytes = format!("{MAGIC}{}\n{body}", sha256_hex(body.as_bytes()));
        let manifest: Manifest = decode("m", bytes.as_bytes()).unwrap();
        assert_eq!(manifest.checkpoint, CheckpointId(5));
        assert_eq!(manifest.sources[0].decided[0].decision, OffsetDecision::Reject);
        assert_eq!(manifest.outcome_topic_id, None, "the first format did not know it");
    }

    #[test]
    fn the_second_format_stays_readable() {
        let body = concat!(
            r#"{"format_version":2,"job":"flights","instance":"pod-1","job_epoch":3,"checkpoint":8,"#,
            r#""predecessor":6,"transactional_id":"flights/pod-1/0","#,
            r#""outcome_topic_id":"AAAAAAAAAAAAAAAAAAAABQ","sources":[{"topic":"flights","#,
            r#""topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partition":2,"decided":[[0,9,"accept"],[10,10,"gap"]]}],"#,
            r#""operators":[],"created_ms":17}"#,
            "\n"
        );
        let bytes = format!("{MAGIC}{}\n{body}", sha256_hex(body.as_bytes()));
        let read: Manifest = decode("m", bytes.as_bytes()).unwrap();
        assert_eq!(read.outcome_topic_id, Some(TopicId(uuid::Uuid::from_u128(5))));
    }

    #[test]
    fn the_third_format_stays_readable() {
        let body = concat!(
            r#"{"format_version":3,"job":"flights","instance":"pod-1","job_epoch":3,"checkpoint":8,"#,
            r#""predecessor":6,"transactional_id":null,"sources":[],"operators":[{"operator":"count","#,
            r#""state_version":1,"key_groups":128,"parts":[{"name":"count-0","sha256":"#,
            r#""53f8fa6c5bb64e6fb1c7c2dd5c9ac36c4f39fc3ef2c3fbbc0fba6d3ee0cd6a01","bytes":5,"rows":1,"#,
            r#""kind":"base","checkpoint":7,"first_group":0,"last_group":127}]}],"created_ms":17}"#,
            "\n"
        );
        let bytes = format!("{MAGIC}{}\n{body}", sha256_hex(body.as_bytes()));
        let read: Manifest = decode("m", bytes.as_bytes()).unwrap();
        assert_eq!(read.operators[0].parts[0].checkpoint, CheckpointId(7));
        assert_eq!(read.event_time, None, "the third format did not know it");
    }

    #[test]
    fn the_fourth_format_stays_readable_and_is_what_is_written() {
        let body = concat!(
            r#"{"format_version":4,"job":"flights","instance":"pod-1","job_epoch":3,"checkpoint":8,"#,
            r#""predecessor":6,"transactional_id":null,"sources":[],"operators":[],"event_time":{"#,
            r#""watermark_ms":-5,"partitions":[{"topic_id":"AAAAAAAAAAAAAAAAAAAABQ","partition":2,"#,
            r#""next_offset":7,"max_ms":40,"decided_above":[[9,11]],"times_above":[[11,42]]}]},"created_ms":17}"#,
            "\n"
        );
        let bytes = format!("{MAGIC}{}\n{body}", sha256_hex(body.as_bytes()));
        let read: Manifest = decode("m", bytes.as_bytes()).unwrap();
        let event_time = read.event_time.as_ref().unwrap();
        assert_eq!(event_time.partitions[0].decided_above, [(Offset(9), Offset(11))]);
        assert_eq!(encode(&read).unwrap(), bytes.as_bytes());
    }

    #[test]
    fn a_newer_format_is_named_and_not_called_damage() {
        let body = b"{\"format_version\":5,\"job\":{}}\n";
        let mut bytes = format!("{MAGIC}{}\n", sha256_hex(body)).into_bytes();
        bytes.extend_from_slice(body);
        let error = decode::<Manifest>("m", &bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("format version 5"), "{error}");
    }

    proptest! {
        #[test]
        fn any_changed_or_missing_byte_is_corrupt_and_names_the_object(at in 0usize..800, flip in 1u8..=255) {
            let mut bytes = encode(&manifest()).unwrap();
            let at = at % bytes.len();
            let mut cut = bytes.clone();
            cut.truncate(at);
            bytes[at] ^= flip;
            for damaged in [bytes, cut] {
                let error = decode::<Manifest>("manifests/x", &damaged).unwrap_err();
                prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
                prop_assert!(error.to_string().contains("manifests/x"));
            }
        }
    }
}
