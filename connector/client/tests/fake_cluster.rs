//! The client against a cluster that misbehaves as the test says, on virtual time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

#[path = "fake_cluster/bounds.rs"]
mod bounds;
#[path = "fake_cluster/share.rs"]
mod share;
#[path = "fake_cluster/writing.rs"]
mod writing;
