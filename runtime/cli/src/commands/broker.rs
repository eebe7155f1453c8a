//! `sharestream broker`: the embedded broker in a process of its own.

use sharestream_base::Env;
use sharestream_broker::{Broker, BrokerConfig, RunningBroker};

use crate::args::BrokerArgs;
use crate::exit::Exit;
use crate::output;
use crate::signals::{StopSignals, parent_gone};

/// Serves until Ctrl-C, SIGTERM or the end of the parent.
pub(crate) async fn run(env: Env, args: BrokerArgs) -> anyhow::Result<Exit> {
    let mut signals = StopSignals::listen()?;
    let config = BrokerConfig {
        host: args.host,
        port: args.port,
        auto_create_topics: args.auto_create_topics,
        default_partitions: args.partitions,
        ..BrokerConfig::default()
    };
    let broker = start(env, config).await?;
    if args.json {
        output::line(
            &serde_json::json!({ "event": "listening", "bootstrap": broker.bootstrap() }).to_string(),
        );
    } else {
        output::line(&format!("listening on {}", broker.bootstrap()));
        output::line("for development and tests: records live in memory, until Ctrl-C");
    }
    if args.with_parent {
        let (gone, _watch) = parent_gone();
        tokio::select! {
            () = signals.next() => {}
            () = gone.cancelled() => {}
        }
    } else {
        signals.next().await;
    }
    broker.shutdown().await;
    Ok(Exit::Done)
}

/// Starts a broker in this process.
pub(crate) async fn start(env: Env, config: BrokerConfig) -> anyhow::Result<RunningBroker> {
    Ok(Broker::builder(env).config(config).start().await?)
}
