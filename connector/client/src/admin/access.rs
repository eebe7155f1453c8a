//! What the user of this client may do: the operations that brokers tell (KIP-430), and where they do not, a request that
//! they refuse or find wrong, but never carry out.

use kafka_protocol::messages::{DescribeGroupsRequest, EndTxnRequest, GroupId, ProducerId, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ErrorKind;
use sharestream_wire::KafkaError;

use super::Admin;
use crate::coordinator::CoordinatorKey;
use crate::{Error, Result};

/// Said where operations were not asked for, or are not told.
const NOT_TOLD: i32 = i32::MIN;
/// A producer id that no coordinator has given out: they count up from zero.
const NOBODYS_PRODUCER: i64 = i64::MAX;

/// An operation that an ACL may allow. The numbers are Kafka's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AclOperation {
    /// Fetch from a topic, join a group.
    Read = 3,
    /// Produce to a topic, use a transactional id.
    Write = 4,
    /// Make a topic.
    Create = 5,
    /// See that it is there.
    Describe = 8,
    /// Read its settings.
    DescribeConfigs = 10,
    /// Change its settings.
    AlterConfigs = 11,
}

impl AclOperation {
    /// Kafka's word for it.
    pub fn word(self) -> &'static str {
        match self {
            AclOperation::Read => "Read",
            AclOperation::Write => "Write",
            AclOperation::Create => "Create",
            AclOperation::Describe => "Describe",
            AclOperation::DescribeConfigs => "DescribeConfigs",
            AclOperation::AlterConfigs => "AlterConfigs",
        }
    }
}

/// The operations that the user of this client may do with one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations(i32);

impl Operations {
    /// These and no others.
    pub fn of(operations: &[AclOperation]) -> Self {
        Operations(operations.iter().fold(0, |bits, operation| bits | (1 << *operation as i32)))
    }

    /// As a broker told them; `None` when it did not.
    pub(crate) fn told(bits: i32) -> Option<Self> {
        (bits != NOT_TOLD).then_some(Operations(bits))
    }

    /// Whether this one is allowed.
    pub fn allows(self, operation: AclOperation) -> bool {
        self.0 & (1 << operation as i32) != 0
    }
}

impl Admin {
    /// What we may do with a group, whether it is there or not; `None` when the broker does not tell. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (not even DESCRIBE), `Retry`.
    pub async fn group_operations(&self, group: &str) -> Result<Option<Operations>> {
        let id = GroupId(StrBytes::from_string(group.to_owned()));
        let request =
            DescribeGroupsRequest::default().with_groups(vec![id]).with_include_authorized_operations(true);
        let key = CoordinatorKey::Group(group.to_owned());
        let told = self.client.ask_coordinator(&key, &request, |response| {
            let described = response.groups.first();
            let described = described
                .ok_or_else(|| Error::new(ErrorKind::Retry, format!("no answer about group '{group}'")))?;
            match described.error_code {
                0 => Ok(Operations::told(described.authorized_operations)),
                code => {
                    let error = Error::from_code(code, format_args!("operations on group '{group}'"));
                    Err(self.client.refused(error, &key.access("Describe")))
                }
            }
        });
        told.await
    }

    /// Whether we may write with a transactional id. Brokers list no operations for these, so its coordinator is asked to
    /// abort a transaction of a producer that cannot exist: it looks at the right first, and then finds no such
    /// transaction. Whoever uses the id does not notice. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (not even DESCRIBE), `Retry`.
    pub async fn may_write_transactional_id(&self, transactional_id: &str) -> Result<bool> {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(StrBytes::from_string(transactional_id.to_owned())))
            .with_producer_id(ProducerId(NOBODYS_PRODUCER))
            .with_producer_epoch(0)
            .with_committed(false);
        let key = CoordinatorKey::Transaction(transactional_id.to_owned());
        let asked = self.client.ask_coordinator(&key, &request, |response| {
            match KafkaError(response.error_code) {
                KafkaError::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => Ok(false),
                // The right was there; the rest is as wrong as it was meant to be.
                KafkaError::INVALID_PRODUCER_ID_MAPPING
                | KafkaError::INVALID_PRODUCER_EPOCH
                | KafkaError::PRODUCER_FENCED
                | KafkaError::INVALID_TXN_STATE
                | KafkaError::CONCURRENT_TRANSACTIONS => Ok(true),
                KafkaError::NONE => Err(Error::new(
                    ErrorKind::Bug,
                    format!("a transaction of '{transactional_id}' that cannot exist was ended"),
                )),
                KafkaError(code) => {
                    Err(Error::from_code(code, format_args!("look at transactional id '{transactional_id}'")))
                }
            }
        });
        // Nothing can have been changed, so nothing is unknown.
        asked
            .await
            .map_err(|error| if error.is_retriable() { error.with_kind(ErrorKind::Retry) } else { error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_the_bits_that_kafka_numbers() {
        use AclOperation::{AlterConfigs, Create, Describe, DescribeConfigs, Read, Write};
        let told = Operations::told(1 << 3 | 1 << 8 | 1 << 11).unwrap();
        assert_eq!(told, Operations::of(&[Read, Describe, AlterConfigs]));
        for (operation, is_allowed) in [
            (Read, true),
            (Write, false),
            (Create, false),
            (Describe, true),
            (DescribeConfigs, false),
            (AlterConfigs, true),
        ] {
            assert_eq!(told.allows(operation), is_allowed, "{}", operation.word());
        }
        assert_eq!(Operations::told(i32::MIN), None, "Kafka's word for: not asked for");
        assert_eq!(Operations::told(0), Some(Operations::of(&[])));
    }
}
