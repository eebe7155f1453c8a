//! Seeded simulation of whole jobs.

pub mod network;
pub mod plan;
pub mod process;
pub mod store;
pub mod trace;
