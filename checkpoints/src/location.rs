//! Where checkpoints are kept, as a user writes it: a folder or a URL.
//!
//! ```text
//! checkpoints, /var/lib/job, file:///var/lib/job    a folder of this machine, synced (`LocalStore`)
//! memory://                                         this process only: for trying things out
//! s3://bucket/prefix   (s3a)                        Amazon S3, and what speaks its protocol
//! gs://bucket/prefix   (gcs)                        Google Cloud Storage
//! az://container/prefix   (azure, abfs, abfss)      Azure Blob Storage
//! ```
//!
//! Credentials and endpoints come from the environment under the names that `object_store` reads (`AWS_…`,
//! `GOOGLE_…`, `AZURE_…`); options stand above it. A URL never carries a secret.
//!
//! Every bucket must refuse to create an object that exists (S3: `If-None-Match: *`): ownership rests on it. A server
//! that ignores the condition answers success to both of two owners, so it is asked once when a store is opened.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use url::Url;

use crate::{Error, ErrorKind, LocalStore, Result};

/// What a store may look like, for errors.
const FORMS: &str = "use a folder, file:///folder, memory://, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix";

/// A checked place for checkpoints. Nothing is contacted before [`StoreLocation::open`].
#[derive(Clone, PartialEq, Eq)]
pub struct StoreLocation {
    place: Place,
    options: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Folder(PathBuf),
    Memory,
    Bucket(Bucket),
}

/// A bucket and the part of it that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) service: Service,
    /// As the user wrote it, without a slash at its end.
    pub(crate) url: String,
    /// Below which everything lies; may be empty.
    pub(crate) prefix: Path,
}

/// Who keeps a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    S3,
    Gcs,
    Azure,
}

impl Service {
    fn of_scheme(scheme: &str) -> Option<Service> {
        match scheme {
            "s3" | "s3a" => Some(Service::S3),
            "gs" | "gcs" => Some(Service::Gcs),
            "az" | "azure" | "abfs" | "abfss" => Some(Service::Azure),
            _ => None,
        }
    }

    /// Name, feature of this crate, and what to set when there are no credentials.
    pub(crate) fn facts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Service::S3 => (
                "Amazon S3",
                "s3",
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_ENDPOINT for a server that is not Amazon's), \
                 or run where the machine has a role; AWS_SKIP_SIGNATURE=true asks without any",
            ),
            Service::Gcs => (
                "Google Cloud Storage",
                "gcs",
                "set GOOGLE_SERVICE_ACCOUNT to the path of a service account's key, or log in with `gcloud auth \
                 application-default login`, or run where the machine has an account",
            ),
            Service::Azure => (
                "Azure Blob Storage",
                "azure",
                "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or the AZURE_CLIENT_ID, \
                 AZURE_CLIENT_SECRET and AZURE_TENANT_ID of a principal",
            ),
        }
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Folder(folder) => folder.display().fmt(f),
            Place::Memory => f.write_str("memory://"),
            Place::Bucket(bucket) => f.write_str(&bucket.url),
        }
    }
}

impl fmt::Debug for StoreLocation {
    /// Names of options only: a value may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options: Vec<&String> = self.options.keys().collect();
        f.debug_struct("StoreLocation").field("place", &self.place).field("options", &options).finish()
    }
}

impl StoreLocation {
    /// A folder of this machine.
    pub fn folder(folder: impl Into<PathBuf>) -> Self {
        StoreLocation { place: Place::Folder(folder.into()), options: BTreeMap::new() }
    }

    /// Reads what a user wrote; a relative folder is below `base`. `options` are those of `object_store`'s clients
    /// (`endpoint`, `region`, `allow_http`, `timeout`, ...), for buckets only; they stand above the environment.
    /// Errors: `InvalidInput`, with what to write instead.
    pub fn parse(text: &str, base: &FilePath, options: BTreeMap<String, String>) -> Result<Self> {
        let text = text.trim();
        let place = place(text, base)?;
        if let (Place::Folder(_) | Place::Memory, Some(option)) = (&place, options.keys().next()) {
            return Err(invalid(text, &format!("takes no options such as '{option}': only buckets do")));
        }
        let location = StoreLocation { place, options };
        // A wrong option is found where the job file is read, not when the job has started.
        if let Place::Bucket(bucket) = &location.place {
            crate::cloud::check_options(bucket, &location.options)?;
        }
        Ok(location)
    }

    /// The folder, where it is one.
    pub fn as_folder(&self) -> Option<&FilePath> {
        match &self.place {
            Place::Folder(folder) => Some(folder),
            Place::Memory | Place::Bucket(_) => None,
        }
    }

    /// True when what is stored is gone with this process.
    pub fn is_memory(&self) -> bool {
        self.place == Place::Memory
    }

    /// Opens the place; a folder is created when missing. A bucket is not contacted yet: the first read does, in
    /// [`crate::CheckpointStore::open_in`]. Each call on `memory://` gives a new, empty store. Errors: `InvalidInput`.
    pub async fn open(&self) -> Result<OpenedStore> {
        let objects: Arc<dyn ObjectStore> = match &self.place {
            Place::Folder(folder) => Arc::new(LocalStore::open(folder).await?),
            Place::Memory => Arc::new(InMemory::new()),
            Place::Bucket(bucket) => crate::cloud::open(bucket, &self.options)?,
        };
        Ok(self.opened(objects))
    }

    /// Opens the place to look at: a folder that is not there is not created. Errors: `InvalidInput`.
    pub async fn open_existing(&self) -> Result<OpenedStore> {
        match &self.place {
            Place::Folder(folder) => Ok(self.opened(Arc::new(LocalStore::open_existing(folder).await?))),
            Place::Memory => Err(invalid("memory://", "has nothing to look at: it is gone with its process")),
            Place::Bucket(_) => self.open().await,
        }
    }

    fn opened(&self, objects: Arc<dyn ObjectStore>) -> OpenedStore {
        let service = match &self.place {
            Place::Bucket(bucket) => Some(bucket.service),
            Place::Folder(_) | Place::Memory => None,
        };
        OpenedStore { objects, place: self.to_string(), service }
    }
}

/// A place that was opened; cheap to clone. Its clones share connections, and what `memory://` holds.
#[derive(Clone)]
pub struct OpenedStore {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// For errors: as the user wrote it.
    pub(crate) place: String,
    /// Set for a bucket.
    pub(crate) service: Option<Service>,
}

impl OpenedStore {
    /// The objects below the place.
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }
}

impl fmt::Debug for OpenedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenedStore").field(&self.place).finish()
    }
}

pub(crate) fn invalid(place: &str, what: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("checkpoint store '{place}' {what}"))
}

pub(crate) fn not_built(bucket: &Bucket) -> Error {
    let (name, feature, _) = bucket.service.facts();
    let what = format!("needs {name}, which this build leaves out: build it with the feature '{feature}'");
    invalid(&bucket.url, &what)
}

fn place(text: &str, base: &FilePath) -> Result<Place> {
    if text.is_empty() {
        return Err(invalid(text, &format!("is empty: {FORMS}")));
    }
    let Some((scheme, _)) = text.split_once("://") else {
        return match text.split_once(':') {
            Some((scheme, rest)) if Service::of_scheme(scheme).is_some() || scheme == "file" => {
                Err(invalid(text, &format!("lacks its slashes: write {scheme}://{}", rest.trim_matches('/'))))
            }
            _ => Ok(Place::Folder(base.join(text))),
        };
    };
    let url = Url::parse(text)
        .map_err(|error| invalid(text, &format!("is not a URL ({error}): {FORMS}")).with_source(error))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid(text, "carries '?' or '#': settings belong into its options"));
    }
    if url.password().is_some() || (!url.username().is_empty() && !scheme.starts_with("abfs")) {
        // Not repeated: it may be a secret.
        return Err(invalid(
            &format!("{scheme}://..."),
            "carries credentials: they belong into the environment, not into a URL that is logged",
        ));
    }
    match url.scheme() {
        "file" => url.to_file_path().map(Place::Folder).map_err(|()| {
            invalid(text, "names no folder of this machine: write file:///folder, with three slashes")
        }),
        "memory" if url.host_str().is_none_or(str::is_empty) && url.path().trim_matches('/').is_empty() => {
            Ok(Place::Memory)
        }
        "memory" => Err(invalid(text, "has a path: memory:// is one place, which ends with the process")),
        scheme => match Service::of_scheme(scheme) {
            Some(service) => bucket(text, &url, service).map(Place::Bucket),
            None => Err(invalid(text, &format!("has the unknown scheme '{scheme}': {FORMS}"))),
        },
    }
}

fn bucket(text: &str, url: &Url, service: Service) -> Result<Bucket> {
    if url.host_str().is_none_or(str::is_empty) {
        return Err(invalid(text, &format!("names no bucket: {FORMS}")));
    }
    if url.port().is_some() {
        return Err(invalid(
            text,
            "names a port: the server is set by the option 'endpoint', behind :// is the bucket",
        ));
    }
    let prefix = Path::from_url_path(url.path().trim_end_matches('/')).map_err(|error| {
        invalid(text, &format!("has a prefix that objects cannot have: {error}")).with_source(error)
    })?;
    Ok(Bucket { service, url: text.trim_end_matches('/').to_owned(), prefix })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoreLocation> {
        StoreLocation::parse(text, FilePath::new("/jobs"), BTreeMap::new())
    }

    #[test]
    fn folders_are_written_as_paths_or_urls() {
        for (text, folder) in [
            ("checkpoints", "/jobs/checkpoints"),
            ("../a b", "/jobs/../a b"),
            ("/var/x", "/var/x"),
            ("file:///var/a%20b", "/var/a b"),
            ("c:drive", "/jobs/c:drive"),
        ] {
            assert_eq!(parse(text).unwrap().as_folder(), Some(FilePath::new(folder)), "{text}");
        }
        assert!(parse("memory://").unwrap().is_memory());
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_write() {
        for (text, expected) in [
            ("", "is empty"),
            ("s4://bucket/x", "unknown scheme 's4': use a folder"),
            ("https://bucket.s3.amazonaws.com/x", "unknown scheme 'https'"),
            ("s3:bucket/x", "write s3://bucket/x"),
            ("file:x", "write file://x"),
            ("file://host/x", "three slashes"),
            ("s3:///x", "names no bucket"),
            ("s3://bucket:9000/x", "option 'endpoint'"),
            ("s3://bucket/x?region=eu", "its options"),
            ("s3://bucket/a//b", "prefix that objects cannot have"),
            ("memory://jobs", "has a path"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_secret_in_a_url_is_refused_and_not_repeated() {
        let error = parse("s3://AKIA:hush@bucket/x").unwrap_err().to_string();
        assert!(
            error.contains("environment") && !error.contains("hush") && !error.contains("AKIA"),
            "{error}"
        );
    }

    #[test]
    fn options_are_for_buckets_and_their_values_are_never_shown() {
        let options = BTreeMap::from([("secret_access_key".to_owned(), "hush".to_owned())]);
        let base = FilePath::new("");
        let error = StoreLocation::parse("checkpoints", base, options.clone()).unwrap_err().to_string();
        assert!(error.contains("takes no options"), "{error}");
        let bucket = Bucket { service: Service::S3, url: "s3://b".to_owned(), prefix: Path::default() };
        let location = StoreLocation { place: Place::Bucket(bucket), options };
        let shown = format!("{location:?} {location}");
        assert!(shown.contains("secret_access_key") && !shown.contains("hush"), "{shown}");
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_not_created_by_looking() {
        let parent = tempfile::tempdir().unwrap();
        let location = StoreLocation::folder(parent.path().join("none"));
        let error = location.open_existing().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("none"), "{error}");
        assert!(!parent.path().join("none").exists());
    }
}
