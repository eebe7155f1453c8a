//! The only door to time, chance, tasks and sockets.
//!
//! Every other crate takes an [`Env`] and never calls the operating system for these four things itself. A
//! simulation hands out an `Env` of its own and thereby owns the schedule; the lints in `clippy.toml` keep the
//! door the only one.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//! let env = sharestream_base::Env::system();
//! let before = env.clock.now();
//! env.clock.sleep(Duration::from_millis(1)).await;
//! assert!(env.clock.now() > before);
//! # });
//! ```
//!
//! What this crate is not: a runtime, an actor framework, or a place for shared helpers.

mod clock;
mod env;
mod error_kind;
pub mod ids;
mod invariant;
pub mod planted;
mod rng;
mod tasks;
mod transport;
pub mod watch;

pub use clock::{Clock, Elapsed, Instant};
pub use env::Env;
pub use error_kind::ErrorKind;
pub use rng::Rng;
pub use tasks::{
    CancellationToken, Gate, OwnedTask, Spawner, TaskExit, TaskKind, TaskPanic, TaskSet, run_blocking,
};
pub use transport::{BoxIo, HostPort, HostPortError, Io, Listener, MemoryNetwork, Network, TcpNetwork};
