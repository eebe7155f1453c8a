//! OAUTHBEARER's client side (RFC 7628, KIP-255, KIP-342). Pure.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::secret::Secret;

/// What a client answers to a refusal, so that the server ends the exchange with its error (RFC 7628 section 3.2.3).
pub(super) const ACKNOWLEDGE_REFUSAL: &[u8] = b"\x01";
/// Longest refusal that is shown.
const REFUSAL_CHARS_MAX: usize = 300;

/// The one message that a client sends.
pub(super) fn message(token: &Secret, extensions: &BTreeMap<String, String>) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(token.expose().len() + 64));
    bytes.extend_from_slice(b"n,,\x01auth=Bearer ");
    bytes.extend_from_slice(token.expose().as_bytes());
    bytes.push(1);
    for (name, value) in extensions {
        bytes.extend_from_slice(format!("{name}={value}\x01").as_bytes());
    }
    bytes.push(1);
    bytes
}

/// True when `token` is one by RFC 6750: nothing that would end or add a field of the message.
pub(super) fn is_token(token: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    !token.is_empty() && token.chars().all(allowed)
}

/// What a server says is wrong with a token: the JSON of RFC 7628, or its text.
pub(super) fn refusal(challenge: &[u8]) -> String {
    let text = String::from_utf8_lossy(challenge);
    let status = serde_json::from_str::<BTreeMap<String, serde_json::Value>>(&text)
        .ok()
        .and_then(|fields| Some(fields.get("status")?.as_str()?.to_owned()));
    let shown = status.unwrap_or_else(|| text.into_owned());
    shown.chars().filter(|c| !c.is_control()).take(REFUSAL_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_that_of_the_rfc() {
        let token = Secret::new("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==");
        let plain = message(&token, &BTreeMap::new());
        assert_eq!(&**plain, b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01");
        let extensions = BTreeMap::from([("logicalCluster".to_owned(), "lkc-1".to_owned())]);
        assert!(message(&token, &extensions).ends_with(b"\x01logicalCluster=lkc-1\x01\x01"));
    }

    #[test]
    fn a_token_cannot_add_fields() {
        assert!(is_token("eyJhbGciOiJub25lIn0.e30."));
        for bad in ["", "a b", "a\x01user=root", "a\n", "ä"] {
            assert!(!is_token(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_refusal_is_shown_by_its_status() {
        assert_eq!(refusal(br#"{"status":"invalid_token","scope":"x"}"#), "invalid_token");
        assert_eq!(refusal(b"no\x01"), "no");
    }
}
