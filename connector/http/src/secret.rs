//! Secrets of headers: read, never shown.

use std::io::Read as _;

use zeroize::Zeroizing;

use crate::settings::SecretSource;

/// Longest file or variable that can be a secret. A token is a few kilobytes; more is the wrong file.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Reads a secret. Blocks: call it on a blocking thread. Errors: one sentence that names the place, never the content.
pub fn read(source: &SecretSource) -> Result<Zeroizing<String>, String> {
    let secret = match source {
        SecretSource::File(path) => {
            let place = path.display();
            let unreadable = |error: std::io::Error| {
                format!("cannot read the secret in {place} ({error}); check the path and who may read it")
            };
            let file = std::fs::File::open(path).map_err(unreadable)?;
            let mut bytes = Zeroizing::new(Vec::new());
            file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
            if bytes.len() as u64 > SECRET_BYTES_MAX {
                return Err(format!("{place} is too long for a secret; check the path"));
            }
            let text = std::str::from_utf8(&bytes)
                .map_err(|_| format!("{place} is not UTF-8 text, so it cannot be a secret"))?;
            let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
            Zeroizing::new(text.to_owned())
        }
        SecretSource::Env(name) => match std::env::var(name) {
            Ok(text) => Zeroizing::new(text),
            Err(std::env::VarError::NotPresent) => {
                return Err(format!("the environment variable {name} is not set; set it or use a file"));
            }
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(format!("the environment variable {name} is not UTF-8 text"));
            }
        },
    };
    if secret.is_empty() {
        return Err(format!("the secret in {source} is empty"));
    }
    Ok(secret)
}
