//! Three nodes of Apache Kafka: started by the launcher script, found by the part they play, killed, stopped,
//! started again.
//!
//! Clients reach node i through a proxy of their own: each node has a listener `CLIENT` whose advertised port is the
//! proxy's. The brokers talk to each other, and this harness to them, past the proxies.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sharestream_base::ids::{NodeId, PartitionIndex};
use sharestream_base::{Env, HostPort};
use sharestream_client::{Client, ClientConfig};
use tokio::process::{Child, Command};

use crate::proxy::Proxy;

/// Nodes, each broker and controller.
pub(crate) const NODES: u16 = 3;
/// A node that is silent for so long is fenced and its partitions move.
pub(crate) const BROKER_SESSION: Duration = Duration::from_secs(3);
/// Longest wait for a cluster to be whole again.
const WHOLE_WAIT_MAX: Duration = Duration::from_secs(120);

/// What a node does for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Leads partition 0 of the input, and so keeps its locks.
    PartitionLeader,
    /// Coordinates a transactional id of the job.
    TransactionCoordinator,
    /// Keeps the share state of partition 0 of the input.
    ShareCoordinator,
}

/// A running cluster.
pub(crate) struct Cluster {
    /// Time, chance, sockets, tasks.
    pub(crate) env: Env,
    /// A client past the proxies.
    pub(crate) client: Client,
    /// The way of clients to node 1, 2, 3.
    pub(crate) proxies: Vec<Proxy>,
    launcher: PathBuf,
    folder: PathBuf,
    port: u16,
    /// Ends the nodes when its standard input ends: with this process, however that ends.
    _undertaker: Child,
}

impl Cluster {
    /// Starts a cluster of `version`; its nodes take the ports from `port` on, in steps of ten.
    pub(crate) async fn start(launcher: &Path, version: &str, port: u16) -> Cluster {
        let env = Env::system();
        for node in 1..=NODES {
            free(&env, port + 10 * (node - 1)).await;
        }
        let temporary = tempfile::Builder::new().prefix("sharestream-cluster-").tempdir().unwrap();
        // A cluster lives in a static, which is never dropped: the undertaker removes the folder too.
        let folder = temporary.keep();
        let undertaker = Command::new("sh")
            .args(["-c", "cat >/dev/null; \"$0\" down --dir \"$1\"; rm -rf \"$1\""])
            .args([launcher, &folder])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let nodes = NODES.to_string();
        let port_text = port.to_string();
        run(
            launcher,
            &["up", "--version", version, "--nodes", &nodes, "--port", &port_text, "--dir", text(&folder)],
        )
        .await;
        // The launcher knows no second listener, so the nodes start a second time with one.
        for node in 1..=NODES {
            run(launcher, &["kill", "--dir", text(&folder), &node.to_string()]).await;
            let path = folder.join(format!("node{node}.properties"));
            let settings = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, with_client_listener(&settings, client_port(port, node))).unwrap();
        }
        let start = |node: u16| {
            let (launcher, folder) = (launcher.to_owned(), folder.clone());
            async move { run(&launcher, &["start", "--dir", text(&folder), &node.to_string()]).await }
        };
        tokio::join!(start(1), start(2), start(3));
        let mut proxies = Vec::new();
        for node in 1..=NODES {
            let to = HostPort::new("127.0.0.1", client_port(port, node));
            proxies.push(Proxy::start(&env, proxy_port(port, node), to).await);
        }
        let bootstrap = addresses((1..=NODES).map(|node| port + 10 * (node - 1)));
        let client = connect(&env, &bootstrap).await;
        let launcher = launcher.to_owned();
        let cluster = Cluster { env, client, proxies, launcher, folder, port, _undertaker: undertaker };
        cluster.whole().await;
        cluster
    }

    /// Brokers for clients: the proxies.
    pub(crate) fn bootstrap(&self) -> String {
        addresses((1..=NODES).map(|node| proxy_port(self.port, node)))
    }

    /// Brokers past the proxies.
    pub(crate) fn direct(&self) -> String {
        addresses((1..=NODES).map(|node| self.port + 10 * (node - 1)))
    }

    /// SIGKILL.
    pub(crate) async fn kill(&self, node: NodeId) {
        self.launcher(&["kill"], node).await;
    }

    /// SIGSTOP: the process keeps its sockets and answers nothing.
    pub(crate) async fn pause(&self, node: NodeId) {
        self.launcher(&["pause"], node).await;
    }

    /// SIGCONT.
    pub(crate) async fn resume(&self, node: NodeId) {
        self.launcher(&["cont"], node).await;
    }

    /// Starts a killed node and waits until it listens.
    pub(crate) async fn restart(&self, node: NodeId) {
        self.launcher(&["start"], node).await;
    }

    /// Undoes whatever a test that failed has left: stopped nodes run, dead ones are started, proxies forward.
    pub(crate) async fn heal(&self) {
        for proxy in &self.proxies {
            proxy.forward();
        }
        for node in 1..=NODES {
            let pid = std::fs::read_to_string(self.folder.join(format!("node{node}.pid"))).unwrap();
            let node = NodeId(i32::from(node));
            if signal("CONT", pid.trim()).await {
                continue;
            }
            self.restart(node).await;
        }
        self.whole().await;
    }

    /// Waits until every node is there and no partition lacks a replica.
    pub(crate) async fn whole(&self) {
        let deadline = self.env.clock.now() + WHOLE_WAIT_MAX;
        loop {
            let arguments =
                ["--bootstrap-server", &self.direct(), "--describe", "--under-replicated-partitions"];
            let missing = self.tool("TopicCommand", &arguments).await;
            // Asked for afresh: an empty list of topics refreshes the list of brokers too.
            let brokers = match self.client.admin().list_topics().await {
                Ok(_) => self.client.admin().node_count(),
                Err(_) => 0,
            };
            if missing.as_ref().is_ok_and(|missing| missing.trim().is_empty())
                && brokers == usize::from(NODES)
            {
                return;
            }
            assert!(self.env.clock.now() < deadline, "{brokers} brokers, under-replicated: {missing:?}");
            self.env.clock.sleep(Duration::from_millis(500)).await;
        }
    }

    /// The node that plays `part` for a job that reads `topic` in `group` and writes under `transactional_id`.
    pub(crate) async fn node_of(
        &self,
        part: Part,
        topic: &str,
        group: &str,
        transactional_id: &str,
    ) -> NodeId {
        let (log, partition) = match part {
            Part::PartitionLeader => (topic, 0),
            Part::TransactionCoordinator => {
                ("__transaction_state", self.partition_of("__transaction_state", transactional_id).await)
            }
            Part::ShareCoordinator => {
                let topic_id = self.client.fresh_topic(topic).await.unwrap().topic_id;
                let key = format!("{group}:{}:0", kafka_text(topic_id.0.as_bytes()));
                ("__share_group_state", self.partition_of("__share_group_state", &key).await)
            }
        };
        let log = self.client.fresh_topic(log).await.unwrap();
        log.leader(PartitionIndex(partition)).expect("fresh metadata names every leader")
    }

    /// Partition of an internal topic that keeps the state of `key`.
    async fn partition_of(&self, log: &str, key: &str) -> i32 {
        let count = self.client.fresh_topic(log).await.unwrap().partitions.len();
        java_hash(key).checked_abs().unwrap_or(0) % i32::try_from(count).unwrap()
    }

    async fn tool(&self, class: &str, arguments: &[&str]) -> Result<String, String> {
        let arguments = [&["tool", "--dir", text(&self.folder), class], arguments].concat();
        let output = Command::new(&self.launcher).args(&arguments).output().await.unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    async fn launcher(&self, verb: &[&str], node: NodeId) {
        let node = node.0.to_string();
        let arguments = [verb, &["--dir", text(&self.folder), &node]].concat();
        run(&self.launcher, &arguments).await;
    }
}

/// A client that knows these brokers; waits while they start.
pub(crate) async fn connect(env: &Env, bootstrap: &str) -> Client {
    let deadline = env.clock.now() + WHOLE_WAIT_MAX;
    loop {
        let config = ClientConfig::with_bootstrap(bootstrap).unwrap();
        match Client::connect(env.clone(), config).await {
            Ok(client) => return client,
            Err(error) => assert!(env.clock.now() < deadline, "{error}"),
        }
        env.clock.sleep(Duration::from_millis(500)).await;
    }
}

/// Waits until nobody listens on `port`: the cluster of a run before may still be on its way down.
async fn free(env: &Env, port: u16) {
    let deadline = env.clock.now() + WHOLE_WAIT_MAX;
    while env.network.connect(&HostPort::new("127.0.0.1", port)).await.is_ok() {
        assert!(env.clock.now() < deadline, "port {port} is taken");
        env.clock.sleep(Duration::from_millis(500)).await;
    }
}

/// Sends a signal; false when there is no such process.
pub(crate) async fn signal(name: &str, pid: &str) -> bool {
    let kill = Command::new("kill").args([&format!("-{name}"), pid]).stderr(Stdio::null()).status().await;
    kill.unwrap().success()
}

fn client_port(port: u16, node: u16) -> u16 {
    port + 10 * (node - 1) + 5
}

fn proxy_port(port: u16, node: u16) -> u16 {
    port + 10 * (node - 1) + 6
}

fn addresses(ports: impl Iterator<Item = u16>) -> String {
    ports.map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
}

/// The settings with a listener on `port` whose advertised port is the proxy's, and with short time-outs.
fn with_client_listener(settings: &str, port: u16) -> String {
    let mut text = String::new();
    for line in settings.lines() {
        text.push_str(line);
        match line.split_once('=').map_or("", |(key, _)| key) {
            "listeners" => text.push_str(&format!(",CLIENT://127.0.0.1:{port}")),
            "advertised.listeners" => text.push_str(&format!(",CLIENT://127.0.0.1:{}", port + 1)),
            "listener.security.protocol.map" => text.push_str(",CLIENT:PLAINTEXT"),
            _ => {}
        }
        text.push('\n');
    }
    let session_ms = BROKER_SESSION.as_millis();
    text.push_str(&format!("broker.session.timeout.ms={session_ms}\nbroker.heartbeat.interval.ms=500\n"));
    // What the example wants of its group; Kafka 4.2 takes it from the brokers alone.
    text.push_str("group.share.delivery.count.limit=10\n");
    text.push_str("transaction.abort.timed.out.transaction.cleanup.interval.ms=1000\n");
    text
}

/// Runs the launcher; its words explain a failure.
async fn run(launcher: &Path, arguments: &[&str]) {
    let output = Command::new(launcher).args(arguments).stdin(Stdio::null()).output().await;
    let output = output.unwrap_or_else(|error| panic!("cannot run {}: {error}", launcher.display()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {}: {said}", launcher.display(), arguments.join(" "));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Java's `String.hashCode` for ASCII: it decides which partition of an internal topic keeps what.
fn java_hash(text: &str) -> i32 {
    text.bytes().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)))
}

/// Kafka's text for an id: base64 with `-` and `_`, without padding.
fn kafka_text(id: &[u8; 16]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let number = u128::from_be_bytes(*id);
    let digit = |shift: u32| char::from(DIGITS[usize::try_from((number >> shift) & 63).unwrap()]);
    let mut text: String = (0..21).map(|index| digit(122 - 6 * index)).collect();
    // The last two bits stand at the left of their digit.
    text.push(char::from(DIGITS[usize::try_from((number & 3) << 4).unwrap()]));
    text
}

#[test]
fn kafkas_texts_and_hashes_are_as_kafka_makes_them() {
    // `Uuid.METADATA_TOPIC_ID` is 1, and Kafka prints it so.
    assert_eq!(kafka_text(&1u128.to_be_bytes()), "AAAAAAAAAAAAAAAAAAAAAQ");
    // The example of the documentation of `String.hashCode`: s[0]*31^(n-1) + ... + s[n-1].
    assert_eq!(java_hash("hello"), 99_162_322);
}
