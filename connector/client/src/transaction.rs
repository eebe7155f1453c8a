//! Transactions: identity and life cycle, apart from the writers that use the identity (KIP-98, KIP-890, KIP-1289,
//! KIP-1310's idea).

mod end_other;
mod session;
mod stage;
mod state;

pub use end_other::end_transaction_of;
pub use session::{ProducerIdentity, TransactionConfig, TransactionSession};
pub use stage::StagingOrder;
