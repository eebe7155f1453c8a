//! The brokers of a run.

use std::sync::Arc;

use sharestream_base::{Clock, Env, Spawner};
use sharestream_broker::{Broker, BrokerConfig, RunningBroker};

use super::{START_MS, World};
use crate::network::Host;
use crate::plan::MovedTopic;
use crate::process::ProcessGate;

struct NodeSlot {
    host: Host,
    gate: Arc<ProcessGate>,
    clock: Clock,
    broker: RunningBroker,
}

/// All nodes.
pub(super) struct Nodes {
    count: usize,
    slots: Vec<NodeSlot>,
}

const PORT: u16 = 9_092;

impl Nodes {
    pub(super) fn new(_count: usize) -> Self {
        Nodes { count: 1, slots: Vec::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn bootstrap(&self) -> Vec<String> {
        (0..self.count).map(|index| format!("node-{}:{PORT}", index + 1)).collect()
    }

    pub(super) fn host(&self, node: usize) -> Host {
        Arc::from(format!("node-{}", node % self.count + 1))
    }

    pub(super) fn pause(&self, node: usize) {
        if let Some(slot) = self.slots.get(node % self.count) {
            slot.gate.pause();
        }
    }

    pub(super) fn resume(&self, node: usize) {
        if let Some(slot) = self.slots.get(node % self.count) {
            slot.gate.resume();
        }
    }

    pub(super) fn fail_over(&mut self, _node: usize) {}

    pub(super) fn move_leader(&mut self, _topic: MovedTopic, _partition: i32) {}

    pub(super) fn step_clock(&self, node: usize, by_ms: i64) {
        if let Some(slot) = self.slots.get(node % self.count) {
            slot.clock.step_wall(by_ms);
        }
    }

    pub(super) async fn shut_down(self) {
        for slot in self.slots {
            slot.gate.resume();
            slot.broker.shutdown().await;
        }
    }
}

impl World {
    pub(super) async fn start_nodes(&mut self) {
        for index in 0..self.nodes.count {
            let host = self.nodes.host(index);
            let gate = self.gate();
            let clock = Clock::simulated(START_MS);
            let env = Env {
                clock: clock.clone(),
                rng: self.rng.fork(&host),
                network: self.fabric.attach(Arc::clone(&host)),
                spawner: Spawner::gated(gate.clone()),
            };
            let config = BrokerConfig { host: host.to_string(), port: PORT, ..BrokerConfig::default() };
            let broker = Broker::builder(env).config(config).start().await;
            let broker = broker.expect("a simulated address is free");
            self.nodes.slots.push(NodeSlot { host, gate, clock, broker });
        }
    }

    pub(super) async fn start_node(&mut self, _node: usize) {}

    pub(super) fn kill_node(&mut self, _node: usize) {}
}
