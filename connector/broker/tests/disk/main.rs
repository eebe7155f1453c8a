//! A broker with a data folder: ended in good order, killed, started again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "../fixtures/mod.rs"]
mod raw;
#[allow(dead_code, reason = "made for another test, which uses all of it")]
#[path = "../share_groups/fixtures.rs"]
mod share;

mod kills;
mod restarts;
mod workload;
