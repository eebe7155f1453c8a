//! Kafka client: share consumer, transaction session, batch writers, reader, admin.
//!
//! ```text
//!                        Client (connections, versions, metadata, coordinators)
//!                          |          |              |             |          |
//!                   ShareConsumer  TransactionSession  BatchWriter  PartitionReader  Admin
//!                    |  decisions     ^   |  identity      ^
//!                    \---------------/     \--------------/
//! ```
//! - [`ShareConsumer`]: acquires records of a share group and acknowledges them, finally or through a transaction
//!   (KIP-932, KIP-1222, KIP-1289);
//! - [`TransactionSession`]: one transactional id: its identity and transactions, apart from any writer;
//! - [`BatchWriter`]: records to partitions, under a session's identity; many writers may share one, on partitions of
//!   their own; [`Producer`] is the idempotent one without transactions;
//! - [`PartitionReader`]: reads a partition at either isolation level, without a group;
//! - [`Admin`]: topics, share groups and their offsets, settings, transactions.
//!
//! Guarantees: no call waits for ever; every retry has a deadline, grows and is jittered; what may have happened is
//! `Indeterminate`, never `Retry`; throttle times are kept. Versions are agreed for each connection, so the same
//! client speaks to Apache Kafka from 4.2 on and to the embedded broker; only the transactional share
//! acknowledgements need `share.version` 3.
//!
//! Where a call waits, and for how long at most (`tests/fake_cluster/bounds.rs` calls each against a silent cluster):
//!
//! | wait | bound |
//! |---|---|
//! | TCP, TLS, authentication and ApiVersions of one connection | `connect_timeout` |
//! | room in a connection, then one answer | `request_timeout`, and the wait of a long poll |
//! | silence that a broker asked for (KIP-219) | its throttle time, 30 s at most |
//! | pause between attempts | `retry.max`, jittered |
//! | all attempts of another call | `operation_timeout`, and the last attempt |
//! | `commit`, `abort` | `end_deadline`, and the last attempt; then `Indeterminate` |
//! | a batch, from its last record on | `operation_timeout`; then `Abort` in a transaction, else `Indeterminate` |
//! | `append` and `flush` | the batches' own bounds |
//! | `poll` | `max_wait`, and what connecting to leaders or asking for them takes: one attempt each |
//! | `commit_acknowledgements`, `release`, `renew` | the fetch that is under way, then `operation_timeout` for each leader |
//! | `close` of a share consumer | `request_timeout` |
//!
//! Two things go on without a deadline, in the background and with growing pauses: a membership looks for its
//! coordinator (the group decides when the member is gone), and a share consumer for leaders of partitions
//! that have none.
//!
//! What this crate is not: a consumer-group client, and a place for formats or jobs.

mod admin;
mod backoff;
mod client;
mod cluster;
mod config;
mod connection;
mod coordinator;
mod error;
mod features;
mod metadata;
mod producer;
mod reader;
mod security;
mod share;
mod transaction;
mod versions;

pub use admin::{
    AclOperation, Admin, AssignedPartitions, BrokerFeatures, EndedTransaction, GroupListing, NewTopic,
    OffsetSpec, Operations, PlannedReset, ResetTo, ShareGroupDescription, ShareGroupListing,
    ShareGroupMember, ShareGroupOffset, StartOffset, TopicDescription, TransactionDescription,
    TransactionListing,
};
pub use client::Client;
pub use config::{ClientConfig, RetryConfig};
pub use error::{Error, ErrorClass, Result, classify};
pub use features::Features;
pub use metadata::{PartitionInfo, TopicInfo};
pub use producer::{BatchWriter, Partitioner, Producer, WriterConfig, Written};
pub use reader::{FetchedPartition, Isolation, PartitionReader, committed_records};
pub use security::{
    OidcSettings, Resource as AclResource, SaslMechanism, SaslSettings, Secret, SecretSource,
    SecurityProtocol, SecuritySettings, TlsSettings, TokenSource, acl_advice,
};
pub use share::{
    AckResult, AcknowledgeType, AcknowledgementBatch, AcquireMode, AcquiredPartition, AcquiredRange,
    LostLocks, LostReason, MetadataHandle, OffsetRange, ShareAcknowledgements, ShareConsumer,
    ShareConsumerConfig, ShareGroupMetadata, ShareRecords,
};
pub use sharestream_base::HostPort;
pub use sharestream_wire::KafkaError;
pub use transaction::{
    ProducerIdentity, StagingOrder, TransactionConfig, TransactionSession, end_transaction_of,
};
