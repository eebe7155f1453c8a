//! Records that are given up while their group has a dead letter topic (KIP-1191): archiving, until their letter is
//! written. A leader that ends between the letter and its note leaves the next one to write the letter again.

use super::{PendingWrite, SharePartition, push_batch, step};
use crate::share::durable::{DurableState, OffsetRange, StateBatch};
use crate::share::record_state::{Event, RecordState, WriteId};

/// Dead letters that the leader has to write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the runs stay archiving until the letters are reported"]
pub(crate) struct DueLetters {
    letter: WriteId,
    /// Runs and how often each was delivered, ascending.
    pub(crate) runs: Vec<(OffsetRange, u16)>,
}

impl SharePartition {
    /// Takes up the letters that nobody has taken up. Cheap while there are none.
    pub(crate) fn take_letters(&mut self) -> Option<DueLetters> {
        if !std::mem::take(&mut self.letters_due) {
            return None;
        }
        let (letter, limits) = (self.new_write(), self.limits);
        let mut runs = Vec::new();
        for (range, run) in self.window.iter_mut() {
            if matches!(run.state, RecordState::Archiving { .. })
                && step(run, &Event::SendLetter { letter }, limits)
            {
                runs.push((range, run.delivery_count));
            }
        }
        self.window.coalesce_all();
        (!runs.is_empty()).then_some(DueLetters { letter, runs })
    }

    /// The letters are written, or cannot be: the records are archived, which has to be written in turn.
    pub(crate) fn letters_done(&mut self, due: &DueLetters) -> Option<PendingWrite> {
        let (write, limits) = (self.new_write(), self.limits);
        let mut batches = Vec::new();
        for (range, _) in &due.runs {
            // Retention may have taken some of them out of the window.
            self.window.update(*range, |range, run| {
                if step(run, &Event::LetterDone { letter: due.letter, write }, limits) {
                    let (state, delivery_count) = (DurableState::Archived, run.delivery_count);
                    push_batch(&mut batches, StateBatch { range, state, delivery_count });
                }
            });
        }
        (!batches.is_empty()).then_some(PendingWrite { id: write, batches })
    }
}
