//! Where a task sends: one channel to the next task, or a router over all subtasks of the next stage.

use arrow_array::RecordBatch;

use super::context::Interrupt;
use crate::ErrorKind;
use crate::channel::Sender;
use crate::element::{Barrier, StreamElement};
use crate::error::Error;
use crate::sink::Router;

/// The output of one task.
pub(crate) enum Output {
    /// To the subtask with the same number.
    Direct(Sender),
    /// To every subtask of the next stage. Dead letters of one upstream subtask all go to one of them.
    Routed { router: Box<dyn Router>, senders: Vec<Sender>, rejected_to: usize },
}

impl Output {
    /// Sends rows; a batch without rows is nothing.
    pub(crate) async fn rows(&mut self, rows: RecordBatch) -> Result<(), Interrupt> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        match self {
            Output::Direct(sender) => sender.send(StreamElement::Batch(rows)).await?,
            Output::Routed { router, senders, .. } => {
                let row_count = rows.num_rows();
                let parts = router.route(rows)?;
                check_parts(&parts, row_count, senders.len())?;
                for (to, part) in parts {
                    if part.num_rows() > 0 {
                        senders[to].send(StreamElement::Batch(part)).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends dead letters.
    pub(crate) async fn rejected(&mut self, rejected: RecordBatch) -> Result<(), Interrupt> {
        if rejected.num_rows() == 0 {
            return Ok(());
        }
        Ok(self.aside().send(StreamElement::Rejected(rejected)).await?)
    }

    /// Sends rows that are to be parked, where dead letters go.
    pub(crate) async fn parked(&mut self, parked: RecordBatch) -> Result<(), Interrupt> {
        if parked.num_rows() == 0 {
            return Ok(());
        }
        Ok(self.aside().send(StreamElement::Parked(parked)).await?)
    }

    fn aside(&mut self) -> &mut Sender {
        match self {
            Output::Direct(sender) => sender,
            Output::Routed { senders, rejected_to, .. } => &mut senders[*rejected_to],
        }
    }

    /// Sends a barrier everywhere.
    pub(crate) async fn barrier(&mut self, barrier: Barrier) -> Result<(), Interrupt> {
        for sender in self.senders() {
            sender.send(StreamElement::Barrier(barrier)).await?;
        }
        Ok(())
    }

    /// Says that nothing follows.
    pub(crate) async fn end(&mut self) -> Result<(), Interrupt> {
        for sender in self.senders() {
            sender.send(StreamElement::End).await?;
        }
        Ok(())
    }

    fn senders(&mut self) -> &mut [Sender] {
        match self {
            Output::Direct(sender) => std::slice::from_mut(sender),
            Output::Routed { senders, .. } => senders,
        }
    }
}

/// A router that loses or doubles rows would break G1 unseen, so its count is checked.
fn check_parts(parts: &[(usize, RecordBatch)], row_count: usize, subtask_count: usize) -> Result<(), Error> {
    let routed_count: usize = parts.iter().map(|(_, part)| part.num_rows()).sum();
    if routed_count == row_count && parts.iter().all(|(to, _)| *to < subtask_count) {
        return Ok(());
    }
    let to: Vec<usize> = parts.iter().map(|(to, _)| *to).collect();
    Err(Error::new(
        ErrorKind::Bug,
        format!("the router made {routed_count} of {row_count} rows, for subtasks {to:?} of {subtask_count}"),
    ))
}
