//! Savepoints of a Kafka job: made from what its group, its outcome topic and its checkpoint store say, and gone back to.
//!
//! ```text
//! take      start offsets --> outcomes up to the end --> the last checkpoint --> copies --> savepoint.json
//! start     savepoint is the last commit? go on : refuse, or rewind
//! rewind    generation begins --> everybody fenced --> offsets set --> state committed --> generation ready
//! ```
//!
//! | file | what | I/O |
//! |---|---|---|
//! | `cut` | what is decided at one place of the outcome partition | none |
//! | `standing` | reads offsets and outcomes of a group | reads |
//! | `take` | makes a savepoint | reads, writes it |
//! | `choice` | whether a start goes on, goes back, or is refused | none |
//! | `start` | the steps of a start, and of a rewind | writes |
//!
//! ADR 0023 says why.

mod choice;
mod cut;
mod standing;
mod start;
mod take;

pub use choice::StartChoice;
pub use start::{RewindHook, RewindStep, SavepointStart, Started, start_from};
pub use take::{SavepointOf, take};
