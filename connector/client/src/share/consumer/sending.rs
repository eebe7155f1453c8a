//! What goes to the leaders, and when.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::StreamExt;
use sharestream_base::ids::NodeId;
use sharestream_base::{ErrorKind, Instant};
use sharestream_wire::KafkaError;
use sharestream_wire::messages::share_acknowledge::ShareAcknowledgeRequest;
use sharestream_wire::messages::share_fetch::ShareFetchRequest;

use super::ShareConsumer;
use super::answers::failed;
use crate::share::config::AcquireMode;
use crate::share::leader::{self, Answer, Leader, LeaderAnswer};
use crate::share::session::OPENING;
use crate::{Error, Result};

/// What may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requests {
    /// Acknowledgements, and fetches that wait this long for records.
    All(Duration),
    Acknowledgements,
}

/// Wait of a fetch ahead at the broker: none. An acknowledgement would wait behind it, and where the lock window is full
/// only acknowledgements make the next records available.
const AHEAD_WAIT: Duration = Duration::ZERO;

/// Shortest wait of a fetch that carries acknowledgements, within the configured longest one. What they release is
/// available as soon as the broker has stored them, a moment after it has looked for records; without a wait such a
/// fetch would mostly find nothing.
const RELEASING_WAIT: Duration = Duration::from_millis(5);

impl ShareConsumer {
    /// Sends to every leader what is due: acknowledgements first, else a fetch.
    pub(super) async fn send_requests(&mut self, requests: Requests) -> Result<()> {
        let now = self.client.env().clock.now();
        let mut due: Vec<NodeId> = self
            .leaders
            .iter()
            .filter(|(_, leader)| {
                let fetches = matches!(requests, Requests::All(_)) && leader.wants_fetch();
                !leader.busy && !leader.is_paused(now) && (leader.has_acknowledgements() || fetches)
            })
            .map(|(node, _)| *node)
            .collect();
        if self.is_singly {
            self.keep_one_fetch(&mut due);
        }
        let fetch_wait = match requests {
            Requests::All(fetch_wait) => fetch_wait.min(self.config.max_wait),
            // Where there are acknowledgements, no fetch is sent.
            Requests::Acknowledgements => Duration::ZERO,
        };
        for node in due {
            if let Err(error) = self.send_to(node, fetch_wait).await {
                self.request_failed(node, error)?;
            }
        }
        Ok(())
    }

    /// Of the leaders that would be fetched from keeps one, in turn, and none while another fetch is under way or an
    /// answer waits.
    fn keep_one_fetch(&mut self, due: &mut Vec<NodeId>) {
        let acknowledges = |leader: &Leader| leader.has_acknowledgements();
        let fetching =
            self.leaders.values().any(|leader| leader.has_ready || (leader.busy && !leader.acknowledging));
        let fetches: Vec<NodeId> = due
            .iter()
            .filter(|node| self.leaders.get(*node).is_some_and(|leader| !acknowledges(leader)))
            .copied()
            .collect();
        let next = fetches.iter().find(|node| Some(**node) > self.singly).or(fetches.first()).copied();
        let chosen = next.filter(|_| !fetching);
        self.singly = chosen.or(self.singly);
        due.retain(|node| !fetches.contains(node) || Some(*node) == chosen);
    }

    /// Fetches from a leader while the application works on what it handed out.
    pub(super) async fn send_fetch_ahead(&mut self, node: NodeId) -> Result<()> {
        let now = self.client.env().clock.now();
        let due = self.leaders.get(&node).is_some_and(|leader| {
            !leader.busy && !leader.is_paused(now) && !leader.has_acknowledgements() && leader.wants_fetch()
        });
        if !due {
            return Ok(());
        }
        let max_wait = self.config.max_wait.min(AHEAD_WAIT);
        match self.send_to(node, max_wait).await {
            Ok(()) => Ok(()),
            Err(error) => self.request_failed(node, error),
        }
    }

    /// Sends one request to a leader; `max_wait` is how long it may wait for records.
    async fn send_to(&mut self, node: NodeId, max_wait: Duration) -> Result<()> {
        let open = self.leaders.get(&node).and_then(|leader| leader.connection.clone());
        let connection = match open {
            Some(connection) => connection,
            None => {
                let opened = self.client.open(node).await?;
                self.leaders.entry(node).or_default().connection = Some(opened.clone());
                opened
            }
        };
        let member = self.share_group_metadata();
        let renews = connection.versions().of::<ShareAcknowledgeRequest>(connection.address())? >= 2;
        let limits = connection.versions().of::<ShareFetchRequest>(connection.address())? >= 2;
        if self.config.acquire_mode == AcquireMode::RecordLimit && !limits {
            let context = format!(
                "broker {node} has no record limit (ShareFetch 2, Kafka 4.2); choose the batch-optimized acquire mode"
            );
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        let Some(leader) = self.leaders.get_mut(&node) else { return Ok(()) };
        if !renews {
            let refused = leader.take_renewals();
            if !refused.is_empty() {
                self.push_results(refused, |_| Some(KafkaError::UNSUPPORTED_VERSION));
                return Ok(());
            }
        }
        leader.separate(false);
        // The session moves on only when the request is on its way: a dropped call has sent nothing.
        let mut session = leader.session.clone();
        let answer: BoxFuture<'static, LeaderAnswer> = if leader.has_acknowledgements() {
            let Some(epoch) = session.acknowledge() else {
                // The session ended before they were sent.
                let unsent = leader.take_acknowledgements();
                self.push_results(unsent, |_| Some(KafkaError::SHARE_SESSION_NOT_FOUND));
                return Ok(());
            };
            let sent = leader.acknowledgements();
            let request = leader::acknowledge_request(epoch, &member, &sent);
            let mut pending = connection.send(&request).await?;
            leader.to_send.clear();
            leader.acknowledging = true;
            Box::pin(async move {
                let answer = pending.answer().await;
                LeaderAnswer { node, answer: Answer::Acknowledge(sent, answer) }
            })
        } else {
            let plan = session.fetch(&leader.wanted);
            let opening = plan.epoch == OPENING;
            if opening {
                // The session that they belonged to is over, and no opening request may carry any.
                let unsent = leader.take_acknowledgements();
                self.results.extend(failed(unsent, KafkaError::SHARE_SESSION_NOT_FOUND));
            }
            let sent = leader.fetch_acknowledgements();
            let max_wait = if sent.is_empty() {
                max_wait
            } else {
                max_wait.max(RELEASING_WAIT.min(self.config.max_wait))
            };
            let mut request = leader::fetch_request(&plan, &sent, &member, &self.config, max_wait);
            if self.is_singly {
                (request.max_records, request.batch_size) = (1, 1);
                // 1: record limit, which an older leader does not know.
                request.share_acquire_mode = i8::from(limits);
            }
            let timeout = self.client.config().request_timeout + max_wait;
            let mut pending = connection.send_with(&request, timeout).await?;
            leader.with_fetch.clear();
            leader.acknowledging = !sent.is_empty();
            Box::pin(async move {
                let answer = pending.answer_with_arrival().await;
                LeaderAnswer { node, answer: Answer::Fetch { opening, sent, answer } }
            })
        };
        leader.session = session;
        leader.busy = true;
        leader.came_back_empty = false;
        self.answers.push(answer);
        Ok(())
    }

    /// Waits for an answer, news of the membership, or the end of a pause, until `deadline`.
    pub(super) async fn wait(&mut self, deadline: Instant) -> Result<()> {
        let now = self.client.env().clock.now();
        let pauses = self.leaders.values().filter_map(|leader| leader.retry_at);
        let wake_at = pauses.chain(self.route_at).filter(|at| *at > now).fold(deadline, Instant::min);
        let clock = &self.client.env().clock;
        let answer = tokio::select! {
            biased;
            Some(answer) = self.answers.next() => answer,
            _changed_or_ended = self.membership.view.changed() => return Ok(()),
            () = clock.sleep_until(wake_at) => return Ok(()),
        };
        self.take_answer(answer)
    }
}
