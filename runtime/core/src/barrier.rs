//! Barrier alignment: a task with several inputs passes barrier n on when every input has brought it.
//!
//! ```text
//! flowing --barrier n--> blocked --every other input is at n--> flowing
//! flowing --end--> ended
//! ```
//!
//! A blocked input is not read: what follows its barrier belongs to the next epoch. Pure: no channel, no clock.

use sharestream_base::ids::CheckpointId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputState {
    Flowing,
    Blocked,
    Ended,
}

/// What an input brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Barrier(CheckpointId),
    End,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Other inputs are behind.
    Wait,
    /// Every input has brought the barrier; all flow again.
    Aligned(CheckpointId),
    /// Every input has ended.
    Ended,
}

/// A mark that no correct upstream sends. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AlignmentError {
    #[error("input {input} brought barrier {got} while barrier {expected} is aligned")]
    OtherBarrier { input: usize, got: CheckpointId, expected: CheckpointId },
    #[error("input {input} brought barrier {got}, barrier {last} was before it")]
    OldBarrier { input: usize, got: CheckpointId, last: CheckpointId },
    #[error("input {input} ended while barrier {expected} is aligned")]
    EndBeforeBarrier { input: usize, expected: CheckpointId },
    #[error("input {input} brought a barrier while another has ended")]
    BarrierAfterEnd { input: usize },
    #[error("input {input} brought a mark while it was {state}")]
    NotFlowing { input: usize, state: &'static str },
}

/// The alignment of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    inputs: Vec<InputState>,
    /// The barrier that some inputs have brought.
    current: Option<CheckpointId>,
    last: Option<CheckpointId>,
}

impl Alignment {
    pub(crate) fn new(input_count: usize) -> Self {
        Alignment { inputs: vec![InputState::Flowing; input_count], current: None, last: None }
    }

    /// True when the input may be read.
    pub(crate) fn is_flowing(&self, input: usize) -> bool {
        self.inputs[input] == InputState::Flowing
    }

    /// Takes what `input` brought. On `Err` nothing has changed.
    pub(crate) fn apply(&mut self, input: usize, mark: Mark) -> Result<Step, AlignmentError> {
        match (self.inputs[input], mark) {
            (InputState::Flowing, Mark::Barrier(checkpoint)) => self.barrier(input, checkpoint),
            (InputState::Flowing, Mark::End) => self.end(input),
            (InputState::Blocked, Mark::Barrier(_) | Mark::End) => {
                Err(AlignmentError::NotFlowing { input, state: "blocked" })
            }
            (InputState::Ended, Mark::Barrier(_) | Mark::End) => {
                Err(AlignmentError::NotFlowing { input, state: "ended" })
            }
        }
    }

    fn barrier(&mut self, input: usize, checkpoint: CheckpointId) -> Result<Step, AlignmentError> {
        if let Some(expected) = self.current.filter(|expected| *expected != checkpoint) {
            return Err(AlignmentError::OtherBarrier { input, got: checkpoint, expected });
        }
        if let Some(last) = self.last.filter(|last| *last >= checkpoint) {
            return Err(AlignmentError::OldBarrier { input, got: checkpoint, last });
        }
        if self.inputs.contains(&InputState::Ended) {
            return Err(AlignmentError::BarrierAfterEnd { input });
        }
        self.inputs[input] = InputState::Blocked;
        if self.inputs.iter().all(|state| *state == InputState::Blocked) {
            self.inputs.fill(InputState::Flowing);
            (self.current, self.last) = (None, Some(checkpoint));
            return Ok(Step::Aligned(checkpoint));
        }
        self.current = Some(checkpoint);
        Ok(Step::Wait)
    }

    fn end(&mut self, input: usize) -> Result<Step, AlignmentError> {
        if let Some(expected) = self.current {
            return Err(AlignmentError::EndBeforeBarrier { input, expected });
        }
        self.inputs[input] = InputState::Ended;
        let all_ended = self.inputs.iter().all(|state| *state == InputState::Ended);
        Ok(if all_ended { Step::Ended } else { Step::Wait })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn barrier(id: u64) -> Mark {
        Mark::Barrier(CheckpointId(id))
    }

    /// Brings a fresh alignment of two inputs into a named state.
    fn state(name: &str) -> Alignment {
        let marks: &[(usize, Mark)] = match name {
            "fresh" => &[],
            "input 0 at 1" => &[(0, barrier(1))],
            "aligned at 1" => &[(0, barrier(1)), (1, barrier(1))],
            "input 0 ended" => &[(0, Mark::End)],
            "both ended" => &[(0, Mark::End), (1, Mark::End)],
            other => panic!("no state {other}"),
        };
        let mut alignment = Alignment::new(2);
        for (input, mark) in marks {
            alignment.apply(*input, *mark).unwrap();
        }
        alignment
    }

    #[test]
    fn every_state_and_mark() {
        use AlignmentError::{BarrierAfterEnd, EndBeforeBarrier, NotFlowing, OldBarrier, OtherBarrier};
        let id = CheckpointId;
        let aligned = |checkpoint| Ok(Step::Aligned(id(checkpoint)));
        let not_flowing = |input, state| Err(NotFlowing { input, state });
        let table: Vec<(&str, usize, Mark, Result<Step, AlignmentError>)> = vec![
            ("fresh", 0, barrier(1), Ok(Step::Wait)),
            ("fresh", 1, barrier(7), Ok(Step::Wait)),
            ("fresh", 0, Mark::End, Ok(Step::Wait)),
            ("input 0 at 1", 0, barrier(1), not_flowing(0, "blocked")),
            ("input 0 at 1", 0, Mark::End, not_flowing(0, "blocked")),
            ("input 0 at 1", 1, barrier(1), aligned(1)),
            ("input 0 at 1", 1, barrier(2), Err(OtherBarrier { input: 1, got: id(2), expected: id(1) })),
            ("input 0 at 1", 1, Mark::End, Err(EndBeforeBarrier { input: 1, expected: id(1) })),
            ("aligned at 1", 0, barrier(1), Err(OldBarrier { input: 0, got: id(1), last: id(1) })),
            ("aligned at 1", 1, barrier(2), Ok(Step::Wait)),
            ("aligned at 1", 1, barrier(5), Ok(Step::Wait)),
            ("aligned at 1", 0, Mark::End, Ok(Step::Wait)),
            ("input 0 ended", 0, barrier(1), not_flowing(0, "ended")),
            ("input 0 ended", 0, Mark::End, not_flowing(0, "ended")),
            ("input 0 ended", 1, barrier(1), Err(BarrierAfterEnd { input: 1 })),
            ("input 0 ended", 1, Mark::End, Ok(Step::Ended)),
            ("both ended", 0, barrier(1), not_flowing(0, "ended")),
            ("both ended", 1, Mark::End, not_flowing(1, "ended")),
        ];
        for (name, input, mark, expected) in table {
            let before = state(name);
            let mut after = before.clone();
            let got = after.apply(input, mark);
            assert_eq!(got, expected, "{name}: input {input} {mark:?}");
            if got.is_err() {
                assert_eq!(after, before, "{name}: an error changes nothing");
            }
        }
    }

    #[test]
    fn a_single_input_aligns_at_once() {
        let mut alignment = Alignment::new(1);
        assert_eq!(alignment.apply(0, barrier(3)), Ok(Step::Aligned(CheckpointId(3))));
        assert_eq!(alignment.apply(0, Mark::End), Ok(Step::Ended));
    }

    proptest! {
        /// However the inputs are interleaved, nothing behind barrier n of one input is read before barrier n of all.
        #[test]
        fn no_input_overtakes(input_count in 1usize..5, order in proptest::collection::vec(0usize..5, 0..200)) {
            let mut alignment = Alignment::new(input_count);
            let mut brought = vec![0u64; input_count];
            let mut aligned = 0;
            for pick in order {
                let input = pick % input_count;
                if !alignment.is_flowing(input) {
                    prop_assert_eq!(brought[input], aligned + 1);
                    continue;
                }
                brought[input] += 1;
                match alignment.apply(input, barrier(brought[input])).unwrap() {
                    Step::Wait => {}
                    Step::Aligned(checkpoint) => {
                        aligned += 1;
                        prop_assert_eq!(checkpoint, CheckpointId(aligned));
                        prop_assert!(brought.iter().all(|count| *count == aligned));
                    }
                    Step::Ended => prop_assert!(false, "nothing ended"),
                }
            }
        }
    }
}
