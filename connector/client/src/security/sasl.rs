//! One authentication: SaslHandshake 1, then SaslAuthenticate until both sides believe each other (KIP-43, KIP-152).
//! The same on a new connection and, to renew the session, on a live one (KIP-368).

use std::future::Future;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest};
use kafka_protocol::protocol::{Request, StrBytes};
use sharestream_base::{ErrorKind, HostPort, run_blocking};
use sharestream_wire::KafkaError;
use zeroize::Zeroizing;

use super::credentials::Login;
use super::scram::{First, Hash, ScramError};
use super::secret::wipe;
use super::settings::SaslMechanism;
use super::{oauth, scram};
use crate::{Error, Result};

/// Longest text of a broker that is shown.
const BROKER_TEXT_CHARS_MAX: usize = 300;

/// Carries one request at a time to the broker.
pub(crate) trait SaslWire: Send {
    /// Where it leads.
    fn address(&self) -> &HostPort;

    /// Sends a request and waits for its answer.
    fn exchange<R>(&mut self, request: R) -> impl Future<Output = Result<R::Response>> + Send
    where
        R: Request + Send + Sync,
        R::Response: Send;
}

/// The broker knows who we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Authenticated {
    /// After this the broker ends the connection unless we have authenticated again; `None`: never.
    pub(crate) session_lifetime: Option<Duration>,
}

/// Shows `login` to the broker behind `wire`. Not cancel safe: the connection is then of no use.
///
/// # Errors
/// `InvalidInput` for what the broker refuses, in one sentence that says what to do.
pub(crate) async fn authenticate<W: SaslWire>(wire: &mut W, login: Login) -> Result<Authenticated> {
    let mechanism = login.mechanism();
    agree(wire, mechanism).await?;
    let mut session = Session { wire, login: &login };
    let last = match &login {
        Login::Password { mechanism: SaslMechanism::Plain, username, password, .. } => {
            if username.contains('\0') || password.expose().contains('\0') {
                let text = "a user name and password for PLAIN cannot contain the zero character";
                return Err(Error::new(ErrorKind::InvalidInput, text));
            }
            let message = Zeroizing::new(format!("\0{username}\0{}", password.expose()));
            session.send(message.as_bytes()).await?
        }
        Login::Password { mechanism, username, password, .. } => {
            let hash = if *mechanism == SaslMechanism::ScramSha512 { Hash::Sha512 } else { Hash::Sha256 };
            let first = First::new(hash, username, nonce()?);
            let answer = session.send(first.message().as_bytes()).await?;
            let believed = |result: Result<_, ScramError>, wire: &W| {
                result.map_err(|error| {
                    Error::new(ErrorKind::InvalidInput, format!("the broker at {} {error}", wire.address()))
                })
            };
            let challenge = believed(first.challenge(&answer.auth_bytes), session.wire)?;
            let secret = password.clone();
            let (message, last) = answer_challenge(challenge, secret).await?;
            let answer = session.send(message.as_bytes()).await?;
            let verified = last.verify(&answer.auth_bytes);
            verified.map_err(|error| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("the broker at {} {error}", session.wire.address()),
                )
            })?;
            answer
        }
        Login::Token { token, extensions, .. } => {
            let answer = session.send(&oauth::message(token, extensions)).await?;
            if answer.auth_bytes.is_empty() {
                answer
            } else {
                let why = oauth::refusal(&answer.auth_bytes);
                // The broker ends the exchange with an error; without one it would be as if nothing had been refused.
                return Err(match session.send(oauth::ACKNOWLEDGE_REFUSAL).await {
                    Err(error) => error,
                    Ok(_no_error) => session.refused(KafkaError::SASL_AUTHENTICATION_FAILED.0, Some(&why)),
                });
            }
        }
    };
    let ms = u64::try_from(last.session_lifetime_ms).unwrap_or(0);
    Ok(Authenticated { session_lifetime: (ms > 0).then(|| Duration::from_millis(ms)) })
}

async fn agree<W: SaslWire>(wire: &mut W, mechanism: SaslMechanism) -> Result<()> {
    let request = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str(mechanism.word()));
    let answer = wire.exchange(request).await?;
    let address = wire.address();
    let text = match KafkaError(answer.error_code) {
        KafkaError(0) => return Ok(()),
        KafkaError::UNSUPPORTED_SASL_MECHANISM => {
            let offered: Vec<&str> =
                answer.mechanisms.iter().map(|offered| offered.as_str()).take(20).collect();
            format!(
                "the broker at {address} does not offer {mechanism} but {}; set sasl.mechanism to one of them",
                if offered.is_empty() { "no SASL mechanism".to_owned() } else { offered.join(", ") }
            )
        }
        KafkaError::ILLEGAL_SASL_STATE => format!(
            "the listener at {address} takes no SASL; set security.protocol to PLAINTEXT (SSL with TLS), or use the port \
             of the broker's SASL listener"
        ),
        KafkaError(code) => return Err(Error::from_code(code, format_args!("SaslHandshake with {address}"))),
    };
    Err(Error::from_code(answer.error_code, text))
}

struct Session<'a, W> {
    wire: &'a mut W,
    login: &'a Login,
}

impl<W: SaslWire> Session<'_, W> {
    async fn send(&mut self, message: &[u8]) -> Result<SaslAuthenticateResponse> {
        let bytes = Bytes::copy_from_slice(message);
        let request = SaslAuthenticateRequest::default().with_auth_bytes(bytes.clone());
        let answer = self.wire.exchange(request).await;
        // The request is gone, so this is the last handle.
        wipe(bytes);
        let answer = answer?;
        match answer.error_code {
            0 => Ok(answer),
            code => Err(self.refused(code, answer.error_message.as_ref().map(|text| text.as_str()))),
        }
    }

    fn refused(&self, code: i16, words: Option<&str>) -> Error {
        let address = self.wire.address();
        let words: String = words.unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
        let words: String = if self.login.is_shown_by(&words) {
            // A broker may repeat what it was sent.
            String::new()
        } else {
            words.trim_end_matches('.').chars().take(BROKER_TEXT_CHARS_MAX).collect()
        };
        let words = if words.is_empty() { String::new() } else { format!(" ({words})") };
        let mechanism = self.login.mechanism();
        let who = match self.login {
            Login::Password { username, .. } => format!("user '{username}'"),
            Login::Token { source, .. } => format!("the token of {source}"),
        };
        let advice = match self.login {
            Login::Password { source, .. } => {
                format!(
                    "check sasl.username, the password in {source}, and that the user exists for {mechanism}"
                )
            }
            Login::Token { .. } => {
                "check that the token has not expired and that the broker trusts its issuer and audience"
                    .to_owned()
            }
        };
        let context = format!("the broker at {address} refused {who} by {mechanism}{words}; {advice}");
        Error::from_code(code, context)
    }
}

async fn answer_challenge(
    challenge: scram::Challenge,
    password: super::Secret,
) -> Result<(Zeroizing<String>, scram::Final)> {
    let hashed = run_blocking("scram", move || challenge.answer(password.expose())).await;
    hashed.map_err(|panic| Error::new(ErrorKind::Bug, panic.to_string()))
}

/// Printable, without commas, and not to be guessed: the one place where a seed would be wrong.
fn nonce() -> Result<String> {
    let mut bytes = [0u8; 24];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| Error::new(ErrorKind::Retry, "the system has no random numbers to give"))?;
    Ok(STANDARD_NO_PAD.encode(bytes))
}
