//! Security settings under the names that Kafka's own clients (or librdkafka) know them by. Secrets have no property.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::secret::SecretSource;
use super::settings::{
    OidcSettings, SaslMechanism, SaslSettings, SecurityProtocol, SecuritySettings, TlsSettings, TokenSource,
};

/// A property and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) key: String,
    pub(super) text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.text)
    }
}

/// Our name of each property and the other names that it may be given by.
pub(super) const KEYS: &[(&str, &[&str])] = &[
    (PROTOCOL, &[]),
    (CA_FILE, &["ssl.ca.location", "ssl.truststore.location"]),
    (CERTIFICATE_FILE, &["ssl.certificate.location"]),
    (KEY_FILE, &["ssl.key.location"]),
    (SERVER_NAME, &[]),
    (MECHANISM, &["sasl.mechanisms"]),
    (USERNAME, &[]),
    (PASSWORD_FILE, &[]),
    (PASSWORD_ENV, &[]),
    (TOKEN_FILE, &[]),
    (TOKEN_ENV, &[]),
    (EXTENSIONS, &[]),
    (TOKEN_ENDPOINT, &[]),
    (CLIENT_ID, &["sasl.oauthbearer.client.credentials.client.id"]),
    (CLIENT_SECRET_FILE, &[]),
    (CLIENT_SECRET_ENV, &[]),
    (SCOPE, &[]),
    (TOKEN_ENDPOINT_CA_FILE, &[]),
];

const PROTOCOL: &str = "security.protocol";
const CA_FILE: &str = "ssl.ca.file";
const CERTIFICATE_FILE: &str = "ssl.certificate.file";
const KEY_FILE: &str = "ssl.key.file";
const SERVER_NAME: &str = "ssl.server.name";
const MECHANISM: &str = "sasl.mechanism";
const USERNAME: &str = "sasl.username";
const PASSWORD_FILE: &str = "sasl.password.file";
const PASSWORD_ENV: &str = "sasl.password.env";
const TOKEN_FILE: &str = "sasl.oauthbearer.token.file";
const TOKEN_ENV: &str = "sasl.oauthbearer.token.env";
const EXTENSIONS: &str = "sasl.oauthbearer.extensions";
const TOKEN_ENDPOINT: &str = "sasl.oauthbearer.token.endpoint.url";
const CLIENT_ID: &str = "sasl.oauthbearer.client.id";
const CLIENT_SECRET_FILE: &str = "sasl.oauthbearer.client.secret.file";
const CLIENT_SECRET_ENV: &str = "sasl.oauthbearer.client.secret.env";
const SCOPE: &str = "sasl.oauthbearer.scope";
const TOKEN_ENDPOINT_CA_FILE: &str = "sasl.oauthbearer.token.endpoint.ca.file";

/// Names of Kafka's that stand for something else here, and what to write instead.
const INSTEAD: &[(&str, &str)] = &[
    (
        "sasl.password",
        "secrets are not taken from here: name a file by sasl.password.file or a variable by sasl.password.env",
    ),
    ("sasl.jaas.config", "use sasl.username with sasl.password.file or sasl.password.env"),
    (
        "sasl.oauthbearer.client.secret",
        "secrets are not taken from here: use sasl.oauthbearer.client.secret.file or .env",
    ),
    (
        "sasl.oauthbearer.client.credentials.client.secret",
        "secrets are not taken from here: use sasl.oauthbearer.client.secret.file or .env",
    ),
    ("ssl.keystore.location", "use ssl.certificate.file and ssl.key.file (both may name the same PEM file)"),
    ("ssl.keystore.password", "use ssl.certificate.file and ssl.key.file, PEM files without a password"),
    ("ssl.key.password", "use a key file without a password: openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW"),
    ("ssl.truststore.password", "use ssl.ca.file, a PEM file without a password"),
    (
        "ssl.endpoint.identification.algorithm",
        "the server name is always checked; ssl.server.name says which one to expect",
    ),
    (
        "enable.ssl.certificate.verification",
        "certificates are always checked; ssl.ca.file says what to trust",
    ),
];

/// Reads every property, or gives every fault.
pub(super) fn read(properties: &BTreeMap<String, String>) -> Result<SecuritySettings, Vec<Fault>> {
    let mut reader = Reader { found: BTreeMap::new(), faults: Vec::new() };
    for (key, value) in properties {
        reader.take(key, value);
    }
    let protocol = reader.protocol();
    let tls = TlsSettings {
        ca_file: reader.path(CA_FILE),
        certificate_file: reader.path(CERTIFICATE_FILE),
        key_file: reader.path(KEY_FILE),
        server_name: reader.text(SERVER_NAME),
    };
    let sasl = reader.sasl(protocol);
    for left in std::mem::take(&mut reader.found).into_keys() {
        reader.fault(left, "makes no sense with the mechanism that is set; remove it");
    }
    let settings = SecuritySettings { protocol, tls, sasl };
    if reader.faults.is_empty() {
        for fault in settings.validate() {
            reader.fault(PROTOCOL, fault);
        }
    }
    if reader.faults.is_empty() { Ok(settings) } else { Err(reader.faults) }
}

struct Reader {
    found: BTreeMap<&'static str, String>,
    faults: Vec<Fault>,
}

impl Reader {
    fn fault(&mut self, key: impl Into<String>, text: impl Into<String>) {
        self.faults.push(Fault { key: key.into(), text: text.into() });
    }

    fn take(&mut self, key: &str, value: &str) {
        match (key, value) {
            ("ssl.truststore.type" | "ssl.keystore.type", value) if value.eq_ignore_ascii_case("PEM") => {
                return;
            }
            ("ssl.truststore.type" | "ssl.keystore.type", _) => {
                return self
                    .fault(key, "only PEM files are read; keytool -exportcert -rfc makes them of others");
            }
            ("ssl.endpoint.identification.algorithm", value) if value.eq_ignore_ascii_case("https") => return,
            _ => {}
        }
        if let Some((_, instead)) = INSTEAD.iter().find(|(name, _)| *name == key) {
            return self.fault(key, *instead);
        }
        let known = KEYS.iter().find(|(name, others)| *name == key || others.contains(&key));
        let Some((name, _)) = known else {
            return self.fault(key, "is not known; docs/security.md lists the security settings");
        };
        if value.trim().is_empty() {
            return self.fault(key, "is empty; remove it or give it a value");
        }
        if self.found.insert(name, value.trim().to_owned()).is_some() {
            self.fault(key, format!("is {name} under another name, which is set too; remove one"));
        }
    }

    fn text(&mut self, key: &'static str) -> Option<String> {
        self.found.remove(key)
    }

    fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        self.text(key).map(PathBuf::from)
    }

    fn needed(&mut self, key: &'static str, mechanism: &str) -> Option<String> {
        let text = self.text(key);
        if text.is_none() {
            self.fault(key, format!("is needed for {mechanism}"));
        }
        text
    }

    fn protocol(&mut self) -> SecurityProtocol {
        let Some(text) = self.text(PROTOCOL) else { return SecurityProtocol::default() };
        let known = SecurityProtocol::ALL.into_iter().find(|known| known.word().eq_ignore_ascii_case(&text));
        known.unwrap_or_else(|| {
            self.fault(PROTOCOL, format!("'{text}' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"));
            SecurityProtocol::default()
        })
    }

    fn secret(&mut self, file: &'static str, env: &'static str) -> Option<SecretSource> {
        match (self.path(file), self.text(env)) {
            (Some(_), Some(_)) => {
                self.fault(file, format!("is set and {env} too; remove one"));
                None
            }
            (Some(path), None) => Some(SecretSource::File(path)),
            (None, Some(name)) => Some(SecretSource::Env(name)),
            (None, None) => None,
        }
    }

    fn needed_secret(
        &mut self,
        file: &'static str,
        env: &'static str,
        mechanism: &str,
    ) -> Option<SecretSource> {
        let before = self.faults.len();
        let secret = self.secret(file, env);
        if secret.is_none() && self.faults.len() == before {
            self.fault(file, format!("or {env} is needed for {mechanism}"));
        }
        secret
    }

    fn sasl(&mut self, protocol: SecurityProtocol) -> Option<SaslSettings> {
        let Some(text) = self.text(MECHANISM) else {
            if protocol.has_sasl() {
                self.fault(MECHANISM, format!("is needed with {protocol}: {}", mechanisms()));
            }
            return None;
        };
        let known = SaslMechanism::ALL.into_iter().find(|known| known.word().eq_ignore_ascii_case(&text));
        let Some(mechanism) = known else {
            self.fault(MECHANISM, format!("'{text}' is none of {}", mechanisms()));
            self.found.clear();
            return None;
        };
        match mechanism {
            SaslMechanism::Plain | SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512 => {
                let username = self.needed(USERNAME, mechanism.word());
                let password = self.needed_secret(PASSWORD_FILE, PASSWORD_ENV, mechanism.word());
                Some(SaslSettings::Password { mechanism, username: username?, password: password? })
            }
            SaslMechanism::OauthBearer => self.token(),
        }
    }

    fn token(&mut self) -> Option<SaslSettings> {
        let extensions = self.text(EXTENSIONS).map(|text| self.extensions(&text)).unwrap_or_default();
        let Some(token_endpoint) = self.text(TOKEN_ENDPOINT) else {
            let what = format!("OAUTHBEARER (or {TOKEN_ENDPOINT} with a client id and secret)");
            let source = self.needed_secret(TOKEN_FILE, TOKEN_ENV, &what)?;
            return Some(SaslSettings::Token { source: TokenSource::Given(source), extensions });
        };
        if !token_endpoint.starts_with("https://") {
            let text = "must begin with https://, because the client secret is sent there";
            self.fault(TOKEN_ENDPOINT, text);
        }
        let client_id = self.needed(CLIENT_ID, "a token endpoint");
        let client_secret = self.needed_secret(CLIENT_SECRET_FILE, CLIENT_SECRET_ENV, "a token endpoint");
        let oidc = OidcSettings {
            scope: self.text(SCOPE),
            ca_file: self.path(TOKEN_ENDPOINT_CA_FILE),
            token_endpoint,
            client_id: client_id?,
            client_secret: client_secret?,
        };
        Some(SaslSettings::Token { source: TokenSource::Oidc(oidc), extensions })
    }

    /// `name=value,name=value`, names of letters only and `auth` reserved (RFC 7628 section 3.1).
    fn extensions(&mut self, text: &str) -> BTreeMap<String, String> {
        let mut extensions = BTreeMap::new();
        for part in text.split(',') {
            match part.trim().split_once('=') {
                Some((name, value))
                    if !name.is_empty()
                        && name != "auth"
                        && name.chars().all(|c| c.is_ascii_alphabetic())
                        && value.chars().all(|c| (' '..='~').contains(&c)) =>
                {
                    extensions.insert(name.to_owned(), value.to_owned());
                }
                Some(_) | None => {
                    self.fault(EXTENSIONS, "write name=value,name=value; names are letters, not 'auth'")
                }
            }
        }
        extensions
    }
}

fn mechanisms() -> String {
    SaslMechanism::ALL.map(SaslMechanism::word).join(", ")
}

/// The properties that [`read`] makes `settings` of.
pub(super) fn write(settings: &SecuritySettings) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::new();
    let mut put = |key: &str, value: String| {
        properties.insert(key.to_owned(), value);
    };
    let path = |path: &PathBuf| path.display().to_string();
    if settings.protocol != SecurityProtocol::default() {
        put(PROTOCOL, settings.protocol.word().to_owned());
    }
    let tls = &settings.tls;
    for (key, file) in
        [(CA_FILE, &tls.ca_file), (CERTIFICATE_FILE, &tls.certificate_file), (KEY_FILE, &tls.key_file)]
    {
        if let Some(file) = file {
            put(key, path(file));
        }
    }
    if let Some(name) = &tls.server_name {
        put(SERVER_NAME, name.clone());
    }
    let secret = |source: &SecretSource, file: &'static str, env: &'static str| match source {
        SecretSource::File(name) => (file, path(name)),
        SecretSource::Env(name) => (env, name.clone()),
    };
    let Some(sasl) = &settings.sasl else { return properties };
    put(MECHANISM, sasl.mechanism().word().to_owned());
    match sasl {
        SaslSettings::Password { username, password, .. } => {
            put(USERNAME, username.clone());
            let (key, value) = secret(password, PASSWORD_FILE, PASSWORD_ENV);
            put(key, value);
        }
        SaslSettings::Token { source, extensions } => {
            if !extensions.is_empty() {
                let list: Vec<String> =
                    extensions.iter().map(|(name, value)| format!("{name}={value}")).collect();
                put(EXTENSIONS, list.join(","));
            }
            match source {
                TokenSource::Given(source) => {
                    let (key, value) = secret(source, TOKEN_FILE, TOKEN_ENV);
                    put(key, value);
                }
                TokenSource::Oidc(oidc) => {
                    put(TOKEN_ENDPOINT, oidc.token_endpoint.clone());
                    put(CLIENT_ID, oidc.client_id.clone());
                    let (key, value) = secret(&oidc.client_secret, CLIENT_SECRET_FILE, CLIENT_SECRET_ENV);
                    put(key, value);
                    if let Some(scope) = &oidc.scope {
                        put(SCOPE, scope.clone());
                    }
                    if let Some(file) = &oidc.ca_file {
                        put(TOKEN_ENDPOINT_CA_FILE, path(file));
                    }
                }
            }
        }
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn settings_read_what_they_write() {
        for pairs in [
            &[][..],
            &[("security.protocol", "SSL"), ("ssl.ca.file", "ca.pem"), ("ssl.server.name", "kafka")],
            &[("security.protocol", "SSL"), ("ssl.certificate.file", "me.pem"), ("ssl.key.file", "me.pem")],
            &[
                ("security.protocol", "SASL_SSL"),
                ("sasl.mechanism", "SCRAM-SHA-512"),
                ("sasl.username", "alice"),
                ("sasl.password.file", "/run/secrets/alice"),
            ],
            &[
                ("security.protocol", "SASL_SSL"),
                ("sasl.mechanism", "OAUTHBEARER"),
                ("sasl.oauthbearer.token.env", "TOKEN"),
                ("sasl.oauthbearer.extensions", "logicalCluster=lkc-1,pool=p"),
            ],
            &[
                ("security.protocol", "SASL_SSL"),
                ("sasl.mechanism", "OAUTHBEARER"),
                ("sasl.oauthbearer.token.endpoint.url", "https://idp/token"),
                ("sasl.oauthbearer.token.endpoint.ca.file", "idp.pem"),
                ("sasl.oauthbearer.client.id", "me"),
                ("sasl.oauthbearer.client.secret.file", "secret"),
                ("sasl.oauthbearer.scope", "kafka"),
            ],
        ] {
            let given = properties(pairs);
            assert_eq!(write(&read(&given).unwrap()), given);
        }
    }

    #[test]
    fn names_of_other_clients_are_taken() {
        let settings = read(&properties(&[
            ("security.protocol", "sasl_ssl"),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", "ca.pem"),
            ("sasl.mechanisms", "PLAIN"),
            ("sasl.username", "alice"),
            ("sasl.password.env", "KAFKA_PASSWORD"),
        ]))
        .unwrap();
        assert_eq!(settings.protocol, SecurityProtocol::SaslSsl);
        assert_eq!(settings.tls.ca_file, Some(PathBuf::from("ca.pem")));
        assert_eq!(settings.principal().as_deref(), Some("User:alice"));
    }

    #[test]
    fn a_secret_in_place_of_a_file_is_refused_without_repeating_it() {
        for key in ["sasl.password", "sasl.jaas.config", "sasl.oauthbearer.client.secret", "ssl.key.password"]
        {
            let faults = read(&properties(&[(key, "hunter2")])).unwrap_err();
            let text = faults[0].to_string();
            assert!(text.starts_with(key) && text.contains("use") || text.contains("name a file"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn every_fault_is_reported_at_once_and_says_what_to_do() {
        let faults = read(&properties(&[
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "SCRAM-SHA-256"),
            ("sasl.oauthbearer.scope", "kafka"),
            ("ssl.keystore.type", "JKS"),
            ("ssl.cipher", "x"),
        ]))
        .unwrap_err();
        let keys: Vec<&str> = faults.iter().map(|fault| fault.key.as_str()).collect();
        let expected = [
            "ssl.cipher",
            "ssl.keystore.type",
            "sasl.username",
            "sasl.password.file",
            "sasl.oauthbearer.scope",
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn settings_that_would_silently_do_nothing_are_refused() {
        for (pairs, word) in [
            (&[("ssl.ca.file", "ca.pem")][..], "SASL_SSL"),
            (&[("security.protocol", "SSL"), ("ssl.key.file", "k")], "together"),
            (
                &[("sasl.mechanism", "PLAIN"), ("sasl.username", "a"), ("sasl.password.env", "P")],
                "SASL_PLAINTEXT",
            ),
            (&[("security.protocol", "SASL_SSL")], "SCRAM-SHA-256"),
            (&[("security.protocol", "TLS")], "SASL_SSL"),
        ] {
            let faults = read(&properties(pairs)).unwrap_err();
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].text.contains(word), "{}", faults[0]);
        }
    }
}
