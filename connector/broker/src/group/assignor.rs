//! Who fetches from which partitions.
//!
//! A share group needs no exclusive owners. Every member is assigned every partition of its topics: with the few
//! members of an embedded broker that keeps all of them busy whatever the skew, at the price of more fetches. Kafka's
//! own assignor ("simple") spreads large groups; clients cannot tell the difference.

use std::collections::{BTreeMap, BTreeSet};

use sharestream_base::ids::TopicId;

/// Name shown by ShareGroupDescribe: the one that Kafka uses.
pub(crate) const NAME: &str = "simple";

/// What the assignor knows of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicShape {
    /// Its id.
    pub(crate) id: TopicId,
    /// Number of partitions.
    pub(crate) partitions: i32,
}

/// Assigned partitions of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AssignedTopic {
    /// Its id.
    pub(crate) id: TopicId,
    /// Its name.
    pub(crate) name: String,
    /// The partitions.
    pub(crate) partitions: Vec<i32>,
}

/// What a member is assigned.
pub(crate) type Assignment = Vec<AssignedTopic>;

/// All partitions of the topics that exist.
pub(crate) fn assign(topics: &BTreeSet<String>, shapes: &BTreeMap<String, TopicShape>) -> Assignment {
    let existing = topics.iter().filter_map(|name| Some((name, shapes.get(name)?)));
    existing
        .map(|(name, shape)| AssignedTopic {
            id: shape.id,
            name: name.clone(),
            partitions: (0..shape.partitions).collect(),
        })
        .collect()
}
