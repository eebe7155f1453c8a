//! Every state with every event.

use super::*;

fn value(offset: i64) -> CommittedOffset {
    CommittedOffset {
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(-1),
        metadata: String::new(),
        committed_ms: 1,
        topic_id: TopicId::default(),
    }
}

/// What was written at `at` says `at`, so that a value tells where it came from.
fn written(at: i64) -> Written {
    Written { at: Offset(at), value: value(at) }
}

const ONE: ProducerId = ProducerId(1);
const TWO: ProducerId = ProducerId(2);

fn staged(by: &[(ProducerId, i64)]) -> StagedOffsets {
    by.iter().map(|(id, at)| (*id, written(*at))).collect()
}

fn committed(at: i64) -> Progress {
    Progress::Committed(written(at))
}

fn both(at: i64, by: &[(ProducerId, i64)]) -> Progress {
    Progress::Both(written(at), staged(by))
}

#[test]
fn every_state_takes_every_event() {
    let only = |by: &[(ProducerId, i64)]| Progress::Staged(staged(by));
    let states = [
        Progress::Nothing,
        committed(10),
        only(&[(ONE, 10)]),
        only(&[(ONE, 10), (TWO, 11)]),
        both(10, &[(ONE, 11)]),
        both(12, &[(ONE, 11)]),
        both(10, &[(ONE, 11), (TWO, 12)]),
    ];
    let end = |producer_id, commit| Event::Ended { producer_id, commit };
    // An event, and what each of the states becomes.
    let table = [
        (
            Event::Commit(written(20)),
            [
                committed(20),
                committed(20),
                both(20, &[(ONE, 10)]),
                both(20, &[(ONE, 10), (TWO, 11)]),
                both(20, &[(ONE, 11)]),
                both(20, &[(ONE, 11)]),
                both(20, &[(ONE, 11), (TWO, 12)]),
            ],
        ),
        (
            Event::Stage(ONE, written(20)),
            [
                only(&[(ONE, 20)]),
                both(10, &[(ONE, 20)]),
                only(&[(ONE, 20)]),
                only(&[(ONE, 20), (TWO, 11)]),
                both(10, &[(ONE, 20)]),
                both(12, &[(ONE, 20)]),
                both(10, &[(ONE, 20), (TWO, 12)]),
            ],
        ),
        (
            end(ONE, true),
            [
                Progress::Nothing,
                committed(10),
                committed(10),
                both(10, &[(TWO, 11)]),
                committed(11),
                committed(12),
                both(11, &[(TWO, 12)]),
            ],
        ),
        (
            end(ONE, false),
            [
                Progress::Nothing,
                committed(10),
                Progress::Nothing,
                only(&[(TWO, 11)]),
                committed(10),
                committed(12),
                both(10, &[(TWO, 12)]),
            ],
        ),
        (end(ProducerId(3), true), states.clone()),
        (end(ProducerId(3), false), states.clone()),
        (Event::Delete, [const { Progress::Nothing }; 7]),
    ];
    for (event, expected) in table {
        for (state, expected) in states.iter().zip(expected) {
            assert_eq!(state.clone().after(event.clone()), expected, "{state:?} after {event:?}");
        }
    }
}

#[test]
fn a_stable_read_is_refused_while_anything_is_staged() {
    let cases = [
        (Progress::Nothing, Ok(None)),
        (committed(10), Ok(Some(10))),
        (Progress::Staged(staged(&[(ONE, 10)])), Err(ErrorCode::UnstableOffsetCommit)),
        (both(10, &[(ONE, 11)]), Err(ErrorCode::UnstableOffsetCommit)),
    ];
    for (state, stable) in cases {
        let offset = |read: Option<&CommittedOffset>| read.map(|known| known.offset.0);
        assert_eq!(state.read(true).map(offset), stable, "{state:?}");
        assert_eq!(state.read(false).map(offset), Ok(offset(state.committed())), "{state:?}");
    }
}
