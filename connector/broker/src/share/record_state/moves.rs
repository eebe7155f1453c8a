//! The moves: for each state, what each event makes of it. No arm for the rest: a new event has to be decided
//! everywhere.

use sharestream_base::Instant;
use sharestream_base::planted::{Bug, is_planted};

use super::{
    Attempts, Event, InvalidRecordState, MemberId, RecordState, Settled, StageWrite, Staged, Transition,
    TxnOutcome, WriteId,
};

pub(super) fn available(event: &Event<'_>) -> Result<Transition, InvalidRecordState> {
    match event {
        Event::Acquire { member, lock_deadline } => Ok(Transition::To(RecordState::Acquired {
            holder: (*member).clone(),
            lock_deadline: *lock_deadline,
        })),
        Event::Skip { write } => Ok(Transition::To(RecordState::Settling {
            target: Settled::Archived,
            write: *write,
            holder: None,
        })),
        Event::Acknowledge { .. } | Event::Renew { .. } | Event::Stage { .. } => Err(InvalidRecordState),
        Event::ExpireLock { .. }
        | Event::CloseSession { .. }
        | Event::Written { .. }
        | Event::WriteFailed { .. }
        | Event::SendLetter { .. }
        | Event::LetterDone { .. }
        | Event::Resolve { .. } => Ok(Transition::Same),
    }
}

pub(super) fn acquired(
    holder: &MemberId,
    deadline: Instant,
    event: &Event<'_>,
    attempts: Attempts,
) -> Result<Transition, InvalidRecordState> {
    let settle = |target, write, holder| Transition::To(RecordState::Settling { target, write, holder });
    match event {
        Event::Acquire { .. } | Event::Skip { .. } => Err(InvalidRecordState),
        Event::Acknowledge { member, .. } | Event::Renew { member, .. } | Event::Stage { member, .. }
            if *member != holder =>
        {
            Err(InvalidRecordState)
        }
        Event::Acknowledge { ack, write, .. } => {
            Ok(settle(ack.target(attempts), *write, Some(holder.clone())))
        }
        Event::Renew { lock_deadline, .. } => Ok(Transition::To(RecordState::Acquired {
            holder: holder.clone(),
            lock_deadline: *lock_deadline,
        })),
        Event::Stage { staged, write, .. } => Ok(Transition::To(RecordState::TxnPending {
            staged: *staged,
            write: StageWrite::Outstanding { write: *write, holder: holder.clone(), resolved: None },
        })),
        Event::ExpireLock { now, write } => {
            if deadline <= *now {
                Ok(settle(attempts.given_back(), *write, None))
            } else {
                Ok(Transition::Same)
            }
        }
        Event::CloseSession { member, write } => {
            if *member == holder {
                Ok(settle(attempts.given_back(), *write, None))
            } else {
                Ok(Transition::Same)
            }
        }
        Event::Written { .. }
        | Event::WriteFailed { .. }
        | Event::SendLetter { .. }
        | Event::LetterDone { .. }
        | Event::Resolve { .. } => Ok(Transition::Same),
    }
}

pub(super) fn settling(
    target: Settled,
    own: WriteId,
    holder: Option<&MemberId>,
    event: &Event<'_>,
) -> Result<Transition, InvalidRecordState> {
    match event {
        Event::Acquire { .. }
        | Event::Skip { .. }
        | Event::Acknowledge { .. }
        | Event::Renew { .. }
        | Event::Stage { .. } => Err(InvalidRecordState),
        Event::ExpireLock { .. }
        | Event::SendLetter { .. }
        | Event::LetterDone { .. }
        | Event::Resolve { .. } => Ok(Transition::Same),
        // The holder's session is gone: a failed write must not give the records back to it. Without an owner a
        // failed write still reaches its target in memory; only the durable delivery count lags.
        Event::CloseSession { member, .. } => match holder {
            Some(holder) if holder == *member => {
                Ok(Transition::To(RecordState::Settling { target, write: own, holder: None }))
            }
            Some(_) | None => Ok(Transition::Same),
        },
        Event::Written { write } if *write == own => Ok(Transition::To(target.into())),
        Event::WriteFailed { write, lock_deadline } if *write == own => Ok(match (holder, target) {
            (Some(holder), _) => Transition::To(RecordState::Acquired {
                holder: holder.clone(),
                lock_deadline: *lock_deadline,
            }),
            // A delivery that is not counted does no harm.
            (None, Settled::Available) => Transition::To(RecordState::Available),
            // Nobody else will ask for it: the same write is repeated until it is durable.
            (None, Settled::Acknowledged | Settled::Archiving | Settled::Archived) => Transition::Same,
        }),
        Event::Written { .. } | Event::WriteFailed { .. } => Ok(Transition::Same),
    }
}

pub(super) fn txn_pending(
    staged: &Staged,
    stage_write: &StageWrite,
    event: &Event<'_>,
) -> Result<Transition, InvalidRecordState> {
    match event {
        Event::Acquire { .. } | Event::Skip { .. } | Event::Acknowledge { .. } | Event::Renew { .. } => {
            Err(InvalidRecordState)
        }
        Event::ExpireLock { .. } if is_planted(Bug::LockExpiresStaged) => {
            Ok(Transition::To(RecordState::Available))
        }
        Event::CloseSession { .. } if is_planted(Bug::SessionCloseReleasesStaged) => {
            Ok(Transition::To(RecordState::Available))
        }
        // The transaction's time-out is the only clock, and it outlives its member.
        Event::ExpireLock { .. } | Event::CloseSession { .. } => Ok(Transition::Same),
        Event::Stage { staged: again, write: id, .. } => {
            let transaction = |staged: &Staged| (staged.producer_id, staged.producer_epoch);
            if transaction(again) != transaction(staged) || !again.intent.is_repeat_of(staged.intent) {
                return Err(InvalidRecordState);
            }
            match stage_write {
                StageWrite::Durable => Ok(Transition::Same),
                StageWrite::Outstanding { holder, resolved, .. } => {
                    let write =
                        StageWrite::Outstanding { write: *id, holder: holder.clone(), resolved: *resolved };
                    Ok(Transition::Rewrite(RecordState::TxnPending { staged: *staged, write }))
                }
            }
        }
        Event::Written { write: id } => match stage_write {
            StageWrite::Outstanding { write, resolved, .. } if write == id => {
                Ok(Transition::To(match resolved {
                    Some(outcome) => resolved_to(staged, *outcome),
                    None => RecordState::TxnPending { staged: *staged, write: StageWrite::Durable },
                }))
            }
            StageWrite::Outstanding { .. } | StageWrite::Durable => Ok(Transition::Same),
        },
        Event::WriteFailed { write: id, lock_deadline } => match stage_write {
            StageWrite::Outstanding { write, holder, .. } if write == id => {
                Ok(Transition::To(RecordState::Acquired {
                    holder: holder.clone(),
                    lock_deadline: *lock_deadline,
                }))
            }
            StageWrite::Outstanding { .. } | StageWrite::Durable => Ok(Transition::Same),
        },
        Event::Resolve { marker } if marker.resolves(staged) => Ok(Transition::To(match stage_write {
            StageWrite::Durable => resolved_to(staged, marker.outcome),
            StageWrite::Outstanding { write, holder, .. } => RecordState::TxnPending {
                staged: *staged,
                write: StageWrite::Outstanding {
                    write: *write,
                    holder: holder.clone(),
                    resolved: Some(marker.outcome),
                },
            },
        })),
        Event::Resolve { .. } | Event::SendLetter { .. } | Event::LetterDone { .. } => Ok(Transition::Same),
    }
}

pub(super) fn archiving(own: Option<WriteId>, event: &Event<'_>) -> Result<Transition, InvalidRecordState> {
    match event {
        Event::SendLetter { letter } if own.is_none() => {
            Ok(Transition::To(RecordState::Archiving { letter: Some(*letter) }))
        }
        Event::LetterDone { letter, write } if own == Some(*letter) => {
            Ok(Transition::To(RecordState::Settling {
                target: Settled::Archived,
                write: *write,
                holder: None,
            }))
        }
        event => terminal(event),
    }
}

pub(super) fn terminal(event: &Event<'_>) -> Result<Transition, InvalidRecordState> {
    match event {
        Event::Acquire { .. }
        | Event::Skip { .. }
        | Event::Acknowledge { .. }
        | Event::Renew { .. }
        | Event::Stage { .. } => Err(InvalidRecordState),
        Event::ExpireLock { .. }
        | Event::CloseSession { .. }
        | Event::Written { .. }
        | Event::WriteFailed { .. }
        | Event::SendLetter { .. }
        | Event::LetterDone { .. }
        | Event::Resolve { .. } => Ok(Transition::Same),
    }
}

/// Where a transaction's end takes a staged run. An ABORT never archives, whatever the delivery count.
fn resolved_to(staged: &Staged, outcome: TxnOutcome) -> RecordState {
    match outcome {
        TxnOutcome::Commit => staged.intent.committed().into(),
        TxnOutcome::Abort if is_planted(Bug::AbortMarkerArchives) => RecordState::Archived,
        TxnOutcome::Abort => RecordState::Available,
    }
}
