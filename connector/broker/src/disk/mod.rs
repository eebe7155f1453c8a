//! What the broker keeps on disk when it is given a data folder (ADR 0013): one folder, one broker.
//!
//! ```text
//! DIR/lock                                   held by the broker that uses the folder
//! DIR/clean                                  there after an orderly end: every file is whole
//! DIR/meta.log                               topics, settings, leader epochs, producer ids ([`journal`])
//! DIR/topics/<topic id>/<partition>/<first offset>.log   segments of one partition ([`segments`])
//! ```
//!
//! The logs of transactions and of share state are partitions like all others. Memory holds everything that the files
//! hold: they are written through and only read when the broker starts. Every file is a sequence of checksummed
//! [`frame`]s; what a crash has torn off at the end of the last one is cut.
//!
//! [`store::Disk`] counts what was written and what was synced. An answer leaves the broker when the
//! [`FsyncPolicy`] is content, so handlers write and go on, and many answers wait for one sync.

mod files;
pub(crate) mod frame;
mod journal;
mod policy;
mod segments;
mod store;

#[cfg(any(test, fuzzing))]
pub(crate) use files::LogFile;
pub(crate) use files::{Files, SystemFiles};
pub(crate) use journal::{MetaRecord, MetaState, TopicMeta};
pub use policy::{FsyncPolicy, FsyncPolicyError};
pub(crate) use segments::{Compaction, Head, PartitionFiles, SegmentEvent, remove_topic};
pub(crate) use store::{Disk, DiskFailed, Opened};

#[cfg(test)]
pub(crate) mod faulty;
#[cfg(test)]
mod tests;
