//! Ledger mode: exactly once on released Kafka, by the total order of one partition of the outcome topic.
//!
//! The outcome record of a transaction is its *claim* on the records that it decides. Who has read the partition up to
//! its own claim, and on to the end, knows every earlier claim; it commits only if none of those that overlap is
//! committed or still open. The rules, each shown necessary by a model, are in `runtime/models` (`docs/models.md`) and in
//! ADR 0012; tests here carry their numbers.
//!
//! | file | what | I/O |
//! |---|---|---|
//! | `view` | what the partition says: claims, floors, generation, mode | none |
//! | `arbiter` | the verdict on an own claim | none |
//! | `floor` | which floors may be raised, what may be tombstoned, what a start offset reveals | none |
//! | `decided` | what of a delivery is decided already | none |
//! | `tail` | the task that reads the partition for a whole process | reads |
//! | `keeper` | the task that writes floors and tombstones beside the commits | writes |
//! | `reset` | the two steps of a wanted replay, and the way back from transactional mode | writes |
//!
//! Deadlines of claims compare wall clocks of different machines. Nothing but liveness depends on them: with a clock that
//! is ahead a live owner is ended too early (its commit is refused, its records are processed again), with one that is
//! behind the claim of a dead owner is waited for until the transaction time-out. Skew below the claim deadline (half of
//! `commit-deadline`) costs nothing.

mod arbiter;
mod decided;
mod floor;
mod keeper;
mod reset;
mod starts;
mod tail;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use arbiter::{OwnClaim, Verdict, judge, must_arbitrate};
pub(crate) use decided::{Dropped, Known, is_touched, take_decided};
pub(crate) use keeper::{Keeper, KeeperConfig};
pub(crate) use reset::{begin_rewind, end_rewind};
pub use reset::{has_ledger, reset_generation, return_to_ledger};
pub(crate) use starts::start_offsets;
pub(crate) use tail::LedgerTail;
