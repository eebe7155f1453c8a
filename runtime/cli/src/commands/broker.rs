//! `sharestream broker`: the embedded broker in a process of its own, and commands to one.

use sharestream_base::{Env, HostPort, Listener};
use sharestream_broker::{Broker, BrokerConfig, RunningBroker, control};

use crate::args::{BrokerArgs, BrokerCommand};
use crate::exit::Exit;
use crate::output;
use crate::signals::{StopSignals, parent_gone};

mod moves;

/// Serves until Ctrl-C, SIGTERM or the end of the parent; or sends a command to a broker that serves.
pub(crate) async fn run(env: Env, args: BrokerArgs) -> anyhow::Result<Exit> {
    if let Some(BrokerCommand::Control(args)) = args.command {
        return moves::run(&env, args).await;
    }
    let mut signals = StopSignals::listen()?;
    let config = BrokerConfig {
        host: args.host.unwrap_or(args.listen.host),
        port: args.port.unwrap_or(args.listen.port),
        auto_create_topics: args.auto_create_topics,
        default_partitions: args.partitions,
        data: args.data,
        fsync: args.fsync,
        ..BrokerConfig::default()
    };
    let control = match &args.control {
        Some(address) => Some(listen(&env, address).await?),
        None => None,
    };
    let keeps = config.data.as_ref().map(|folder| format!("{} (fsync {})", folder.display(), config.fsync));
    let broker = Broker::builder(env.clone()).config(config).nodes(args.nodes).start().await?;
    let control_address = control.as_ref().map(|listener| listener.local_address().to_string());
    if args.json {
        let event = serde_json::json!({
            "event": "listening",
            "bootstrap": broker.bootstrap(),
            "nodes": broker.addresses().iter().map(|(_, address)| address.to_string()).collect::<Vec<_>>(),
            "control": control_address,
        });
        output::line(&event.to_string());
    } else {
        output::line(&format!("listening on {}", broker.bootstrap()));
        if let Some(address) = control_address {
            output::line(&format!("taking commands of `sharestream broker control` on {address}"));
        }
        match keeps {
            Some(folder) => output::line(&format!("for development and tests: records are kept in {folder}")),
            None => output::line("for development and tests: records live in memory, until Ctrl-C"),
        }
    }
    let serving = async {
        match control {
            Some(listener) => control::serve(&env, broker.cluster(), listener).await,
            None => std::future::pending().await,
        }
    };
    let stopped = async {
        if args.with_parent {
            let (gone, _watch) = parent_gone();
            tokio::select! {
                () = signals.next() => {}
                () = gone.cancelled() => {}
            }
        } else {
            signals.next().await;
        }
    };
    tokio::select! {
        () = stopped => {}
        () = serving => {}
    }
    broker.shutdown().await;
    Ok(Exit::Done)
}

async fn listen(env: &Env, address: &HostPort) -> anyhow::Result<Box<dyn Listener>> {
    let listener = env.network.bind(address).await;
    listener.map_err(|error| anyhow::anyhow!("cannot listen for commands on {address}: {error}"))
}

/// Starts a broker in this process.
pub(crate) async fn start(env: Env, config: BrokerConfig) -> anyhow::Result<RunningBroker> {
    Ok(Broker::builder(env).config(config).start().await?)
}
