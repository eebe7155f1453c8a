//! One job in three processes: sources (with the operators), sinks, coordinator (ADR 0022, `docs/processes.md`).
//!
//! ```text
//!                     control: commands, open epochs -->                    <-- events, load
//!  sources worker <==================================> coordinator <==================================> sinks worker
//!       ||                                                                                                   ||
//!       ++============ data: rows, barriers --> one connection for each pair of subtasks <-- credit =========++
//! ```
//!
//! The graph is cut in front of the sinks. Every task runs as it does in one process; what the coordinator holds of it
//! (`Running`) is joined to it by a connection. So the coordinator, the tasks and the commit
//! protocols do not know where the others are.
//!
//! - A worker serves one attempt at a time, which the job epoch names. Messages and rows of another attempt are refused.
//! - A worker that loses its coordinator ends its attempt: sources close, so that records go back, sinks are dropped. Then
//!   it connects again.
//! - A coordinator that loses a worker ends the attempt, as if a task had failed. The next one waits for the worker, at most
//!   for [`connect_deadline`](crate::JobOptions::connect_deadline).
//! - What fences is what fences in one process: InitProducerId and the owner, in recovery, before any worker is asked.
//!
//! Connections are plain bytes without authentication, for a network where everybody may be trusted.

mod bytes;
mod crew;
mod data;
mod frame;
mod gauges;
mod link;
mod message;
#[cfg(test)]
mod message_tests;
mod values;
mod worker;
mod worker_attempt;
mod workers;

use std::fmt;
use std::time::Duration;

pub use bytes::{ByteReader, ByteWriter, Malformed};
pub(crate) use crew::{Crew, Orders, Posting};
pub use frame::WIRE_VERSION;
pub(crate) use gauges::GaugesShown;
pub use link::{ConnectorLink, Outbox, Peer};
pub(crate) use message::Shape;
pub use values::{read_decided, read_decisions, read_member, write_decided, write_decisions, write_member};
pub use worker::{WorkerEnd, WorkerOptions, run_worker};
pub use workers::{WorkerIdentity, Workers};

/// What a process does for a job beside the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Acquires records and runs all operators.
    Sources,
    /// Writes.
    Sinks,
}

impl Role {
    fn code(self) -> u8 {
        match self {
            Role::Sources => 1,
            Role::Sinks => 2,
        }
    }

    fn of_code(code: u8) -> Result<Self, Malformed> {
        match code {
            1 => Ok(Role::Sources),
            2 => Ok(Role::Sinks),
            other => Err(Malformed::new(format!("{other} is no role"))),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Sources => "sources",
            Role::Sinks => "sinks",
        })
    }
}

/// Pause between two signs of life on a control connection.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// Without a sign of life for so long, the other process counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Longest wait for the answer to a greeting.
const GREETING_MAX: Duration = Duration::from_secs(10);
