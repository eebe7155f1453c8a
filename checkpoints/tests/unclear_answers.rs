//! A store whose answers get lost, before or after the write happened.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as StoreResult,
};
use sharestream_base::ids::{CheckpointId, JobEpoch};
use sharestream_checkpoints::{CheckpointStore, ErrorKind, JobKey, Manifest};

#[derive(Debug, Default)]
struct Faulty {
    inner: InMemory,
    /// Puts to lose; each is applied or not as `apply` says.
    lose_puts: AtomicU32,
    apply: AtomicBool,
    lose_gets: AtomicBool,
    put_count: AtomicU32,
}

impl Faulty {
    fn lose(&self, put_count: u32, apply: bool) {
        self.apply.store(apply, Ordering::SeqCst);
        self.lose_puts.store(put_count, Ordering::SeqCst);
    }
}

fn lost() -> object_store::Error {
    object_store::Error::Generic { store: "faulty", source: "the answer got lost".into() }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> StoreResult<PutResult> {
        self.put_count.fetch_add(1, Ordering::SeqCst);
        let lose = self.lose_puts.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if lose.is_err() || self.apply.load(Ordering::SeqCst) {
            let answer = self.inner.put_opts(at, payload, options).await;
            if lose.is_err() {
                return answer;
            }
        }
        Err(lost())
    }
    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        Err(lost())
    }
    async fn get_opts(&self, at: &Path, options: GetOptions) -> StoreResult<GetResult> {
        if self.lose_gets.load(Ordering::SeqCst) {
            return Err(lost());
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
        self.inner.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> StoreResult<()> {
        Err(lost())
    }
}

async fn open() -> (Arc<Faulty>, CheckpointStore) {
    let faulty = Arc::new(Faulty::default());
    let store = CheckpointStore::open(faulty.clone(), JobKey::new("flights", "main")).await;
    let store = store.expect("a new folder opens");
    (faulty, store)
}

#[tokio::test]
async fn a_manifest_whose_answer_got_lost_is_read_back_or_written_again() {
    let (faulty, store) = open().await;
    let owner = store.acquire_ownership("test", 1).await.unwrap();
    for (id, apply) in [(1, true), (2, false)] {
        let manifest = Manifest::new(store.key(), owner.epoch, CheckpointId(id), None, 1);
        faulty.lose(1, apply);
        let published = store.publish_pending(&owner, &manifest).await.unwrap();
        assert_eq!(store.load(&published.manifest_ref).await.unwrap(), manifest);
    }
}

#[tokio::test]
async fn a_manifest_that_stays_unknown_is_indeterminate() {
    let (faulty, store) = open().await;
    let owner = store.acquire_ownership("test", 1).await.unwrap();
    let manifest = Manifest::new(store.key(), owner.epoch, CheckpointId(1), None, 1);
    faulty.lose(99, false);
    let error = store.publish_pending(&owner, &manifest).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert!(error.to_string().contains("00000000000000000001.pending"), "{error}");
    faulty.lose(1, true);
    faulty.lose_gets.store(true, Ordering::SeqCst);
    let error = store.publish_pending(&owner, &manifest).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
}

#[tokio::test]
async fn an_epoch_whose_answer_got_lost_is_never_taken_for_won() {
    let (faulty, store) = open().await;
    faulty.lose(1, true);
    let owner = store.acquire_ownership("test", 1).await.unwrap();
    assert_eq!(owner.epoch, JobEpoch(2), "epoch 1 may be somebody else's with the same name and clock");
    store.check_owner(&owner).await.unwrap();
}

#[tokio::test]
async fn publishing_costs_one_write_and_nothing_else() {
    let (faulty, store) = open().await;
    let owner = store.acquire_ownership("test", 1).await.unwrap();
    let manifest = Manifest::new(store.key(), owner.epoch, CheckpointId(1), None, 1);
    let before = faulty.put_count.load(Ordering::SeqCst);
    // Reading would fail: the commit path must not read.
    faulty.lose_gets.store(true, Ordering::SeqCst);
    store.publish_pending(&owner, &manifest).await.unwrap();
    assert_eq!(faulty.put_count.load(Ordering::SeqCst), before + 1);
}
