//! State that operators keep: by key, and as a list of rows (`list`).
//!
//! ```text
//! key columns --hash--> one of 128 key groups --> the subtask that owns the group
//!
//! barrier n:  what changed since n-1 --> one delta part      )  Arrow IPC in the checkpoint store,
//!             a few key groups in turn --> base parts        )  named by manifest n
//! start:      base parts, then later delta parts, of the groups that a subtask owns now
//! ```
//!
//! What has not changed is not written again. Deltas are read until every group in them has a newer base, so in the
//! steady state a few groups are rewritten with each checkpoint. Key groups, not subtasks, own state: a job starts from
//! a checkpoint with another parallelism.

mod groups;
mod ipc;
mod keyed;
mod ledger;
mod list;
mod restore;
mod snapshot;
mod timers;

pub use groups::{KEY_GROUPS, key_group, owned_groups};
pub(crate) use groups::{KeyEncoder, KeyRouter};
pub use keyed::{KeyedState, Slots};
pub use list::read_list_state;
pub(crate) use list::{ListSnapshot, ListWriter, restore_list};
pub use restore::read_state;
pub(crate) use restore::{RestoredOperator, restore};
pub(crate) use snapshot::{Snapshot, StateReport, StateWriter};
