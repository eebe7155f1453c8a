//! Embedded Kafka-protocol broker for development and tests: share groups (KIP-932), transactions (KIP-98,
//! KIP-890) and transactional share acknowledgements (KIP-1289).
//!
//! Consumer groups have offsets, which are committed, staged in transactions (KIP-98, KIP-447), fetched and deleted as Apache
//! Kafka does it, and no members: JoinGroup, SyncGroup and ConsumerGroupHeartbeat are not served. A consumer is assigned its
//! partitions (`assign`), a producer moves a group on without being in it; `subscribe` of a consumer group finds no
//! coordinator that takes it. Sharestream's jobs read share groups, and nobody needs a second kind of membership here (ADR
//! 0009). Topic ids in these requests (OffsetCommit 10, OffsetFetch 10) are not served, names are.
//!
//! It is **not** a production broker: logs live in memory, which all nodes of a cluster share in place of
//! replication, also those that a data folder keeps ([`BrokerConfig::data`]), and its one listener speaks
//! plain text. Unmodified Kafka clients work with it over TCP. Who may do what is up to [`access`]: users
//! with passwords and acls, where [`BrokerBuilder::users`] and [`BrokerBuilder::allow`] ask for them.
//!
//! ```text
//!  client ==TCP== server ── handlers/<api> ──┬── topics ── log::Partition   (records, producer state, markers)
//!                                            ├── txn::Coordinator           (transaction states and their log)
//!                                            ├── group::offsets             (offsets of consumer groups and their log)
//!                                            └── share, group               (share partitions, members, their state log)
//!                                 peer ──TCP── another node's server        (leaders and coordinators)
//! ```
//!
//! Leaders and coordinators are addressed over the protocol through `peer`, also when they are on the same
//! node: nothing here calls another role as a local function, so several nodes work like one. [`Broker`]
//! builds one node or several; [`BrokerCluster`] is what they are: nodes that can be stopped, killed, paused
//! and started again, each in an environment of its own if need be. [`inspect`] shows what is in them,
//! [`faults`] plants what goes wrong between them and their clients, [`control`] moves them from another
//! process.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let broker = sharestream_broker::Broker::builder(sharestream_base::Env::system()).start().await?;
//! println!("listening on {}", broker.bootstrap());
//! broker.shutdown().await;
//! # Ok::<_, sharestream_broker::Error>(()) }).unwrap();
//! ```

// Tests in here use the clients of the tests out there, which know this crate by its name.
#[cfg(test)]
extern crate self as sharestream_broker;

pub mod access;
mod broker;
mod broker_cluster;
mod cluster;
mod config;
pub mod control;
mod disk;
mod error;
pub mod faults;
mod features;
mod group;
mod handlers;
pub mod inspect;
mod log;
pub mod metrics;
mod node;
mod pause;
mod peer;
mod server;
mod share;
mod share_coordinator;
mod topics;
mod txn;

pub use broker::{Broker, BrokerBuilder, RunningBroker};
pub use broker_cluster::{BrokerCluster, BrokerClusterBuilder};
pub use cluster::{GROUP_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC};
pub use config::{BrokerConfig, ShareDefaults};
pub use disk::{FsyncPolicy, FsyncPolicyError};
pub use error::{Error, Result};
pub use sharestream_wire::KafkaError;
pub use sharestream_wire::api::ApiKey;
