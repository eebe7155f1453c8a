//! Several nodes: leaders and coordinators that move, nodes that die and come back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "../fixtures/mod.rs"]
mod raw;
#[allow(dead_code, reason = "made for another test, which uses all of it")]
#[path = "../share_groups/fixtures.rs"]
mod share;

mod chaos;
mod cluster;
mod groups;
mod handles;
mod leaders;
mod offsets;
mod staged;
mod transactions;
