//! Tokens from an identity provider.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sharestream_base::{Env, ErrorKind};

use super::certificates::Authority;
use super::fake::{Broker, Provider};
use super::{connect, path, text};

const CLIENT_SECRET: &str = "s3cr3t/+&";

struct Idp {
    env: Env,
    folder: tempfile::TempDir,
    authority: Authority,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Idp {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), CLIENT_SECRET).unwrap();
        let authority = Authority::new(folder.path(), "authority");
        Idp { env: Env::seeded(1), folder, authority, seen: Arc::default() }
    }

    /// What connecting gives when the provider answers so.
    async fn answers(
        &self,
        status: &'static str,
        body: &str,
    ) -> Result<sharestream_client::Client, sharestream_client::Error> {
        let users = BTreeMap::from([("token", "good.token.1".to_owned())]);
        let _broker =
            Broker { offers: vec!["OAUTHBEARER"], users, ..Broker::default() }.start(&self.env).await;
        let tls = self.authority.server("idp").server_config(None);
        let provider = Provider { tls, status, body: body.to_owned(), seen: Arc::clone(&self.seen) };
        let _provider = provider.start(&self.env).await;
        let secret = self.folder.path().join("secret");
        let properties = [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "OAUTHBEARER"),
            ("sasl.oauthbearer.token.endpoint.url", "https://idp/realms/r/token?x=1"),
            ("sasl.oauthbearer.token.endpoint.ca.file", path(&self.authority.file)),
            ("sasl.oauthbearer.client.id", "me & you"),
            ("sasl.oauthbearer.client.secret.file", path(&secret)),
            ("sasl.oauthbearer.scope", "kafka read"),
        ];
        connect(&self.env, &properties).await
    }
}

#[tokio::test]
async fn a_token_is_asked_for_once_and_used_by_all_connections() {
    let idp = Idp::new();
    idp.answers("200 OK", r#"{"access_token":"good.token.1","expires_in":300,"token_type":"bearer"}"#)
        .await
        .unwrap();
    let seen = idp.seen.lock().unwrap();
    let [request] = seen.as_slice() else { panic!("{} requests", seen.len()) };
    assert!(request.starts_with("POST /realms/r/token?x=1 HTTP/1.1\r\nhost: idp\r\n"), "{request}");
    assert!(request.ends_with("grant_type=client_credentials&scope=kafka+read"), "{request}");
    // base64("me+%26+you:s3cr3t%2F%2B%26")
    assert!(request.contains("authorization: Basic bWUrJTI2K3lvdTpzM2NyM3QlMkYlMkIlMjY=\r\n"), "{request}");
}

#[tokio::test]
async fn a_token_without_a_known_life_is_asked_for_each_time() {
    let idp = Idp::new();
    idp.answers("200 OK", r#"{"access_token":"good.token.1"}"#).await.unwrap();
    assert_eq!(idp.seen.lock().unwrap().len(), 2, "bootstrap, and the connection in use");
}

#[tokio::test]
async fn refusals_of_the_provider_say_what_to_do() {
    for (status, body, kind, words) in [
        (
            "401 Unauthorized",
            r#"{"error":"invalid_client","error_description":"No."}"#,
            ErrorKind::InvalidInput,
            ["refused client 'me & you'", "invalid_client: No)", "/secret"],
        ),
        ("404 Not Found", "<html>", ErrorKind::InvalidInput, ["no token endpoint", "404", "check the URL"]),
        ("503 Service Unavailable", "", ErrorKind::Retry, ["https://idp/realms/r/token", "not well", "503"]),
        ("200 OK", "{}", ErrorKind::InvalidInput, ["no access_token", "idp", "check"]),
        ("200 OK", r#"{"access_token":"a b"}"#, ErrorKind::InvalidInput, ["no bearer token", "idp", "check"]),
    ] {
        let idp = Idp::new();
        let error = idp.answers(status, body).await.unwrap_err();
        let said = text(&error);
        assert_eq!(error.kind(), kind, "{said}");
        for word in words {
            assert!(said.contains(word), "no '{word}' in: {said}");
        }
        assert!(!said.contains(CLIENT_SECRET), "{said}");
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_named() {
    let idp = Idp::new();
    let secret = idp.folder.path().join("secret");
    let properties = [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.oauthbearer.token.endpoint.url", "https://nobody:8443/token"),
        ("sasl.oauthbearer.client.id", "me"),
        ("sasl.oauthbearer.client.secret.file", path(&secret)),
    ];
    let error = connect(&idp.env, &properties).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert!(text(&error).contains("https://nobody:8443/token cannot be reached"), "{error}");
}
