//! Checkpoint store on object_store: manifests, ownership, recovery decisions.
//!
//! One folder (or bucket prefix) belongs to one job; each instance of the job has its own part of it:
//!
//! ```text
//! job.json                                         whose folder this is
//! instances/<instance>/owners/<epoch>              who owns the instance: the highest epoch does
//! instances/<instance>/manifests/<id>-<epoch>.pending     the manifest, written before its outcome is decided
//! instances/<instance>/manifests/<id>-<epoch>.completed   its outcome is known to be: committed
//! instances/<instance>/state/<id>-<epoch>-...arrow        parts of operators' state, which manifests name
//! instances/<instance>/holds/<name>                       somebody copies state: nothing is deleted meanwhile
//! savepoints/<name>/savepoint.json                        a savepoint; written last, behind all that it needs
//! savepoints/<name>/manifest, .../state/...arrow          its copies of manifest and state
//! ```
//!
//! Every object is written once and never changed (create-if-absent), so no store needs compare-and-set. An answer
//! that got lost is resolved by reading the object back. The local store ([`LocalStore`]) answers only when file
//! and folder are synced. [`StoreLocation`] opens folders and buckets from what a user writes.
//!
//! What is committed is *not* decided here: the outcome record in the job's Kafka transaction decides, and
//! [`decide::decide`] turns it and the stored objects into what to restore, complete and delete (DESIGN section 2,
//! Recovery). Recovery restores exactly the last committed checkpoint or fails `Corrupt`, never an older one.
//!
//! What this crate is not: a user of Kafka, nor does it know what the state of an operator means.
//!
//! | Feature | Meaning |
//! | --- | --- |
//! | `conformance` | `conformance`: the suite that any `ObjectStore` must pass to hold checkpoints |
//! | `s3`, `gcs`, `azure` | buckets of Amazon S3 and its likes, Google Cloud Storage, Azure Blob Storage |
//! | `cloud` | all three |
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use sharestream_checkpoints::decide::Outcomes;
//! use sharestream_checkpoints::{CheckpointStore, JobKey, Manifest, Recovery};
//!
//! let objects = Arc::new(object_store::memory::InMemory::new());
//! let store = CheckpointStore::open(objects, JobKey::new("flights", "main")).await?;
//! let owner = store.acquire_ownership("host-a pid 17", 1_767_225_600_000).await?;
//! let recovery = Recovery::inspect(&store).await?;
//! // ... InitProducerId for recovery.pending_transactional_ids(), then read the last committed outcome: none ...
//! let start = recovery.finish(&store, &owner, Outcomes::default()).await?;
//! assert!(start.restored.is_none());
//!
//! let manifest = Manifest::new(store.key(), owner.epoch, start.next_checkpoint, None, 1_767_225_600_001);
//! let published = store.publish_pending(&owner, &manifest).await?;
//! let manifest_ref = published.manifest_ref.clone();
//! let _permit = published.permit(); // ... outcome record, staging, EndTxn ...
//! store.complete(&owner, &manifest_ref).await?;
//! # Ok::<(), sharestream_checkpoints::Error>(()) }).unwrap();
//! ```

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
mod cloud;
#[cfg(not(any(feature = "s3", feature = "gcs", feature = "azure")))]
#[path = "cloud/none.rs"]
mod cloud;
mod codec;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod decide;
mod error;
mod event_time;
mod fence;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hold;
mod inspect;
mod local;
mod location;
mod manifest;
mod paths;
mod probe;
mod publish;
mod recover;
mod retention;
mod savepoint;
mod savepoints;
mod state;
mod store;
mod types;

pub use error::{Error, Result};
pub use event_time::{EventTimeSnapshot, PartitionTimes};
pub use fence::Owner;
pub use hold::Hold;
pub use inspect::{Fault, InspectedCheckpoint, Inspection, StoredOwner};
pub use local::LocalStore;
pub use location::{OpenedStore, StoreLocation};
pub use manifest::{DecidedOffsets, Manifest, OffsetDecision, SourceSnapshot};
pub use probe::StoreProbe;
pub use publish::PublishedCheckpoint;
pub use recover::{Recovered, Recovery};
pub use retention::Retention;
pub use savepoint::{OutcomePosition, Savepoint, SavepointSource};
pub use savepoints::{ListedSavepoint, LoadedSavepoint, SavepointPlace, Savepoints};
pub use sharestream_base::ErrorKind;
pub use state::{OperatorSnapshot, StatePart, StatePartKind, StatePartPlace};
pub use store::CheckpointStore;
pub use types::{CommitPermit, JobKey, ManifestRef, StoredCheckpoint, StoredState};
