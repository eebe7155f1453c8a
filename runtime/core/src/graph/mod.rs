//! The job graph: what the user asks for ([`JobBuilder`]) and the checks on it.

mod bodies;
mod exchange;
mod logical;
mod physical;
mod stages;
mod start;
mod stream;
mod validate;

pub(crate) use logical::JobGraph;
pub use logical::{JobBuilder, JobId};
pub(crate) use physical::{Blueprint, Parts, Restored, Running};
pub use stream::Stream;
