//! What a TLS connection trusts, and what it says where it does not.

use sharestream_base::{Env, ErrorKind, HostPort};

use super::certificates::{Authority, Issued};
use super::fake::Broker;
use super::{connect, path, text};

struct Tls {
    env: Env,
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Tls {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "authority");
        Tls { env: Env::seeded(1), folder, authority }
    }

    /// Connects with these properties to a broker with this certificate; the error's text, when there is one.
    async fn against(&self, issued: &Issued, more: &[(&str, &str)]) -> Option<String> {
        let broker = Broker { tls: Some(issued.server_config(None)), ..Broker::default() };
        self.with(broker, more).await
    }

    async fn with(&self, broker: Broker, more: &[(&str, &str)]) -> Option<String> {
        let mut serving = broker.start(&self.env).await;
        let mut properties = vec![("security.protocol", "SSL"), ("ssl.ca.file", path(&self.authority.file))];
        for (key, value) in more {
            properties.retain(|(known, _)| known != key);
            properties.push((key, value));
        }
        let connected = connect(&self.env, &properties).await;
        serving.abort_all().await;
        let error = connected.err()?;
        let said = text(&error);
        assert!(said.contains("broker:9092"), "{said}");
        let is_sentence = !said.ends_with('.') && said.chars().next().is_some_and(|c| !c.is_uppercase());
        assert!(is_sentence, "{said}");
        Some(said)
    }
}

fn has(said: Option<String>, words: &[&str]) {
    let said = said.expect("it must not connect");
    for word in words {
        assert!(said.contains(word), "no '{word}' in: {said}");
    }
}

#[tokio::test]
async fn a_broker_with_a_certificate_of_the_authority_is_trusted() {
    let tls = Tls::new();
    assert_eq!(tls.against(&tls.authority.server("broker"), &[]).await, None);
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_and_both_names_are_told() {
    let tls = Tls::new();
    let other = tls.authority.server("other.example");
    has(tls.against(&other, &[]).await, &["not for 'broker' but for other.example;", "ssl.server.name"]);
    assert_eq!(tls.against(&other, &[("ssl.server.name", "other.example")]).await, None);
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let tls = Tls::new();
    has(
        tls.against(&tls.authority.expired("broker"), &[]).await,
        &["has expired", "365 days ago", "renew it"],
    );
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused_and_the_authority_file_is_named() {
    let tls = Tls::new();
    let stranger = Authority::new(tls.folder.path(), "stranger");
    let said = tls.against(&stranger.server("broker"), &[]).await;
    has(said, &["not in", path(&tls.authority.file), "set ssl.ca.file"]);
}

#[tokio::test]
async fn a_plain_text_listener_is_recognised() {
    let tls = Tls::new();
    has(tls.with(Broker::default(), &[]).await, &["hung up in the TLS handshake", "PLAINTEXT"]);
    let greeting = Broker { greets_with: Some(b"HTTP/1.1 400 Bad Request\r\n\r\n"), ..Broker::default() };
    // Our greeting is no Kafka request, so this broker answers nothing of its own either.
    has(tls.with(greeting, &[]).await, &["plain text"]);
}

#[tokio::test]
async fn a_tls_listener_spoken_to_in_plain_text_is_recognised() {
    let tls = Tls::new();
    let env = &tls.env;
    let issued = tls.authority.server("broker");
    let _serving = Broker { tls: Some(issued.server_config(None)), ..Broker::default() }.start(env).await;
    let error = connect(env, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "no retry helps");
    has(Some(text(&error)), &["broker:9092 speaks TLS", "security.protocol to SSL"]);
}

#[tokio::test]
async fn other_programs_are_not_taken_for_brokers() {
    for (greeting, words) in
        [(&b"HTTP/1.1 400 Bad Request\r\n"[..], "web server"), (b"SSH-2.0-x\r\n", "Kafka protocol")]
    {
        let env = Env::seeded(1);
        let _serving = Broker { greets_with: Some(greeting), ..Broker::default() }.start(&env).await;
        has(Some(text(&connect(&env, &[]).await.unwrap_err())), &["broker:9092", words, "check the port"]);
    }
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_wanted() {
    let tls = Tls::new();
    let server = tls.authority.server("broker");
    let wants_one = || Broker { tls: Some(server.server_config(Some(&tls.authority))), ..Broker::default() };
    let mine = tls.authority.client("me").write(&tls.folder.path().join("me.pem"));
    let mine = [("ssl.certificate.file", path(&mine)), ("ssl.key.file", path(&mine))];
    assert_eq!(tls.with(wants_one(), &mine).await, None);
    has(tls.with(wants_one(), &[]).await, &["wants a client certificate", "ssl.certificate.file"]);
    let stranger = Authority::new(tls.folder.path(), "stranger").client("me");
    let theirs = stranger.write(&tls.folder.path().join("stranger-me.pem"));
    let theirs = [("ssl.certificate.file", path(&theirs)), ("ssl.key.file", path(&theirs))];
    has(tls.with(wants_one(), &theirs).await, &["refused the certificate in", "stranger-me.pem"]);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_with_their_setting() {
    let tls = Tls::new();
    let folder = tls.folder.path();
    let file = |name: &str, content: &str| {
        std::fs::write(folder.join(name), content).unwrap();
        folder.join(name).to_str().unwrap().to_owned()
    };
    let mine = tls.authority.client("me");
    let certificate = file("certificate.pem", &mine.certificate);
    let key = file("key.pem", &mine.key);
    let other_key = file("other.pem", &tls.authority.client("me").key);
    let locked = file(
        "locked.pem",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let none = file("none.pem", "not PEM\n");
    for (properties, words) in [
        (vec![("ssl.ca.file", "/nowhere/ca.pem")], ["ssl.ca.file", "/nowhere/ca.pem"]),
        (vec![("ssl.ca.file", &*none)], ["no PEM certificate", "keytool"]),
        (
            vec![("ssl.certificate.file", &*none), ("ssl.key.file", &*key)],
            ["ssl.certificate.file", "none.pem"],
        ),
        (
            vec![("ssl.certificate.file", &*certificate), ("ssl.key.file", &*none)],
            ["ssl.key.file", "none.pem"],
        ),
        (
            vec![("ssl.certificate.file", &*certificate), ("ssl.key.file", &*locked)],
            ["password", "openssl pkcs8"],
        ),
        (
            vec![("ssl.certificate.file", &*certificate), ("ssl.key.file", &*other_key)],
            ["does not fit", "other.pem"],
        ),
    ] {
        let mut serving = Broker::default().start(&tls.env).await;
        let mut all = vec![("security.protocol", "SSL")];
        all.extend(properties);
        let error = connect(&tls.env, &all).await.unwrap_err();
        serving.abort_all().await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        has(Some(text(&error)), &words);
    }
}

#[tokio::test(start_paused = true)]
async fn an_advertised_address_that_does_not_work_is_told_apart_from_the_bootstrap_one() {
    let env = Env::seeded(1);
    let advertises = Some(HostPort::new("inside.example", 9094));
    let _serving = Broker { advertises, ..Broker::default() }.start(&env).await;
    let client = connect(&env, &[]).await.unwrap();
    let error = client.admin().list_transactions().await.unwrap_err();
    has(
        Some(text(&error)),
        &[
            "broker 1 advertises inside.example:9094",
            "told by broker:9092",
            "advertised.listeners",
            "cannot reach",
        ],
    );
}
