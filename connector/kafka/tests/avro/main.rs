//! Jobs whose records name their schemas, and the registry that knows them.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod fake_registry;
mod jobs;
mod registry;
