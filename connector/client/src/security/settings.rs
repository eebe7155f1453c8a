//! Settings of security, as values without secrets. `Default` is plain text without authentication.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::properties;
use super::secret::SecretSource;
use crate::{Error, Result};

/// How connections are protected and who we are. Reads and writes itself as Kafka's properties
/// ([`SecuritySettings::from_properties`]); names files and variables that hold secrets, holds none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct SecuritySettings {
    /// Kafka: `security.protocol`. Default plain text. Since 0.1.
    pub protocol: SecurityProtocol,
    /// What TLS trusts and shows; looked at when the protocol has TLS. Since 0.1.
    pub tls: TlsSettings,
    /// Who we are; needed when the protocol has SASL. Default nobody. Since 0.1.
    pub sasl: Option<SaslSettings>,
}

/// Kafka: `security.protocol`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// Plain text, nobody in particular.
    #[default]
    Plaintext,
    /// TLS, known by a client certificate or nobody in particular.
    Ssl,
    /// Plain text with SASL.
    SaslPlaintext,
    /// TLS with SASL.
    SaslSsl,
}

impl SecurityProtocol {
    /// All of them, the default first.
    pub const ALL: [Self; 4] = [Self::Plaintext, Self::Ssl, Self::SaslPlaintext, Self::SaslSsl];

    /// Kafka's word for it.
    pub fn word(self) -> &'static str {
        match self {
            SecurityProtocol::Plaintext => "PLAINTEXT",
            SecurityProtocol::Ssl => "SSL",
            SecurityProtocol::SaslPlaintext => "SASL_PLAINTEXT",
            SecurityProtocol::SaslSsl => "SASL_SSL",
        }
    }

    /// True when bytes go through TLS.
    pub fn has_tls(self) -> bool {
        matches!(self, SecurityProtocol::Ssl | SecurityProtocol::SaslSsl)
    }

    /// True when a connection begins with SASL.
    pub fn has_sasl(self) -> bool {
        matches!(self, SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl)
    }
}

impl fmt::Display for SecurityProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What TLS trusts and shows. The files are read at every new connection, so renewed ones need no restart.
///
/// A broker's certificate is always checked, against the CA and against the name that was dialled; there is no switch
/// to leave that out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// PEM file of the certificate authorities to trust instead of the system's. `ssl.ca.file`; Kafka:
    /// `ssl.truststore.location` of type PEM. Since 0.1.
    pub ca_file: Option<PathBuf>,
    /// PEM file of our certificate and its chain; with `key_file`. `ssl.certificate.file`; Kafka:
    /// `ssl.keystore.location` of type PEM. Since 0.1.
    pub certificate_file: Option<PathBuf>,
    /// PEM file of the certificate's private key, not encrypted. `ssl.key.file`. Since 0.1.
    pub key_file: Option<PathBuf>,
    /// The name that brokers' certificates must be for, in place of the name that was dialled: for tunnels and load
    /// balancers. `ssl.server.name`. Since 0.1.
    pub server_name: Option<String>,
}

/// Who we are, by SASL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaslSettings {
    /// A user with a password, by PLAIN or SCRAM.
    Password {
        /// PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        mechanism: SaslMechanism,
        /// Kafka: `username` of the login module.
        username: String,
        /// Kafka: `password` of the login module.
        password: SecretSource,
    },
    /// A bearer token, by OAUTHBEARER (KIP-255, RFC 7628).
    Token {
        /// Where tokens come from.
        source: TokenSource,
        /// Extensions to send with the token (KIP-342), such as `logicalCluster`.
        extensions: BTreeMap<String, String>,
    },
}

impl SaslSettings {
    /// The mechanism that it is used with.
    pub fn mechanism(&self) -> SaslMechanism {
        match self {
            SaslSettings::Password { mechanism, .. } => *mechanism,
            SaslSettings::Token { .. } => SaslMechanism::OauthBearer,
        }
    }
}

/// Where bearer tokens come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// A file or variable that holds the token; something else renews it.
    Given(SecretSource),
    /// An identity provider that gives tokens for our id and secret (RFC 6749, client credentials; KIP-768).
    Oidc(OidcSettings),
}

/// Client credentials at an identity provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcSettings {
    /// `https://` address of the token endpoint. Kafka: `sasl.oauthbearer.token.endpoint.url`.
    pub token_endpoint: String,
    /// Our id. Kafka: `sasl.oauthbearer.client.credentials.client.id`.
    pub client_id: String,
    /// Our secret.
    pub client_secret: SecretSource,
    /// Scope to ask for. Kafka: `sasl.oauthbearer.scope`.
    pub scope: Option<String>,
    /// PEM file of the certificate authorities to trust at the endpoint instead of the system's.
    pub ca_file: Option<PathBuf>,
}

/// How a user proves to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslMechanism {
    /// The password itself; use it over TLS only.
    Plain,
    /// Salted challenge and response with SHA-256.
    ScramSha256,
    /// The same with SHA-512.
    ScramSha512,
    /// A bearer token; use it over TLS only.
    OauthBearer,
}

impl SaslMechanism {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::ScramSha256, Self::ScramSha512, Self::OauthBearer];

    /// The registered name.
    pub fn word(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
            SaslMechanism::OauthBearer => "OAUTHBEARER",
        }
    }
}

impl fmt::Display for SaslMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl SecuritySettings {
    /// Reads Kafka's properties; `docs/security.md` lists them.
    ///
    /// # Errors
    /// `InvalidInput` naming every fault at once: unknown keys, secrets in place of files, what is missing.
    pub fn from_properties(properties: &BTreeMap<String, String>) -> Result<Self> {
        properties::read(properties).map_err(|faults| {
            let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
            Error::new(
                sharestream_base::ErrorKind::InvalidInput,
                format!("security settings: {}", list.join("; ")),
            )
        })
    }

    /// Faults of Kafka's properties, each with the key that it is about; empty when they can be read.
    pub fn faults(properties: &BTreeMap<String, String>) -> Vec<(String, String)> {
        let faults = properties::read(properties).err().unwrap_or_default();
        faults.into_iter().map(|fault| (fault.key, fault.text)).collect()
    }

    /// Names of all properties.
    pub fn property_names() -> impl Iterator<Item = &'static str> + Clone {
        properties::KEYS.iter().map(|(name, _)| *name)
    }

    /// The same as properties.
    pub fn to_properties(&self) -> BTreeMap<String, String> {
        properties::write(self)
    }

    /// Takes relative file names as relative to `folder`.
    #[must_use]
    pub fn relative_to(mut self, folder: &std::path::Path) -> Self {
        let secret = |source: &mut SecretSource| {
            if let SecretSource::File(path) = source {
                *path = folder.join(&*path);
            }
        };
        let file = |path: &mut Option<PathBuf>| {
            if let Some(path) = path {
                *path = folder.join(&*path);
            }
        };
        let tls = &mut self.tls;
        [&mut tls.ca_file, &mut tls.certificate_file, &mut tls.key_file].into_iter().for_each(file);
        match &mut self.sasl {
            Some(SaslSettings::Password { password, .. }) => secret(password),
            Some(SaslSettings::Token { source: TokenSource::Given(token), .. }) => secret(token),
            Some(SaslSettings::Token { source: TokenSource::Oidc(oidc), .. }) => {
                secret(&mut oidc.client_secret);
                file(&mut oidc.ca_file);
            }
            None => {}
        }
        self
    }

    /// What does not fit together, each in one clause; empty when all is well.
    pub(crate) fn validate(&self) -> Vec<&'static str> {
        let mut faults = Vec::new();
        if self.protocol.has_sasl() && self.sasl.is_none() {
            faults.push("security.protocol has SASL, so sasl.mechanism and its credentials are needed");
        }
        if !self.protocol.has_sasl() && self.sasl.is_some() {
            faults
                .push("SASL credentials are given, so security.protocol must be SASL_SSL or SASL_PLAINTEXT");
        }
        if !self.protocol.has_tls() && self.tls != TlsSettings::default() {
            faults.push("ssl settings are given, so security.protocol must be SSL or SASL_SSL");
        }
        if self.tls.certificate_file.is_some() != self.tls.key_file.is_some() {
            faults.push("ssl.certificate.file and ssl.key.file are needed together");
        }
        faults
    }

    /// Our name as the brokers' ACLs know it, where we can know it: `User:` and the SASL user.
    pub fn principal(&self) -> Option<String> {
        match (&self.sasl, self.protocol) {
            (Some(SaslSettings::Password { username, .. }), _) => Some(format!("User:{username}")),
            (None, SecurityProtocol::Plaintext) => Some("User:ANONYMOUS".to_owned()),
            (None, SecurityProtocol::Ssl) if self.tls.certificate_file.is_none() => {
                Some("User:ANONYMOUS".to_owned())
            }
            // The broker takes the name from the token or the certificate by rules of its own.
            (Some(SaslSettings::Token { .. }) | None, _) => None,
        }
    }
}

impl TryFrom<BTreeMap<String, String>> for SecuritySettings {
    type Error = Error;

    fn try_from(properties: BTreeMap<String, String>) -> Result<Self> {
        SecuritySettings::from_properties(&properties)
    }
}

impl From<SecuritySettings> for BTreeMap<String, String> {
    fn from(settings: SecuritySettings) -> Self {
        settings.to_properties()
    }
}
