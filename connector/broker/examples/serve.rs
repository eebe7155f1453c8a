//! Starts the embedded broker and serves until it is killed: `cargo run -p sharestream-broker --example serve 9092`.

use sharestream_base::{CancellationToken, Env};
use sharestream_broker::{Broker, BrokerConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map_or(Ok(9092), |text| text.parse())?;
    let config = BrokerConfig { port, auto_create_topics: true, ..BrokerConfig::default() };
    let broker = Broker::builder(Env::system()).config(config).start().await?;
    println!("listening on {}", broker.bootstrap());
    CancellationToken::new().cancelled().await;
    Ok(())
}
