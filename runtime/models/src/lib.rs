//! Explicit-state models of the protocols that make a job exactly once.

pub mod check;
pub mod explore;
pub mod fingerprint;
pub mod progress;
pub mod report;
pub mod transactional;
