//! A recovery whose job is taken over between two of its steps: it is fenced, and judges and deletes nothing of the
//! newer owner's. Each scenario is given an empty store of any kind.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as StoreResult,
};
use sharestream_base::ids::CheckpointId;
use sharestream_checkpoints::decide::{LastCommitted, Outcomes};
use sharestream_checkpoints::{
    CheckpointStore, Error, ErrorKind, JobKey, Manifest, ManifestRef, Owner, Recovery, Retention,
};

/// Before which call on manifests the other process acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    List,
    /// The read of this number, from 0.
    Read(u32),
}

type Action = BoxFuture<'static, ()>;

/// A store in which another process acts once, at a chosen moment.
struct Meddled {
    inner: Arc<dyn ObjectStore>,
    action: Arc<Mutex<Option<(Before, Action)>>>,
}

impl fmt::Debug for Meddled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meddled")
    }
}

impl fmt::Display for Meddled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("meddled")
    }
}

fn due(action: &Mutex<Option<(Before, Action)>>, call: Before) -> Option<Action> {
    let mut action = action.lock().unwrap();
    match action.take() {
        Some((before, found)) if before == call => Some(found),
        Some((Before::Read(left @ 1..), found)) if call == Before::Read(0) => {
            *action = Some((Before::Read(left - 1), found));
            None
        }
        other => {
            *action = other;
            None
        }
    }
}

#[async_trait]
impl ObjectStore for Meddled {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> StoreResult<PutResult> {
        self.inner.put_opts(at, payload, options).await
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }
    async fn get_opts(&self, at: &Path, options: GetOptions) -> StoreResult<GetResult> {
        if at.as_ref().contains("manifests")
            && let Some(action) = due(&self.action, Before::Read(0))
        {
            action.await;
        }
        self.inner.get_opts(at, options).await
    }
    fn delete_stream(
        &self,
        at: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        self.inner.delete_stream(at)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        let is_manifests = prefix.is_some_and(|prefix| prefix.as_ref().ends_with("manifests"));
        let action = is_manifests.then(|| due(&self.action, Before::List)).flatten();
        let (inner, prefix) = (Arc::clone(&self.inner), prefix.cloned());
        futures::stream::once(async move {
            if let Some(action) = action {
                action.await;
            }
            inner.list(prefix.as_ref())
        })
        .flatten()
        .boxed()
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// The older owner, which recovers, and the newer one's way to the same objects.
struct Race {
    action: Arc<Mutex<Option<(Before, Action)>>>,
    store: CheckpointStore,
    newer: CheckpointStore,
}

impl Race {
    async fn new(inner: Arc<dyn ObjectStore>) -> Race {
        let action = Arc::default();
        let meddled = Meddled { inner: Arc::clone(&inner), action: Arc::clone(&action) };
        let key = JobKey::new("flights", "main");
        let store = CheckpointStore::open(Arc::new(meddled), key.clone()).await.unwrap();
        Race { action, store, newer: CheckpointStore::open(inner, key).await.unwrap() }
    }

    async fn publish(&self, owner: &Owner, id: u64, predecessor: Option<u64>) -> ManifestRef {
        publish(&self.newer, owner, id, predecessor).await
    }

    /// Recovers as `owner`; `action` happens before that call of `finish`.
    async fn recover(&self, owner: &Owner, outcomes: Outcomes, before: Before, action: Action) -> Error {
        let recovery = Recovery::inspect(&self.store).await.unwrap();
        *self.action.lock().unwrap() = Some((before, action));
        let error = recovery.finish(&self.store, owner, outcomes).await.unwrap_err();
        assert!(self.action.lock().unwrap().is_none(), "the other process has acted: {error}");
        error
    }
}

async fn publish(store: &CheckpointStore, owner: &Owner, id: u64, predecessor: Option<u64>) -> ManifestRef {
    let predecessor = predecessor.map(CheckpointId);
    let manifest = Manifest::new(store.key(), owner.epoch, CheckpointId(id), predecessor, 1);
    store.publish_pending(owner, &manifest).await.unwrap().manifest_ref
}

fn committed(id: u64, manifest_ref: &ManifestRef) -> Outcomes {
    let last_committed = LastCommitted { checkpoint: CheckpointId(id), manifest: Some(manifest_ref.clone()) };
    Outcomes { last_committed: Some(last_committed), ..Outcomes::default() }
}

pub(crate) async fn a_pending_manifest_of_a_newer_owner_is_not_deleted(inner: Arc<dyn ObjectStore>) {
    let race = Race::new(inner).await;
    let older = race.store.acquire_ownership("the older one", 1).await.unwrap();
    let newer = race.newer.clone();
    let action = Box::pin(async move {
        let owner = newer.acquire_ownership("the newer one", 2).await.unwrap();
        publish(&newer, &owner, 1, None).await;
    });
    let error = race.recover(&older, Outcomes::default(), Before::List, action).await;
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert!(error.to_string().contains("the newer one"), "{error}");
    assert_eq!(race.newer.list().await.unwrap().len(), 1, "it is the newer owner's to complete or delete");
}

pub(crate) async fn commits_of_a_newer_owner_are_not_called_corrupt(inner: Arc<dyn ObjectStore>) {
    let race = Race::new(inner).await;
    let older = race.store.acquire_ownership("the older one", 1).await.unwrap();
    let newer = race.newer.clone();
    let action = Box::pin(async move {
        let owner = newer.acquire_ownership("the newer one", 2).await.unwrap();
        let first = publish(&newer, &owner, 1, None).await;
        newer.complete(&owner, &first).await.unwrap();
        publish(&newer, &owner, 2, Some(1)).await;
    });
    let error = race.recover(&older, Outcomes::default(), Before::List, action).await;
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
}

pub(crate) async fn a_pending_manifest_that_a_newer_owner_deletes_meanwhile_is_not_called_corrupt(
    inner: Arc<dyn ObjectStore>,
) {
    let race = Race::new(inner).await;
    let first = race.newer.acquire_ownership("the first one", 1).await.unwrap();
    let done = race.publish(&first, 1, None).await;
    race.newer.complete(&first, &done).await.unwrap();
    let left = race.publish(&first, 2, Some(1)).await;
    let older = race.store.acquire_ownership("the older one", 2).await.unwrap();
    let newer = race.newer.clone();
    let action = Box::pin(async move {
        newer.acquire_ownership("the newer one", 3).await.unwrap();
        newer.delete_pending(&left).await.unwrap();
    });
    // It reads the named manifest first, then the one that is gone by now.
    let error = race.recover(&older, committed(1, &done), Before::Read(1), action).await;
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
}

pub(crate) async fn a_restored_manifest_that_a_newer_owner_has_let_go_is_not_called_corrupt(
    inner: Arc<dyn ObjectStore>,
) {
    let race = Race::new(inner).await;
    let first = race.newer.acquire_ownership("the first one", 1).await.unwrap();
    let done = race.publish(&first, 1, None).await;
    race.newer.complete(&first, &done).await.unwrap();
    let older = race.store.acquire_ownership("the older one", 2).await.unwrap();
    let newer = race.newer.clone();
    let action = Box::pin(async move {
        let owner = newer.acquire_ownership("the newer one", 3).await.unwrap();
        let next = publish(&newer, &owner, 2, Some(1)).await;
        newer.complete(&owner, &next).await.unwrap();
        Retention::keep_last(1).run(&newer, CheckpointId(2)).await.unwrap();
    });
    // It has judged the manifest and loads it.
    let error = race.recover(&older, committed(1, &done), Before::Read(1), action).await;
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
}

pub(crate) async fn whoever_is_to_recover_again_asks_first_whether_the_job_is_still_its_own(
    inner: Arc<dyn ObjectStore>,
) {
    let race = Race::new(inner).await;
    let first = race.newer.acquire_ownership("the first one", 1).await.unwrap();
    let older = race.store.acquire_ownership("the older one", 2).await.unwrap();
    let newer = race.newer.clone();
    let action = Box::pin(async move {
        // A zombie publishes under an id that nobody has fenced, and the job is taken over.
        let mut manifest = Manifest::new(newer.key(), first.epoch, CheckpointId(1), None, 1);
        manifest.transactional_id = Some("unfenced".to_owned());
        newer.publish_pending(&first, &manifest).await.unwrap();
        newer.acquire_ownership("the newer one", 3).await.unwrap();
    });
    let error = race.recover(&older, Outcomes::default(), Before::List, action).await;
    assert_eq!(error.kind(), ErrorKind::Fenced, "a new attempt would take the job back: {error}");
}
