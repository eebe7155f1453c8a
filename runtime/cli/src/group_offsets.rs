//! Where a share group stands, also before anybody has joined it.

use sharestream_base::ErrorKind;
use sharestream_client::{Client, ShareGroupOffset};

/// What the brokers say of `group` in each partition of `topics`; nothing of a group that nobody has joined yet.
pub(crate) async fn of_group(
    client: &Client,
    group: &str,
    topics: &[String],
) -> anyhow::Result<Vec<ShareGroupOffset>> {
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    match client.admin().describe_share_group_offsets(group, &topics).await {
        Ok(described) => Ok(described),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
