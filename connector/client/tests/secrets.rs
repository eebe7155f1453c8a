//! Secrets are in no log, error, debug output or JSON. Alone in its process: it looks at all that is logged.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "security/fake.rs"]
#[allow(dead_code, reason = "shared with the tests of TLS and SASL")]
mod fake;
#[path = "common/logged.rs"]
#[allow(unreachable_pub, reason = "shared with the tests against brokers")]
mod logged;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fake::Broker;
use logged::Logged;
use sharestream_base::{Env, HostPort};
use sharestream_client::{ClientConfig, SecuritySettings};

const SECRET: &str = "Tr0ub4dor-3-secret";

fn broker() -> HostPort {
    HostPort::new("broker", 9092)
}

fn config(properties: &[(&str, &str)]) -> ClientConfig {
    let properties: BTreeMap<String, String> =
        properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let security = SecuritySettings::from_properties(&properties).unwrap();
    ClientConfig::with_bootstrap("broker:9092").unwrap().with_security(security)
}

#[tokio::test]
async fn a_secret_is_in_no_log_error_debug_output_or_json() {
    let logged = Logged::default();
    let subscriber = logged.subscriber().with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL);
    let _logging = tracing::subscriber::set_default(subscriber.finish());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, SECRET).unwrap();
    let mut shown = String::new();
    for (mechanism, is_right) in [
        ("PLAIN", true),
        ("PLAIN", false),
        ("SCRAM-SHA-256", true),
        ("SCRAM-SHA-256", false),
        ("OAUTHBEARER", true),
        ("OAUTHBEARER", false),
    ] {
        let env = Env::seeded(1);
        let known = if is_right { SECRET } else { "another" };
        let users = BTreeMap::from([("alice", known.to_owned()), ("token", known.to_owned())]);
        let _serving = Broker { offers: vec![mechanism], users, ..Broker::default() }.start(&env).await;
        let mut properties = vec![("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", mechanism)];
        match mechanism {
            "OAUTHBEARER" => properties.push(("sasl.oauthbearer.token.file", file.to_str().unwrap())),
            _ => properties
                .extend([("sasl.username", "alice"), ("sasl.password.file", file.to_str().unwrap())]),
        }
        let config = config(&properties);
        shown += &format!("{config:?} {}", serde_json::to_string(&config.security).unwrap());
        match sharestream_client::Client::connect(env, config).await {
            Ok(client) => {
                assert!(is_right);
                shown += &format!("{client:?} {:?}", client.admin().list_transactions().await.map(|_| ()));
            }
            Err(error) => {
                assert!(!is_right, "{error}");
                shown += &format!("{error} {error:?} {:?}", std::error::Error::source(&error));
            }
        }
    }
    let logged = logged.text();
    assert!(logged.contains("connected"), "nothing was logged: {logged}");
    assert!(shown.contains("sasl.password.file") && shown.contains("refused user 'alice'"), "{shown}");
    let plain = BASE64.encode(format!("\0alice\0{SECRET}"));
    let bytes = format!("{:?}", SECRET.as_bytes());
    let bytes = bytes.trim_matches(['[', ']']);
    for (place, text) in [("log", &logged), ("output", &shown)] {
        for form in [SECRET, &BASE64.encode(SECRET), &plain, bytes] {
            assert!(!text.contains(form), "'{form}' is in the {place}");
        }
    }
}
