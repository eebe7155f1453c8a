//! A stream of rows as the user describes it: sources, and what happens to their rows on the way.

use std::fmt;
use std::sync::Arc;

use arrow_schema::SchemaRef;

use crate::async_map::AsyncMap;
use crate::operator::{KeyedOperatorFactory, OperatorFactory, StatefulOperatorFactory};
use crate::source::SourceFactory;

/// A stream of rows under construction.
///
/// ```text
/// source 0 --> operators 0 --+--> key groups 0..64   --> keyed operator 0 --> ...
/// source 1 --> operators 1 --+--> key groups 64..128 --> keyed operator 1 --> ...
/// ```
///
/// Operators that follow each other run as one chain in one task beside their source subtask. An [`AsyncMap`], an
/// operator that keeps state, and what is behind a [`Stream::rebalance`] have tasks of their own.
pub struct Stream {
    pub(super) origin: Origin,
    pub(super) steps: Vec<StreamStep>,
}

/// Where the rows of a stream come from.
pub(super) enum Origin {
    Source {
        factory: Arc<dyn SourceFactory>,
        parallelism: usize,
    },
    /// Two streams that meet in a keyed operator.
    Connected {
        inputs: Box<[Stream; 2]>,
        operator: Arc<dyn KeyedOperatorFactory>,
        parallelism: usize,
    },
}

/// One step of a stream.
pub(super) enum StreamStep {
    Operator(Arc<dyn OperatorFactory>),
    AsyncMap(AsyncMap),
    Stateful(Arc<dyn StatefulOperatorFactory>),
    Rebalance { parallelism: usize },
    Keyed { operator: Arc<dyn KeyedOperatorFactory>, parallelism: usize },
}

/// How rows get from the subtasks of one stage to those of the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// Each subtask to the one with its number.
    Forward,
    /// Batches to each subtask in turn.
    Rebalance,
    /// Each row to the owner of its key; `schema` is that of the rows.
    Keyed { columns: Vec<String>, schema: SchemaRef },
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("steps", &self.steps.len()).finish_non_exhaustive()
    }
}

impl Stream {
    /// The rows of `source`, read by `parallelism` subtasks.
    pub fn from_source(source: Arc<dyn SourceFactory>, parallelism: usize) -> Self {
        Stream { origin: Origin::Source { factory: source, parallelism }, steps: Vec::new() }
    }

    /// Appends an operator.
    #[must_use]
    pub fn operator(mut self, operator: Arc<dyn OperatorFactory>) -> Self {
        self.steps.push(StreamStep::Operator(operator));
        self
    }

    /// Appends calls to the outside, many at once for each subtask.
    #[must_use]
    pub fn async_map(mut self, map: AsyncMap) -> Self {
        self.steps.push(StreamStep::AsyncMap(map));
        self
    }

    /// Spreads the rows over `parallelism` subtasks of what follows, batch by batch in turn.
    #[must_use]
    pub fn rebalance(mut self, parallelism: usize) -> Self {
        self.steps.push(StreamStep::Rebalance { parallelism });
        self
    }

    /// Appends an operator that keeps state without keys, in as many subtasks as the stream has here.
    #[must_use]
    pub fn stateful(mut self, operator: Arc<dyn StatefulOperatorFactory>) -> Self {
        self.steps.push(StreamStep::Stateful(operator));
        self
    }

    /// Appends an operator that keeps state by key, in `parallelism` subtasks, at most [`KEY_GROUPS`](crate::state::KEY_GROUPS).
    #[must_use]
    pub fn keyed(mut self, operator: Arc<dyn KeyedOperatorFactory>, parallelism: usize) -> Self {
        self.steps.push(StreamStep::Keyed { operator, parallelism });
        self
    }

    /// Brings this stream (input 0) and `other` (input 1) together in an operator that keeps state by key. Its subtasks
    /// take barrier n of both before they take anything behind it of either.
    #[must_use]
    pub fn connect(self, other: Stream, operator: Arc<dyn KeyedOperatorFactory>, parallelism: usize) -> Self {
        let inputs = Box::new([self, other]);
        Stream { origin: Origin::Connected { inputs, operator, parallelism }, steps: Vec::new() }
    }
}
