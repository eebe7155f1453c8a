//! What a job leaves behind at the brokers when it has ended: nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_base::ids::NodeId;
use sharestream_broker::inspect::{
    DurableStateView, GroupView, MemoryStateView, SharePartitionView, TransactionView,
};
use sharestream_broker::{BrokerCluster, ShareDefaults};

use super::{Checker, Finding};
use crate::network::{Fabric, Host};
use crate::plan::Plan;

/// Hosts besides the nodes that still talk to the brokers at the end.
const OUTSIDERS: [&str; 4] = ["checker", "reader", "controller", "operator"];
/// What the name of a node begins with.
const NODE_PREFIX: &str = "node-";
/// Most connections from one outsider to one node: those of its client and of the reader that it has open.
const CONNECTIONS_MAX: usize = 4;

/// Everything that may be left, at one moment.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    shares: Vec<SharePartitionView>,
    transactions: Vec<TransactionView>,
    groups: Vec<GroupView>,
    sessions: BTreeMap<NodeId, usize>,
    /// Open connections by who opened them and to whom.
    links: BTreeMap<(Host, Host), usize>,
}

/// Longest time from the end of the last worker until its traces are gone: a process that was killed gives nothing
/// back, so its membership lasts for a session time-out and its locks for their duration.
pub(crate) fn longest(plan: &Plan) -> Duration {
    ShareDefaults::default().session_timeout.max(plan.group.lock_duration) + Duration::from_secs(5)
}

impl Remains {
    /// Looks at members, sessions and connections, which cost little; at the logs only when nothing of those is left,
    /// or when it is the last look.
    pub(crate) fn of(cluster: &BrokerCluster, fabric: &Fabric, is_last: bool) -> Self {
        let mut remains = Remains {
            groups: cluster.groups(),
            sessions: cluster.share_session_counts(),
            links: fabric.links(),
            ..Remains::default()
        };
        if is_last || remains.list().is_empty() {
            remains.shares = cluster.share_partitions();
            remains.transactions = cluster.transactions();
        }
        remains
    }

    /// What must not be there after the workers have ended, in words.
    pub(crate) fn list(&self) -> Vec<String> {
        let mut left = self.records();
        for view in self.transactions.iter().filter(|view| view.is_open()) {
            left.push(format!("transaction {} is {}", view.transactional_id, view.state));
        }
        for view in &self.groups {
            for (member, epoch) in &view.members {
                left.push(format!("member {member} of group {} is there, at epoch {epoch}", view.group));
            }
        }
        for (node, count) in self.sessions.iter().filter(|(_, count)| **count > 0) {
            left.push(format!("node {node} has {count} open share sessions"));
        }
        left.extend(self.links.iter().filter_map(|((from, to), count)| link_fault(from, to, *count)));
        left
    }

    /// Records that somebody holds.
    fn records(&self) -> Vec<String> {
        let mut left = Vec::new();
        for view in &self.shares {
            let name = format!("share partition {} of {}", view.partition, view.group);
            for run in &view.runs {
                if let DurableStateView::TxnPending(staged) = run.state {
                    left.push(format!(
                        "{name}: {} to {} are durably pending in the transaction of producer {} epoch {}",
                        run.first, run.last, staged.producer_id, staged.producer_epoch
                    ));
                }
            }
            for run in view.memory.iter().flat_map(|memory| &memory.runs) {
                let is_held = match run.state {
                    MemoryStateView::Acquired { .. }
                    | MemoryStateView::Settling
                    | MemoryStateView::Staging(_)
                    | MemoryStateView::Archiving
                    | MemoryStateView::TxnPending(_) => true,
                    MemoryStateView::Available
                    | MemoryStateView::Acknowledged
                    | MemoryStateView::Archived => false,
                };
                if is_held {
                    left.push(format!("{name}: {} to {} are {:?}", run.first, run.last, run.state));
                }
            }
        }
        left
    }
}

fn link_fault(from: &Host, to: &Host, count: usize) -> Option<String> {
    let is_node = |host: &Host| host.starts_with(NODE_PREFIX);
    let is_outsider = OUTSIDERS.contains(&&**from);
    if !is_node(to) || !(is_outsider || is_node(from)) {
        return Some(format!("{count} connections from {from} to {to} are open, and {from} has ended"));
    }
    // Nodes keep idle connections to each other, as many as they ever needed at once.
    (is_outsider && count > CONNECTIONS_MAX)
        .then(|| format!("{count} connections from {from} to {to} are open: it needs {CONNECTIONS_MAX}"))
}

/// One finding for each thing that is left.
pub(crate) fn findings(left: Vec<String>, waited: Duration) -> Vec<Finding> {
    let text = |left: String| format!("{} s after the workers ended: {left}", waited.as_secs());
    left.into_iter().map(|left| Finding::new(Checker::Ending, text(left))).collect()
}

#[cfg(test)]
mod tests;
