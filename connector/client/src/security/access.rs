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

/// What is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource<'a> {
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
