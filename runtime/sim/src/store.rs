//! An object store that is slow, fails, loses answers, and loses what was not synced when the machine dies.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use sharestream_base::{Clock, Rng};

use crate::trace::Trace;

/// How well the store works at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreWeather {
    /// Delay of a call: 0 up to this, half before and half after its effect.
    pub delay_max: Duration,
    /// Part of the calls that fail without effect, 0.0 to 1.0.
    pub failed: f64,
    /// Part of the calls that have their effect and then fail, 0.0 to 1.0.
    pub answer_lost: f64,
}

impl Default for StoreWeather {
    fn default() -> Self {
        StoreWeather { delay_max: Duration::from_millis(4), failed: 0.0, answer_lost: 0.0 }
    }
}

/// The bucket that all processes of a run see.
#[derive(Clone)]
pub struct Bucket {
    shared: Arc<Shared>,
}

struct Shared {
    objects: InMemory,
    clock: Clock,
    rng: Rng,
    trace: Trace,
    weather: Mutex<StoreWeather>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bucket")
    }
}

impl Bucket {
    /// An empty bucket.
    pub fn new(clock: &Clock, rng: Rng, trace: Trace) -> Self {
        let shared = Shared {
            objects: InMemory::new(),
            clock: clock.clone(),
            rng,
            trace,
            weather: Mutex::new(StoreWeather::default()),
        };
        Bucket { shared: Arc::new(shared) }
    }

    /// Changes how well the store works, from the next call on.
    pub fn set_weather(&self, weather: StoreWeather) {
        *self.shared.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
    }

    /// The bucket as one process sees it. Once `lost_power` is set, a write of this process that was applied and not
    /// answered is undone by an even chance: it was in a cache.
    pub fn attach(&self, lost_power: Arc<AtomicBool>) -> Arc<dyn ObjectStore> {
        Arc::new(Attached { shared: Arc::clone(&self.shared), lost_power })
    }

    /// Every object there is, without faults: for checks.
    pub async fn paths(&self) -> Vec<String> {
        let found: Vec<ObjectMeta> = self.shared.objects.list(None).try_collect().await.unwrap_or_default();
        let mut paths: Vec<String> = found.into_iter().map(|meta| meta.location.to_string()).collect();
        paths.sort();
        paths
    }
}

/// What chance decided about one call.
struct Draw {
    half_delay: Duration,
    failed: bool,
    answer_lost: bool,
}

impl Shared {
    fn draw(&self) -> Draw {
        let weather = *self.weather.lock().unwrap_or_else(PoisonError::into_inner);
        Draw {
            half_delay: weather.delay_max.mul_f64(self.rng.unit() / 2.0),
            failed: self.rng.unit() < weather.failed,
            answer_lost: self.rng.unit() < weather.answer_lost,
        }
    }

    async fn call<T>(&self, what: &str, path: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let draw = self.draw();
        self.clock.sleep(draw.half_delay).await;
        if draw.failed {
            self.trace.note(format!("store: {what} {path} fails"));
            return Err(unavailable());
        }
        let result = work.await;
        self.trace.note(format!("store: {what} {path}: {}", if result.is_ok() { "done" } else { "refused" }));
        self.clock.sleep(draw.half_delay).await;
        if draw.answer_lost {
            self.trace.note(format!("store: the answer to {what} {path} is lost"));
            return Err(unavailable());
        }
        result
    }
}

fn unavailable() -> Error {
    Error::Generic { store: "simulated", source: "the store gave no answer".into() }
}

#[derive(Clone)]
struct Attached {
    shared: Arc<Shared>,
    lost_power: Arc<AtomicBool>,
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedStore")
    }
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated store")
    }
}

/// Undoes a write that was applied and never answered, when its process lost power.
struct Unsynced<'a> {
    store: &'a Attached,
    path: Path,
    is_applied: bool,
    is_answered: bool,
}

impl Drop for Unsynced<'_> {
    fn drop(&mut self) {
        let lost = self.is_applied && !self.is_answered && self.store.lost_power.load(Ordering::Relaxed);
        if lost && self.store.shared.rng.below(2) == 0 {
            self.store.shared.trace.note(format!("store: the unsynced {} is lost", self.path));
            // In memory a deletion is done at its first poll.
            let _deleted = self.store.shared.objects.delete(&self.path).now_or_never();
        }
    }
}

#[async_trait]
impl ObjectStore for Attached {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let mut unsynced =
            Unsynced { store: self, path: location.clone(), is_applied: false, is_answered: false };
        let work = async {
            let result = self.shared.objects.put_opts(location, payload, options).await;
            unsynced.is_applied = result.is_ok();
            result
        };
        let result = self.shared.call("put", location.as_ref(), work).await;
        unsynced.is_answered = true;
        result
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotImplemented {
            operation: "put_multipart_opts".to_owned(),
            implementer: self.to_string(),
        })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.shared.call("get", location.as_ref(), self.shared.objects.get_opts(location, options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .then(move |location| {
                let store = store.clone();
                async move {
                    let location = location?;
                    let work = store.shared.objects.delete(&location);
                    store.shared.call("delete", location.as_ref(), work).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let name = prefix.as_ref().map_or_else(String::new, Path::to_string);
            let work = store.shared.objects.list(prefix.as_ref()).try_collect::<Vec<_>>();
            match store.shared.call("list", &name, work).await {
                Ok(found) => found.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            }
        };
        listed.map(futures::stream::iter).flatten_stream().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let name = prefix.map_or_else(String::new, Path::to_string);
        self.shared.call("list", &name, self.shared.objects.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.shared.call("copy", from.as_ref(), self.shared.objects.copy_opts(from, to, options)).await
    }
}
