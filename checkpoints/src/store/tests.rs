use std::fmt;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions,
    PutResult, Result as StoreResult,
};

use super::*;

/// A server that ignores the condition of a write, as S3-compatible ones did for years.
#[derive(Debug, Default)]
struct Overwriting(InMemory);

impl fmt::Display for Overwriting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("overwriting")
    }
}

#[async_trait]
impl ObjectStore for Overwriting {
    async fn put_opts(&self, at: &Path, payload: PutPayload, _: PutOptions) -> StoreResult<PutResult> {
        self.0.put_opts(at, payload, PutOptions::default()).await
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(at, options).await
    }
    async fn get_opts(&self, at: &Path, options: GetOptions) -> StoreResult<GetResult> {
        self.0.get_opts(at, options).await
    }
    fn delete_stream(
        &self,
        at: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        self.0.delete_stream(at)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.0.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.0.copy_opts(from, to, options).await
    }
}

fn bucket(objects: impl ObjectStore) -> OpenedStore {
    OpenedStore { objects: Arc::new(objects), place: "s3://b/x".to_owned(), service: Some(Service::S3) }
}

#[tokio::test]
async fn a_bucket_that_overwrites_is_refused_before_anybody_owns_anything() {
    let opened = bucket(Overwriting::default());
    for _ in 0..2 {
        let error = CheckpointStore::open_in(&opened, JobKey::new("flights", "main")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("s3://b/x created an object that was there"), "{error}");
    }
    let opened = bucket(InMemory::new());
    CheckpointStore::open_in(&opened, JobKey::new("flights", "main")).await.unwrap();
}

#[tokio::test]
async fn a_folder_of_a_newer_version_is_named_and_not_used() {
    let objects = Arc::new(InMemory::new());
    let bytes = Bytes::from_static(br#"{"format_version":2,"job":"flights","layout":"new"}"#);
    objects.put_opts(&Paths::job(), bytes.into(), PutOptions::default()).await.unwrap();
    let error = CheckpointStore::open(objects, JobKey::new("flights", "main")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("format version 2"), "{error}");
}

#[test]
fn what_a_server_says_in_xml_is_told_in_a_line() {
    let xml = "403 Forbidden: <?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>No.</Message>\
               <RequestId>1</RequestId></Error>";
    assert_eq!(one_line(xml), "403 Forbidden: AccessDenied, No.");
    assert_eq!(one_line("no answer"), "no answer");
    assert_eq!(one_line("500: <?xml version=\"1.0\"?>\n<Other/>"), "500: <?xml version=\"1.0\"?> <Other/>");
}
