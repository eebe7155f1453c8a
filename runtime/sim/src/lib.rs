//! Seeded simulation of whole jobs: brokers, workers and a loader in one thread, on virtual time.
//!
//! Everything but five things is the code that ships: a run replaces the clock, chance, tasks and network of
//! `sharestream-base`, and the object store. One seed decides the rest ([`plan`]): topology, workload, settings, and
//! when which fault happens.
//!
//! ```text
//!              one thread, paused clock
//!  loader ──┐                                   ┌── worker r0 (incarnations, zombies)
//!  checker ─┼── fabric: delays, cuts, resets ───┼── worker r1
//!           │                                   │       └── bucket: slow, failing, unsynced writes lost
//!           └── node 1, node 2, node 3 (gates: paused, killed, restarted; leaders move)
//! ```
//!
//! A run ends with faults over: then everything must be decided within a bound, every process must end when asked to,
//! and the checkers ([`check`]) read what the brokers hold. The hash of a run ([`trace`]) covers every poll, chunk,
//! fault and store call: the same seed gives the same hash.
//!
//! ```no_run
//! use sharestream_sim::plan::Plan;
//! use sharestream_sim::world::{RunOptions, run};
//!
//! let report = run(&Plan::draw(7), RunOptions::default());
//! assert!(report.findings.is_empty(), "{:?}", report.findings);
//! ```
//!
//! What this crate is not: a measurement of speed, nor a proof. What it leaves out is in `docs/simulation.md`.

pub mod check;
pub mod explore;
mod loader;
pub mod network;
mod operators;
mod panics;
pub mod plan;
pub mod planted_table;
pub mod process;
pub mod shrink;
mod slow;
pub mod store;
pub mod timeline;
pub mod trace;
mod traps;
mod worker;
mod workload;
pub mod world;
