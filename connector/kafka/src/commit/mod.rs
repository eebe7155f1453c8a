//! The acknowledgement modes: implementations of the runtime's commit protocol.
//!
//! ```text
//!                 writes + outcome record       share acknowledgements
//! transactional   one transaction               staged into the same transaction (KIP-1289)
//! at least once   one transaction               ordinary ones, after the transaction has committed (KIP-932)
//! ledger          one transaction, which waits  ordinary ones, after the transaction has committed; a record that comes
//!                 for its claim's verdict       again is known by its committed claim
//! ```

mod at_least_once;
mod ledger;
mod recovery;
mod rewind;
mod transactional;
mod transactions;

pub(crate) use at_least_once::AtLeastOnceCommit;
pub(crate) use ledger::LedgerCommit;
pub(crate) use rewind::RewindCommit;
pub(crate) use transactional::TransactionalCommit;
pub(crate) use transactions::{OutcomeTopic, SLOT_COUNT, Transactions, TransactionsConfig};
