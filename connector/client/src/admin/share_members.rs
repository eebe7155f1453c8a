//! Members of a share group (KIP-932).

use kafka_protocol::messages::{GroupId, ShareGroupDescribeRequest};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ErrorKind;
use sharestream_wire::KafkaError;

use super::Admin;
use crate::coordinator::CoordinatorKey;
use crate::{Error, Result};

impl Admin {
    /// How many members a share group has; none when there is no such group. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (not allowed), `Retry`.
    pub async fn share_group_member_count(&self, group: &str) -> Result<usize> {
        let id = GroupId(StrBytes::from_string(group.to_owned()));
        let request = ShareGroupDescribeRequest::default().with_group_ids(vec![id]);
        let key = CoordinatorKey::Group(group.to_owned());
        let mut backoff = self.client.backoff();
        loop {
            let attempt = async {
                let response = self.client.coordinator(&key).await?.call(&request).await?;
                let described = response.groups.first();
                let described = described.ok_or_else(|| {
                    Error::new(ErrorKind::Retry, format!("no answer about group '{group}'"))
                })?;
                match described.error_code {
                    0 => Ok(described.members.len()),
                    code if code == KafkaError::GROUP_ID_NOT_FOUND.0 => Ok(0),
                    code => Err(Error::from_code(code, format_args!("describe share group '{group}'"))),
                }
            };
            match attempt.await {
                Ok(count) => return Ok(count),
                Err(error) if error.is_retriable() => {
                    self.client.reroute(&key, &error);
                    backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
