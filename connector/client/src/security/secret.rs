//! Text that must not be seen: passwords, tokens, client secrets.

use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};
use sharestream_base::ErrorKind;
use zeroize::{Zeroize, Zeroizing};

use crate::{Error, Result};

/// What stands in the place of a secret wherever it would be printed.
const HIDDEN: &str = "(hidden)";
/// Longest file or variable that can be a secret. A token is a few kilobytes; more is the wrong file.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// A secret. Printing, debugging and serialising it give `(hidden)`; its memory is wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(Zeroizing::new(text.into()))
    }

    /// The text itself, for the peer that it is meant for and nobody else.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

/// Where a secret is kept. There is no third place: a secret in a job file would end up in logs and repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The whole content of this file without its last line break. Read at every authentication, so a new content
    /// needs no restart.
    File(PathBuf),
    /// The value of this environment variable.
    Env(String),
}

impl SecretSource {
    /// Reads it. Blocks: call it on a blocking thread.
    ///
    /// # Errors
    /// `InvalidInput` naming `what` and the place when there is nothing, too much, or not text.
    pub(crate) fn read(&self, what: &str) -> Result<Secret> {
        let invalid = |fault: String| Error::new(ErrorKind::InvalidInput, fault);
        let secret = match self {
            SecretSource::File(path) => {
                let place = path.display();
                let size = std::fs::metadata(path).map_err(|error| {
                    invalid(format!(
                        "cannot read the {what} from {place} ({error}); check the path and who may read it"
                    ))
                })?;
                if size.len() > SECRET_BYTES_MAX {
                    return Err(invalid(format!("{place} is too long for a {what}; check the path")));
                }
                let bytes = Zeroizing::new(std::fs::read(path).map_err(|error| {
                    invalid(format!("cannot read the {what} from {place} ({error}); check who may read it"))
                })?);
                let text = std::str::from_utf8(&bytes)
                    .map_err(|_| invalid(format!("{place} is not UTF-8 text, so it cannot be a {what}")))?;
                Secret::new(
                    text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text)),
                )
            }
            SecretSource::Env(name) => match std::env::var(name) {
                Ok(text) => Secret::new(text),
                Err(std::env::VarError::NotPresent) => {
                    return Err(invalid(format!(
                        "the {what} is to come from the environment variable {name}, which is not set"
                    )));
                }
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(invalid(format!("the environment variable {name} is not UTF-8 text")));
                }
            },
        };
        if secret.expose().is_empty() {
            return Err(invalid(format!("the {what} in {self} is empty")));
        }
        Ok(secret)
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::File(path) => write!(f, "file {}", path.display()),
            SecretSource::Env(name) => write!(f, "environment variable {name}"),
        }
    }
}

/// Wipes a buffer that held a secret, where nobody else holds it.
pub(crate) fn wipe(bytes: bytes::Bytes) {
    if let Ok(mut bytes) = bytes.try_into_mut() {
        bytes.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_of_printing_shows_a_secret() {
        let secret = Secret::new("hunter2");
        let json = serde_json::to_string(&secret).unwrap();
        for text in [format!("{secret}"), format!("{secret:?}"), format!("{:#?}", Some(&secret)), json] {
            assert!(!text.contains("hunter2") && text.contains(HIDDEN), "{text}");
        }
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn a_file_gives_its_content_without_the_last_line_break() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        for (content, expected) in
            [("a b", "a b"), ("a b\n", "a b"), ("a b\r\n", "a b"), (" x \n\n", " x \n")]
        {
            std::fs::write(&path, content).unwrap();
            let secret = SecretSource::File(path.clone()).read("password").unwrap();
            assert_eq!(secret.expose(), expected, "{content:?}");
        }
    }

    #[test]
    fn a_missing_or_empty_secret_names_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let missing = SecretSource::File(path.clone()).read("password").unwrap_err().to_string();
        assert!(missing.contains("password") && missing.contains(&path.display().to_string()), "{missing}");
        std::fs::write(&path, "\n").unwrap();
        let empty = SecretSource::File(path).read("password").unwrap_err().to_string();
        assert!(empty.ends_with("is empty"), "{empty}");
        let unset =
            SecretSource::Env("SHARESTREAM_TEST_UNSET".to_owned()).read("token").unwrap_err().to_string();
        assert!(unset.contains("SHARESTREAM_TEST_UNSET"), "{unset}");
    }
}
