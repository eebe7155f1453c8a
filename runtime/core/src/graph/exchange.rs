//! Channels between the subtasks of two stages, and the exchange of rows in turn.

use arrow_array::RecordBatch;

use crate::channel::{Bounds, Receiver, channel};
use crate::error::Result;
use crate::sink::Router;
use crate::task::output::Output;

/// One channel from each upstream subtask to each downstream one: the outputs by upstream, the receivers by downstream.
pub(super) fn all_to_all(
    routers: Vec<Box<dyn Router>>,
    downstream: usize,
    bounds: Bounds,
) -> (Vec<Output>, Vec<Vec<Receiver>>) {
    let mut receivers: Vec<Vec<Receiver>> = (0..downstream).map(|_| Vec::new()).collect();
    let mut outputs = Vec::new();
    for (subtask, router) in routers.into_iter().enumerate() {
        let mut senders = Vec::new();
        for of_one in &mut receivers {
            let (sender, receiver) = channel(bounds);
            senders.push(sender);
            of_one.push(receiver);
        }
        outputs.push(Output::Routed { router, senders, rejected_to: subtask % downstream });
    }
    (outputs, receivers)
}

/// Batches to each subtask in turn.
pub(super) struct RoundRobin {
    next: usize,
    subtask_count: usize,
}

impl RoundRobin {
    /// Upstream subtasks begin at different ones, so that few batches are spread, too.
    pub(super) fn router(first: usize, subtask_count: usize) -> Box<dyn Router> {
        Box::new(RoundRobin { next: first % subtask_count, subtask_count })
    }
}

impl Router for RoundRobin {
    fn route(&mut self, rows: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let to = self.next;
        self.next = (to + 1) % self.subtask_count;
        Ok(vec![(to, rows)])
    }
}
