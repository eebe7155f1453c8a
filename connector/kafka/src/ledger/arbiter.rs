//! The verdict on an own claim: what the view says to the transaction that made it. Pure.
//!
//! If two transactions that claim one record both committed, the later claimer had read the earlier claim and
//! committed only because it saw it aborted. Nothing is assumed of locks, delivery counts or who holds what.

use std::collections::BTreeMap;

use sharestream_base::ids::{Offset, ProducerEpoch, ProducerId};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_core::commit::AckMode;
use sharestream_core::decision::{Decisions, SourcePartition};

use super::view::{Claim, Fate, View};
use crate::outcome::ReplayGeneration;

/// A claim of ours, as it was produced.
#[derive(Clone, Debug)]
pub(crate) struct OwnClaim {
    /// Its place in the outcome partition.
    pub(crate) position: Offset,
    /// What it decides.
    pub(crate) decisions: Decisions,
    /// Generation of our view when it was made.
    pub(crate) generation: ReplayGeneration,
    /// Mode changes that our view knew of when it was made.
    pub(crate) era: u32,
    /// Rule under which the transaction acknowledges.
    pub(crate) mode: AckMode,
    /// Unix milliseconds after which others may end the transaction.
    pub(crate) deadline_ms: i64,
}

/// What is to be done with a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Read on: not far enough to judge.
    ReadOn,
    /// Nobody else has the records: commit.
    Commit,
    /// Abort.
    Abort(Reason),
    /// An earlier claim is open: its marker decides, and may be waited for until then (Unix milliseconds).
    Wait {
        /// Position of the earlier claim.
        on: Offset,
        /// When its owner counts as dead, or when we have waited long enough.
        until_ms: i64,
    },
    /// The owner of an earlier claim is late: end its transaction, then read on for the marker, which says how it ended.
    EndOther {
        /// Position of the earlier claim.
        on: Offset,
        /// Transactional id of its owner.
        transactional_id: String,
        /// Producer of its transaction.
        producer_id: ProducerId,
        /// Epoch of its transaction.
        producer_epoch: ProducerEpoch,
    },
}

/// Why a claim must not commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// An earlier claim of some of the records has committed.
    Claimed {
        /// Its position.
        by: Offset,
        /// Job and replica that made it.
        owner: String,
    },
    /// Some of the records lie below the floor.
    BelowFloor(SourcePartition, Offset),
    /// The group was reset since.
    OlderGeneration(ReplayGeneration),
    /// The group's mode has changed since.
    OtherMode(AckMode),
    /// Its transaction was ended by somebody else.
    Ended,
    /// An earlier claim stayed open until our own deadline.
    Waited {
        /// Position of the earlier claim.
        on: Offset,
    },
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Claimed { by, owner } => {
                write!(f, "some of its records are decided by the claim of {owner} at offset {by}")
            }
            Reason::BelowFloor(partition, floor) => write!(
                f,
                "some of its records are below the floor {floor} of {}/{}",
                partition.topic_id, partition.partition
            ),
            Reason::OlderGeneration(generation) => {
                write!(f, "the group was reset meanwhile, it is in replay generation {generation} now")
            }
            Reason::OtherMode(mode) => write!(
                f,
                "the group was switched to mode {mode:?} meanwhile; start the job again, with that ack mode or auto"
            ),
            Reason::Ended => f.write_str("its transaction was ended by somebody else"),
            Reason::Waited { on } => {
                write!(f, "the claim at offset {on}, which has some of its records, stayed open")
            }
        }
    }
}

/// Judges a claim. `now_ms` is wall time; `ended` says of a position whether we have ended its owner's transaction.
pub(crate) fn judge(view: &View, own: &OwnClaim, now_ms: i64, ended: impl Fn(Offset) -> bool) -> Verdict {
    // Rules 1, 12, F2: past the own position, to the end of a response that ended at its own high watermark.
    let is_read = view.caught_up_to().is_some_and(|end| end > own.position);
    if !is_read && !is_planted(Bug::ClaimPositionNotAwaited) {
        return Verdict::ReadOn;
    }
    // R2: what it should be judged by is forgotten.
    if own.generation != view.generation() && !is_planted(Bug::OlderGenerationCommits) {
        return Verdict::Abort(Reason::OlderGeneration(view.generation()));
    }
    // M1: a ledger claim counts only under the rule under which it was made.
    if let Some((_, mode)) = view.mode()
        && own.mode == AckMode::Ledger
        && (mode.mode != AckMode::Ledger || mode.era != own.era)
    {
        return Verdict::Abort(Reason::OtherMode(mode.mode));
    }
    let is_current = own.generation == view.generation();
    if is_read && is_current && view.claim(own.position).is_none_or(|claim| claim.fate != Fate::Open) {
        return Verdict::Abort(Reason::Ended);
    }
    if !is_planted(Bug::FloorNotConsulted)
        && let Some((partition, floor)) = below_floor(view, &own.decisions)
    {
        return Verdict::Abort(Reason::BelowFloor(partition, floor));
    }
    if !is_planted(Bug::CommittedClaimIgnored)
        && let Some((by, claim)) = committed_before(view, own)
    {
        let owner = format!("{}/{}", claim.job, claim.instance);
        return Verdict::Abort(Reason::Claimed { by, owner });
    }
    if is_planted(Bug::OpenClaimIgnored) {
        return Verdict::Commit;
    }
    judge_open(view, own, now_ms, ended)
}

fn is_rival(own: &OwnClaim, position: Offset, claim: &Claim) -> bool {
    position < own.position && overlaps(&own.decisions, &claim.decisions)
}

fn overlaps(own: &Decisions, other: &Decisions) -> bool {
    own.ranges().any(|(partition, range)| other.overlaps(partition, range.first, range.last))
}

/// Rule 10: the floor is consulted like a committed claim of everything below it.
fn below_floor(view: &View, decisions: &Decisions) -> Option<(SourcePartition, Offset)> {
    decisions.partitions().find_map(|partition| {
        let floor = view.floor(partition)?;
        decisions.of(partition).next().filter(|range| range.first < floor).map(|_| (partition, floor))
    })
}

/// Rules 3, 6: an earlier committed claim of any of the records, also one of our own.
fn committed_before<'a>(view: &'a View, own: &OwnClaim) -> Option<(Offset, &'a Claim)> {
    // The usual case: nobody has decided any of it.
    if !overlaps(&own.decisions, view.committed()) {
        return None;
    }
    view.claims().find(|(position, claim)| claim.fate == Fate::Committed && is_rival(own, *position, claim))
}

/// Rules 2, 4, 5, 13: an earlier open claim is waited for; after its deadline its owner's transaction is ended; only its
/// marker says how it ended.
fn judge_open(view: &View, own: &OwnClaim, now_ms: i64, ended: impl Fn(Offset) -> bool) -> Verdict {
    let mut waits: Option<(i64, Offset)> = None;
    for (on, claim) in view.open_claims().filter(|(position, claim)| is_rival(own, *position, claim)) {
        let is_late = now_ms >= claim.deadline_ms;
        if is_planted(Bug::DeadOwnerPresumedAborted) && is_late {
            continue;
        }
        if is_planted(Bug::FenceCountedAsAbort) && ended(on) {
            continue;
        }
        if is_late && !ended(on) && !is_planted(Bug::DeadOwnersNotEnded) {
            return Verdict::EndOther {
                on,
                transactional_id: claim.transactional_id.clone(),
                producer_id: claim.producer_id,
                producer_epoch: claim.producer_epoch,
            };
        }
        let until_ms = if is_late { own.deadline_ms } else { claim.deadline_ms.min(own.deadline_ms) };
        waits = Some(waits.map_or((until_ms, on), |other| other.min((until_ms, on))));
    }
    match waits {
        None => Verdict::Commit,
        // Others may end us from here on: better to go out of their way.
        Some((_, on)) if now_ms >= own.deadline_ms => Verdict::Abort(Reason::Waited { on }),
        Some((until_ms, on)) => Verdict::Wait { on, until_ms },
    }
}

/// F6: whether a transactional replica must still arbitrate as a ledger one does. It may stop when all of these hold:
/// the view has been caught up beyond the `transactional` mode record; every ledger claim below that has its marker; the
/// group's start offsets have passed all those that committed; and they are not below the floors.
pub(crate) fn must_arbitrate(view: &View, starts: &BTreeMap<SourcePartition, Offset>) -> bool {
    let Some((since, mode)) = view.mode() else { return true };
    if mode.mode != AckMode::Transactional || !view.is_generation_ready() {
        return true;
    }
    let is_caught_up = view.caught_up_to().is_some_and(|end| end > since);
    let is_passed =
        |partition: SourcePartition, last: Offset| starts.get(&partition).is_some_and(|start| *start > last);
    let below = || view.claims().filter(|(at, claim)| *at < since && claim.mode != AckMode::Transactional);
    let is_resolved = below().all(|(_, claim)| claim.fate == Fate::Committed);
    let are_passed = below().all(|(_, claim)| {
        claim.decisions.ranges().all(|(partition, range)| is_passed(partition, range.last))
    });
    let are_floors_passed =
        view.floors().values().all(|floor| is_passed(floor.source(), floor.floor.plus(-1)));
    !(is_caught_up && is_resolved && are_passed && are_floors_passed)
}
