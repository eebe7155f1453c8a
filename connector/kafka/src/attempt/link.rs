//! Carries the state of an attempt between the processes of a job.

use std::sync::Arc;

use async_trait::async_trait;
use sharestream_core::commit::AckMode;
use sharestream_core::decision::Decisions;
use sharestream_core::remote::{ConnectorLink, Outbox, Peer, Role};

use super::message::{Message, Opening};
use super::{Attempt, locked};
use crate::Result;
use crate::error::invalid_input;
use crate::ledger::LedgerTail;

/// The state of this process's attempts, as the others see it.
#[derive(Debug)]
pub(crate) struct AttemptLink {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) tail: LedgerTail,
    pub(crate) mode: AckMode,
}

#[async_trait]
impl ConnectorLink for AttemptLink {
    fn opening(&self, role: Role) -> Result<Vec<u8>> {
        let (is_restarted, reads_ledger) = (self.attempt.is_restarted(), self.tail.is_started());
        // Sources drop what a rewind has left decided; recovery has just read it.
        let decided = match role {
            Role::Sources => Decisions::clone(&self.attempt.decided()),
            Role::Sinks => Decisions::new(),
        };
        Ok(Opening { mode: self.mode, is_restarted, reads_ledger, decided }.encode())
    }

    async fn open(&self, role: Role, opening: &[u8]) -> Result<()> {
        let Opening { mode, is_restarted, reads_ledger, decided } = Opening::decode(opening)?;
        if mode != self.mode {
            return Err(invalid_input(format!(
                "the coordinator runs in mode {mode:?} and this worker would in {:?}: the brokers offered something else \
                 when one of them started; start both anew",
                self.mode
            )));
        }
        self.attempt.reset();
        self.attempt.set_restarted(is_restarted);
        self.attempt.set_decided(decided);
        if reads_ledger && role == Role::Sources {
            // Caught up before a member joins, as recovery does where all is in one process (rule 7).
            self.tail.ensure_running();
            self.tail.catch_up().await?;
        }
        Ok(())
    }

    fn attach(&self, outbox: Outbox) {
        *locked(&self.attempt.outbox) = Some(outbox);
    }

    fn receive(&self, message: &[u8]) -> Result<()> {
        let attempt = &self.attempt;
        match Message::decode(message)? {
            Message::Opened(checkpoint, identity) => attempt.take_identity(checkpoint, identity),
            Message::Closed(checkpoint) => attempt.forget_identity(checkpoint),
            Message::AskMember { number, member_id } => {
                let member = attempt.known_member(&member_id);
                attempt.tell(Peer::Coordinator, &Message::Member { number, member })?;
            }
            Message::Member { number, member } => attempt.answers.send_modify(|answers| {
                answers.insert(number, member);
            }),
            Message::Committed(checkpoint, decided) => attempt.take_released(checkpoint, &decided),
            Message::Acknowledged(checkpoint) => {
                locked(&attempt.committed).remove(&checkpoint);
            }
        }
        Ok(())
    }
}
