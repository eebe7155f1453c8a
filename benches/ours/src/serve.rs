//! The embedded broker as a process of its own, in memory: what `sharestream broker` is without the rest of the command,
//! so that it builds without DataFusion.

use anyhow::Context;
use clap::Args;
use sharestream_base::{CancellationToken, Env, HostPort};
use sharestream_broker::{Broker, BrokerConfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::worker::parent_gone;

/// `broker`.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Where the first node listens; further nodes take the next ports
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: HostPort,
    /// Nodes in this process
    #[arg(long, default_value_t = 1)]
    nodes: u16,
    /// End when standard input ends (the parent is gone)
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Serves until SIGTERM or Ctrl-C; the first line says where.
pub(crate) async fn run(env: Env, args: ServeArgs) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let HostPort { host, port } = args.listen;
    let config = BrokerConfig { host, port, ..BrokerConfig::default() };
    let broker = Broker::builder(env).config(config).nodes(args.nodes).start().await?;
    println!("{}", serde_json::json!({ "event": "listening", "bootstrap": broker.bootstrap() }));
    let (parent, _watch) = if args.with_parent {
        let (token, watch) = parent_gone();
        (token, Some(watch))
    } else {
        (CancellationToken::new(), None)
    };
    tokio::select! {
        () = parent.cancelled() => {}
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    broker.shutdown().await;
    Ok(())
}
