//! Schemas of writers by id: asked for once, kept, and shared by the sources of a job.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use serde::{Deserialize, Serialize};
use sharestream_base::{Clock, ErrorKind, Instant};

use super::schema::AvroSchema;
use crate::{Error, Result};

/// Id of a schema in a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SchemaId(pub u32);

impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a registry says of an id.
#[derive(Clone, Debug)]
pub enum WriterSchema {
    /// Its schema.
    Known(Arc<AvroSchema>),
    /// It has none, or none of Avro: why.
    Missing(String),
}

/// A schema registry, as far as a source needs it.
#[async_trait]
pub trait SchemaRegistry: fmt::Debug + Send + Sync {
    /// The schema of an id. That there is none is an answer.
    ///
    /// # Errors
    /// `Retry` when the registry did not answer within the bounds that it was given; nothing is known then.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed by asking.
    async fn schema(&self, id: SchemaId) -> Result<WriterSchema>;
}

/// Ids that are kept. A topic has a handful; garbage that looks like ids must not fill the memory.
const KEPT_MAX: usize = 1_000;
/// A schema never changes, but one that is missing may come: a registry may lag behind the one that was written to.
const MISSING_KEPT: Duration = Duration::from_secs(10);

/// The schemas that a job has met.
#[derive(Clone)]
pub(crate) struct WriterSchemas {
    registry: Arc<dyn SchemaRegistry>,
    clock: Clock,
    kept: Arc<Mutex<Kept>>,
}

/// An error that several can have.
type Asked = Shared<BoxFuture<'static, std::result::Result<WriterSchema, (ErrorKind, String)>>>;

#[derive(Default)]
struct Kept {
    entries: BTreeMap<SchemaId, Entry>,
    /// In the order in which they came.
    order: VecDeque<SchemaId>,
}

enum Entry {
    /// On its way. Whoever waits moves it on, and whoever stops to wait leaves it to the others, or to its own next call.
    Asked(Asked),
    Here {
        schema: WriterSchema,
        until: Option<Instant>,
    },
}

impl fmt::Debug for WriterSchemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterSchemas").field("registry", &self.registry).finish_non_exhaustive()
    }
}

impl WriterSchemas {
    pub(crate) fn new(registry: Arc<dyn SchemaRegistry>, clock: Clock) -> Self {
        WriterSchemas { registry, clock, kept: Arc::default() }
    }

    /// The schema of an id, asked for once however many want it.
    ///
    /// # Errors
    /// As [`SchemaRegistry::schema`]; the next call asks again.
    ///
    /// # Cancel safety
    /// Cancel safe: the question goes on where it was at the next call.
    pub(crate) async fn get(&self, id: SchemaId) -> Result<WriterSchema> {
        let asked = match self.kept().find(id, self.clock.now()) {
            Some(Entry::Here { schema, .. }) => return Ok(schema.clone()),
            Some(Entry::Asked(asked)) => Some(asked.clone()),
            None => None,
        };
        let asked = asked.unwrap_or_else(|| self.ask(id));
        let answer = asked.clone().await;
        self.kept().answered(id, &asked, answer.as_ref().ok(), self.clock.now());
        answer.map_err(|(kind, context)| Error::new(kind, context))
    }

    fn ask(&self, id: SchemaId) -> Asked {
        let registry = self.registry.clone();
        let asking =
            async move { registry.schema(id).await.map_err(|error| (error.kind(), error.to_string())) };
        let asked = asking.boxed().shared();
        self.kept().insert(id, Entry::Asked(asked.clone()));
        asked
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn find(&mut self, id: SchemaId, now: Instant) -> Option<&Entry> {
        let is_over =
            |entry: &Entry| matches!(entry, Entry::Here { until: Some(until), .. } if *until <= now);
        if self.entries.get(&id).is_some_and(is_over) {
            self.remove(id);
        }
        self.entries.get(&id)
    }

    fn insert(&mut self, id: SchemaId, entry: Entry) {
        if self.order.len() >= KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        self.order.push_back(id);
        self.entries.insert(id, entry);
    }

    /// Keeps an answer in place of its question, if that is still there; an error is not kept.
    fn answered(&mut self, id: SchemaId, asked: &Asked, schema: Option<&WriterSchema>, now: Instant) {
        let is_own = |entry: &Entry| matches!(entry, Entry::Asked(own) if own.ptr_eq(asked));
        if !self.entries.get(&id).is_some_and(is_own) {
            return;
        }
        match schema {
            Some(schema) => {
                let is_missing = matches!(schema, WriterSchema::Missing(_));
                let until = is_missing.then(|| now + MISSING_KEPT);
                self.entries.insert(id, Entry::Here { schema: schema.clone(), until });
            }
            None => self.remove(id),
        }
    }

    fn remove(&mut self, id: SchemaId) {
        self.entries.remove(&id);
        self.order.retain(|other| *other != id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Answers after a second; ids from 1,000 on are missing, and the first question for 7 fails.
    #[derive(Debug)]
    struct Slow {
        clock: Clock,
        asked: AtomicUsize,
    }

    #[async_trait]
    impl SchemaRegistry for Slow {
        async fn schema(&self, id: SchemaId) -> Result<WriterSchema> {
            let count = self.asked.fetch_add(1, Ordering::Relaxed);
            self.clock.sleep(Duration::from_secs(1)).await;
            match id {
                SchemaId(7) if count == 0 => Err(Error::new(ErrorKind::Retry, "not now")),
                SchemaId(1_000..) => Ok(WriterSchema::Missing("nobody knows it".to_owned())),
                _ => Ok(WriterSchema::Known(Arc::new(AvroSchema::parse("\"int\"").unwrap()))),
            }
        }
    }

    fn schemas() -> (WriterSchemas, Arc<Slow>, Clock) {
        let clock = Clock::system();
        let registry = Arc::new(Slow { clock: clock.clone(), asked: AtomicUsize::new(0) });
        (WriterSchemas::new(registry.clone(), clock.clone()), registry, clock)
    }

    #[tokio::test(start_paused = true)]
    async fn an_id_is_asked_for_once_by_all_and_by_those_who_come_back() {
        let (schemas, registry, clock) = schemas();
        let waits = |ms: u64| clock.timeout(Duration::from_millis(ms), schemas.get(SchemaId(1)));
        assert!(waits(400).await.is_err());
        // The question goes on where it was: another 400 ms, and 400 ms, would never be a second.
        assert!(waits(400).await.is_err());
        let (one, other) = tokio::join!(waits(400), schemas.get(SchemaId(1)));
        assert!(one.is_ok() && other.is_ok());
        assert!(schemas.get(SchemaId(1)).await.is_ok());
        assert_eq!(registry.asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_not_kept_and_a_missing_id_not_for_long() {
        let (schemas, registry, clock) = schemas();
        assert_eq!(schemas.get(SchemaId(7)).await.unwrap_err().kind(), ErrorKind::Retry);
        assert!(schemas.get(SchemaId(7)).await.is_ok());
        assert_eq!(registry.asked.load(Ordering::Relaxed), 2);
        for _ in 0..3 {
            assert!(matches!(schemas.get(SchemaId(1_000)).await, Ok(WriterSchema::Missing(_))));
        }
        assert_eq!(registry.asked.load(Ordering::Relaxed), 3);
        clock.sleep(MISSING_KEPT).await;
        schemas.get(SchemaId(1_000)).await.unwrap();
        assert_eq!(registry.asked.load(Ordering::Relaxed), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_kept_than_there_is_room_for() {
        let (schemas, registry, _clock) = schemas();
        let ids = (0..KEPT_MAX as u32 + 1).map(|id| schemas.get(SchemaId(2_000 + id)));
        futures::future::join_all(ids).await;
        assert_eq!(schemas.kept().entries.len(), KEPT_MAX);
        assert_eq!(registry.asked.load(Ordering::Relaxed), KEPT_MAX + 1);
    }
}
