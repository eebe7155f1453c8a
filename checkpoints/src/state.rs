//! State of operators: parts, each written once, that manifests refer to.
//!
//! ```text
//! instances/<instance>/state/<checkpoint>-<epoch>-<operator>-<subtask>-<number>.arrow
//! ```
//!
//! A part holds the state of some key groups as it was at its checkpoint (*base*), or what has changed since the checkpoint
//! before (*delta*). A manifest names the parts that make up the state at its checkpoint, so that what has not changed
//! is not written again. What the bytes mean is for the runtime to know; here they have a name, a length and a hash.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sharestream_base::ids::{CheckpointId, JobEpoch};

use crate::fence::Owner;
use crate::store::{CheckpointStore, Create};
use crate::{Error, ErrorKind, Result, codec, paths};

/// State of one operator, over all of its subtasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorSnapshot {
    /// Stable id of the operator.
    pub operator: String,
    /// Version of what the operator keeps, as it says itself.
    pub state_version: u32,
    /// Number of key groups that keys are hashed to; 1 for state without keys.
    pub key_groups: u32,
    /// The parts, in the order in which they are read.
    pub parts: Vec<StatePart>,
}

/// A part of an operator's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatePart {
    /// Name of its object in the instance's state folder.
    pub name: String,
    /// SHA-256 of the stored bytes, lower-case hex.
    pub sha256: String,
    /// Stored bytes.
    pub bytes: u64,
    /// Rows.
    pub rows: u64,
    /// What it holds.
    pub kind: StatePartKind,
    /// The checkpoint that it was written for.
    pub checkpoint: CheckpointId,
    /// First key group that it may hold rows of. Of state without keys: the subtask that wrote it, here and in `last_group`.
    pub first_group: u32,
    /// Last key group, inclusive.
    pub last_group: u32,
}

/// What a part holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatePartKind {
    /// All of its key groups, as of its checkpoint.
    Base,
    /// What has changed in its key groups since the checkpoint before.
    Delta,
}

/// Where a part belongs, for its name.
#[derive(Clone, Copy, Debug)]
pub struct StatePartPlace<'a> {
    /// The checkpoint that it is written for.
    pub checkpoint: CheckpointId,
    /// Stable id of the operator.
    pub operator: &'a str,
    /// Subtask that writes it.
    pub subtask: usize,
    /// Which of the parts that the subtask writes for this checkpoint.
    pub number: usize,
}

impl CheckpointStore {
    /// Writes a part; gives its name and hash. On the way of a barrier: one create.
    ///
    /// # Errors
    /// As [`CheckpointStore::publish_pending`].
    ///
    /// # Cancel safety
    /// Cancel safe: the part is then stored or not; without a manifest that names it, retention deletes it.
    pub async fn write_state(
        &self,
        owner: &Owner,
        place: StatePartPlace<'_>,
        bytes: Bytes,
    ) -> Result<(String, String)> {
        let StatePartPlace { checkpoint, operator, subtask, number } = place;
        let name = paths::state_name(checkpoint, owner.epoch, operator, subtask, number);
        let path = self.paths().state(&name);
        let sha256 = codec::sha256_hex(&bytes);
        match self.create(&path, bytes.clone()).await? {
            Create::Written => Ok((name, sha256)),
            Create::Found(found) if found == bytes => Ok((name, sha256)),
            Create::Found(_) => {
                let context = format!("{} is there already, with other content", self.describe(&path));
                Err(Error::new(ErrorKind::Bug, context))
            }
        }
    }

    /// Reads a part and checks its hash. Errors: `Corrupt` (damaged or missing), `Retry`, `InvalidInput`.
    pub async fn read_state(&self, part: &StatePart) -> Result<Bytes> {
        let path = self.paths().state(&part.name);
        let corrupt =
            |what: &str| Error::new(ErrorKind::Corrupt, format!("state {} {what}", self.describe(&path)));
        let Some(bytes) = self.read(&path).await? else { return Err(corrupt("is missing")) };
        if codec::sha256_hex(&bytes) != part.sha256 {
            return Err(corrupt("is damaged: its hash is not the one that the manifest names"));
        }
        Ok(bytes)
    }

    /// Deletes parts that no stored manifest names, up to those of checkpoint `committed`; later ones are still on
    /// their way into a manifest. Returns how many went. Errors: `Retry`, `InvalidInput`, `Corrupt` (a manifest cannot
    /// be read: nothing is deleted).
    pub(crate) async fn delete_unnamed_state(&self, committed: CheckpointId) -> Result<usize> {
        let parts = self.list_paths(&self.paths().state_folder()).await?;
        if parts.is_empty() {
            return Ok(0);
        }
        let mut named = BTreeSet::new();
        for stored in self.list().await? {
            match stored.state {
                crate::StoredState::CompletedWithoutManifest => {}
                crate::StoredState::Pending | crate::StoredState::Completed => {
                    let (_, manifest) = self.load_by_name(&stored.name).await?;
                    let parts = manifest.operators.into_iter().flat_map(|operator| operator.parts);
                    named.extend(parts.map(|part| part.name));
                }
            }
        }
        let mut count = 0;
        for path in parts {
            let Some(name) = path.filename() else { continue };
            let is_old = paths::state_checkpoint(name)
                .is_some_and(|(id, _): (CheckpointId, JobEpoch)| id <= committed);
            if is_old && !named.contains(name) {
                self.delete(&path).await?;
                count += 1;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::{JobKey, Manifest, Retention};

    async fn store() -> (CheckpointStore, Owner) {
        let store = CheckpointStore::open(Arc::new(InMemory::new()), JobKey::new("j", "0")).await.unwrap();
        let owner = store.acquire_ownership("test", 0).await.unwrap();
        (store, owner)
    }

    async fn write(
        store: &CheckpointStore,
        owner: &Owner,
        checkpoint: u64,
        content: &'static [u8],
    ) -> StatePart {
        let checkpoint = CheckpointId(checkpoint);
        let place = StatePartPlace { checkpoint, operator: "count per user", subtask: 0, number: 0 };
        let (name, sha256) = store.write_state(owner, place, Bytes::from_static(content)).await.unwrap();
        StatePart {
            name,
            sha256,
            bytes: content.len() as u64,
            rows: 1,
            kind: StatePartKind::Base,
            checkpoint,
            first_group: 0,
            last_group: 127,
        }
    }

    async fn publish(store: &CheckpointStore, owner: &Owner, checkpoint: u64, parts: &[&StatePart]) {
        let key = store.key().clone();
        let mut manifest = Manifest::new(&key, owner.epoch, CheckpointId(checkpoint), None, 0);
        manifest.operators.push(OperatorSnapshot {
            operator: "count per user".to_owned(),
            state_version: 1,
            key_groups: 128,
            parts: parts.iter().map(|part| (*part).clone()).collect(),
        });
        let published = store.publish_pending(owner, &manifest).await.unwrap();
        store.complete(owner, &published.manifest_ref).await.unwrap();
    }

    #[tokio::test]
    async fn a_part_reads_back_and_damage_is_corrupt() {
        let (store, owner) = store().await;
        let part = write(&store, &owner, 1, b"state").await;
        assert_eq!(store.read_state(&part).await.unwrap(), "state");
        assert_eq!(write(&store, &owner, 1, b"state").await, part, "the same again is success");
        let other = StatePart { sha256: "0".repeat(64), ..part.clone() };
        assert_eq!(store.read_state(&other).await.unwrap_err().kind(), ErrorKind::Corrupt);
        let missing = StatePart { name: "gone".to_owned(), ..part };
        assert_eq!(store.read_state(&missing).await.unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[tokio::test]
    async fn retention_keeps_what_a_manifest_names_and_what_is_on_its_way() {
        let (store, owner) = store().await;
        let mut parts = Vec::new();
        for checkpoint in 1..=5 {
            parts.push(write(&store, &owner, checkpoint, b"state").await);
        }
        // 2 is named by nobody; 1 and 3 only by old manifests; 4 by the needed one; 5 is on its way.
        publish(&store, &owner, 1, &[&parts[0]]).await;
        publish(&store, &owner, 3, &[&parts[2]]).await;
        publish(&store, &owner, 4, &[&parts[3]]).await;
        Retention::keep_last(2).run(&store, CheckpointId(4)).await.unwrap();
        for (part, is_kept) in parts.iter().zip([false, false, true, true, true]) {
            assert_eq!(store.read_state(part).await.is_ok(), is_kept, "{}", part.name);
        }
    }
}
