//! The brokers of a run.

use std::sync::Arc;

use sharestream_base::ids::{NodeId, PartitionIndex};
use sharestream_base::{Clock, Env, HostPort, Spawner};
use sharestream_broker::{BrokerCluster, BrokerConfig, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC};

use super::{START_MS, World};
use crate::network::Host;
use crate::plan::MovedTopic;
use crate::process::ProcessGate;
use crate::workload::{OUTCOMES, OUTPUT, SOURCE};

const PORT: u16 = 9_092;

/// What a running node has outside of the broker.
struct NodeProcess {
    gate: Arc<ProcessGate>,
    clock: Clock,
}

/// All nodes.
pub(super) struct Nodes {
    cluster: BrokerCluster,
    processes: Vec<Option<NodeProcess>>,
    incarnations: u64,
}

impl Nodes {
    pub(super) fn count(&self) -> usize {
        self.processes.len()
    }

    pub(super) fn cluster(&self) -> &BrokerCluster {
        &self.cluster
    }

    pub(super) fn bootstrap(&self) -> Vec<String> {
        (0..self.count()).map(|index| format!("{}:{PORT}", host_of(index))).collect()
    }

    pub(super) fn host(&self, node: usize) -> Host {
        host_of(node)
    }

    pub(super) fn pause(&self, node: usize) {
        if let Some(process) = &self.processes[node] {
            process.gate.pause();
        }
    }

    pub(super) fn resume(&self, node: usize) {
        if let Some(process) = &self.processes[node] {
            process.gate.resume();
        }
    }

    /// Others take over what a dead node led.
    pub(super) fn fail_over(&self, node: usize) {
        if self.processes[node].is_none() {
            // Only a node that came back in between refuses.
            let _moved = self.cluster.fail_over(id_of(node));
        }
    }

    /// The partition, or all of them, goes to the next live node, or to the same one under the next leader epoch.
    pub(super) fn move_leader(&self, topic: MovedTopic, partition: Option<i32>) {
        let topic = match topic {
            MovedTopic::Source => SOURCE,
            MovedTopic::Output => OUTPUT,
            MovedTopic::Outcome => OUTCOMES,
            MovedTopic::ShareState => SHARE_STATE_TOPIC,
            MovedTopic::TransactionState => TRANSACTION_STATE_TOPIC,
        };
        let partitions: Vec<_> =
            self.cluster.partitions().into_iter().filter(|it| it.topic == topic).collect();
        let live = self.cluster.live_nodes();
        let Some(count) = std::num::NonZeroUsize::new(partitions.len()) else { return };
        let moved = match partition {
            Some(partition) => {
                let index = usize::try_from(partition).unwrap_or(0) % count;
                &partitions[index..=index]
            }
            None => &partitions[..],
        };
        for view in moved {
            let later = live.iter().find(|node| Some(**node) > view.leader);
            if let Some(next) = later.or(live.first()) {
                // The partition exists and the node is alive, so nothing can refuse.
                let _epoch = self.cluster.move_leader(topic, PartitionIndex(view.partition.0), *next);
            }
        }
    }

    pub(super) fn step_clock(&self, node: usize, by_ms: i64) {
        if let Some(process) = &self.processes[node] {
            process.clock.step_wall(by_ms);
        }
    }

    pub(super) async fn shut_down(self) {
        for process in self.processes.iter().flatten() {
            process.gate.resume();
        }
        self.cluster.shutdown().await;
    }
}

fn id_of(node: usize) -> NodeId {
    NodeId(i32::try_from(node + 1).unwrap_or(i32::MAX))
}

fn host_of(node: usize) -> Host {
    Arc::from(format!("node-{}", node + 1))
}

impl World {
    /// A cluster with every node down.
    pub(super) fn build_nodes(controller: Env, count: usize) -> Nodes {
        let config = BrokerConfig {
            share_state_partitions: 4,
            transaction_state_partitions: 4,
            ..BrokerConfig::default()
        };
        let mut builder = BrokerCluster::builder(controller.clone()).config(config);
        for index in 0..count {
            // Each start brings the environment of its process; this one is never used.
            let listen = HostPort::new(host_of(index).to_string(), PORT);
            builder = builder.node(id_of(index), listen, controller.clone());
        }
        let cluster = builder.build().expect("the settings of a simulated cluster hold");
        Nodes { cluster, processes: (0..count).map(|_| None).collect(), incarnations: 0 }
    }

    pub(super) async fn start_nodes(&mut self) {
        for index in 0..self.nodes.count() {
            self.start_node(index).await;
        }
    }

    /// Starts a node, unless it runs.
    pub(super) async fn start_node(&mut self, node: usize) {
        if self.nodes.processes[node].is_some() {
            return;
        }
        let gate = self.gate();
        self.nodes.incarnations += 1;
        let rng = self.rng.fork(&format!("node {node} {}", self.nodes.incarnations));
        let skew_ms = i64::try_from(rng.below(2_000)).unwrap_or(0) - 1_000;
        let clock = Clock::simulated(START_MS + self.elapsed_ms() + skew_ms);
        let env = Env {
            clock: clock.clone(),
            rng,
            network: self.fabric.attach(host_of(node)),
            spawner: Spawner::gated(gate.clone()),
        };
        self.traps.watch(host_of(node), Arc::clone(&gate));
        self.nodes.processes[node] = Some(NodeProcess { gate, clock });
        let started = self.nodes.cluster.start_node_in(id_of(node), env).await;
        started.expect("a node that is down can be started: its address is free");
        self.trace.note(format!("{} starts", host_of(node)));
    }

    pub(super) async fn kill_node(&mut self, node: usize) {
        let Some(process) = self.nodes.processes[node].take() else { return };
        process.gate.kill();
        let host = host_of(node);
        self.fabric.reset(|from, _| from == &*host);
        let killed = self.nodes.cluster.kill_node(id_of(node)).await;
        killed.expect("a running node can be killed");
        self.trace.note(format!("{host} is dead"));
    }
}
