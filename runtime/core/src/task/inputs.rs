//! The inputs of a task, merged into one stream with aligned barriers.

use std::future::poll_fn;
use std::task::{Context, Poll};

use arrow_array::RecordBatch;

use super::context::Interrupt;
use crate::ErrorKind;
use crate::barrier::{Alignment, AlignmentError, Mark, Step};
use crate::channel::Receiver;
use crate::element::{Barrier, StreamElement};
use crate::error::Error;

/// What the inputs bring together.
#[derive(Debug)]
pub(crate) enum Input {
    /// Rows of one input (a number when the operator has several, 0 otherwise).
    Rows {
        input: usize,
        rows: RecordBatch,
    },
    Rejected(RecordBatch),
    Parked(RecordBatch),
    /// Every input has brought this barrier.
    Barrier(Barrier),
    /// Every input has ended.
    End,
}

/// The inputs of one task; each is read in turn.
#[derive(Debug)]
pub(crate) struct Inputs {
    receivers: Vec<Receiver>,
    /// The input of the operator that each receiver belongs to.
    input_of: Vec<usize>,
    alignment: Alignment,
    next_index: usize,
}

impl Inputs {
    /// The receivers of each input.
    pub(crate) fn new(by_input: Vec<Vec<Receiver>>) -> Self {
        let of_each = by_input.iter().enumerate();
        let input_of: Vec<usize> =
            of_each.flat_map(|(input, receivers)| std::iter::repeat_n(input, receivers.len())).collect();
        let receivers: Vec<Receiver> = by_input.into_iter().flatten().collect();
        Inputs { alignment: Alignment::new(receivers.len()), receivers, input_of, next_index: 0 }
    }

    /// The next input. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Input, Interrupt> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Input, Interrupt>> {
        let count = self.receivers.len();
        let mut tried = 0;
        let mut terms = (None, None);
        while tried < count {
            let index = (self.next_index + tried) % count;
            if !self.alignment.is_flowing(index) {
                tried += 1;
                continue;
            }
            let step = match self.receivers[index].poll_receive(cx) {
                Poll::Pending => {
                    tried += 1;
                    continue;
                }
                Poll::Ready(None) => return Poll::Ready(Err(Interrupt::NeighbourGone)),
                Poll::Ready(Some(StreamElement::Batch(rows))) => {
                    self.next_index = (index + 1) % count;
                    return Poll::Ready(Ok(Input::Rows { input: self.input_of[index], rows }));
                }
                Poll::Ready(Some(StreamElement::Rejected(rows))) => {
                    self.next_index = (index + 1) % count;
                    return Poll::Ready(Ok(Input::Rejected(rows)));
                }
                Poll::Ready(Some(StreamElement::Parked(rows))) => {
                    self.next_index = (index + 1) % count;
                    return Poll::Ready(Ok(Input::Parked(rows)));
                }
                Poll::Ready(Some(StreamElement::Barrier(barrier))) => {
                    // The coordinator sends the same one to every source.
                    terms = (barrier.waits_until, barrier.watermark);
                    self.alignment.apply(index, Mark::Barrier(barrier.checkpoint))
                }
                Poll::Ready(Some(StreamElement::End)) => self.alignment.apply(index, Mark::End),
            };
            match step {
                Ok(Step::Wait) => {}
                Ok(Step::Aligned(checkpoint)) => {
                    let (waits_until, watermark) = terms;
                    return Poll::Ready(Ok(Input::Barrier(Barrier { checkpoint, waits_until, watermark })));
                }
                Ok(Step::Ended) => return Poll::Ready(Ok(Input::End)),
                Err(error) => return Poll::Ready(Err(bug(error))),
            }
        }
        Poll::Pending
    }
}

fn bug(error: AlignmentError) -> Interrupt {
    Interrupt::Failed(Error::new(ErrorKind::Bug, error.to_string()).with_source(error))
}
