//! Calls to the outside, many at once: HTTP, models, databases (DESIGN section 6).
//!
//! ```text
//! rows --> waiting --> running (at most `concurrency`) --> done --> output, in or out of order
//!            ^            |  failed for now, or too slow
//!            +-- backoff -+
//! ```
//!
//! One record may take a minute; checkpoints do not wait for it. A barrier passes, and the offsets that are still
//! worked on are *deferred*: they belong to the checkpoint in which their output reaches the sink, and their locks
//! are kept. Where an offset may be several rows, or state upstream has counted it already, the barrier waits
//! instead; the planner decides.
//!
//! With `park_after` a record that takes too long is *parked* instead (ADR 0025): its copy in the parking topic comes again
//! later, under the same key.
//!
//! A call may run more than once for one record: after a failure, and after a crash before its commit. It is given
//! [`AsyncRow::idempotency_key`].

mod assemble;
mod breaker;
mod deferred;
mod function;
mod line;
mod options;

use std::fmt;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};

pub(crate) use assemble::Assembler;
pub(crate) use deferred::deferred;
pub use function::{AsyncFunction, AsyncOutcome, AsyncRow, CallError};
pub(crate) use line::{CallEnd, Done, Fate, Line, LineLoad, Start};
pub use options::{AsyncMapOptions, OnExhausted};

use crate::coordinates;
use crate::error::{Error, Result};
use crate::{ErrorKind, coordinates::user_column_count};

/// What a barrier does while calls run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierRule {
    /// It passes; what runs is deferred.
    Defer,
    /// It waits until nothing runs.
    Wait,
}

/// An operator that calls a function for each row, many at once.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Int64Array};
/// use arrow_schema::{DataType, Field};
/// use sharestream_core::async_map::{AsyncMap, AsyncOutcome, CallError};
///
/// let score = Field::new("score", DataType::Int64, true);
/// let map = AsyncMap::from_fn("score", [score], |row| async move {
///     let column: ArrayRef = Arc::new(Int64Array::from(vec![row.index() as i64]));
///     Ok::<_, CallError>(AsyncOutcome::Columns(vec![column]))
/// });
/// assert_eq!(map.name(), "score");
/// ```
#[derive(Clone)]
pub struct AsyncMap {
    name: String,
    function: Arc<dyn AsyncFunction>,
    options: AsyncMapOptions,
}

impl fmt::Debug for AsyncMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncMap").field("name", &self.name).finish_non_exhaustive()
    }
}

impl AsyncMap {
    /// Calls `function`. `name` is for logs, status and errors.
    pub fn new(name: impl Into<String>, function: Arc<dyn AsyncFunction>) -> Self {
        AsyncMap { name: name.into(), function, options: AsyncMapOptions::default() }
    }

    /// Calls a closure, which appends `columns` to each row.
    pub fn from_fn<F, R>(
        name: impl Into<String>,
        columns: impl IntoIterator<Item = Field>,
        function: F,
    ) -> Self
    where
        F: Fn(AsyncRow) -> R + Send + Sync + 'static,
        R: Future<Output = Result<AsyncOutcome, CallError>> + Send + 'static,
    {
        let columns = columns.into_iter().map(Arc::new).collect();
        Self::new(name, Arc::new(function::Closure { columns, function }))
    }

    /// Replaces the settings.
    #[must_use]
    pub fn options(mut self, options: AsyncMapOptions) -> Self {
        self.options = options;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn function(&self) -> Arc<dyn AsyncFunction> {
        self.function.clone()
    }

    pub(crate) fn settings(&self) -> &AsyncMapOptions {
        &self.options
    }

    /// Every fault of the settings.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.options.faults().into_iter().map(|fault| format!("{}: {fault}", self.name)).collect()
    }

    /// The input's columns, then those of the function, then the hidden ones. Errors: `InvalidInput`, two columns
    /// would have one name.
    pub(crate) fn output_schema(&self, input: &SchemaRef) -> Result<SchemaRef> {
        let users = user_column_count(input);
        let mut fields: Vec<Arc<Field>> = input.fields()[..users].to_vec();
        for field in self.function.columns() {
            if fields.iter().any(|other| other.name() == field.name())
                || coordinates::COLUMNS.contains(&field.name().as_str())
            {
                let context = format!("column '{}' is there already: rename it upstream", field.name());
                return Err(Error::new(ErrorKind::InvalidInput, context));
            }
            fields.push(field);
        }
        fields.extend(input.fields()[users..].iter().cloned());
        Ok(Arc::new(Schema::new(fields)))
    }
}
