//! `sharestream broker control`: one command to a broker in another process.

use sharestream_base::Env;
use sharestream_broker::control::{self, Command, Reply};
use sharestream_broker::metrics::NodeMetrics;

use crate::args::{ControlAction, ControlArgs};
use crate::exit::Exit;
use crate::output;

/// Sends the command and prints what became of it.
pub(super) async fn run(env: &Env, args: ControlArgs) -> anyhow::Result<Exit> {
    let command = command_of(args.action);
    let reply = control::ask(env, &args.control, &command).await?;
    if args.json {
        output::line(&serde_json::to_string(&reply)?);
    } else if let Some(error) = &reply.error {
        eprintln!("error: {error}");
    } else {
        print(&reply);
    }
    Ok(if reply.ok { Exit::Done } else { Exit::Failed })
}

fn command_of(action: ControlAction) -> Command {
    match action {
        ControlAction::Status => Command::Status,
        ControlAction::Metrics => Command::Metrics,
        ControlAction::MoveLeader { topic, partition, node } => {
            Command::MoveLeader { topic, partition, node }
        }
        ControlAction::StopNode { node } => Command::StopNode { node },
        ControlAction::KillNode { node } => Command::KillNode { node },
        ControlAction::StartNode { node } => Command::StartNode { node },
        ControlAction::PauseNode { node } => Command::PauseNode { node },
        ControlAction::ResumeNode { node } => Command::ResumeNode { node },
        ControlAction::FailOver { node } => Command::FailOver { node },
    }
}

fn print(reply: &Reply) {
    if !reply.metrics.is_empty() {
        return output::line(&metrics(&reply.metrics));
    }
    for node in &reply.nodes {
        let leads = output::thousands(node.leads as u64);
        output::line(&format!(
            "node {} at {} is {} and leads {leads} partitions",
            node.node, node.address, node.state
        ));
    }
    if let Some(count @ 1..) = reply.leaderless {
        output::line(&format!("{} partitions have no leader", output::thousands(count as u64)));
    }
    if let Some(epoch) = reply.leader_epoch {
        output::line(&format!("done; the leader epoch is {epoch}"));
    } else if let Some(moved) = reply.moved {
        output::line(&format!("done; {} partitions have another leader", output::thousands(moved as u64)));
    } else if reply.nodes.is_empty() {
        output::line("done");
    }
}

/// One row for each node; times in milliseconds.
fn metrics(nodes: &[NodeMetrics]) -> String {
    let header = [
        "node",
        "staged",
        "stages",
        "p50 ms",
        "p99 ms",
        "lock expired",
        "letters",
        "failed letters",
        "markers",
    ];
    let rows = nodes.iter().map(|node| {
        let latency = node.txn_share_acknowledge_request_latency_ms;
        vec![
            node.node.to_string(),
            output::thousands(node.txn_pending_records_count),
            output::thousands(latency.count),
            format!("{:.1}", latency.p50_ms),
            format!("{:.1}", latency.p99_ms),
            output::thousands(node.txn_pending_lock_expired_count),
            output::thousands(node.dead_letters_written_count),
            output::thousands(node.dead_letters_failed_count),
            output::thousands(node.txn_remembered_markers_count),
        ]
    });
    output::table(&header, rows.collect())
}
