//! Configurations in which everything holds.

use super::bounds::{Bounds, Faults};
use super::cases::{Configuration, Question};

const NONE: Faults = Faults::NONE;

/// Configurations of the default run.
pub fn all() -> Vec<Configuration> {
    let base = Bounds::default();
    let safety = |name, bounds| Configuration { name, bounds, question: Question::Safety };
    let decided = |name, bounds| Configuration { name, bounds, question: Question::EverythingDecided };
    vec![
        safety("2 replicas, 3 records, 3 checkpoints", Bounds { records: 3, has_replica: true, ..base }),
        safety(
            "2 replicas, a leader that moves",
            Bounds { has_replica: true, faults: Faults { leader_moves: 1, ..NONE }, ..base },
        ),
        safety(
            "3 incarnations, 1 record, a zombie and a crash",
            Bounds {
                incarnations: 3,
                faults: Faults { takeovers: 1, crashes: 1, ..NONE },
                records: 1,
                ..base
            },
        ),
        safety(
            "2 incarnations, a zombie, a lost EndTxn or stage answer",
            Bounds { incarnations: 2, faults: Faults { takeovers: 1, lost_answers: 1, ..NONE }, ..base },
        ),
        safety(
            "2 incarnations, a crash, 2 lost answers",
            Bounds { incarnations: 2, faults: Faults { crashes: 1, lost_answers: 2, ..NONE }, ..base },
        ),
        safety(
            "2 replicas, a late leader, its move, a time-out",
            Bounds {
                has_replica: true,
                records: 1,
                leader_learns_late: true,
                faults: Faults { leader_moves: 1, time_outs: 1, ..NONE },
                ..base
            },
        ),
        safety(
            "2 replicas, a crash, lost locks, a failed stage write",
            Bounds {
                has_replica: true,
                incarnations: 2,
                records: 1,
                faults: Faults { crashes: 1, lost_locks: 1, failed_stage_writes: 1, ..NONE },
                ..base
            },
        ),
        safety(
            "2 source partitions, lost locks, a failing sink, a lost answer, a time-out",
            Bounds {
                partitions: 2,
                faults: Faults { lost_locks: 1, sink_failures: 1, lost_answers: 1, time_outs: 1, ..NONE },
                ..base
            },
        ),
        safety(
            "2 incarnations, a crash, a manifest fault, lost locks",
            Bounds {
                incarnations: 2,
                faults: Faults { crashes: 1, manifest_faults: 1, lost_locks: 1, ..NONE },
                ..base
            },
        ),
        safety(
            "ids change, 2 incarnations, a zombie",
            Bounds { incarnations: 2, ids_change: true, faults: Faults { takeovers: 1, ..NONE }, ..base },
        ),
        decided(
            "2 incarnations, a crash, a lost answer",
            Bounds {
                incarnations: 2,
                checkpoints: 8,
                faults: Faults { crashes: 1, lost_answers: 1, ..NONE },
                ..base
            },
        ),
        decided(
            "2 incarnations, a zombie",
            Bounds {
                incarnations: 2,
                records: 1,
                checkpoints: 6,
                faults: Faults { takeovers: 1, ..NONE },
                ..base
            },
        ),
        decided(
            "2 replicas, 2 incarnations, a crash, a failed stage write, a time-out",
            Bounds {
                has_replica: true,
                incarnations: 2,
                records: 1,
                checkpoints: 8,
                faults: Faults { crashes: 1, failed_stage_writes: 1, time_outs: 1, ..NONE },
                ..base
            },
        ),
        decided(
            "a late leader, its move, lost locks, a lost answer",
            Bounds {
                checkpoints: 8,
                is_pipelined: false,
                leader_learns_late: true,
                faults: Faults { leader_moves: 1, lost_locks: 1, lost_answers: 1, ..NONE },
                ..base
            },
        ),
        Configuration {
            name: "2 replicas, a crash of either",
            bounds: Bounds {
                has_replica: true,
                incarnations: 2,
                records: 2,
                faults: Faults { crashes: 2, ..NONE },
                ..base
            },
            question: Question::RecoveryEndsAlone,
        },
    ]
}

/// Further configurations of the large run: minutes.
pub fn large() -> Vec<Configuration> {
    let safety = |name, bounds| Configuration { name, bounds, question: Question::Safety };
    vec![
        safety("large: 3 incarnations, a replica, every fault once", Bounds::large()),
        safety(
            "large: 3 incarnations, 3 records, a zombie, a crash, a lost answer",
            Bounds {
                incarnations: 3,
                records: 3,
                faults: Faults { takeovers: 1, crashes: 1, lost_answers: 1, ..NONE },
                ..Bounds::default()
            },
        ),
    ]
}
