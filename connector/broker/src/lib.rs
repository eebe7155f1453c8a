//! Embedded Kafka-protocol broker for development and tests: share groups (KIP-932), transactions (KIP-98,
//! KIP-890) and transactional share acknowledgements (KIP-1289).
//!
//! Consumer groups have offsets and no members. Offsets are committed, staged in transactions (KIP-98,
//! KIP-447), fetched and deleted as Apache Kafka does it; topics are named in these requests, versions that
//! ask by id (OffsetCommit 10, OffsetFetch 10) are not served. JoinGroup, SyncGroup and
//! ConsumerGroupHeartbeat are not served either: a consumer is assigned its partitions (`assign`), a producer
//! moves a group on without being in it, and `subscribe` of a consumer group finds no coordinator that takes
//! it. Sharestream's jobs read share groups, and nobody needs a second kind of membership here (ADR 0009).
//!
//! It is **not** a production broker: logs live in memory, which all nodes of a cluster share in place of
//! replication, also those that a data folder keeps ([`BrokerConfig::data`]), and its one listener speaks
//! plain text. Unmodified Kafka clients work with it over TCP. Who may do what is up to [`access`]: users
//! with passwords and acls, where [`BrokerBuilder::users`] and [`BrokerBuilder::allow`] ask for them. Each
//! API, those of consumer groups included, asks for the rights that Apache Kafka asks for (ADR 0016).
//!
//! ```text
//!  client ==TCP== server ── handlers/<api> ──┬── access              (who it is, what they may do)
//!                                            ├── topics ── log::Partition   (records, producers, markers)
//!                                            ├── txn::Coordinator    (transaction states and their log)
//!                                            ├── group::offsets      (offsets of consumer groups, their log)
//!                                            └── share, group        (share partitions, members, state log)
//!                                 peer ──TCP── another node's server (leaders and coordinators)
//! ```
//!
//! Leaders and coordinators are addressed over the protocol through `peer`, also when they are on the same
//! node: nothing here calls another role as a local function, so several nodes work like one. [`Broker`]
//! builds one node or several; [`BrokerCluster`] is what they are: nodes that can be stopped, killed, paused
//! and started again, each in an environment of its own if need be. [`inspect`] shows what is in them,
//! [`faults`] plants what goes wrong between them and their clients, [`control`] moves them from another
//! process.
//!
//! # Clients of others
//! Unmodified, over TCP, with what they saw compared with what they should see. *1* and *3* are the nodes.
//!
//! | client | what was exercised | nodes | test |
//! |---|---|---|---|
//! | Java `KafkaProducer` 4.4.0 | idempotent; transactions: commit, abort, `sendOffsetsToTransaction` of a group without members | 1, 3 | `tests/foreign` |
//! | Java `KafkaConsumer` 4.4.0 | `assign`, read committed, `committed` | 1, 3 | `tests/foreign` |
//! | Java `KafkaShareConsumer` 4.4.0 | explicit (accept, release, reject), implicit, renew beyond the lock, close | 1, 3 | `tests/foreign` |
//! | Java `Admin` 4.4.0 | features; topics: create, describe, list, delete; configs of groups; share groups: list, describe, delete; their offsets: list, alter, delete; offsets of consumer groups: list | 3 | `tests/foreign` |
//! | `ConsoleShareConsumer` 4.4.0 | all records once, with their delivery counts; again after a reset | 1 | `tests/foreign` |
//! | `VerifiableShareConsumer` 4.4.0 | sets where its group begins; accept, renew, release and reject in turn | 1 | `tests/foreign` |
//! | `ShareConsumerPerformance` 4.4.0 | its count of records | 1 | `tests/foreign` |
//! | `ShareGroupCommand` 4.4.0 | `--list`, `--describe` (also `--state`), `--reset-offsets`, `--delete-offsets`, `--delete` | 1 | `tests/foreign` |
//! | confluent-kafka 2.16.1 (librdkafka) | transactions: commit, abort; `assign`, both isolation levels; `ShareConsumer`, explicit | 1 | `runtime/cli/tests/witness_confluent.rs` |
//! | krafka 0.28.1 | transactions: commit, abort; share consumer, explicit (accept, release), read committed; configs and offsets of share groups | 3 | `tests/foreign` |
//!
//! Tried by none of these, since it is not served: `subscribe` of a consumer group.
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
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod group;
mod handlers;
pub mod inspect;
mod led_shards;
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
