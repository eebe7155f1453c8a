//! The public API against itself and against other implementations of the protocol. One binary: it links once.

#![allow(clippy::unwrap_used, reason = "a failed unwrap in a helper of a test fails the test")]

mod every_api;
mod fixtures;
mod foreign_batches;
mod foreign_messages;
mod hostile;
mod java_batches;
mod messages;
