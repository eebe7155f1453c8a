//! SCRAM's client side (RFC 5802, RFC 7677) without channel binding, as Kafka speaks it (KIP-84). Pure: bytes in, bytes
//! out; the slow step is one call that the driver moves to a blocking thread.
//!
//! ```text
//! first --server-first--> challenged --salted password--> final sent --server-final, signature right--> done
//!    \-- any other answer ----------------------------------------------------------------------> refused (end)
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Fewest iterations that we hash with: a server that asks for fewer makes guessing cheap (RFC 7677 section 4).
const ITERATIONS_MIN: u32 = 4_096;
/// Most iterations: about a second of one core. A server that asks for more wants our time.
const ITERATIONS_MAX: u32 = 1_000_000;
/// Longest message of a server that is read.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

/// The hash of the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha512,
}

/// Why the server was not believed, in words that follow "the broker".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScramError {
    #[error("sent a SCRAM message that cannot be read ({0})")]
    Malformed(&'static str),
    #[error("answered a SCRAM exchange that is not ours")]
    ForeignNonce,
    #[error("asks for {0} SCRAM iterations; from {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed")]
    Iterations(u64),
    #[error("refused the SCRAM proof ({0})")]
    Refused(String),
    #[error("does not know the password either: its SCRAM signature is wrong, so it may be an impostor")]
    WrongSignature,
}

/// The client's first message is ready.
#[derive(Debug)]
pub(super) struct First {
    hash: Hash,
    nonce: String,
    bare: String,
}

/// What the server wants the password to be hashed with.
pub(super) struct Challenge {
    hash: Hash,
    salt: Vec<u8>,
    iterations: u32,
    nonce: String,
    /// Both messages so far, the front of what is signed.
    signed: String,
}

/// The client's final message was made; the server's signature is still owed.
pub(super) struct Final {
    signature: Zeroizing<Vec<u8>>,
}

impl First {
    /// Begins an exchange; `nonce` is random, printable and without commas.
    pub(super) fn new(hash: Hash, username: &str, nonce: String) -> Self {
        let name = username.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={name},r={nonce}");
        First { hash, nonce, bare }
    }

    /// The client-first message.
    pub(super) fn message(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Reads the server-first message.
    pub(super) fn challenge(self, message: &[u8]) -> Result<Challenge, ScramError> {
        let text = text(message)?;
        let mut parts = text.splitn(4, ',');
        let mut part = |prefix: &'static str, name| {
            parts.next().and_then(|part| part.strip_prefix(prefix)).ok_or(ScramError::Malformed(name))
        };
        let nonce = part("r=", "nonce")?;
        let salt = part("s=", "salt")?;
        let iterations = part("i=", "iterations")?;
        let is_ours = nonce.strip_prefix(self.nonce.as_str()).is_some_and(|theirs| !theirs.is_empty());
        if !is_ours {
            return Err(ScramError::ForeignNonce);
        }
        let salt = BASE64.decode(salt).map_err(|_| ScramError::Malformed("salt"))?;
        if salt.is_empty() {
            return Err(ScramError::Malformed("salt"));
        }
        let asked: u64 = iterations.parse().map_err(|_| ScramError::Malformed("iterations"))?;
        let iterations = u32::try_from(asked)
            .ok()
            .filter(|iterations| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(iterations))
            .ok_or(ScramError::Iterations(asked))?;
        let signed = format!("{},{text}", self.bare);
        Ok(Challenge { hash: self.hash, salt, iterations, nonce: nonce.to_owned(), signed })
    }
}

impl Challenge {
    /// Hashes the password and makes the client-final message. Takes milliseconds to a second of CPU.
    pub(super) fn answer(self, password: &str) -> (Zeroizing<String>, Final) {
        match self.hash {
            Hash::Sha256 => {
                let mut salted = Zeroizing::new([0u8; 32]);
                pbkdf2::pbkdf2_hmac::<Sha256>(
                    password.as_bytes(),
                    &self.salt,
                    self.iterations,
                    salted.as_mut(),
                );
                let keys = Keys::<32>::derive(&*salted, hmac_sha256, |data| Sha256::digest(data).into());
                self.prove(keys, hmac_sha256)
            }
            Hash::Sha512 => {
                let mut salted = Zeroizing::new([0u8; 64]);
                pbkdf2::pbkdf2_hmac::<Sha512>(
                    password.as_bytes(),
                    &self.salt,
                    self.iterations,
                    salted.as_mut(),
                );
                let keys = Keys::<64>::derive(&*salted, hmac_sha512, |data| Sha512::digest(data).into());
                self.prove(keys, hmac_sha512)
            }
        }
    }

    fn prove<const N: usize>(
        self,
        keys: Keys<N>,
        hmac: fn(&[u8], &[u8]) -> [u8; N],
    ) -> (Zeroizing<String>, Final) {
        // "biws" is base64 of "n,,": no channel binding.
        let without_proof = format!("c=biws,r={}", self.nonce);
        let signed = format!("{},{without_proof}", self.signed);
        let client_signature = Zeroizing::new(hmac(&*keys.stored, signed.as_bytes()));
        let mut proof = keys.client.clone();
        proof.iter_mut().zip(client_signature.iter()).for_each(|(key, signature)| *key ^= signature);
        let message = Zeroizing::new(format!("{without_proof},p={}", BASE64.encode(proof.as_slice())));
        let signature = Zeroizing::new(hmac(&*keys.server, signed.as_bytes()).to_vec());
        (message, Final { signature })
    }
}

impl Final {
    /// Checks the server-final message: only who knows the password's hash can sign it.
    pub(super) fn verify(self, message: &[u8]) -> Result<(), ScramError> {
        let text = text(message)?;
        if let Some(refusal) = text.strip_prefix("e=") {
            return Err(ScramError::Refused(refusal.chars().filter(|c| !c.is_control()).take(200).collect()));
        }
        let encoded = text.strip_prefix("v=").ok_or(ScramError::Malformed("signature"))?;
        let encoded = encoded.split(',').next().unwrap_or_default();
        let signature = BASE64.decode(encoded).map_err(|_| ScramError::Malformed("signature"))?;
        if bool::from(signature.as_slice().ct_eq(&self.signature)) {
            Ok(())
        } else {
            Err(ScramError::WrongSignature)
        }
    }
}

struct Keys<const N: usize> {
    client: Zeroizing<[u8; N]>,
    stored: Zeroizing<[u8; N]>,
    server: Zeroizing<[u8; N]>,
}

impl<const N: usize> Keys<N> {
    fn derive(salted: &[u8], hmac: fn(&[u8], &[u8]) -> [u8; N], hash: fn(&[u8]) -> [u8; N]) -> Self {
        let client = Zeroizing::new(hmac(salted, b"Client Key"));
        let stored = Zeroizing::new(hash(&*client));
        let server = Zeroizing::new(hmac(salted, b"Server Key"));
        Keys { client, stored, server }
    }
}

fn hmac_sha256(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mac = <Hmac<Sha256> as Mac>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.chain_update(data).finalize().into_bytes().into()
}

fn hmac_sha512(key: &[u8], data: &[u8]) -> [u8; 64] {
    let mac = <Hmac<Sha512> as Mac>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.chain_update(data).finalize().into_bytes().into()
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(ScramError::Malformed("length"));
    }
    std::str::from_utf8(message).map_err(|_| ScramError::Malformed("encoding"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 7677 section 3.
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn first() -> First {
        First::new(Hash::Sha256, "user", NONCE.to_owned())
    }

    #[test]
    fn the_exchange_of_rfc_7677_is_reproduced() {
        let first = first();
        assert_eq!(first.message(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let (message, last) = first.challenge(SERVER_FIRST.as_bytes()).unwrap().answer("pencil");
        assert_eq!(
            *message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        last.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap();
    }

    /// RFC 7677's exchange with SHA-512 in place of SHA-256; the figures were computed with Python's hashlib and hmac.
    #[test]
    fn sha_512_gives_the_same_as_another_implementation() {
        let first = First::new(Hash::Sha512, "user", NONCE.to_owned());
        let (message, last) = first.challenge(SERVER_FIRST.as_bytes()).unwrap().answer("pencil");
        assert_eq!(message.rsplit_once("p=").unwrap().1, SHA512_PROOF);
        last.verify(SHA512_SIGNATURE.as_bytes()).unwrap();
    }

    const SHA512_PROOF: &str =
        "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwnYPJQ==";
    const SHA512_SIGNATURE: &str =
        "v=ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq199RVG2rR7N7Zw==";

    #[test]
    fn a_server_that_does_not_know_the_password_is_not_believed() {
        let last = || first().challenge(SERVER_FIRST.as_bytes()).unwrap().answer("pencil").1;
        let wrong = b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(last().verify(wrong), Err(ScramError::WrongSignature));
        assert_eq!(last().verify(b"v="), Err(ScramError::WrongSignature));
        assert_eq!(last().verify(b"e=other-error"), Err(ScramError::Refused("other-error".to_owned())));
        assert_eq!(last().verify(b""), Err(ScramError::Malformed("signature")));
    }

    #[test]
    fn a_foreign_or_unchanged_nonce_is_refused() {
        for nonce in ["fyko+d2lbbFgONRv9qkxdawL", NONCE] {
            let message = format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
            assert_eq!(first().challenge(message.as_bytes()).err(), Some(ScramError::ForeignNonce));
        }
    }

    #[test]
    fn the_iteration_count_is_bounded_both_ways() {
        for (count, is_taken) in [("4095", false), ("4096", true), ("1000000", true), ("1000001", false)] {
            let message = format!("r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={count}");
            assert_eq!(first().challenge(message.as_bytes()).is_ok(), is_taken, "{count}");
        }
        let huge = format!("r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999999");
        let error = first().challenge(huge.as_bytes()).err().unwrap();
        assert!(error.to_string().contains("99999999999"), "{error}");
    }

    #[test]
    fn commas_and_equals_signs_of_names_are_escaped() {
        assert_eq!(First::new(Hash::Sha512, "a=b,c", "n".to_owned()).message(), "n,,n=a=3Db=2Cc,r=n");
    }

    proptest! {
        #[test]
        fn no_message_of_a_server_makes_us_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _refused = first().challenge(&bytes);
            let _refused = Final { signature: Zeroizing::new(vec![1; 32]) }.verify(&bytes);
        }
    }
}
