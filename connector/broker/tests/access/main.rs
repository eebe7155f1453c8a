//! Access control over TCP, from the outside: who may say what on a connection, and what each API asks of
//! them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod asker;
mod authentication;
#[path = "../share_groups/fixtures.rs"]
#[allow(dead_code, reason = "the tests of share groups use the rest")]
mod fixtures;
mod hiding;
mod requests;
mod staging;
mod world;
