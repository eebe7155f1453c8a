//! A stream of rows as the user describes it: a source, and what happens to its rows on their way.

use std::fmt;
use std::sync::Arc;

use crate::async_map::AsyncMap;
use crate::operator::OperatorFactory;
use crate::source::SourceFactory;

/// A stream of rows under construction.
///
/// ```text
/// source 0 --> operators 0 --+--> key group 0..63   --> stateful operator 0 --> ...
/// source 1 --> operators 1 --+--> key group 64..127 --> stateful operator 1 --> ...
/// ```
///
/// Operators that follow each other run as one chain in one task beside their source subtask. An [`AsyncMap`] and
/// everything behind an exchange ([`Stream::rebalance`]) have tasks of their own.
pub struct Stream {
    pub(super) source: Arc<dyn SourceFactory>,
    pub(super) source_parallelism: usize,
    pub(super) steps: Vec<StreamStep>,
}

/// One step of a stream.
pub(super) enum StreamStep {
    Operator(Arc<dyn OperatorFactory>),
    AsyncMap(AsyncMap),
    Exchange { exchange: Exchange, parallelism: usize },
}

/// How rows get from the subtasks of one stage to those of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// Each subtask to the one with its number.
    Forward,
    /// Batches to each subtask in turn.
    Rebalance,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("source", &self.source.name()).finish_non_exhaustive()
    }
}

impl Stream {
    /// The rows of `source`, read by `parallelism` subtasks.
    pub fn from_source(source: Arc<dyn SourceFactory>, parallelism: usize) -> Self {
        Stream { source, source_parallelism: parallelism, steps: Vec::new() }
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
        self.steps.push(StreamStep::Exchange { exchange: Exchange::Rebalance, parallelism });
        self
    }
}
