//! The task that keeps this member in its group: it sends the heartbeats and publishes what they answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::{GroupId, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::{MemberEpoch, PartitionIndex, TopicId};
use sharestream_base::{CancellationToken, ErrorKind, Instant, OwnedTask, TaskKind, watch};
use sharestream_wire::KafkaError;

use super::config::Subscription;
use super::membership::{Effect, Event, Heartbeat, Membership};
use super::session::PartitionKey;
use crate::client::{Client, topic_name};
use crate::coordinator::CoordinatorKey;
use crate::error::ErrorClass;
use crate::{Error, Result};

/// A member of a share group as brokers know it: a plain value that may travel to another process (KIP-1289).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareGroupMetadata {
    /// Group id.
    pub group_id: String,
    /// Member id, chosen by the client.
    pub member_id: String,
    /// Member epoch; 0 before the group has answered.
    pub member_epoch: MemberEpoch,
}

/// Reads the live member epoch from any task.
#[derive(Clone, Debug)]
pub struct MetadataHandle {
    receiver: watch::Receiver<View>,
}

impl MetadataHandle {
    /// The metadata as of the last heartbeat.
    pub fn current(&self) -> ShareGroupMetadata {
        self.receiver.borrow().metadata.clone()
    }
}

/// What the consumer sees of its membership.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) metadata: ShareGroupMetadata,
    pub(super) assignment: BTreeSet<PartitionKey>,
    /// Grows each time the group removed this member.
    pub(super) removed_count: u64,
    /// The task has ended, with what no retry would change.
    pub(super) failure: Option<Arc<Error>>,
}

/// The running membership of one consumer.
#[derive(Debug)]
pub(super) struct MembershipHandle {
    pub(super) view: watch::Receiver<View>,
    leave: CancellationToken,
    task: OwnedTask<()>,
}

/// How a member joins.
#[derive(Clone, Debug)]
pub(super) struct MembershipOptions {
    pub(super) group: String,
    pub(super) subscription: Subscription,
    pub(super) rack: Option<String>,
}

impl MembershipHandle {
    /// Starts to join.
    pub(super) fn start(client: Client, options: MembershipOptions) -> Self {
        // A random id in the form of Kafka's own: 22 characters of base64.
        let member_id = TopicId(client.env().rng.uuid()).to_string();
        let metadata = ShareGroupMetadata {
            group_id: options.group.clone(),
            member_id: member_id.clone(),
            member_epoch: MemberEpoch(0),
        };
        let first = View { metadata, assignment: BTreeSet::new(), removed_count: 0, failure: None };
        let (publish, view) = watch::channel(first);
        let leave = CancellationToken::new();
        let name = format!("share-heartbeat-{}", options.group);
        let spawner = client.env().spawner.clone();
        let topics = match &options.subscription {
            Subscription::Names(names) => names.clone(),
            Subscription::Pattern(_) => Vec::new(),
        };
        let member = Member {
            topics,
            is_announced: true,
            resolved_at: None,
            coordinator: CoordinatorKey::Group(options.group.clone()),
            client,
            options,
            member_id,
            state: Membership::Joining,
            publish,
            leave: leave.clone(),
        };
        let task = OwnedTask::spawn(&spawner, name, TaskKind::Service, member.run());
        MembershipHandle { view, leave, task }
    }

    pub(super) fn metadata_handle(&self) -> MetadataHandle {
        MetadataHandle { receiver: self.view.clone() }
    }

    /// Leaves the group and waits for it. Bounded by the caller.
    pub(super) async fn leave(mut self) -> Result<()> {
        self.leave.cancel();
        match self.task.join().await {
            Ok(_ended) => Ok(()),
            Err(panic) => Err(Error::new(ErrorKind::Bug, "the heartbeat task failed").with_source(panic)),
        }
    }
}

/// State of the task.
struct Member {
    client: Client,
    options: MembershipOptions,
    coordinator: CoordinatorKey,
    member_id: String,
    state: Membership,
    /// The names subscribed to.
    topics: Vec<String>,
    /// The group knows these names; a heartbeat that joins says them anyway.
    is_announced: bool,
    /// When the pattern was last looked up.
    resolved_at: Option<Instant>,
    publish: watch::Sender<View>,
    leave: CancellationToken,
}

/// Until the coordinator says how often.
const FIRST_INTERVAL: Duration = Duration::from_secs(5);
/// First pause of a member without partitions; it doubles up to the interval.
const UNASSIGNED_PAUSE: Duration = Duration::from_millis(50);
/// Between two looks for topics that match a pattern which none did.
const NO_MATCH_PAUSE: Duration = Duration::from_secs(5);
/// Attempts to leave; then the session time-out does it.
const LEAVE_ATTEMPTS: u32 = 3;

impl Member {
    async fn run(mut self) {
        let clock = self.client.env().clock.clone();
        let mut interval = FIRST_INTERVAL;
        let mut leave_attempts = 0;
        let mut unassigned_pause = UNASSIGNED_PAUSE;
        let mut backoff = self.client.backoff();
        loop {
            if self.leave.is_cancelled() {
                self.state.apply(Event::Leave);
            }
            let Some(mut heartbeat) = self.state.heartbeat() else { return };
            self.resolve_pattern(interval).await;
            if self.topics.is_empty() && self.state == Membership::Joining {
                // Nobody can join for nothing. Left before joining, there is nothing to leave.
                let pause = NO_MATCH_PAUSE.min(self.client.config().metadata_age_max);
                tokio::select! {
                    biased;
                    () = self.leave.cancelled() => return,
                    () = clock.sleep(pause) => continue,
                }
            }
            heartbeat.full |= !self.is_announced;
            let pause = match self.send(heartbeat).await {
                Ok(response) => {
                    self.is_announced |= heartbeat.full;
                    interval =
                        Duration::from_millis(u64::try_from(response.heartbeat_interval_ms).unwrap_or(5_000))
                            .max(Duration::from_millis(10));
                    backoff = self.client.backoff();
                    let event = read(&response);
                    self.tell(event);
                    // The assignment is made after the answer to the join: asking soon saves a whole interval.
                    unassigned_pause = match self.state.is_unassigned() {
                        true => unassigned_pause.saturating_mul(2),
                        false => UNASSIGNED_PAUSE,
                    };
                    if self.state.is_unassigned() { unassigned_pause.min(interval) } else { interval }
                }
                Err(error) if means_removed(&error) => {
                    tracing::warn!(group = %self.options.group, %error, "removed from the share group, joining again");
                    self.tell(Event::Removed);
                    backoff.next_pause().unwrap_or(interval).min(interval)
                }
                Err(error) if error.is_retriable() => {
                    self.client.reroute(&self.coordinator, &error);
                    tracing::debug!(group = %self.options.group, %error, "heartbeat failed");
                    // Membership has no deadline of its own: the group decides when we are gone.
                    backoff.next_pause().unwrap_or(interval).min(interval)
                }
                Err(error) => {
                    let failure = Some(Arc::new(error));
                    self.publish.send_modify(|view| view.failure = failure);
                    return;
                }
            };
            if self.leave.is_cancelled() {
                leave_attempts += 1;
                if self.state == Membership::Left || leave_attempts > LEAVE_ATTEMPTS {
                    return;
                }
                if self.state != Membership::Leaving {
                    continue;
                }
                clock.sleep(pause.min(Duration::from_millis(100))).await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.leave.cancelled() => {}
                () = clock.sleep(pause) => {}
            }
        }
    }

    /// Looks up which topics match the pattern, when that is due. One attempt, within `limit`: heartbeats must go on.
    async fn resolve_pattern(&mut self, limit: Duration) {
        let Subscription::Pattern(pattern) = &self.options.subscription else { return };
        let clock = self.client.env().clock.clone();
        let now = clock.now();
        let age_max = self.client.config().metadata_age_max;
        let waits = self.topics.is_empty();
        if self.resolved_at.is_some_and(|at| now < at + age_max && !waits) {
            return;
        }
        let found = match clock.timeout(limit, self.client.all_topics_once()).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                // What was found before still holds; the next heartbeat looks again.
                tracing::debug!(group = %self.options.group, %error, "topics cannot be listed");
                return;
            }
            Err(_elapsed) => return,
        };
        self.resolved_at = Some(now);
        let matching = found.iter().filter(|topic| !topic.is_internal && pattern.is_match(&topic.name));
        let names: Vec<String> = matching.map(|topic| topic.name.to_string()).collect();
        // A member must subscribe to something; a topic that is gone does no harm.
        if !names.is_empty() && names != self.topics {
            tracing::info!(group = %self.options.group, topics = names.len(), "topics that match the pattern");
            self.topics = names;
            self.is_announced = false;
        }
    }

    fn tell(&mut self, event: Event) {
        let effect = self.state.apply(event);
        let lost = match effect {
            Effect::None => return,
            Effect::Changed => 0,
            Effect::LocksLost => 1,
        };
        let epoch = self.state.epoch();
        let assignment = match &self.state {
            Membership::Member { assignment, .. } => assignment.clone(),
            Membership::Joining | Membership::Leaving | Membership::Left => BTreeSet::new(),
        };
        tracing::debug!(group = %self.options.group, %epoch, partitions = assignment.len(), "membership changed");
        self.publish.send_modify(|view| {
            view.metadata.member_epoch = epoch;
            view.assignment = assignment;
            view.removed_count += lost;
        });
    }

    async fn send(&self, heartbeat: Heartbeat) -> Result<ShareGroupHeartbeatResponse> {
        let text = |text: &String| StrBytes::from_string(text.clone());
        let topics = self.topics.iter().map(|topic| topic_name(topic)).collect();
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(GroupId(text(&self.options.group)))
            .with_member_id(text(&self.member_id))
            .with_member_epoch(heartbeat.epoch.0)
            .with_rack_id(self.options.rack.as_ref().filter(|_| heartbeat.full).map(text))
            .with_subscribed_topic_names(heartbeat.full.then_some(topics));
        let response = self.client.coordinator(&self.coordinator).await?.call(&request).await?;
        if response.error_code != 0 {
            let message = response.error_message.as_ref().map(|message| message.as_str());
            let what = format!("heartbeat of share group '{}'", self.options.group);
            let error = Error::from_answer(response.error_code, message, what);
            return Err(self.client.refused(error, &self.coordinator.access("Read")));
        }
        Ok(response)
    }
}

/// A coordinator that lost the group, or forgot this member, wants it to join again.
fn means_removed(error: &Error) -> bool {
    error.class() == ErrorClass::Rejoin || error.code() == Some(KafkaError::GROUP_ID_NOT_FOUND)
}

fn read(response: &ShareGroupHeartbeatResponse) -> Event {
    let assignment = response.assignment.as_ref().map(|assignment| {
        let topics = assignment.topic_partitions.iter();
        topics
            .flat_map(|topic| {
                topic.partitions.iter().map(|index| (TopicId(topic.topic_id), PartitionIndex(*index)))
            })
            .collect()
    });
    Event::Answered { epoch: MemberEpoch(response.member_epoch), assignment }
}
