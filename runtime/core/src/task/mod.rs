//! The tasks of a job: one loop for each role.
//!
//! A loop selects cancel first, then control, then data. A task reports its failure as an event and then winds
//! down; a task whose neighbour is gone waits for the cancellation, because the neighbour says why itself.

pub(crate) mod async_map;
pub(crate) mod context;
pub(crate) mod gauges;
pub(crate) mod inputs;
pub(crate) mod keyed;
pub(crate) mod operator;
pub(crate) mod output;
pub(crate) mod sink;
pub(crate) mod source;
