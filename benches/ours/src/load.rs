//! Load without end, for runs that show whether memory stays flat.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use sharestream_base::Env;
use sharestream_client::{Producer, WriterConfig};

use crate::Brokers;

/// `load`.
#[derive(Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    brokers: Brokers,
    /// Topic to write to
    #[arg(long)]
    topic: String,
    /// File with one record per line; it is written again and again
    #[arg(long)]
    file: PathBuf,
    /// Seconds to go on
    #[arg(long)]
    seconds: u64,
    /// Records a second at most
    #[arg(long)]
    rate: u64,
}

/// Records between two looks at the clock.
const PIECE: u64 = 1_000;

/// Writes until the time is up.
pub(crate) async fn run(env: Env, args: LoadArgs) -> anyhow::Result<()> {
    let mut text = Vec::new();
    let path = args.file.display();
    std::fs::File::open(&args.file)
        .and_then(|mut file| file.read_to_end(&mut text))
        .with_context(|| format!("cannot read {path}"))?;
    let client = args.brokers.connect(&env).await?;
    let mut producer = Producer::connect(client, WriterConfig::default()).await?;
    let begin = env.clock.now();
    let end = begin + Duration::from_secs(args.seconds);
    let mut sent = 0;
    loop {
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            producer.send(&args.topic, None, Some(line), &[]).await?;
            sent += 1;
            if sent % PIECE == 0 {
                env.clock.sleep_until(begin + Duration::from_micros(sent * 1_000_000 / args.rate)).await;
                if env.clock.now() >= end {
                    producer.flush().await?;
                    println!("{}", serde_json::json!({ "name": "load", "records": sent }));
                    return Ok(());
                }
            }
        }
    }
}
