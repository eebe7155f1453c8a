//! Writing: record batches with sequence numbers, under a session's identity or under one of the writer's own
//! (KIP-98, KIP-890).

mod batch;
mod partitioner;
#[allow(clippy::module_inception, reason = "the type is called after what it is in Kafka")]
mod producer;
mod writer;

pub use partitioner::Partitioner;
pub use producer::Producer;
pub use writer::{BatchWriter, WriterConfig, Written};
