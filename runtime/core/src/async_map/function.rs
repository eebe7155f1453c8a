//! What an [`AsyncMap`](super::AsyncMap) calls, and what comes of a call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::FieldRef;
use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::coordinates::Coordinates;
use crate::error::Result;

/// One row of a batch. Cheap to clone: the batch is shared.
#[derive(Clone, Debug)]
pub struct AsyncRow {
    batch: Arc<RecordBatch>,
    index: usize,
}

impl AsyncRow {
    /// Row `index` of `batch`, which ends with the hidden columns. The runtime makes these; public for tests of functions.
    pub fn new(batch: Arc<RecordBatch>, index: usize) -> Self {
        AsyncRow { batch, index }
    }

    /// The batch that holds the row: the user's columns, then the hidden ones.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    pub(crate) fn shared_batch(&self) -> &Arc<RecordBatch> {
        &self.batch
    }

    /// The number of the row in its batch.
    pub fn index(&self) -> usize {
        self.index
    }

    /// `topic-id/partition/offset/ordinal`: the same for every call for this row, also after a crash, and for no
    /// other row of the cluster. Put the cluster id in front where several clusters call one service. Errors: `Bug`,
    /// the batch has no hidden columns.
    pub fn idempotency_key(&self) -> Result<String> {
        let hidden = Coordinates::of(&self.batch)?;
        Ok(format!(
            "{}/{}/{}/{}",
            hidden.topic_ids.text(self.index),
            hidden.partitions.value(self.index),
            hidden.offsets.value(self.index),
            hidden.ordinals.value(self.index)
        ))
    }
}

/// What came of a call.
#[derive(Clone, Debug)]
pub enum AsyncOutcome {
    /// The row goes on with these columns, one value each, in the order of [`AsyncFunction::columns`].
    Columns(Vec<ArrayRef>),
    /// The row is dropped with no effect, as a filter does.
    Drop,
    /// The row becomes a dead letter, for this reason.
    Reject(String),
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    message: String,
    /// `None`: calling again does not help.
    retry_after: Option<Duration>,
}

impl CallError {
    /// The service is not to be had just now, or is overloaded: the call is repeated after the usual pause.
    pub fn transient(message: impl Into<String>) -> Self {
        CallError { message: message.into(), retry_after: Some(Duration::ZERO) }
    }

    /// As [`CallError::transient`], and not before `pause` is over (`Retry-After`).
    pub fn retry_after(message: impl Into<String>, pause: Duration) -> Self {
        CallError { message: message.into(), retry_after: Some(pause) }
    }

    /// The record is at fault: calling again gives the same.
    pub fn permanent(message: impl Into<String>) -> Self {
        CallError { message: message.into(), retry_after: None }
    }

    /// True when another call may succeed.
    pub fn is_transient(&self) -> bool {
        self.retry_after.is_some()
    }

    /// The least pause before another call; `None` for a permanent failure.
    pub fn pause(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CallError {}

/// A function that an [`AsyncMap`](super::AsyncMap) calls for each row.
#[async_trait]
pub trait AsyncFunction: Send + Sync + 'static {
    /// The columns that it appends to each row.
    fn columns(&self) -> Vec<FieldRef>;

    /// Calls out for one row. Runs on the reactor: it must not block. Dropped when its time is over or the job ends,
    /// and then perhaps called again.
    async fn call(&self, row: AsyncRow) -> Result<AsyncOutcome, CallError>;
}

/// A closure as a function.
pub(super) struct Closure<F> {
    pub(super) columns: Vec<FieldRef>,
    pub(super) function: F,
}

impl<F, R> AsyncFunction for Closure<F>
where
    F: Fn(AsyncRow) -> R + Send + Sync + 'static,
    R: Future<Output = Result<AsyncOutcome, CallError>> + Send + 'static,
{
    fn columns(&self) -> Vec<FieldRef> {
        self.columns.clone()
    }

    fn call<'a, 'b>(&'a self, row: AsyncRow) -> BoxFuture<'b, Result<AsyncOutcome, CallError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin((self.function)(row))
    }
}
