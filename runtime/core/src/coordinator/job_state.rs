//! The epochs of a running job, in order, and what the commit protocol may be asked next.
//!
//! ```text
//! unopened --> opening --> open --barrier sent--> closing --all acked--> sealed --> committing --> (gone)
//! ```
//!
//! Rules, checked by the tests: at most two epochs are in the hands of the protocol (their transactional ids
//! alternate), so n+1 is opened only after the commit of n-1; n+1 is opened before the commit of n starts; commits
//! are in order; a barrier is sent only for an open epoch. A job that is told to have one epoch open at a time opens
//! n+1 after the commit of n. Pure.

use std::collections::VecDeque;

use sharestream_base::ids::CheckpointId;

/// Where one epoch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its predecessor's barrier is sent, but the protocol has not been asked to open it.
    Unopened,
    Opening,
    /// Sinks write into it.
    Open,
    /// Its barrier is on its way.
    Closing,
    /// Every subtask has acknowledged its barrier.
    Sealed,
    /// Being committed, or discarded because it is empty.
    Committing,
}

/// What happened to an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpochEvent {
    OpenStarted,
    Opened,
    BarrierSent,
    /// As `BarrierSent`; no epoch follows.
    LastBarrierSent,
    Sealed,
    CommitStarted,
    /// Committed or discarded: the epoch is over.
    Settled,
}

/// What the protocol may be asked next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Open(CheckpointId),
    /// Commit it, or discard it when it is empty.
    Settle(CheckpointId),
}

/// An event that does not fit the phase. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("epoch {checkpoint} cannot take {event:?} in {phase:?}")]
pub(crate) struct TransitionError {
    checkpoint: CheckpointId,
    /// `None`: the line has no such epoch.
    phase: Option<Phase>,
    event: EpochEvent,
}

/// The epochs that are not over, oldest first; their ids follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EpochLine {
    epochs: VecDeque<(CheckpointId, Phase)>,
    /// Epochs that the protocol may have open at once: 1 or 2.
    open_max: usize,
}

impl EpochLine {
    /// `open_max`: as [`JobOptions::epochs_open_max`](crate::JobOptions::epochs_open_max).
    pub(crate) fn new(first: CheckpointId, open_max: usize) -> Self {
        EpochLine { epochs: VecDeque::from([(first, Phase::Unopened)]), open_max }
    }

    /// The next thing to ask of the protocol when it is free. Opening comes first: it is quick, and sinks wait for
    /// it.
    pub(crate) fn next_work(&self) -> Option<Work> {
        let busy = self.epochs.iter().any(|(_, phase)| matches!(phase, Phase::Opening | Phase::Committing));
        if busy {
            return None;
        }
        if let Some((checkpoint, Phase::Unopened)) = self.epochs.back().copied()
            && self.epochs.len() <= self.open_max
        {
            return Some(Work::Open(checkpoint));
        }
        match self.epochs.front().copied() {
            Some((checkpoint, Phase::Sealed)) => Some(Work::Settle(checkpoint)),
            Some(_) | None => None,
        }
    }

    /// The epoch for which a barrier may be sent.
    pub(crate) fn barrier_target(&self) -> Option<CheckpointId> {
        let closing = self.epochs.iter().any(|(_, phase)| *phase == Phase::Closing);
        match self.epochs.back().copied() {
            Some((checkpoint, Phase::Open)) if !closing => Some(checkpoint),
            Some(_) | None => None,
        }
    }

    /// True while an earlier epoch is sealed and not settled.
    pub(crate) fn is_committing(&self) -> bool {
        self.epochs.iter().any(|(_, phase)| matches!(phase, Phase::Sealed | Phase::Committing))
    }

    /// The newest epoch that is sealed and not settled.
    pub(crate) fn newest_sealed(&self) -> Option<CheckpointId> {
        let mut sealed =
            self.epochs.iter().rev().filter(|(_, phase)| matches!(phase, Phase::Sealed | Phase::Committing));
        sealed.next().map(|(checkpoint, _)| *checkpoint)
    }

    /// True when nothing is closing, sealed or being settled.
    pub(crate) fn is_quiet(&self) -> bool {
        self.epochs.iter().all(|(_, phase)| matches!(phase, Phase::Unopened | Phase::Open))
    }

    /// True when the last epoch is settled: none follows.
    pub(crate) fn is_over(&self) -> bool {
        self.epochs.is_empty()
    }

    /// The epochs that the protocol has open, oldest first.
    pub(crate) fn in_protocol(&self) -> impl Iterator<Item = CheckpointId> + '_ {
        self.epochs.iter().filter(|(_, phase)| *phase != Phase::Unopened).map(|(checkpoint, _)| *checkpoint)
    }

    /// Moves one epoch on. On `Err` nothing has changed.
    pub(crate) fn apply(
        &mut self,
        checkpoint: CheckpointId,
        event: EpochEvent,
    ) -> Result<(), TransitionError> {
        let found = self.epochs.iter().position(|(id, _)| *id == checkpoint);
        let refused = |phase| Err(TransitionError { checkpoint, phase, event });
        let Some(index) = found else { return refused(None) };
        let (_, phase) = self.epochs[index];
        let is_front = index == 0;
        use EpochEvent as E;
        let next = match (phase, event) {
            (Phase::Unopened, E::OpenStarted) if self.epochs.len() <= self.open_max => Phase::Opening,
            (Phase::Opening, E::Opened) => Phase::Open,
            (Phase::Open, E::BarrierSent) => {
                self.epochs.push_back((checkpoint.next(), Phase::Unopened));
                Phase::Closing
            }
            (Phase::Open, E::LastBarrierSent) => Phase::Closing,
            (Phase::Closing, E::Sealed) => Phase::Sealed,
            (Phase::Sealed, E::CommitStarted) if is_front => Phase::Committing,
            (Phase::Committing, E::Settled) => {
                self.epochs.pop_front();
                return Ok(());
            }
            (
                Phase::Unopened,
                E::OpenStarted
                | E::Opened
                | E::BarrierSent
                | E::LastBarrierSent
                | E::Sealed
                | E::CommitStarted
                | E::Settled,
            )
            | (
                Phase::Opening,
                E::OpenStarted
                | E::BarrierSent
                | E::LastBarrierSent
                | E::Sealed
                | E::CommitStarted
                | E::Settled,
            )
            | (Phase::Open, E::OpenStarted | E::Opened | E::Sealed | E::CommitStarted | E::Settled)
            | (
                Phase::Closing,
                E::OpenStarted
                | E::Opened
                | E::BarrierSent
                | E::LastBarrierSent
                | E::CommitStarted
                | E::Settled,
            )
            | (
                Phase::Sealed,
                E::OpenStarted
                | E::Opened
                | E::BarrierSent
                | E::LastBarrierSent
                | E::Sealed
                | E::CommitStarted
                | E::Settled,
            )
            | (
                Phase::Committing,
                E::OpenStarted
                | E::Opened
                | E::BarrierSent
                | E::LastBarrierSent
                | E::Sealed
                | E::CommitStarted,
            ) => return refused(Some(phase)),
        };
        self.epochs[index].1 = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVENTS: [EpochEvent; 7] = [
        EpochEvent::OpenStarted,
        EpochEvent::Opened,
        EpochEvent::BarrierSent,
        EpochEvent::LastBarrierSent,
        EpochEvent::Sealed,
        EpochEvent::CommitStarted,
        EpochEvent::Settled,
    ];

    fn line(epochs: &[(u64, Phase)]) -> EpochLine {
        let epochs = epochs.iter().map(|(id, phase)| (CheckpointId(*id), *phase)).collect();
        EpochLine { epochs, open_max: 2 }
    }

    #[test]
    fn every_phase_and_event() {
        use EpochEvent as E;
        use Phase::{Closing, Committing, Open, Opening, Sealed, Unopened};
        for phase in [Unopened, Opening, Open, Closing, Sealed, Committing] {
            for event in EVENTS {
                let mut after = line(&[(1, phase)]);
                let expected = match (phase, event) {
                    (Unopened, E::OpenStarted) => Some(line(&[(1, Opening)])),
                    (Opening, E::Opened) => Some(line(&[(1, Open)])),
                    (Open, E::BarrierSent) => Some(line(&[(1, Closing), (2, Unopened)])),
                    (Open, E::LastBarrierSent) => Some(line(&[(1, Closing)])),
                    (Closing, E::Sealed) => Some(line(&[(1, Sealed)])),
                    (Sealed, E::CommitStarted) => Some(line(&[(1, Committing)])),
                    (Committing, E::Settled) => Some(line(&[])),
                    _ => None,
                };
                let result = after.apply(CheckpointId(1), event);
                assert_eq!(result.is_ok(), expected.is_some(), "{phase:?} {event:?}");
                assert_eq!(after, expected.unwrap_or(line(&[(1, phase)])), "{phase:?} {event:?}");
            }
        }
    }

    #[test]
    fn the_next_work() {
        use Phase::{Closing, Committing, Open, Opening, Sealed, Unopened};
        let open = |id| Some(Work::Open(CheckpointId(id)));
        let settle = |id| Some(Work::Settle(CheckpointId(id)));
        type Case<'a> = (&'a [(u64, Phase)], Option<Work>, Option<u64>);
        let table: &[Case<'_>] = &[
            (&[(1, Unopened)], open(1), None),
            (&[(1, Opening)], None, None),
            (&[(1, Open)], None, Some(1)),
            (&[(1, Closing), (2, Unopened)], open(2), None),
            (&[(1, Closing), (2, Opening)], None, None),
            (&[(1, Closing), (2, Open)], None, None),
            (&[(1, Sealed), (2, Unopened)], open(2), None),
            (&[(1, Sealed), (2, Open)], settle(1), Some(2)),
            (&[(1, Committing), (2, Open)], None, Some(2)),
            (&[(1, Committing), (2, Closing), (3, Unopened)], None, None),
            (&[(1, Sealed), (2, Closing), (3, Unopened)], settle(1), None),
            (&[(1, Committing), (2, Sealed), (3, Unopened)], None, None),
            (&[(2, Sealed), (3, Unopened)], open(3), None),
            (&[(2, Sealed)], settle(2), None),
            (&[], None, None),
        ];
        for (epochs, work, target) in table {
            let line = line(epochs);
            assert_eq!(line.next_work(), *work, "{epochs:?}");
            assert_eq!(line.barrier_target(), target.map(CheckpointId), "{epochs:?}");
        }
    }

    #[test]
    fn with_one_epoch_at_a_time_the_next_is_opened_after_the_commit() {
        use Phase::{Closing, Committing, Open, Opening, Sealed, Unopened};
        let open = |id| Some(Work::Open(CheckpointId(id)));
        let settle = |id| Some(Work::Settle(CheckpointId(id)));
        type Case<'a> = (&'a [(u64, Phase)], Option<Work>, Option<u64>);
        let table: &[Case<'_>] = &[
            (&[(1, Unopened)], open(1), None),
            (&[(1, Opening)], None, None),
            (&[(1, Open)], None, Some(1)),
            (&[(1, Closing), (2, Unopened)], None, None),
            (&[(1, Sealed), (2, Unopened)], settle(1), None),
            (&[(1, Committing), (2, Unopened)], None, None),
            (&[(2, Unopened)], open(2), None),
            (&[(2, Sealed)], settle(2), None),
        ];
        for (epochs, work, target) in table {
            let mut line = EpochLine { open_max: 1, ..line(epochs) };
            assert_eq!(line.next_work(), *work, "{epochs:?}");
            assert_eq!(line.barrier_target(), target.map(CheckpointId), "{epochs:?}");
            let refused = line.apply(CheckpointId(2), EpochEvent::OpenStarted).is_err();
            assert_eq!(refused, *work != open(2), "{epochs:?}");
        }
    }

    proptest! {
        /// Any order of events that are accepted keeps the rules of the module.
        #[test]
        fn rules_hold_on_every_path(
            open_max in 1usize..3,
            choices in proptest::collection::vec((0u64..4, 0usize..7), 0..400),
        ) {
            let mut line = EpochLine::new(CheckpointId(1), open_max);
            let mut settled = 0;
            let mut opened = 0;
            for (ahead, event) in choices {
                let checkpoint = CheckpointId(settled + 1 + ahead);
                let event = EVENTS[event];
                if event == EpochEvent::LastBarrierSent || line.apply(checkpoint, event).is_err() {
                    continue;
                }
                match event {
                    EpochEvent::Settled => {
                        prop_assert_eq!(checkpoint.0, settled + 1, "in order");
                        settled += 1;
                    }
                    EpochEvent::OpenStarted => {
                        prop_assert_eq!(checkpoint.0, opened + 1, "in order");
                        prop_assert!(checkpoint.0 <= settled + open_max as u64, "only after an earlier commit");
                        opened += 1;
                    }
                    EpochEvent::Opened | EpochEvent::BarrierSent | EpochEvent::LastBarrierSent
                    | EpochEvent::Sealed | EpochEvent::CommitStarted => {}
                }
                prop_assert!(line.in_protocol().count() <= open_max);
            }
        }
    }
}
