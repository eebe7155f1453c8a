//! The suite that an `ObjectStore` must pass to hold checkpoints.
//!
//! It runs whole workflows, not single calls: what matters is what a job sees. Each rule gets a job folder of its
//! own below the given store's root.

use std::sync::Arc;

use futures::future::join_all;
use object_store::ObjectStore;
use object_store::prefix::PrefixStore;
use sharestream_base::ids::{CheckpointId, JobEpoch};

use crate::decide::{LastCommitted, Outcomes};
use crate::{
    CheckpointStore, ErrorKind, Inspection, JobKey, Manifest, ManifestRef, Owner, Recovery, Result,
    Retention, StoredState,
};

/// Runs every rule against `objects`, which must be empty.
///
/// # Panics
/// When a rule does not hold, naming it.
///
/// # Errors
/// What the store answered where it had to succeed.
pub async fn run(objects: Arc<dyn ObjectStore>) -> Result<()> {
    let folder = |name: &str| -> Arc<dyn ObjectStore> { Arc::new(PrefixStore::new(objects.clone(), name)) };
    a_checkpoint_is_published_completed_and_restored(folder("publish")).await?;
    a_repeat_is_success_and_a_different_repeat_is_not(folder("repeat")).await?;
    a_newer_owner_fences_the_older(folder("fence")).await?;
    owners_that_start_together_get_different_epochs(folder("together")).await?;
    an_uncommitted_manifest_is_deleted_by_recovery(folder("uncommitted")).await?;
    a_folder_of_another_job_is_refused(folder("identity")).await?;
    instances_of_one_job_share_a_folder(folder("instances")).await?;
    retention_keeps_what_recovery_needs(folder("retention")).await?;
    a_start_deletes_what_is_too_many(folder("start")).await?;
    a_store_is_looked_at_without_a_trace(folder("look")).await
}

async fn open(objects: &Arc<dyn ObjectStore>) -> Result<(CheckpointStore, Owner)> {
    let store = CheckpointStore::open(objects.clone(), JobKey::new("flights", "main")).await?;
    let owner = store.acquire_ownership("conformance", 1).await?;
    Ok((store, owner))
}

fn manifest(store: &CheckpointStore, owner: &Owner, id: u64, predecessor: Option<u64>) -> Manifest {
    let predecessor = predecessor.map(CheckpointId);
    let mut manifest = Manifest::new(store.key(), owner.epoch, CheckpointId(id), predecessor, 1);
    manifest.transactional_id = Some(format!("flights/main/{}", id % 2));
    manifest
}

fn outcome(id: u64, manifest_ref: &ManifestRef) -> Outcomes {
    let last_committed = LastCommitted { checkpoint: CheckpointId(id), manifest: Some(manifest_ref.clone()) };
    Outcomes { last_committed: Some(last_committed), ..Outcomes::default() }
}

async fn states(store: &CheckpointStore) -> Result<Vec<(u64, StoredState)>> {
    Ok(store.list().await?.into_iter().map(|checkpoint| (checkpoint.id.0, checkpoint.state)).collect())
}

async fn a_checkpoint_is_published_completed_and_restored(objects: Arc<dyn ObjectStore>) -> Result<()> {
    let (store, owner) = open(&objects).await?;
    let first = manifest(&store, &owner, 1, None);
    let published = store.publish_pending(&owner, &first).await?;
    assert_eq!(states(&store).await?, [(1, StoredState::Pending)], "published is pending");
    store.complete(&owner, &published.manifest_ref).await?;
    assert_eq!(states(&store).await?, [(1, StoredState::Completed)], "completed");

    let (store, newer) = open(&objects).await?;
    let recovery = Recovery::inspect(&store).await?;
    let last = outcome(1, &published.manifest_ref);
    let recovered = recovery.finish(&store, &newer, last).await?;
    assert_eq!(recovered.restored, Some((published.manifest_ref, first)), "exactly what was published");
    assert_eq!(recovered.next_checkpoint, CheckpointId(2), "ids go on");
    Ok(())
}

async fn a_repeat_is_success_and_a_different_repeat_is_not(objects: Arc<dyn ObjectStore>) -> Result<()> {
    let (store, owner) = open(&objects).await?;
    let first = manifest(&store, &owner, 1, None);
    let published = store.publish_pending(&owner, &first).await?;
    let again = store.publish_pending(&owner, &first).await?;
    assert_eq!(published.manifest_ref, again.manifest_ref, "the same manifest again");
    store.complete(&owner, &published.manifest_ref).await?;
    store.complete(&owner, &published.manifest_ref).await?;
    let different = manifest(&store, &owner, 1, Some(0));
    let error = store.publish_pending(&owner, &different).await.expect_err("an object is never overwritten");
    assert_eq!(error.kind(), ErrorKind::Bug, "{error}");
    assert_eq!(store.load(&published.manifest_ref).await?, first, "the first content stays");
    Ok(())
}

async fn a_newer_owner_fences_the_older(objects: Arc<dyn ObjectStore>) -> Result<()> {
    let (store, older) = open(&objects).await?;
    store.check_owner(&older).await?;
    let newer = store.acquire_ownership("the newer one", 2).await?;
    assert!(newer.epoch > older.epoch, "epochs rise");
    store.check_owner(&newer).await?;
    let error = store.check_owner(&older).await.expect_err("the older owner is fenced");
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert!(error.to_string().contains("the newer one"), "names the newer owner: {error}");
    let finish = Recovery::inspect(&store).await?.finish(&store, &older, Outcomes::default()).await;
    assert_eq!(
        finish.expect_err("recovery checks the owner").kind(),
        ErrorKind::Fenced,
        "recovery is fenced too"
    );
    Ok(())
}

async fn owners_that_start_together_get_different_epochs(objects: Arc<dyn ObjectStore>) -> Result<()> {
    let store = CheckpointStore::open(objects, JobKey::new("flights", "main")).await?;
    // The same name and the same clock: only the store tells them apart.
    let owners = join_all((0..8).map(|_| store.acquire_ownership("twin", 1))).await;
    let mut epochs: Vec<JobEpoch> =
        owners.into_iter().map(|owner| owner.map(|owner| owner.epoch)).collect::<Result<_>>()?;
    epochs.sort();
    epochs.dedup();
    assert_eq!(epochs.len(), 8, "one create per name succeeds");
    Ok(())
}

async fn an_uncommitted_manifest_is_deleted_by_recovery(objects: Arc<dyn ObjectStore>) -> Result<()> {
    let (store, owner) = open(&objects).await?;
    let first = store.publish_pending(&owner, &manifest(&store, &owner, 1, None)).await?.manifest_ref;
    store.complete(&owner, &first).await?;
    store.publish_pending(&owner, &manifest(&store, &owner, 2, Some(1))).await?;

    let (store, newer) = open(&objects).await?;
    let recovery = Recovery::inspect(&store).await?;
    let ids: Vec<&str> = recovery.pending_transactional_ids().collect();
    assert_eq!(ids, ["flights/main/0"], "the transaction of the pending manifest is resolved first");
    let recovered = recovery.finish(&store, &newer, outcome(1, &first)).await?;
    assert_eq!(recovered.restored.map(|(restored, _)| restored), Some(first), "its predecessor");
    assert_eq!(recovered.next_checkpoint, CheckpointId(3), "the id is not used again");
    assert_eq!(states(&store).await?, [(1, StoredState::Completed)], "the pending one is gone");
    Ok(())
}

async fn a_folder_of_another_job_is_refused(objects: Arc<dyn ObjectStore>) -> Result<()> {
    open(&objects).await?;
    let error = CheckpointStore::open(objects, JobKey::new("orders", "main")).await.expect_err("another job");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let text = error.to_string();
    assert!(text.contains("'flights'") && text.contains("'orders'"), "names both jobs: {text}");
    Ok(())
}

async fn instances_of_one_job_share_a_folder(objects: Arc<dyn ObjectStore>) -> Result<()> {
    let (main, owner) = open(&objects).await?;
    main.publish_pending(&owner, &manifest(&main, &owner, 1, None)).await?;
    let other = CheckpointStore::open(objects, JobKey::new("flights", "a/b")).await?;
    let other_owner = other.acquire_ownership("conformance", 1).await?;
    assert_eq!(other_owner.epoch, JobEpoch(1), "each instance has its own epochs");
    assert!(other.list().await?.is_empty(), "and its own checkpoints");
    main.check_owner(&owner).await
}

async fn retention_keeps_what_recovery_needs(objects: Arc<dyn ObjectStore>) -> Result<()> {
    let (store, owner) = open(&objects).await?;
    let mut predecessor = None;
    for id in 1..=5 {
        let published = store.publish_pending(&owner, &manifest(&store, &owner, id, predecessor)).await?;
        store.complete(&owner, &published.manifest_ref).await?;
        predecessor = Some(id);
    }
    store.publish_pending(&owner, &manifest(&store, &owner, 6, Some(5))).await?;
    let deleted_count = Retention::keep_last(2).run(&store, CheckpointId(5)).await?;
    assert_eq!(deleted_count, 3, "all but two");
    let kept = [(4, StoredState::Completed), (5, StoredState::Completed), (6, StoredState::Pending)];
    assert_eq!(states(&store).await?, kept, "the last ones, and what is pending");
    Ok(())
}

async fn a_start_deletes_what_is_too_many(objects: Arc<dyn ObjectStore>) -> Result<()> {
    let mut last = None;
    for id in 1..=4 {
        let (store, owner) = open(&objects).await?;
        let store = store.with_owners_kept(2).with_retention(Retention::keep_last(2));
        let outcomes = last.map_or_else(Outcomes::default, |(id, manifest_ref)| outcome(id, &manifest_ref));
        let recovered = Recovery::inspect(&store).await?.finish(&store, &owner, outcomes).await?;
        let predecessor = recovered.predecessor.map(|id| id.0);
        let published = store.publish_pending(&owner, &manifest(&store, &owner, id, predecessor)).await?;
        store.complete(&owner, &published.manifest_ref).await?;
        last = Some((id, published.manifest_ref));
    }
    let (store, _) = open(&objects).await?;
    let kept = [(2, StoredState::Completed), (3, StoredState::Completed), (4, StoredState::Completed)];
    assert_eq!(states(&store).await?, kept, "two of before, and the one of this run");
    Ok(())
}

async fn a_store_is_looked_at_without_a_trace(objects: Arc<dyn ObjectStore>) -> Result<()> {
    let (store, owner) = open(&objects).await?;
    let published = store.publish_pending(&owner, &manifest(&store, &owner, 1, None)).await?;
    store.complete(&owner, &published.manifest_ref).await?;
    store.publish_pending(&owner, &manifest(&store, &owner, 2, Some(1))).await?;
    let seen = Inspection::of(&store).await?;
    assert_eq!(seen.faults(), [], "nothing is wrong");
    let epochs: Vec<_> = seen.owners.iter().map(|owner| (owner.epoch, owner.by.as_deref())).collect();
    assert_eq!(epochs, [(owner.epoch, Some("conformance"))], "who owns it");
    assert!(seen.checkpoints.iter().all(|one| one.bytes > 100), "sizes are known");
    assert_eq!(Inspection::of(&store).await?, seen, "and nothing changed");
    store.check_owner(&owner).await
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::LocalStore;

    #[tokio::test]
    async fn memory_holds_checkpoints() {
        run(Arc::new(InMemory::new())).await.unwrap();
    }

    #[tokio::test]
    async fn a_local_folder_holds_checkpoints() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::open(folder.path().join("new/below/it")).await.unwrap();
        run(Arc::new(store)).await.unwrap();
    }
}
