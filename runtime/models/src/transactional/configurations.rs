//! Configurations in which everything holds.

use super::bounds::{Bounds, Faults};
use super::cases::{Configuration, Question};

/// Configurations of the default run.
pub fn all() -> Vec<Configuration> {
    [safety(), progress()].concat()
}

fn asks(question: Question, name: &'static str, bounds: Bounds) -> Configuration {
    Configuration { name, bounds, question }
}

fn safety() -> Vec<Configuration> {
    let safe = |name, bounds| asks(Question::Safety, name, bounds);
    let crash = Faults::CRASH;
    vec![
        safe("2 replicas, 3 records, 3 checkpoints", Bounds::with_replica(3, Faults::NONE)),
        safe("3 records, a crash", Bounds { records: 3, ..Bounds::of_job(2, crash) }),
        safe(
            "3 records, a lost answer, a time-out",
            Bounds { records: 3, ..Bounds::of_job(1, Faults::LOST_ANSWER.and(Faults::TIME_OUT)) },
        ),
        safe("2 replicas, a leader that moves", Bounds::with_replica(2, Faults::LEADER_MOVE)),
        safe(
            "3 incarnations, 1 record, a zombie, a crash",
            Bounds { records: 1, ..Bounds::of_job(3, Faults::ZOMBIE.and(crash)) },
        ),
        safe("a zombie, a lost answer", Bounds::of_job(2, Faults::ZOMBIE.and(Faults::LOST_ANSWER))),
        safe(
            "a crash, 2 lost answers",
            Bounds::of_job(2, crash.and(Faults::LOST_ANSWER).and(Faults::LOST_ANSWER)),
        ),
        safe(
            "a crash, a manifest fault, lost locks",
            Bounds::of_job(2, crash.and(Faults::MANIFEST_FAULT).and(Faults::LOST_LOCKS)),
        ),
        safe(
            "2 replicas, 1 record, a leader that learns late and moves, a time-out",
            Bounds {
                leader_learns_late: true,
                ..Bounds::with_replica(1, Faults::LEADER_MOVE.and(Faults::TIME_OUT))
            },
        ),
        safe(
            "2 replicas, 1 record, a crash, lost locks, a failed stage write",
            Bounds {
                incarnations: 2,
                ..Bounds::with_replica(1, crash.and(Faults::LOST_LOCKS).and(Faults::FAILED_STAGE_WRITE))
            },
        ),
        safe(
            "2 replicas, 2 source partitions, 3 records",
            Bounds { partitions: 2, ..Bounds::with_replica(3, Faults::NONE) },
        ),
        safe(
            "2 source partitions, lost locks, a failing sink, a lost answer, a time-out",
            Bounds {
                partitions: 2,
                faults: Faults::LOST_LOCKS
                    .and(Faults::SINK_FAILURE)
                    .and(Faults::LOST_ANSWER)
                    .and(Faults::TIME_OUT),
                ..Bounds::default()
            },
        ),
        safe("ids change, a zombie", Bounds { ids_change: true, ..Bounds::of_job(2, Faults::ZOMBIE) }),
    ]
}

fn progress() -> Vec<Configuration> {
    let decided = |name, bounds| asks(Question::EverythingDecided, name, Bounds { checkpoints: 8, ..bounds });
    let crash = Faults::CRASH;
    vec![
        decided("a crash, a lost answer", Bounds::of_job(2, crash.and(Faults::LOST_ANSWER))),
        asks(
            Question::EverythingDecided,
            "1 record, a zombie",
            Bounds { records: 1, checkpoints: 6, ..Bounds::of_job(2, Faults::ZOMBIE) },
        ),
        decided(
            "2 replicas, 1 record, a crash, a failed stage write, a time-out",
            Bounds {
                incarnations: 2,
                ..Bounds::with_replica(1, crash.and(Faults::FAILED_STAGE_WRITE).and(Faults::TIME_OUT))
            },
        ),
        decided(
            "not pipelined, a leader that learns late and moves, lost locks, a lost answer",
            Bounds {
                is_pipelined: false,
                leader_learns_late: true,
                ..Bounds::of_job(1, Faults::LEADER_MOVE.and(Faults::LOST_LOCKS).and(Faults::LOST_ANSWER))
            },
        ),
        asks(
            Question::RecoveryEndsAlone,
            "2 replicas, 2 crashes",
            Bounds { incarnations: 2, ..Bounds::with_replica(2, crash.and(crash)) },
        ),
    ]
}

/// Further configurations of the large run: minutes each.
pub fn large() -> Vec<Configuration> {
    let safe = |name, bounds| asks(Question::Safety, name, bounds);
    vec![
        safe("large: 3 incarnations, 2 records, a zombie, a crash", Bounds::large()),
        safe(
            "large: 2 replicas, a time-out, a leader that moves",
            Bounds::with_replica(2, Faults::TIME_OUT.and(Faults::LEADER_MOVE)),
        ),
        safe(
            "large: 3 records, a crash, a time-out",
            Bounds { records: 3, ..Bounds::of_job(2, Faults::CRASH.and(Faults::TIME_OUT)) },
        ),
        safe(
            "large: 3 records, a zombie, a lost answer",
            Bounds { records: 3, ..Bounds::of_job(2, Faults::ZOMBIE.and(Faults::LOST_ANSWER)) },
        ),
    ]
}
