//! The acknowledgement modes: implementations of the runtime's commit protocol.
//!
//! ```text
//!                 writes + outcome record        share acknowledgements
//! transactional   one transaction                staged into the same transaction (KIP-1289)
//! at least once   one transaction                ordinary ones, after the transaction has committed (KIP-932)
//! ledger          not available yet
//! ```

mod at_least_once;
mod recovery;
mod transactional;
mod transactions;

pub(crate) use at_least_once::AtLeastOnceCommit;
pub(crate) use transactional::TransactionalCommit;
pub(crate) use transactions::{OutcomeTopic, Transactions, TransactionsConfig};
