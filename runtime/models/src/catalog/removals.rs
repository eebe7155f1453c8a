//! For each rule the smallest configuration that breaks when the rule is left out.

use super::Check;
use super::configurations::{
    AND_BACK, FLOORS, LIVE, LOST_MARKERS, MANIFESTS, MIXED, RESET, RESET_WITH_FLOOR, TO_TRANSACTIONAL,
    TO_TRANSACTIONAL_FLOORS, WAITS,
};
use crate::ledger::{Compaction, DECIDABLE, NO_ACK_WITHOUT_EFFECT, ONE_EFFECT, RECOVERS_TRUTH, Scope};
use crate::rules::Rule;
use crate::waits::{DRAINS, Waits};

/// One record, and every fault that the core rules are about.
const ONE_RECORD: Scope =
    Scope { records: 1, crashes: 1, fences: 1, ends_when_settled: false, ..Scope::SMALL };

/// Two claims, one floor, one tombstone.
const ONE_FLOOR: Scope = Scope { records: 1, claims: 2, ..FLOORS };

/// All removals, in the order of the rules; a rule that is needed for several reasons may come twice.
pub fn removals() -> Vec<Check> {
    let mut all = core();
    all.extend(floors());
    all.extend(recovery());
    all.extend(waits());
    all.extend(rollout());
    all.extend(replay());
    all.sort_by_key(|check| check.removed);
    all
}

fn core() -> Vec<Check> {
    let claims = |rule| Check::holds("ledger", "claims", ONE_RECORD).without(rule, ONE_EFFECT);
    let no_ack =
        Check::holds("ledger", "claims", ONE_RECORD).without(Rule::NoAckOnLostAnswer, NO_ACK_WITHOUT_EFFECT);
    let dead = Scope { records: 1, crashes: 1, ..LIVE };
    vec![
        claims(Rule::ReadOwnPosition),
        claims(Rule::RespectOpenClaims),
        claims(Rule::AbortOnCommittedClaim),
        claims(Rule::EndBeforePresumingDead),
        claims(Rule::MarkerTellsOutcome),
        claims(Rule::OwnEarlierClaimsCount),
        claims(Rule::ReadFromStart),
        no_ack,
        Check::progresses("ledger", "dead owners", dead).without(Rule::EndDeadOwners, DECIDABLE),
        Check::progresses("ledger", "lost markers", Scope { claims: 2, ..LOST_MARKERS })
            .without(Rule::RebuildView, DECIDABLE),
    ]
}

fn floors() -> Vec<Check> {
    let floors = |scope| Check::holds("ledger", "floors", scope);
    let any = |scope| Scope { compaction: Compaction::Anywhere, ..scope };
    let two_floors = Scope { claims: 3, records: 2, floors: 2, patient: true, ..FLOORS };
    let keys = Scope { floors: 0, tombstones: 0, claims: 3, records: 2, ..ONE_FLOOR };
    let partly = Scope { records: 3, wide_claims: true, ..ONE_FLOOR };
    vec![
        floors(Scope { records: 2, claims: 3, ..ONE_FLOOR })
            .without(Rule::FloorOverPrefix, NO_ACK_WITHOUT_EFFECT),
        floors(ONE_FLOOR).without(Rule::FloorNotOverOpen, NO_ACK_WITHOUT_EFFECT),
        floors(ONE_FLOOR).without(Rule::TombstoneAfterFloor, ONE_EFFECT),
        floors(partly).without(Rule::TombstoneWhollyCovered, ONE_EFFECT),
        floors(ONE_FLOOR).without(Rule::ConsultFloor, ONE_EFFECT),
        floors(keys).without(Rule::UniqueKeys, ONE_EFFECT),
        floors(any(ONE_FLOOR)).without(Rule::ReadPastOwnPosition, ONE_EFFECT),
        floors(two_floors).without(Rule::FloorValueInKey, ONE_EFFECT),
        floors(two_floors).without(Rule::FloorIsMaximum, ONE_EFFECT),
        floors(two_floors).without(Rule::LowerFloorStays, ONE_EFFECT),
        floors(any(two_floors)).without(Rule::ReadUntilCaughtUp, ONE_EFFECT),
    ]
}

fn recovery() -> Vec<Check> {
    let manifests = |scope| Check::holds("ledger", "manifests", scope);
    let old_id = Scope { new_ids: false, records: 1, claims: 2, keepers: 7, ..MANIFESTS };
    let new_id = Scope { records: 1, claims: 2, floors: 0, tombstones: 0, ..MANIFESTS };
    vec![
        manifests(old_id).without(Rule::NewestClaimStays, RECOVERS_TRUTH),
        manifests(Scope { recovery_trusts_floor: true, ..old_id })
            .without(Rule::NewestClaimStays, RECOVERS_TRUTH),
        manifests(new_id).without(Rule::FenceManifestOwner, RECOVERS_TRUTH),
    ]
}

fn waits() -> Vec<Check> {
    let two = Waits { replicas: 2, records: 2, faults: false, symmetric: false, ..WAITS };
    let two_slots = Waits { slots: 2, distinct: true, ..two };
    vec![
        Check::waits("waits", two).without(Rule::OneClaimRecord, DRAINS),
        Check::waits("waits", two_slots).without(Rule::ClaimInOrder, DRAINS),
        Check::waits("waits", Waits { faults: true, ..two_slots }).without(Rule::AbortCascades, DRAINS),
    ]
}

fn rollout() -> Vec<Check> {
    let rollout = |scope| Check::holds("rollout", "to transactional", scope);
    vec![
        rollout(TO_TRANSACTIONAL).without(Rule::ArbitrateUntilResolved, ONE_EFFECT),
        rollout(TO_TRANSACTIONAL).without(Rule::ArbitrateUntilPassed, ONE_EFFECT),
        rollout(Scope { claims: 2, fences: 0, ..TO_TRANSACTIONAL_FLOORS })
            .without(Rule::ArbitrateUntilCaughtUp, ONE_EFFECT),
        rollout(TO_TRANSACTIONAL).without(Rule::LedgerObeysMode, ONE_EFFECT),
        Check::holds("rollout", "and back", Scope { claims: 2, ..AND_BACK })
            .without(Rule::StopBeforeWayBack, ONE_EFFECT),
        Check::holds("rollout", "mixed", MIXED).without(Rule::RespectOpenClaims, ONE_EFFECT),
    ]
}

fn replay() -> Vec<Check> {
    let replay = |scope| Check::holds("ledger", "replay", scope);
    let two = Scope { claims: 2, ..RESET };
    vec![
        replay(two).without(Rule::GenerationsApart, NO_ACK_WITHOUT_EFFECT),
        replay(two).without(Rule::AbortOlderGeneration, ONE_EFFECT),
        replay(two).without(Rule::GenerationBeforeOffsets, NO_ACK_WITHOUT_EFFECT),
        replay(two).without(Rule::CatchUpAfterJoining, NO_ACK_WITHOUT_EFFECT),
        replay(two).without(Rule::ResetEmptyGroup, NO_ACK_WITHOUT_EFFECT),
        replay(Scope { patient: true, ..RESET_WITH_FLOOR })
            .without(Rule::WaitForReset, NO_ACK_WITHOUT_EFFECT),
    ]
}
