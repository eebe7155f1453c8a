//! Reads who we are anew for every authentication, so that renewed passwords and tokens need no restart.

use std::collections::BTreeMap;
use std::fmt;

use sharestream_base::{Env, ErrorKind, run_blocking};

use super::oauth;
use super::oidc::TokenEndpoint;
use super::secret::{Secret, SecretSource};
use super::settings::{SaslMechanism, SaslSettings, TokenSource};
use crate::{Error, Result};

/// Gives a [`Login`] for each authentication. Shared by all connections of a client, and with it a token.
#[derive(Debug)]
pub(crate) struct Credentials {
    settings: SaslSettings,
    endpoint: Option<TokenEndpoint>,
}

/// What one authentication shows to the broker.
pub(crate) enum Login {
    /// A user.
    Password {
        /// PLAIN or SCRAM.
        mechanism: SaslMechanism,
        /// Name of the user.
        username: String,
        /// Password of the user.
        password: Secret,
        /// Where the password came from, for errors.
        source: SecretSource,
    },
    /// A bearer of a token.
    Token {
        /// The token.
        token: Secret,
        /// To send with it.
        extensions: BTreeMap<String, String>,
        /// Where it came from, for errors.
        source: String,
    },
}

impl Credentials {
    /// By these settings.
    pub(crate) fn new(env: &Env, settings: SaslSettings) -> Self {
        let endpoint = match &settings {
            SaslSettings::Token { source: TokenSource::Oidc(oidc), .. } => {
                Some(TokenEndpoint::new(env, oidc.clone()))
            }
            SaslSettings::Token { source: TokenSource::Given(_), .. } | SaslSettings::Password { .. } => None,
        };
        Credentials { settings, endpoint }
    }

    /// Reads the password or the token, or asks for a token. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` when there is none or the identity provider refuses; `Retry` when it cannot be reached.
    pub(crate) async fn load(&self) -> Result<Login> {
        match &self.settings {
            SaslSettings::Password { mechanism, username, password } => Ok(Login::Password {
                mechanism: *mechanism,
                username: username.clone(),
                password: read(password.clone(), "password").await?,
                source: password.clone(),
            }),
            SaslSettings::Token { source: given, extensions } => {
                let (token, source) = match (given, &self.endpoint) {
                    (TokenSource::Given(source), _) => {
                        (read(source.clone(), "bearer token").await?, source.to_string())
                    }
                    (TokenSource::Oidc(oidc), Some(endpoint)) => {
                        (endpoint.token().await?, oidc.token_endpoint.clone())
                    }
                    (TokenSource::Oidc(_), None) => {
                        return Err(Error::new(ErrorKind::Bug, "a token endpoint without settings"));
                    }
                };
                let token = Secret::new(token.expose().trim());
                if !oauth::is_token(token.expose()) {
                    let text = format!("what {source} holds is no bearer token (RFC 6750); check the path");
                    return Err(Error::new(ErrorKind::InvalidInput, text));
                }
                Ok(Login::Token { token, extensions: extensions.clone(), source })
            }
        }
    }
}

impl Login {
    /// The mechanism that it is shown by.
    pub(crate) fn mechanism(&self) -> SaslMechanism {
        match self {
            Login::Password { mechanism, .. } => *mechanism,
            Login::Token { .. } => SaslMechanism::OauthBearer,
        }
    }

    /// True when `text` contains the secret: a peer's words that must not be shown.
    pub(crate) fn is_shown_by(&self, text: &str) -> bool {
        let (Login::Password { password: secret, .. } | Login::Token { token: secret, .. }) = self;
        text.contains(secret.expose())
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.mechanism())
    }
}

pub(super) async fn read(source: SecretSource, what: &'static str) -> Result<Secret> {
    let read = run_blocking("secret", move || source.read(what)).await;
    read.map_err(|panic| Error::new(ErrorKind::Bug, panic.to_string()))?
}
