//! Who we are, and what is said where a broker does not believe it.

use std::collections::BTreeMap;

use sharestream_base::{Env, ErrorKind};
use sharestream_client::Error;

use super::fake::Broker;
use super::{connect, path, text};

const PASSWORD: &str = "correct horse=battery,staple";

fn broker(offers: &[&'static str]) -> Broker {
    let users = BTreeMap::from([("alice", PASSWORD.to_owned()), ("token", "good.token.1".to_owned())]);
    Broker { offers: offers.to_vec(), users, ..Broker::default() }
}

async fn log_in(broker: Broker, mechanism: &str, secret: &str) -> Result<(), Error> {
    let env = Env::seeded(1);
    let _serving = broker.start(&env).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let mut properties = vec![("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", mechanism)];
    if mechanism == "OAUTHBEARER" {
        properties.push(("sasl.oauthbearer.token.file", path(&file)));
    } else {
        properties.extend([("sasl.username", "alice"), ("sasl.password.file", path(&file))]);
    }
    connect(&env, &properties).await.map(|_client| ())
}

fn refused(result: Result<(), Error>, words: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "no retry helps: {error}");
    let said = text(&error);
    for word in words {
        assert!(said.contains(word), "no '{word}' in: {said}");
    }
}

#[tokio::test]
async fn each_mechanism_logs_in() {
    log_in(broker(&["PLAIN"]), "PLAIN", PASSWORD).await.unwrap();
    log_in(broker(&["PLAIN", "SCRAM-SHA-256"]), "SCRAM-SHA-256", PASSWORD).await.unwrap();
    log_in(broker(&["OAUTHBEARER"]), "OAUTHBEARER", "good.token.1").await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_is_told_with_the_user_and_its_file_but_never_itself() {
    for mechanism in ["PLAIN", "SCRAM-SHA-256"] {
        let result = log_in(broker(&["PLAIN", "SCRAM-SHA-256"]), mechanism, "hunter2").await;
        assert!(!text(result.as_ref().unwrap_err()).contains("hunter2"), "the broker repeats it, we do not");
        refused(
            result,
            &["broker:9092 refused user 'alice'", mechanism, "/secret", "SASL_AUTHENTICATION_FAILED"],
        );
    }
}

#[tokio::test]
async fn a_token_that_is_not_taken_is_told_with_its_file() {
    let result = log_in(broker(&["OAUTHBEARER"]), "OAUTHBEARER", "bad.token.1").await;
    refused(result, &["refused the token of file", "/secret", "expired"]);
    let result = log_in(broker(&["OAUTHBEARER"]), "OAUTHBEARER", "two words").await;
    refused(result, &["no bearer token", "/secret"]);
}

#[tokio::test]
async fn a_mechanism_that_is_not_offered_is_told_with_those_that_are() {
    let result = log_in(broker(&["SCRAM-SHA-512", "GSSAPI"]), "SCRAM-SHA-256", PASSWORD).await;
    refused(result, &["does not offer SCRAM-SHA-256 but SCRAM-SHA-512, GSSAPI", "sasl.mechanism"]);
}

#[tokio::test]
async fn a_listener_that_takes_no_sasl_is_told() {
    refused(log_in(broker(&[]), "PLAIN", PASSWORD).await, &["takes no SASL", "PLAINTEXT"]);
}

#[tokio::test]
async fn a_listener_that_wants_sasl_is_told_with_what_it_offers() {
    let env = Env::seeded(1);
    let _serving = broker(&["PLAIN", "SCRAM-SHA-512"]).start(&env).await;
    let result = connect(&env, &[]).await.map(|_client| ());
    refused(result, &["broker:9092 wants SASL", "SASL_PLAINTEXT", "PLAIN, SCRAM-SHA-512"]);
}

#[tokio::test]
async fn a_server_that_does_not_know_the_password_is_not_spoken_to() {
    let impostor = Broker { is_impostor: true, ..broker(&["SCRAM-SHA-256"]) };
    let seen = impostor.seen.clone();
    refused(log_in(impostor, "SCRAM-SHA-256", PASSWORD).await, &["impostor"]);
    assert!(!seen.lock().unwrap().contains(&3), "no request follows");
}

#[tokio::test]
async fn a_new_password_in_the_file_is_used_without_a_restart() {
    let env = Env::seeded(1);
    let mut serving = broker(&["PLAIN"]).start(&env).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let properties = [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "alice"),
        ("sasl.password.file", path(&file)),
    ];
    std::fs::write(&file, PASSWORD).unwrap();
    let client = connect(&env, &properties).await.unwrap();
    serving.abort_all().await;
    let users = BTreeMap::from([("alice", "changed".to_owned())]);
    let _serving = Broker { users, ..broker(&["PLAIN"]) }.start(&env).await;
    let error = client.admin().list_topics().await.unwrap_err();
    assert!(error.to_string().contains("refused user 'alice'"), "{error}");
    std::fs::write(&file, "changed").unwrap();
    client.admin().list_topics().await.unwrap();
}
