//! What to do about a refusal by the brokers' ACLs (KIP-11): which operation on which resource, for whom.

use std::fmt;

use sharestream_wire::KafkaError;

/// What a request needs to be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access<'a> {
    /// Kafka's word for the operation, such as `Read`.
    pub(crate) operation: &'static str,
    /// On what.
    pub(crate) resource: Resource<'a>,
}

/// What is protected by ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// A topic.
    Topic(&'a str),
    /// A group of any type.
    Group(&'a str),
    /// The cluster as a whole.
    Cluster,
    /// A transactional id.
    TransactionalId(&'a str),
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Topic(name) => write!(f, "topic '{name}'"),
            Resource::Group(name) => write!(f, "group '{name}'"),
            Resource::Cluster => f.write_str("the cluster"),
            Resource::TransactionalId(name) => write!(f, "transactional id '{name}'"),
        }
    }
}

/// Who needs which ACL, and the command that gives it. `operation`: Kafka's word, such as `Read`. `principal`: who the client
/// is to the brokers, where that is known.
pub fn acl_advice(operation: &'static str, on: Resource<'_>, principal: Option<&str>) -> String {
    Access { operation, resource: on }.advice(principal)
}

impl<'a> Access<'a> {
    /// An operation on a topic.
    pub(crate) fn topic(operation: &'static str, name: &'a str) -> Self {
        Access { operation, resource: Resource::Topic(name) }
    }

    /// An operation on a group.
    pub(crate) fn group(operation: &'static str, name: &'a str) -> Self {
        Access { operation, resource: Resource::Group(name) }
    }

    /// An operation on a transactional id.
    pub(crate) fn transactional_id(operation: &'static str, name: &'a str) -> Self {
        Access { operation, resource: Resource::TransactionalId(name) }
    }

    /// An operation on the cluster.
    pub(crate) fn cluster(operation: &'static str) -> Self {
        Access { operation, resource: Resource::Cluster }
    }

    /// What to do about a refusal of it. `principal`: who we are to the brokers, where that is known.
    pub(crate) fn advice(&self, principal: Option<&str>) -> String {
        let Access { operation, resource } = self;
        let option = match resource {
            Resource::Topic(name) => format!("--topic '{name}'"),
            Resource::Group(name) => format!("--group '{name}'"),
            Resource::Cluster => "--cluster".to_owned(),
            Resource::TransactionalId(name) => format!("--transactional-id '{name}'"),
        };
        let (who, to) = match principal {
            Some(principal) => (format!("'{principal}'"), principal),
            None => ("this client's user".to_owned(), "User:NAME"),
        };
        format!(
            "{who} needs an ACL for {operation} on {resource} (kafka-acls --add --allow-principal '{to}' --operation \
             {operation} {option})"
        )
    }
}

/// What to do about a refusal where only its code is known; `None` for codes that are none.
pub(crate) fn advice_for(code: KafkaError) -> Option<&'static str> {
    match code {
        KafkaError::TOPIC_AUTHORIZATION_FAILED => Some(
            "this client's user needs an ACL on the topic: Read to consume, Write to produce, Create and Describe to make \
             it",
        ),
        KafkaError::GROUP_AUTHORIZATION_FAILED => {
            Some("this client's user needs an ACL for Read and Describe on the group")
        }
        KafkaError::CLUSTER_AUTHORIZATION_FAILED => Some(
            "this client's user needs an ACL on the cluster: IdempotentWrite to produce, Create to make topics, Describe \
             to list",
        ),
        KafkaError::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => {
            Some("this client's user needs an ACL for Write and Describe on the transactional id")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::ErrorKind;

    use super::*;
    use crate::Error;

    #[test]
    fn a_refusal_names_operation_resource_and_principal_and_is_not_retried() {
        for (code, access, words) in [
            (29, Access::topic("Write", "flights"), ["Write on topic 'flights'", "--topic 'flights'"]),
            (30, Access::group("Read", "late"), ["Read on group 'late'", "--group 'late'"]),
            (31, Access::cluster("IdempotentWrite"), ["IdempotentWrite on the cluster", "--cluster"]),
            (53, Access::transactional_id("Write", "late.0"), ["id 'late.0'", "--transactional-id 'late.0'"]),
        ] {
            let error = Error::from_code(code, "try it");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("needs an ACL"), "without knowing more: {error}");
            let known = error.needing(&access, Some("User:alice")).within("job late").to_string();
            assert!(
                known.starts_with("job late: try it: ") && known.contains("_AUTHORIZATION_FAILED"),
                "{known}"
            );
            for word in words.iter().chain(&["'User:alice' needs an ACL", "kafka-acls --add"]) {
                assert!(known.contains(word), "no '{word}' in: {known}");
            }
            let unknown = Error::from_code(code, "try it").needing(&access, None).to_string();
            assert!(
                unknown.contains("this client's user needs an ACL") && unknown.contains("User:NAME"),
                "{unknown}"
            );
        }
    }

    #[test]
    fn other_errors_get_no_advice_about_acls() {
        let error = Error::from_code(6, "fetch").needing(&Access::topic("Read", "flights"), None);
        assert!(!error.to_string().contains("ACL"), "{error}");
    }
}
