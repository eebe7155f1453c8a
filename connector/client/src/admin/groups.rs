//! Share groups: who is in them, and their end (KIP-932).

use std::sync::Arc;

use kafka_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use kafka_protocol::messages::share_group_describe_response::{DescribedGroup, Member};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteShareGroupOffsetsRequest, GroupId, ListGroupsRequest,
    ShareGroupDescribeRequest,
};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ErrorKind;
use sharestream_base::ids::{MemberEpoch, NodeId, PartitionIndex, TopicId};
use sharestream_wire::KafkaError;

use super::Admin;
use crate::client::topic_name;
use crate::cluster::Purpose;
use crate::coordinator::CoordinatorKey;
use crate::{Error, Result};

/// A share group that a coordinator knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareGroupListing {
    /// Group id.
    pub group_id: String,
    /// State in Kafka's words: `Empty`, `Stable`, `Dead`.
    pub state: String,
    /// The broker that coordinates it.
    pub coordinator: NodeId,
}

/// A group of any type that a coordinator knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupListing {
    /// Group id.
    pub group_id: String,
    /// Type in Kafka's words: `share`, `consumer`, `classic`, `streams`.
    pub kind: String,
    /// State in Kafka's words.
    pub state: String,
}

/// A share group and its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareGroupDescription {
    /// Group id.
    pub group_id: String,
    /// State in Kafka's words.
    pub state: String,
    /// Grows with every change of members or subscriptions.
    pub group_epoch: i32,
    /// Group epoch that the assignment was made for.
    pub assignment_epoch: i32,
    /// Name of the server-side assignor.
    pub assignor: String,
    /// Members, by id.
    pub members: Vec<ShareGroupMember>,
}

/// One member of a share group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareGroupMember {
    /// Member id, chosen by the client.
    pub member_id: String,
    /// Rack, when the member named one.
    pub rack: Option<String>,
    /// Member epoch.
    pub member_epoch: MemberEpoch,
    /// What the client calls itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// Topics subscribed to.
    pub subscribed_topics: Vec<String>,
    /// Partitions assigned, by topic.
    pub assignment: Vec<AssignedPartitions>,
}

/// Partitions of one topic that a member is assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedPartitions {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// Its id.
    pub topic_id: TopicId,
    /// Partitions.
    pub partitions: Vec<PartitionIndex>,
}

impl Admin {
    /// Every share group of the cluster, by id. Cancel safe.
    ///
    /// # Errors
    /// `Retry` when a broker cannot be asked until the deadline: the list would be incomplete.
    pub async fn list_share_groups(&self) -> Result<Vec<ShareGroupListing>> {
        let request =
            ListGroupsRequest::default().with_types_filter(vec![StrBytes::from_static_str("share")]);
        let mut listings = Vec::new();
        for node in self.client.nodes() {
            let mut backoff = self.client.backoff();
            let response = loop {
                let attempt = async {
                    let response = self.client.node(node, Purpose::General).await?.call(&request).await?;
                    match response.error_code {
                        0 => Ok(response),
                        code => Err(Error::from_code(code, format_args!("list groups of broker {node}"))),
                    }
                };
                match attempt.await {
                    Ok(response) => break response,
                    Err(error) if error.is_retriable() => {
                        backoff.wait(error.with_kind(ErrorKind::Retry)).await?;
                    }
                    Err(error) => return Err(error),
                }
            };
            listings.extend(response.groups.iter().map(|group| ShareGroupListing {
                group_id: group.group_id.to_string(),
                state: group.group_state.to_string(),
                coordinator: node,
            }));
        }
        listings.sort_by(|a, b| a.group_id.cmp(&b.group_id));
        Ok(listings)
    }

    /// The group with this id, of whatever type, as its coordinator lists it; `None` when it knows none that we may describe.
    /// Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (not allowed), `Retry`.
    pub async fn find_group(&self, group: &str) -> Result<Option<GroupListing>> {
        let request = ListGroupsRequest::default();
        let key = CoordinatorKey::Group(group.to_owned());
        let listed = self.client.ask_coordinator(&key, &request, |response| {
            if response.error_code != 0 {
                return Err(Error::from_code(
                    response.error_code,
                    format_args!("list the groups beside '{group}'"),
                ));
            }
            let found = response.groups.iter().find(|listed| listed.group_id.as_str() == group);
            Ok(found.map(|listed| GroupListing {
                group_id: group.to_owned(),
                kind: listed.group_type.to_string(),
                state: listed.group_state.to_string(),
            }))
        });
        listed.await
    }

    /// State, epochs and members of a share group; `None` when there is no such share group. Cancel safe.
    ///
    /// # Errors
    /// `InvalidInput` (not allowed), `Retry`.
    pub async fn describe_share_group(&self, group: &str) -> Result<Option<ShareGroupDescription>> {
        let request = ShareGroupDescribeRequest::default().with_group_ids(vec![group_id(group)]);
        let key = CoordinatorKey::Group(group.to_owned());
        let described = self.client.ask_coordinator(&key, &request, |response| {
            let described = response.groups.into_iter().next();
            let described = described
                .ok_or_else(|| Error::new(ErrorKind::Retry, format!("no answer about group '{group}'")))?;
            match KafkaError(described.error_code) {
                KafkaError::NONE => Ok(Some(describe(described))),
                KafkaError::GROUP_ID_NOT_FOUND => Ok(None),
                KafkaError(code) => {
                    let message = described.error_message.as_ref().map(|message| message.as_str());
                    Err(Error::from_answer(code, message, format_args!("describe share group '{group}'")))
                }
            }
        });
        described.await
    }

    /// Deletes a share group that has no members: its offsets and the state of its records.
    ///
    /// # Errors
    /// `InvalidInput` (code NON_EMPTY_GROUP: it has members; GROUP_ID_NOT_FOUND: there is none), `Retry`.
    ///
    /// # Cancel safety
    /// Dropped, the group may have been deleted.
    pub async fn delete_share_group(&self, group: &str) -> Result<()> {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(group)]);
        let key = CoordinatorKey::Group(group.to_owned());
        let deleted = self.client.ask_coordinator(&key, &request, |response| {
            match response.results.first().map_or(0, |result| result.error_code) {
                0 => Ok(()),
                code => Err(Error::from_code(code, format_args!("delete share group '{group}'"))),
            }
        });
        deleted.await
    }

    /// Forgets where a share group without members stands in these topics; it starts there anew.
    ///
    /// # Errors
    /// `InvalidInput` (it has members, or never read a topic), `Retry`.
    ///
    /// # Cancel safety
    /// Dropped, they may have been forgotten.
    pub async fn delete_share_group_offsets(&self, group: &str, topics: &[&str]) -> Result<()> {
        let topics = topics
            .iter()
            .map(|name| DeleteShareGroupOffsetsRequestTopic::default().with_topic_name(topic_name(name)));
        let request = DeleteShareGroupOffsetsRequest::default()
            .with_group_id(group_id(group))
            .with_topics(topics.collect());
        let key = CoordinatorKey::Group(group.to_owned());
        let deleted = self.client.ask_coordinator(&key, &request, |response| {
            let what = format!("delete the offsets of share group '{group}'");
            if response.error_code != 0 {
                let message = response.error_message.as_ref().map(|message| message.as_str());
                return Err(Error::from_answer(response.error_code, message, what));
            }
            if let Some(topic) = response.responses.iter().find(|topic| topic.error_code != 0) {
                let message = topic.error_message.as_ref().map(|message| message.as_str());
                let what = format!("{what} in '{}'", topic.topic_name.as_str());
                return Err(Error::from_answer(topic.error_code, message, what));
            }
            Ok(())
        });
        deleted.await
    }
}

fn group_id(group: &str) -> GroupId {
    GroupId(StrBytes::from_string(group.to_owned()))
}

fn describe(group: DescribedGroup) -> ShareGroupDescription {
    let mut members: Vec<ShareGroupMember> = group.members.iter().map(describe_member).collect();
    members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
    ShareGroupDescription {
        group_id: group.group_id.to_string(),
        state: group.group_state.to_string(),
        group_epoch: group.group_epoch,
        assignment_epoch: group.assignment_epoch,
        assignor: group.assignor_name.to_string(),
        members,
    }
}

fn describe_member(member: &Member) -> ShareGroupMember {
    let assigned = member.assignment.topic_partitions.iter().map(|topic| AssignedPartitions {
        topic: topic.topic_name.as_str().into(),
        topic_id: TopicId(topic.topic_id),
        partitions: topic.partitions.iter().copied().map(PartitionIndex).collect(),
    });
    ShareGroupMember {
        member_id: member.member_id.to_string(),
        rack: member.rack_id.as_ref().map(ToString::to_string),
        member_epoch: MemberEpoch(member.member_epoch),
        client_id: member.client_id.to_string(),
        client_host: member.client_host.to_string(),
        subscribed_topics: member.subscribed_topic_names.iter().map(|name| name.to_string()).collect(),
        assignment: assigned.collect(),
    }
}
