//! Bearer tokens from an identity provider, for our id and secret (RFC 6749 section 4.4, KIP-768).
//!
//! One request over HTTPS, through the same doors as all else. A token is kept until a quarter of its life is left, and not
//! less than [`LEFT_MIN`]: a session ends with its token, and a session of a moment is none.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use sharestream_base::{Env, ErrorKind, HostPort, Instant, OwnedTask, TaskKind};
use zeroize::Zeroizing;

use super::credentials::read;
use super::secret::Secret;
use super::settings::{OidcSettings, TlsSettings};
use super::tls::Tls;
use crate::{Error, Result};

/// Longest wait for a token. Kafka: `sasl.login.connect.timeout.ms` and `sasl.login.read.timeout.ms`.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// A token with less life than this left is not used for another session.
const LEFT_MIN: Duration = Duration::from_secs(30);
/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Longest life of a token that is believed.
const LIFE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Asks for tokens and keeps the last one.
#[derive(Debug)]
pub(super) struct TokenEndpoint {
    env: Env,
    settings: OidcSettings,
    tls: Tls,
    /// Held while a token is asked for, so that many connections that open at once ask once.
    kept: tokio::sync::Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    token: Secret,
    renew_at: Instant,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_in: Option<serde_json::Number>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Refused {
    error: String,
    error_description: String,
}

impl TokenEndpoint {
    pub(super) fn new(env: &Env, settings: OidcSettings) -> Self {
        let tls = TlsSettings { ca_file: settings.ca_file.clone(), ..TlsSettings::default() };
        TokenEndpoint {
            env: env.clone(),
            tls: Tls::new(tls, env.clock.clone()),
            settings,
            kept: Default::default(),
        }
    }

    /// A token that has a good part of its life before it. Cancel safe.
    pub(super) async fn token(&self) -> Result<Secret> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.renew_at > self.env.clock.now()) {
            return Ok(kept.token.clone());
        }
        let asked_at = self.env.clock.now();
        let url = &self.settings.token_endpoint;
        let granted = match self.env.clock.timeout(TOKEN_TIMEOUT, self.ask()).await {
            Ok(granted) => granted?,
            Err(_elapsed) => {
                let text = format!("no answer from the identity provider at {url} within {TOKEN_TIMEOUT:?}");
                return Err(Error::new(ErrorKind::Retry, text));
            }
        };
        let token = Secret::new(granted.access_token);
        // A provider that does not tell the life of its tokens is asked each time.
        let life = granted.expires_in.and_then(|seconds| seconds.as_f64()).filter(|seconds| *seconds > 0.0);
        let life = life
            .map_or(Duration::ZERO, |seconds| Duration::from_secs_f64(seconds.min(LIFE_MAX.as_secs_f64())));
        tracing::debug!(url, ?life, "got a bearer token");
        let use_for = life.mul_f64(0.75).min(life.saturating_sub(LEFT_MIN));
        *kept = Some(Kept { token: token.clone(), renew_at: asked_at + use_for });
        Ok(token)
    }

    async fn ask(&self) -> Result<Granted> {
        let url = &self.settings.token_endpoint;
        let invalid = |text: String| Error::new(ErrorKind::InvalidInput, text);
        let uri: Uri =
            url.parse().map_err(|_| invalid(format!("'{url}' is no URL; check the token endpoint")))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if uri.scheme_str() != Some("https") || host.is_empty() {
            return Err(invalid(format!("'{url}' must be https://HOST/PATH; check the token endpoint")));
        }
        let address = HostPort::new(host, uri.port_u16().unwrap_or(443));
        let request = self.request(&uri).await?;
        let unreachable = |error: &dyn std::fmt::Display| {
            let text = format!(
                "the identity provider at {url} cannot be reached ({error}); check the token endpoint"
            );
            Error::new(ErrorKind::Retry, text)
        };
        let io = self.env.network.connect(&address).await.map_err(|error| unreachable(&error))?;
        let io = self.tls.wrap(io, &address).await.map_err(|error| error.within("the identity provider"))?;
        let handshake = hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(io)).await;
        let (mut sender, connection) = handshake.map_err(|error| unreachable(&error))?;
        // Aborted when this call ends; its error is the request's too.
        let _driver =
            OwnedTask::spawn(&self.env.spawner, "token-endpoint", TaskKind::Connection, async move {
                let _told_by_the_request = connection.await;
            });
        let response = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| unreachable(&error))?.to_bytes();
        let answer = if status == StatusCode::OK { serde_json::from_slice(&body).ok() } else { None };
        let refusal = serde_json::from_slice(&body).unwrap_or_default();
        super::secret::wipe(body);
        answer.ok_or_else(|| self.refused(status, &refusal))
    }

    async fn request(&self, uri: &Uri) -> Result<Request<Full<Bytes>>> {
        let secret = read(self.settings.client_secret.clone(), "client secret").await?;
        let user = format!("{}:", form_encoded(&self.settings.client_id));
        let pair = Zeroizing::new(user + &form_encoded(secret.expose()));
        let basic = Zeroizing::new(format!("Basic {}", BASE64.encode(pair.as_bytes())));
        let mut authorization = HeaderValue::from_str(&basic)
            .map_err(|_| Error::new(ErrorKind::Bug, "base64 does not fit into a header"))?;
        authorization.set_sensitive(true);
        let mut form = "grant_type=client_credentials".to_owned();
        if let Some(scope) = &self.settings.scope {
            form = form + "&scope=" + &form_encoded(scope);
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, authority)
            .header(AUTHORIZATION, authorization)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("sharestream/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(form)));
        request.map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "the token endpoint is no URL").with_source(error)
        })
    }

    fn refused(&self, status: StatusCode, refusal: &Refused) -> Error {
        let OidcSettings { token_endpoint: url, client_id, client_secret, .. } = &self.settings;
        let words = [refusal.error.as_str(), refusal.error_description.as_str()]
            .map(|words| words.chars().filter(|c| !c.is_control()).take(200).collect::<String>());
        let why = match words {
            [error, _] if error.is_empty() => status.to_string(),
            [error, description] if description.is_empty() => format!("{status}, {error}"),
            [error, description] => format!("{status}, {error}: {}", description.trim_end_matches('.')),
        };
        let text = match status {
            StatusCode::OK => format!("the answer of {url} holds no access_token; check the token endpoint"),
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => format!(
                "the identity provider at {url} refused client '{client_id}' ({why}); check the client id, the secret in \
                 {client_secret} and the scope"
            ),
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Error::new(
                    ErrorKind::Retry,
                    format!("the identity provider at {url} is not well ({why})"),
                );
            }
            _ => format!("{url} is no token endpoint ({why}); check the URL"),
        };
        Error::new(ErrorKind::InvalidInput, text)
    }
}

/// `application/x-www-form-urlencoded`, as RFC 6749 wants id and secret before base64.
fn form_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => {
                encoded.push(char::from(byte))
            }
            b' ' => encoded.push('+'),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded() {
        assert_eq!(form_encoded("a b&c=ü"), "a+b%26c%3D%C3%BC");
    }
}
