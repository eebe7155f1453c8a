//! Seeded simulation of whole jobs.

pub mod check;
mod loader;
pub mod network;
mod panics;
pub mod plan;
pub mod process;
pub mod store;
pub mod timeline;
pub mod trace;
mod worker;
mod workload;
pub mod world;
