//! Share-group source, transactional sink and the commit protocols of a job.
//!
//! ```text
//!  share group --> source (decode, decide) ==batches==> operators ==batches==> sink --> output, dead letters
//!                      |  decided offsets                                        |  flushed
//!                      v                                                         v
//!                  commit protocol: outcome record, share acknowledgements, EndTxn: one transaction
//! ```
//!
//! A [`KafkaJob`] is made from a [`KafkaJobConfig`] and gives the runtime its three parts; a [`Pipeline`] does all of that
//! in one call, and [`KafkaJob::into_session`] is for a loop of one's own. The guarantee depends on
//! the acknowledgement mode (`DESIGN` section 4): `transactional` (KIP-1289) and `ledger` are exactly once,
//! `at-least-once` repeats records after a crash. What this crate is not: a job graph or a scheduler (that is `sharestream-core`), and not a
//! general Kafka client (`sharestream-client`).

mod attempt;
pub mod check;
mod commit;
pub mod config;
mod embed;
mod error;
pub mod fit;
pub mod formats;
mod group;
mod job;
pub mod ledger;
pub mod memory;
mod metadata_columns;
pub mod outcome;
mod outcome_topic;
pub mod parking;
mod parking_start;
pub mod provenance;
mod ranges;
pub mod savepoint;
pub mod sink;
pub mod source;

pub use config::{AckModeChoice, BadRecords, ConfigFault, KafkaJobConfig, SinkConfig, SinkKey};
pub use embed::Pipeline;
pub use error::{Error, Result};
pub use job::KafkaJob;
