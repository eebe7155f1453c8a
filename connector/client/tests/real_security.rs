//! TLS, SASL, re-authentication and ACLs against a real Apache Kafka.
//!
//! Needs `SHARESTREAM_KAFKA_LAUNCHER`, a program that starts one (`up --auth`, `start`, `down`). Without it the test says
//! so and passes, unless `SHARESTREAM_REQUIRE_WITNESSES` is set, as CI does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::certificates::Authority;
use common::logged::Logged;
use sharestream_base::{CancellationToken, Env, ErrorKind, HostPort, Spawner, TaskKind, TaskSet};
use sharestream_client::{
    Client, ClientConfig, Error, Isolation, NewTopic, Producer, SecuritySettings, ShareConsumer,
    ShareConsumerConfig, TransactionConfig, TransactionSession, WriterConfig,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A session lasts so long.
const SESSION: Duration = Duration::from_millis(2_500);
/// Alice may do everything, mallory nothing.
const PASSWORD: &str = "alice-secret";

/// A node and its folder; stopped with the value.
struct Kafka {
    launcher: String,
    dir: tempfile::TempDir,
    port: u16,
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.run(&["down"], &[]);
    }
}

impl Kafka {
    fn start() -> Option<Self> {
        let Ok(launcher) = std::env::var("SHARESTREAM_KAFKA_LAUNCHER") else {
            let needs =
                "skipped: needs SHARESTREAM_KAFKA_LAUNCHER, the program that starts a real Apache Kafka";
            assert!(std::env::var_os("SHARESTREAM_REQUIRE_WITNESSES").is_none(), "{needs}");
            let _unseen = writeln!(std::io::stderr(), "{needs}");
            return None;
        };
        let kafka = Kafka { launcher, dir: tempfile::tempdir().unwrap(), port: free_ports() };
        let port = kafka.port.to_string();
        assert!(kafka.run(&["up", "--auth", "--port", &port], &[]), "Kafka did not start");
        // Nothing is in it yet, so it need not end politely.
        assert!(kafka.run(&["kill"], &["1"]));
        kafka.configure();
        assert!(kafka.run(&["start"], &["1"]), "Kafka did not start again");
        Some(kafka)
    }

    fn run(&self, verb: &[&str], last: &[&str]) -> bool {
        // Its output would hold up the test: the broker inherits it.
        Command::new(&self.launcher)
            .args(verb)
            .args(["--dir", self.dir.path().to_str().unwrap()])
            .args(last)
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap()
            .success()
    }

    /// Short sessions, tokens without signatures, ACLs, and client certificates on the TLS listener.
    fn configure(&self) {
        let file = self.dir.path().join("node1.properties");
        let mut properties = std::fs::read_to_string(&file).unwrap();
        properties =
            properties.replace("SCRAM-SHA-256,SCRAM-SHA-512\n", "SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER\n");
        properties = properties
            .replace("user_alice=\"alice-secret\"", "user_alice=\"alice-secret\" user_mallory=\"m\"");
        let module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
        properties += &format!(
            "connections.max.reauth.ms={}\n\
             authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             super.users=User:ANONYMOUS;User:alice;User:CN=alice\n\
             listener.name.ssl.ssl.client.auth=required\n\
             listener.name.sasl_ssl.oauthbearer.sasl.jaas.config={module} required \
             unsecuredLoginStringClaim_sub=\"broker\";\n",
            SESSION.as_millis()
        );
        std::fs::write(file, properties).unwrap();
    }

    /// Waits until the last of its listeners lets us in: the launcher waits for the first.
    async fn is_ready(&self) {
        let clock = Env::system().clock;
        let deadline = clock.now() + Duration::from_secs(60);
        while let Err(error) = self.log_in("SCRAM-SHA-512", "alice", PASSWORD).await {
            assert!(clock.now() < deadline, "{error}");
            clock.sleep(Duration::from_millis(200)).await;
        }
    }

    fn address(&self, offset: u16) -> String {
        format!("127.0.0.1:{}", self.port + offset)
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("tls/ca.pem")
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    async fn connect(&self, offset: u16, properties: &[(&str, &str)]) -> Result<Client, Error> {
        let ca = self.ca();
        let mut all = BTreeMap::new();
        if properties.iter().any(|(key, value)| *key == "security.protocol" && value.ends_with("SSL")) {
            all.insert("ssl.ca.file".to_owned(), ca.to_str().unwrap().to_owned());
        }
        all.extend(properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        // An empty value leaves a setting out.
        all.retain(|_, value| !value.is_empty());
        let config = ClientConfig::with_bootstrap(&self.address(offset))
            .unwrap()
            .with_connect_timeout(Duration::from_secs(20))
            .with_request_timeout(Duration::from_secs(20))
            .with_operation_timeout(Duration::from_secs(20))
            .with_security(SecuritySettings::from_properties(&all).unwrap());
        Client::connect(Env::system(), config).await
    }

    /// By a user's password.
    async fn log_in(&self, mechanism: &str, user: &str, password: &str) -> Result<Client, Error> {
        let file = self.file(&format!("{mechanism}-{user}-{password}"), password);
        let properties = [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", mechanism),
            ("sasl.username", user),
            ("sasl.password.file", &file),
        ];
        self.connect(3, &properties).await
    }
}

/// Four ports in a row that nobody listens on.
fn free_ports() -> u16 {
    let is_free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    (31_040..31_090).step_by(10).find(|port| (*port..port + 4).all(is_free)).expect("free ports")
}

/// A token without a signature, for `alice`, that is good for `life`.
fn token(life: Duration) -> String {
    let now_s = Env::system().clock.wall_ms() / 1_000;
    let claims = format!(r#"{{"sub":"alice","iat":{now_s},"exp":{}}}"#, now_s + life.as_secs() as i64);
    format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(claims))
}

/// An identity provider that gives such tokens.
async fn provider(folder: &Path) -> (TaskSet<()>, HostPort, PathBuf) {
    let authority = Authority::new(folder, "idp");
    let tls = authority.server("localhost").server_config(None);
    let mut listener = Env::system().network.bind(&HostPort::new("localhost", 0)).await.unwrap();
    let address = listener.local_address();
    let mut tasks = TaskSet::new(&Spawner::system(), CancellationToken::new());
    tasks.spawn("idp", TaskKind::Service, async move {
        while let Ok((io, _peer)) = listener.accept().await {
            let Ok(mut io) = tokio_rustls::TlsAcceptor::from(Arc::clone(&tls)).accept(io).await else {
                continue;
            };
            let mut request = vec![0; 8 * 1024];
            let _length = io.read(&mut request).await;
            let body = format!(r#"{{"access_token":"{}","expires_in":20}}"#, token(Duration::from_secs(20)));
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _gone = io.write_all(answer.as_bytes()).await;
            let _gone = io.shutdown().await;
        }
    });
    (tasks, address, authority.file)
}

/// Writes and reads for longer than two sessions, on connections that must not break.
async fn work(client: Client, name: &str) {
    let name = common::unique(&format!("security-{name}"));
    client.admin().create_topic(NewTopic::new(&name, 1)).await.unwrap();
    let mut producer = Producer::connect(client.clone(), WriterConfig::default()).await.unwrap();
    let clock = Env::system().clock;
    let end = clock.now() + SESSION * 3;
    let mut count = 0;
    while clock.now() < end {
        let value = format!("v{count}");
        producer.send(&name, Some(b"k"), Some(value.as_bytes()), &[]).await.unwrap();
        producer.flush().await.unwrap();
        count += 1;
        clock.sleep(Duration::from_millis(5)).await;
    }
    let read = common::read_values(&client, &name, 0, Isolation::ReadCommitted).await;
    let expected: Vec<String> = (0..count).map(|n| format!("v{n}")).collect();
    assert_eq!(read, expected, "once each, in order");
}

async fn each_way_in_works_through_several_sessions(kafka: &Kafka) {
    let password = kafka.file("password", PASSWORD);
    let first_token = kafka.file("token", &token(Duration::from_secs(60)));
    let client_secret = kafka.file("client-secret", "unused");
    let (_provider, idp, idp_ca) = provider(kafka.dir.path()).await;
    let endpoint = format!("https://{idp}/token");
    let by_password = |mechanism| {
        vec![
            ("sasl.mechanism", mechanism),
            ("sasl.username", "alice"),
            ("sasl.password.file", password.as_str()),
        ]
    };
    let by_file =
        vec![("sasl.mechanism", "OAUTHBEARER"), ("sasl.oauthbearer.token.file", first_token.as_str())];
    let by_oidc = vec![
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.oauthbearer.token.endpoint.url", endpoint.as_str()),
        ("sasl.oauthbearer.token.endpoint.ca.file", idp_ca.to_str().unwrap()),
        ("sasl.oauthbearer.client.id", "me"),
        ("sasl.oauthbearer.client.secret.file", client_secret.as_str()),
    ];
    let ways = [
        ("plain", by_password("PLAIN")),
        ("scram256", by_password("SCRAM-SHA-256")),
        ("scram512", by_password("SCRAM-SHA-512")),
        ("token", by_file),
        ("oidc", by_oidc),
    ];
    let mut working = Vec::new();
    for (name, mut properties) in ways {
        properties.push(("security.protocol", "SASL_SSL"));
        let client = kafka.connect(3, &properties).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        working.push(work(client, name));
    }
    futures::future::join_all(working).await;
}

/// Port behind the first, properties, and words of the error.
type Wrong = (u16, Vec<(&'static str, &'static str)>, &'static [&'static str]);

async fn what_is_wrong_is_said(kafka: &Kafka) {
    let sasl = [("sasl.mechanism", "PLAIN"), ("sasl.username", "alice"), ("sasl.password.env", "PATH")];
    let with = |protocol, more: &[(&'static str, &'static str)]| {
        let mut properties = vec![("security.protocol", protocol)];
        properties.extend_from_slice(more);
        properties
    };
    let cases: [Wrong; 8] = [
        (2, with("PLAINTEXT", &[]), &["speaks TLS", "security.protocol to SSL"]),
        (0, with("SSL", &[]), &["hung up in the TLS handshake", "PLAINTEXT"]),
        (2, with("SSL", &[]), &["want a client certificate", "ssl.certificate.file"]),
        (3, with("SSL", &[]), &["wants SASL", "SASL_SSL", "SCRAM-SHA-512", "OAUTHBEARER"]),
        (0, with("SASL_PLAINTEXT", &sasl), &["takes no SASL", "PLAINTEXT"]),
        (
            3,
            with("SASL_SSL", &[&sasl[..], &[("ssl.ca.file", "")]].concat()),
            &["not in the system's certificate store", "ssl.ca.file"],
        ),
        (
            3,
            with("SASL_SSL", &[&sasl[..], &[("ssl.server.name", "elsewhere")]].concat()),
            &["not for 'elsewhere'", "localhost", "ssl.server.name"],
        ),
        (3, with("SASL_SSL", &sasl), &["refused user 'alice' by PLAIN", "environment variable PATH"]),
    ];
    for (offset, properties, words) in cases {
        said(
            kafka.connect(offset, &properties).await.map(|_client| ()),
            &[&[kafka.address(offset).as_str()], words].concat(),
        );
    }
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let result = kafka.log_in(mechanism, "alice", "wrong").await.map(|_client| ());
        said(result, &["refused user 'alice'", mechanism, "sasl.username"]);
    }
    let expired = kafka.file("expired", &token(Duration::ZERO));
    let properties = [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.oauthbearer.token.file", &expired),
    ];
    said(kafka.connect(3, &properties).await.map(|_client| ()), &["refused the token of file", "expired"]);
}

fn said(result: Result<(), Error>, words: &[&str]) {
    let error = result.unwrap_err();
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "no '{word}' in: {text}");
    }
    assert!(!text.contains(PASSWORD), "{text}");
    println!("{text}");
}

async fn missing_acls_are_named(kafka: &Kafka) {
    let alice = kafka.log_in("PLAIN", "alice", PASSWORD).await.unwrap();
    let topic = common::topic(&alice, "security-acl", 1).await;
    let mallory = kafka.log_in("PLAIN", "mallory", "m").await.unwrap();
    let needs = |operation: &str, resource: &str| {
        format!("'User:mallory' needs an ACL for {operation} on {resource}")
    };
    let result = mallory.topic(&topic).await.map(|_| ());
    said(
        result,
        &["TOPIC_AUTHORIZATION_FAILED", &needs("Describe", &format!("topic '{topic}'")), "kafka-acls --add"],
    );
    let result = mallory.admin().create_topic(NewTopic::new("security-new", 1)).await.map(|_| ());
    said(result, &["TOPIC_AUTHORIZATION_FAILED", &needs("Create", "topic 'security-new'")]);
    let mut session =
        TransactionSession::new(mallory.clone(), TransactionConfig::new("security-id")).unwrap();
    let result = session.init().await.map(|_| ());
    said(
        result,
        &["TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "transactional id 'security-id'", "'User:mallory'"],
    );
    let config = ShareConsumerConfig::new("security-group", [topic.as_str()]);
    let result = match ShareConsumer::join(mallory.clone(), config).await {
        Err(error) => Err(error),
        Ok(mut consumer) => consumer.poll().await.map(|_| ()),
    };
    said(result, &["AUTHORIZATION_FAILED", "'User:mallory' needs an ACL for"]);
}

async fn a_client_certificate_is_who_we_are(kafka: &Kafka) {
    // The launcher's own authority issues it, by the tool that made the authority.
    let tls = kafka.dir.path().join("tls");
    let script = "openssl req -newkey rsa:2048 -nodes -subj /CN=alice -keyout alice.key -out alice.csr && \
                  echo basicConstraints=CA:FALSE > extensions && \
                  openssl x509 -req -in alice.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                  -extfile extensions -out alice.pem";
    let made = Command::new("sh").args(["-c", script]).current_dir(&tls).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let (certificate, key) = (tls.join("alice.pem"), tls.join("alice.key"));
    let properties = [
        ("security.protocol", "SSL"),
        ("ssl.certificate.file", certificate.to_str().unwrap()),
        ("ssl.key.file", key.to_str().unwrap()),
    ];
    let client = kafka.connect(2, &properties).await.unwrap();
    common::topic(&client, "security-certificate", 1).await;
}

#[tokio::test]
async fn security_works_against_apache_kafka() {
    let Some(kafka) = Kafka::start() else { return };
    kafka.is_ready().await;
    let logged = Logged::default();
    // All of it runs on this thread.
    let logging = tracing::subscriber::set_default(logged.subscriber().finish());
    each_way_in_works_through_several_sessions(&kafka).await;
    let log = logged.text();
    let renewals = log.matches("authenticated again").count();
    println!("authenticated again {renewals} times");
    assert!(renewals >= 5 * 2 * 2, "five clients with two connections each, two times at least: {renewals}");
    // Connections end when their client does, and not before.
    for bad in [
        "reason=\"the broker",
        "reason=\"cannot",
        "in time",
        "authenticate again yet",
        "not authenticate",
        PASSWORD,
    ] {
        assert!(!log.contains(bad), "'{bad}' in the log: {log}");
    }
    drop(logging);
    a_client_certificate_is_who_we_are(&kafka).await;
    what_is_wrong_is_said(&kafka).await;
    missing_acls_are_named(&kafka).await;
    assert_eq!(ErrorKind::InvalidInput, kafka.log_in("PLAIN", "alice", "wrong").await.unwrap_err().kind());
}
