//! Configurations with all rules: each must hold.

use super::Check;
use crate::ledger::{Compaction, Scope};
use crate::rules::Rules;
use crate::waits::Waits;

/// Claims, crashes and fences; nothing is compacted, records are alike.
const CORE: Scope = Scope { symmetric_records: true, ..Scope::SMALL };

/// Floors and tombstones under compaction; here the order of records matters, and reading on.
pub(super) const FLOORS: Scope = Scope {
    wide_claims: false,
    floors: 1,
    tombstones: 1,
    compaction: Compaction::Kafka,
    ends_when_settled: false,
    ..Scope::SMALL
};

/// Ledger replica A beside transactional replica B.
pub(super) const MIXED: Scope =
    Scope { records: 1, transactional: 0b10, acks: true, fences: 1, ..Scope::SMALL };

/// One reset of the group.
pub(super) const RESET: Scope =
    Scope { records: 1, reset: true, acks: true, ends_when_settled: false, ..Scope::SMALL };

/// Recovery by pending manifests.
pub(super) const MANIFESTS: Scope = Scope { manifests: true, crashes: 1, keepers: 0b10, ..FLOORS };

/// Progress: the steps that end a run of the model are not wanted.
pub(super) const LIVE: Scope = Scope { ends_when_settled: false, ..CORE };

/// Two slots, faults without end.
pub(super) const WAITS: Waits = Waits {
    replicas: 3,
    slots: 1,
    records: 3,
    distinct: false,
    faults: true,
    symmetric: true,
    rules: Rules::ALL,
};

/// All configurations of `ledger`, `rollout` and `waits`, in the order of the documentation.
pub fn configurations() -> Vec<Check> {
    let mut all = core();
    all.extend(floors());
    all.extend(recovery_and_replay());
    all.extend(ledger_progress());
    all.extend(rollout());
    all.extend(waits());
    all
}

fn core() -> Vec<Check> {
    let ledger = |scope| Check::holds("ledger", "claims", scope);
    vec![
        ledger(Scope { crashes: 1, fences: 1, records: 1, ..CORE }),
        ledger(Scope { crashes: 1, fences: 1, claims: 2, ..CORE }),
        ledger(Scope { records: 3, ..CORE }),
        ledger(Scope { replicas: 3, records: 1, fences: 1, ..CORE }),
        Check::holds("ledger", "zombie pair", Scope { zombie_pair: true, records: 1, fences: 2, ..CORE }),
        ledger(Scope { crashes: 1, fences: 1, ..CORE }).large(),
        ledger(Scope { crashes: 1, records: 3, ..CORE }).large(),
        ledger(Scope { replicas: 3, records: 3, ..CORE }).large(),
    ]
}

fn floors() -> Vec<Check> {
    let ledger = |scope| Check::holds("ledger", "floors", scope);
    let any = |scope| Scope { compaction: Compaction::Anywhere, ..scope };
    let two = Scope { floors: 2, ..FLOORS };
    let archiving =
        Scope { floor_follows_start_offset: true, archiving: true, acks: true, keepers: 1, ..FLOORS };
    vec![
        ledger(FLOORS),
        ledger(any(FLOORS)),
        Check::holds(
            "ledger",
            "floor by start offset",
            Scope { records: 1, claims: 2, keepers: 7, ..archiving },
        ),
        ledger(two).large(),
        ledger(any(two)).large(),
        Check::holds("ledger", "floor by start offset", archiving).large(),
    ]
}

fn recovery_and_replay() -> Vec<Check> {
    vec![
        Check::holds("ledger", "manifests", Scope { records: 1, claims: 2, keepers: 7, ..MANIFESTS }),
        Check::holds("ledger", "manifests", MANIFESTS).large(),
        Check::holds("ledger", "replay", Scope { claims: 2, ..RESET }),
        Check::holds("ledger", "replay", Scope { patient: true, ..RESET_WITH_FLOOR }),
        Check::holds("ledger", "replay", RESET).large(),
        Check::holds("ledger", "replay", RESET_WITH_FLOOR).large(),
    ]
}

/// A floor that may follow the start offset, and a reset.
pub(super) const RESET_WITH_FLOOR: Scope = Scope {
    claims: 2,
    floors: 1,
    tombstones: 1,
    floor_follows_start_offset: true,
    archiving: true,
    compaction: Compaction::Kafka,
    ..RESET
};

fn ledger_progress() -> Vec<Check> {
    let ledger = |subject, scope| Check::progresses("ledger", subject, scope);
    vec![
        ledger("claims", Scope { records: 1, crashes: 1, fences: 3, ..LIVE }),
        ledger("claims", Scope { fences: 1, ..LIVE }),
        ledger("lost markers", Scope { claims: 2, ..LOST_MARKERS }),
        ledger("lost markers", LOST_MARKERS).large(),
        ledger("floors", Scope { records: 1, claims: 2, cleans_leftovers: true, patient: true, ..FLOORS }),
        ledger("floors", Scope { cleans_leftovers: true, patient: true, ..FLOORS }).large(),
        ledger("replay", Scope { claims: 2, patient: true, ..RESET }),
        ledger("replay", Scope { patient: true, ..RESET }).large(),
    ]
}

/// The cleaner may take an aborted claim and its marker before a waiter has read the marker.
pub(super) const LOST_MARKERS: Scope =
    Scope { records: 1, compaction: Compaction::Kafka, cleans_leftovers: true, ..LIVE };

fn rollout() -> Vec<Check> {
    let rollout = |subject, scope| Check::holds("rollout", subject, scope);
    vec![
        rollout("mixed", Scope { records: 2, symmetric_records: true, ..MIXED }),
        rollout("mixed", Scope { replicas: 3, transactional: 0b110, fences: 0, ..MIXED }),
        rollout("to transactional", TO_TRANSACTIONAL),
        rollout("to transactional", Scope { fences: 0, claims: 2, ..TO_TRANSACTIONAL_FLOORS }),
        rollout("and back", Scope { claims: 2, ..AND_BACK }),
        Check::progresses(
            "rollout",
            "to transactional",
            Scope { ends_when_settled: false, ..TO_TRANSACTIONAL },
        ),
        rollout("to transactional", Scope { records: 2, ..TO_TRANSACTIONAL }).large(),
        rollout("to transactional", TO_TRANSACTIONAL_FLOORS).large(),
        rollout("mixed", Scope { replicas: 3, transactional: 0b110, ..MIXED }).large(),
        rollout("and back", AND_BACK).large(),
    ]
}

/// The mode record comes at any time.
pub(super) const TO_TRANSACTIONAL: Scope = Scope { mode_changes: 1, ..MIXED };

/// The same with floors and compaction.
pub(super) const TO_TRANSACTIONAL_FLOORS: Scope = Scope {
    floors: 1,
    tombstones: 1,
    compaction: Compaction::Kafka,
    ends_when_settled: false,
    ..TO_TRANSACTIONAL
};

/// The mode changes to transactional and back; the transactional replica is stopped and started.
pub(super) const AND_BACK: Scope = Scope { mode_changes: 2, stops: 1, ..TO_TRANSACTIONAL };

fn waits() -> Vec<Check> {
    vec![
        Check::waits("waits", WAITS),
        Check::waits("waits", Waits { replicas: 2, slots: 2, ..WAITS }),
        Check::waits("waits", Waits { slots: 2, records: 2, ..WAITS }),
        Check::waits("waits", Waits { slots: 2, ..WAITS }).large(),
    ]
}
