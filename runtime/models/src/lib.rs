//! Explicit-state models of the protocols that make a job exactly once.
