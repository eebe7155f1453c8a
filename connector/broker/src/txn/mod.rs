//! The transaction coordinator (KIP-98, KIP-890): who may write under a transactional id, and how its transactions
//! end.
//!
//! [`state`] is the pure machine of one transactional id, [`log`] its records on `__transaction_state`,
//! [`coordinator`] holds the machines of one node, [`markers`] tells the participants.

mod coordinator;
pub(crate) mod log;
mod markers;
mod state;

pub(crate) use coordinator::{Coordinator, TransactionSummary, recorded};
pub(crate) use state::{Command, Identity, Outcome, TopicPartition};
