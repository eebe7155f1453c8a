//! Moves from outside the process: one JSON object a line each way over a connection of its own.
//!
//! ```text
//! -> {"do":"move_leader","topic":"orders","partition":0,"node":2}
//! <- {"ok":true,"leader_epoch":5}
//! -> {"do":"stop_node","node":9}
//! <- {"ok":false,"error":"the cluster has no node 9"}
//! -> {"do":"status"}
//! <- {"ok":true,"nodes":[{"node":1,"address":"127.0.0.1:49092","state":"up","leads":27}],"leaderless":0}
//! ```
//! Whoever reaches the port may do everything: it belongs on loopback. A line that is no command is answered with an
//! error and closes the connection.

use std::time::Duration;

use bytes::BytesMut;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use sharestream_base::ids::{NodeId, PartitionIndex};
use sharestream_base::{BoxIo, Env, ErrorKind, HostPort, Listener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::warn;

use crate::broker_cluster::BrokerCluster;
use crate::error::{Error, Result};
use crate::metrics::NodeMetrics;

/// Longest line in either direction, in bytes.
const LINE_BYTES_MAX: usize = 1024 * 1024;
/// Connections at a time; more wait in the listener.
const CONNECTIONS_MAX: usize = 16;
/// Longest wait for an answer: stopping a node waits for its tasks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Nodes, and how much each leads.
    Status,
    /// What each running node counts.
    Metrics,
    /// See [`BrokerCluster::move_leader`].
    MoveLeader {
        /// Topic by name; the broker's own ones move coordinators.
        topic: String,
        /// Partition of it.
        partition: i32,
        /// Who shall lead.
        node: i32,
    },
    /// See [`BrokerCluster::stop_node`].
    StopNode {
        /// Which.
        node: i32,
    },
    /// See [`BrokerCluster::kill_node`].
    KillNode {
        /// Which.
        node: i32,
    },
    /// See [`BrokerCluster::start_node`].
    StartNode {
        /// Which.
        node: i32,
    },
    /// See [`BrokerCluster::pause_node`].
    PauseNode {
        /// Which.
        node: i32,
    },
    /// See [`BrokerCluster::resume_node`].
    ResumeNode {
        /// Which.
        node: i32,
    },
    /// See [`BrokerCluster::fail_over`].
    FailOver {
        /// Which.
        node: i32,
    },
}

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// It is done.
    pub ok: bool,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of `move_leader`: the new leader epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_epoch: Option<i32>,
    /// Of `fail_over`: partitions that moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<usize>,
    /// Of `status`: every node, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeStatus>,
    /// Of `metrics`: every running node, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<NodeMetrics>,
    /// Of `status`: partitions that nobody leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaderless: Option<usize>,
}

/// A node of `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its id.
    pub node: i32,
    /// Where it listens, or would.
    pub address: String,
    /// `up`, `paused` or `down`.
    pub state: String,
    /// Partitions that it leads, the broker's own included.
    pub leads: usize,
}

impl Reply {
    fn done() -> Reply {
        Reply { ok: true, ..Reply::default() }
    }

    fn refused(error: impl ToString) -> Reply {
        Reply { error: Some(error.to_string()), ..Reply::default() }
    }
}

/// Does what is asked. Not cancel safe, as the calls that it makes.
pub async fn execute(cluster: &BrokerCluster, command: &Command) -> Reply {
    let result = match command {
        Command::Status => return status(cluster),
        Command::Metrics => return Reply { metrics: cluster.metrics(), ..Reply::done() },
        Command::MoveLeader { topic, partition, node } => {
            match cluster.move_leader(topic, PartitionIndex(*partition), NodeId(*node)) {
                Ok(epoch) => return Reply { leader_epoch: Some(epoch.0), ..Reply::done() },
                Err(error) => Err(error),
            }
        }
        Command::FailOver { node } => match cluster.fail_over(NodeId(*node)) {
            Ok(moved) => return Reply { moved: Some(moved), ..Reply::done() },
            Err(error) => Err(error),
        },
        Command::StopNode { node } => cluster.stop_node(NodeId(*node)).await,
        Command::KillNode { node } => cluster.kill_node(NodeId(*node)).await,
        Command::StartNode { node } => cluster.start_node(NodeId(*node)).await,
        Command::PauseNode { node } => cluster.pause_node(NodeId(*node)),
        Command::ResumeNode { node } => cluster.resume_node(NodeId(*node)),
    };
    match result {
        Ok(()) => Reply::done(),
        Err(error) => Reply::refused(error),
    }
}

fn status(cluster: &BrokerCluster) -> Reply {
    let partitions = cluster.partitions();
    let leads = |node: NodeId| partitions.iter().filter(|view| view.leader == Some(node)).count();
    let nodes = cluster.nodes().into_iter().map(|node| NodeStatus {
        node: node.0,
        address: cluster.address(node).map_or_else(String::new, |address| address.to_string()),
        state: match cluster.is_paused(node) {
            None => "down",
            Some(true) => "paused",
            Some(false) => "up",
        }
        .to_owned(),
        leads: leads(node),
    });
    let leaderless = partitions.iter().filter(|view| view.leader.is_none()).count();
    Reply { nodes: nodes.collect(), leaderless: Some(leaderless), ..Reply::done() }
}

/// Serves everybody who connects, until it is dropped. Commands of one connection are done in their order, those of
/// several beside each other, but two that start or end nodes wait for each other.
pub async fn serve(env: &Env, cluster: &BrokerCluster, mut listener: Box<dyn Listener>) {
    let turn = tokio::sync::Mutex::new(());
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(()) = connections.next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((io, _peer)) => connections.push(serve_one(cluster, io, &turn)),
                Err(error) => {
                    warn!(%error, "cannot accept a control connection");
                    env.clock.sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
}

async fn serve_one(cluster: &BrokerCluster, mut io: BoxIo, turn: &tokio::sync::Mutex<()>) {
    let mut buffer = BytesMut::new();
    while let Ok(Some(line)) = read_line(&mut io, &mut buffer).await {
        let command = serde_json::from_slice::<Command>(&line);
        let understood = command.is_ok();
        let reply = match command {
            Ok(command) => {
                let _turn = turn.lock().await;
                execute(cluster, &command).await
            }
            Err(error) => Reply::refused(format!("this is no command: {error}")),
        };
        let written = write_line(&mut io, &reply).await;
        if !understood || written.is_err() {
            return;
        }
    }
}

/// Asks a broker in another process, which listens for commands at `address`.
///
/// Errors: Retry (nobody listens there), Indeterminate (no answer: it may or may not be done), Corrupt. Not cancel
/// safe.
pub async fn ask(env: &Env, address: &HostPort, command: &Command) -> Result<Reply> {
    let mut io = env.network.connect(address).await.map_err(|source| {
        let text = format!("no broker listens for commands at {address}");
        Error::new(ErrorKind::Retry, text).with_source(source)
    })?;
    let unanswered = || Error::new(ErrorKind::Indeterminate, format!("{address} did not answer"));
    let exchange = async {
        write_line(&mut io, command).await?;
        read_line(&mut io, &mut BytesMut::new()).await
    };
    let line = env.clock.timeout(ANSWER_TIMEOUT, exchange).await.map_err(|_| unanswered())?;
    let line = line.map_err(|source| unanswered().with_source(source))?.ok_or_else(unanswered)?;
    serde_json::from_slice(&line).map_err(|source| {
        Error::new(ErrorKind::Corrupt, format!("what {address} answers is no reply")).with_source(source)
    })
}

/// The next line without its end; `None` at the end of the stream.
async fn read_line(io: &mut BoxIo, buffer: &mut BytesMut) -> std::io::Result<Option<BytesMut>> {
    loop {
        if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(end);
            let _end_of_line = buffer.split_to(1);
            return Ok(Some(line));
        }
        if buffer.len() > LINE_BYTES_MAX {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        if io.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

async fn write_line(io: &mut BoxIo, line: &impl Serialize) -> std::io::Result<()> {
    let mut bytes = serde_json::to_vec(line).map_err(std::io::Error::other)?;
    bytes.push(b'\n');
    io.write_all(&bytes).await
}

impl BrokerCluster {
    /// Whether a node is paused; `None` when it is down or does not exist.
    pub fn is_paused(&self, node: NodeId) -> Option<bool> {
        let running = self.all_running().into_iter().find(|running| running.id == node)?;
        Some(running.pause.is_paused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::Broker;

    fn command(line: &str) -> Command {
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn commands_read_as_they_are_documented() {
        let moved = Command::MoveLeader { topic: "orders".to_owned(), partition: 0, node: 2 };
        let line = r#"{"do":"move_leader","topic":"orders","partition":0,"node":2}"#;
        assert_eq!(command(line), moved);
        assert_eq!(serde_json::to_string(&moved).unwrap(), line);
        assert_eq!(command(r#"{"do":"status"}"#), Command::Status);
        for bad in [r#"{"do":"explode"}"#, r#"{"do":"stop_node"}"#, r#"{"do":"stop_node","node":1,"x":2}"#] {
            assert!(serde_json::from_str::<Command>(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn nodes_are_moved_over_a_connection() {
        let env = Env::seeded(1);
        let broker = Broker::builder(env.clone()).nodes(3).start().await.unwrap();
        let address = HostPort::new("control", 1);
        let listener = env.network.bind(&address).await.unwrap();
        let ask = async |line: &str| ask(&env, &address, &command(line)).await.unwrap();
        let asking = async {
            let states = async || {
                let nodes = ask(r#"{"do":"status"}"#).await.nodes;
                nodes.into_iter().map(|node| node.state).collect::<Vec<_>>()
            };
            assert_eq!(states().await, ["up", "up", "up"]);
            assert!(ask(r#"{"do":"pause_node","node":2}"#).await.ok);
            assert!(ask(r#"{"do":"kill_node","node":3}"#).await.ok);
            assert_eq!(states().await, ["up", "paused", "down"]);
            assert!(ask(r#"{"do":"status"}"#).await.leaderless.unwrap() > 0);
            assert!(ask(r#"{"do":"fail_over","node":3}"#).await.moved.unwrap() > 0);
            for line in [r#"{"do":"resume_node","node":2}"#, r#"{"do":"start_node","node":3}"#] {
                assert!(ask(line).await.ok);
            }
            assert!(ask(r#"{"do":"stop_node","node":1}"#).await.ok);
            assert!(ask(r#"{"do":"start_node","node":1}"#).await.ok);
            let line = r#"{"do":"move_leader","topic":"__consumer_offsets","partition":0,"node":3}"#;
            assert!(ask(line).await.leader_epoch.unwrap() > 0);
            assert_eq!(broker.cluster().leader("__consumer_offsets", 0.into()), Some(NodeId(3)));
            let refused = ask(r#"{"do":"stop_node","node":9}"#).await;
            assert_eq!((refused.ok, refused.error.as_deref()), (false, Some("the cluster has no node 9")));
            let mut io = env.network.connect(&address).await.unwrap();
            io.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
            let mut answer = String::new();
            io.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(r#"{"ok":false,"error":"this is no command"#), "{answer}");
        };
        tokio::select! {
            () = serve(&env, broker.cluster(), listener) => unreachable!("it serves until it is dropped"),
            () = asking => {}
        }
        broker.shutdown().await;
    }
}
