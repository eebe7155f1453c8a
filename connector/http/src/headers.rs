//! Headers of requests. Those with a secret out of a file follow the file.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use sharestream_base::{Clock, Instant, run_blocking};
use tokio::sync::Mutex;

use crate::secret;
use crate::settings::{Fault, Header, HeaderSource, SecretSource};

/// A file with a secret is looked at again after so long.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// Makes the headers of a request.
#[derive(Debug)]
pub(crate) struct Headers {
    specs: Arc<[Header]>,
    /// None of them can change.
    is_fixed: bool,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    headers: Arc<HeaderMap>,
    read_at: Instant,
}

impl Headers {
    /// Reads all secrets. Errors: every fault.
    pub(crate) async fn read(specs: Vec<Header>, clock: &Clock) -> Result<Self, Vec<Fault>> {
        let specs: Arc<[Header]> = specs.into();
        let headers = make_elsewhere(specs.clone()).await?;
        let follows = |header: &Header| {
            matches!(&header.value, HeaderSource::Secret { source: SecretSource::File(_), .. })
        };
        let is_fixed = !specs.iter().any(follows);
        let current = Mutex::new(Current { headers: Arc::new(headers), read_at: clock.now() });
        Ok(Headers { specs, is_fixed, current })
    }

    /// The headers as they are to be now. Cancel safe. Errors: a secret cannot be read any more.
    pub(crate) async fn now(&self, clock: &Clock) -> Result<Arc<HeaderMap>, String> {
        let mut current = self.current.lock().await;
        if self.is_fixed || clock.now() < current.read_at + REFRESH_INTERVAL {
            return Ok(current.headers.clone());
        }
        let fresh = make_elsewhere(self.specs.clone()).await;
        let fresh =
            fresh.map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        *current = Current { headers: Arc::new(fresh), read_at: clock.now() };
        Ok(current.headers.clone())
    }
}

async fn make_elsewhere(specs: Arc<[Header]>) -> Result<HeaderMap, Vec<Fault>> {
    let made = run_blocking("http-secrets", move || make(&specs)).await;
    made.unwrap_or_else(|panic| Err(vec![fault("headers", panic.to_string())]))
}

fn make(specs: &[Header]) -> Result<HeaderMap, Vec<Fault>> {
    let mut headers = HeaderMap::new();
    let mut faults = Vec::new();
    for header in specs {
        match value(&header.value) {
            Ok(value) => match HeaderName::try_from(&header.name) {
                Ok(name) => drop(headers.insert(name, value)),
                Err(_) => faults.push(fault(&header.name, "it is no name of a header".to_owned())),
            },
            Err(message) => faults.push(fault(&header.name, message)),
        }
    }
    if faults.is_empty() { Ok(headers) } else { Err(faults) }
}

fn fault(name: &str, message: String) -> Fault {
    Fault { setting: format!("headers.{name}"), message, help: None }
}

fn value(source: &HeaderSource) -> Result<HeaderValue, String> {
    match source {
        HeaderSource::Text(text) => {
            HeaderValue::try_from(text).map_err(|_| "the value has a control character".to_owned())
        }
        HeaderSource::Secret { prefix, source } => {
            let secret = secret::read(source)?;
            let text = zeroize::Zeroizing::new(format!("{prefix}{}", *secret));
            let mut value = HeaderValue::try_from(text.as_str())
                .map_err(|_| format!("the secret in {source} has a control character"))?;
            value.set_sensitive(true);
            Ok(value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_secret_in_a_file_is_followed() {
        let clock = Clock::system();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "old\r\n").unwrap();
        let value =
            HeaderSource::Secret { prefix: "Bearer ".to_owned(), source: SecretSource::File(path.clone()) };
        let spec = Header { name: "Authorization".to_owned(), value };
        let headers = Headers::read(vec![spec], &clock).await.unwrap();
        std::fs::write(&path, "new").unwrap();
        assert_eq!(headers.now(&clock).await.unwrap()["authorization"], "Bearer old");
        clock.sleep(REFRESH_INTERVAL).await;
        let fresh = headers.now(&clock).await.unwrap();
        assert_eq!(fresh["authorization"], "Bearer new");
        assert!(fresh["authorization"].is_sensitive());
        std::fs::remove_file(&path).unwrap();
        clock.sleep(REFRESH_INTERVAL).await;
        assert!(headers.now(&clock).await.unwrap_err().contains("cannot read the secret"));
    }
}
