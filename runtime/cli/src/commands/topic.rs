//! `sharestream topic create|list`.

use serde_json::json;
use sharestream_base::{Env, ErrorKind};
use sharestream_client::{Client, ClientConfig, NewTopic, OffsetSpec, SecuritySettings};

use crate::args::{Connection, TopicCommand, TopicCreateArgs, TopicListArgs};
use crate::exit::Exit;
use crate::output;

/// Runs one of the two.
pub(crate) async fn run(env: Env, command: TopicCommand) -> anyhow::Result<Exit> {
    match command {
        TopicCommand::Create(args) => create(env, args).await,
        TopicCommand::List(args) => list(env, args).await,
    }
}

/// A client for the small commands: it gives up early, because a person is waiting.
pub(crate) async fn connect(env: Env, connection: &Connection) -> anyhow::Result<Client> {
    let config = client_config(&connection.brokers, connection.command_config.settings());
    Ok(Client::connect(env, config).await?)
}

/// Settings of every client that this command makes.
pub(crate) fn client_config(
    brokers: &[sharestream_base::HostPort],
    security: SecuritySettings,
) -> ClientConfig {
    let mut config = ClientConfig::default().with_client_id("sharestream-cli").with_security(security);
    config.bootstrap = brokers.to_vec();
    config.with_operation_timeout(std::time::Duration::from_secs(30))
}

async fn create(env: Env, args: TopicCreateArgs) -> anyhow::Result<Exit> {
    let client = connect(env, &args.connection).await?;
    let mut topic = NewTopic::new(&args.name, args.partitions);
    for (key, value) in args.config {
        topic = topic.with_config(key, value);
    }
    let info = client.admin().create_topic(topic).await?;
    output::line(&format!("created topic {} with {} partitions", info.name, info.partitions.len()));
    Ok(Exit::Done)
}

async fn list(env: Env, args: TopicListArgs) -> anyhow::Result<Exit> {
    let client = connect(env, &args.connection).await?;
    let admin = client.admin();
    let mut rows = Vec::new();
    for topic in admin.list_topics().await? {
        let is_internal = topic.name.starts_with("__");
        if is_internal && !args.internal {
            continue;
        }
        let Some((start, end)) = bounds(&client, &topic.name).await? else { continue };
        if args.json {
            let offsets = end - start;
            let line = json!({
                "topic": &*topic.name, "topic_id": topic.topic_id.to_string(),
                "partitions": topic.partitions.len(), "offsets": offsets,
            });
            output::line(&line.to_string());
        } else {
            let partitions = topic.partitions.len().to_string();
            rows.push(vec![
                topic.name.to_string(),
                partitions,
                output::thousands(end - start),
                topic.topic_id.to_string(),
            ]);
        }
    }
    if !args.json {
        // Offsets count control records too, so this is not quite the number of records.
        output::line(&output::table(&["topic", "partitions", "offsets", "topic id"], rows));
    }
    Ok(Exit::Done)
}

/// Sums of the start and end offsets of a topic; `None` when it was deleted since it was listed.
async fn bounds(client: &Client, topic: &str) -> anyhow::Result<Option<(i64, i64)>> {
    let mut sums = [0, 0];
    for (sum, spec) in sums.iter_mut().zip([OffsetSpec::Earliest, OffsetSpec::Latest]) {
        match client.admin().list_offsets(topic, &[], spec).await {
            Ok(offsets) => *sum = offsets.values().map(|offset| offset.0).sum(),
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some((sums[0], sums[1])))
}
