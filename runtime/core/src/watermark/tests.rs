//! The watermark against a naive model: every record, every order, restarts, deferral.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use sharestream_base::ids::{MemberEpoch, Offset, PartitionIndex, TopicId};
use sharestream_base::{Clock, Instant};

use super::machine::{SealedTimes, Watermarks};
use super::partition::{MARKS_MAX, PartitionProgress, RANGES_MAX};
use super::{EventTime, EventTimes, Standing, Watermark};
use crate::decision::{DecidedRange, Decision, Decisions, MemberDecisions, ShareMember, SourcePartition};

const BOUND_MS: i64 = 3;

fn source(partition: i32) -> SourcePartition {
    SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(partition) }
}

fn settings() -> EventTime {
    EventTime::default().with_max_out_of_orderness(Duration::from_millis(3))
}

fn decisions(offsets: impl IntoIterator<Item = (i32, i64)>) -> Vec<MemberDecisions> {
    let mut decisions = Decisions::new();
    for (partition, offset) in offsets {
        let offset = Offset(offset);
        decisions
            .set(source(partition), DecidedRange { first: offset, last: offset, decision: Decision::Accept });
    }
    let (group_id, member_id) = ("g".to_owned(), "m".to_owned());
    vec![MemberDecisions {
        member: ShareMember { group_id, member_id, member_epoch: MemberEpoch(1) },
        decisions,
    }]
}

fn standing(starts: &[(i32, i64)]) -> BTreeMap<SourcePartition, Standing> {
    let at = |start: i64| Standing { start_offset: Offset(start), end_offset: None };
    starts.iter().map(|(partition, start)| (source(*partition), at(*start))).collect()
}

/// A machine at the start of a job whose group begins at 0 in `partitions`.
fn machine(partitions: &[i32], now: Instant) -> Watermarks {
    let mut machine = Watermarks::restore(settings(), None, now);
    let starts: Vec<(i32, i64)> = partitions.iter().map(|partition| (*partition, 0)).collect();
    machine.stands(Some(&standing(&starts)));
    machine
}

/// Decides offsets of partitions, each with its time.
fn seal(machine: &mut Watermarks, records: &[(i32, i64, i64)], now: Instant) -> Option<i64> {
    let mut times = EventTimes::new();
    for (partition, offset, time) in records {
        times.entry(source(*partition)).or_default().push((Offset(*offset), *time));
    }
    let decided = decisions(records.iter().map(|(partition, offset, _)| (*partition, *offset)));
    machine.seal(SealedTimes { decided: &decided, deferred: &[], times: &times }, now);
    machine.watermark().map(|watermark| watermark.0)
}

#[tokio::test(start_paused = true)]
async fn it_rises_over_the_decided_prefix_only_and_with_the_slowest_partition() {
    let now = Clock::system().now();
    let mut machine = machine(&[0, 1], now);
    // (what is decided, the watermark then): bound 3, and one before the time itself.
    type Step<'a> = (&'a [(i32, i64, i64)], Option<i64>);
    let steps: [Step<'_>; 7] = [
        (&[(0, 0, 100)], None),
        (&[(1, 0, 50)], Some(46)),
        (&[(1, 2, 500)], Some(46)),
        (&[(1, 1, 60)], Some(96)),
        (&[(0, 2, 700), (0, 3, 90)], Some(96)),
        (&[(0, 1, 10)], Some(496)),
        (&[(0, 4, 10), (1, 3, 10)], Some(496)),
    ];
    for (index, (records, expected)) in steps.into_iter().enumerate() {
        assert_eq!(seal(&mut machine, records, now), expected, "step {index}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_start_offset_has_passed_is_no_hole_and_gaps_have_no_time() {
    let now = Clock::system().now();
    let mut machine = machine(&[0], now);
    assert_eq!(seal(&mut machine, &[(0, 5, 100)], now), None, "offsets 0 to 4 are with somebody");
    machine.stands(Some(&standing(&[(0, 5)])));
    assert_eq!(seal(&mut machine, &[], now), Some(96), "others decided them, or retention removed them");
    machine
        .seal(SealedTimes { decided: &decisions([(0, 6)]), deferred: &[], times: &EventTimes::new() }, now);
    assert_eq!(seal(&mut machine, &[(0, 7, 200)], now), Some(196), "offset 6 was a gap");
    machine.stands(Some(&standing(&[(0, 2)])));
    assert_eq!(seal(&mut machine, &[], now), Some(196), "an old look changes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_partition_whose_start_is_not_known_holds_and_where_nobody_can_say_it_begins_with_its_first() {
    let now = Clock::system().now();
    let mut knows = machine(&[0], now);
    assert_eq!(seal(&mut knows, &[(0, 0, 100), (1, 7, 100)], now), None);
    knows.stands(Some(&standing(&[(1, 7)])));
    assert_eq!(seal(&mut knows, &[], now), Some(96));
    let mut guesses = Watermarks::restore(settings(), None, now);
    guesses.stands(None);
    assert_eq!(seal(&mut guesses, &[(0, 7, 100), (0, 9, 300)], now), Some(96));
}

#[tokio::test(start_paused = true)]
async fn an_idle_partition_does_not_hold_it_unless_something_of_it_is_undecided() {
    let timeout = Duration::from_secs(30);
    let now = Clock::system().now();
    let later = now + timeout;
    let empty = || {
        let mut machine = machine(&[0, 1], now);
        assert_eq!(seal(&mut machine, &[(0, 0, 100)], now), None);
        machine
    };
    assert_eq!(seal(&mut empty(), &[(0, 1, 100)], later - Duration::from_millis(1)), None, "not yet");
    assert_eq!(seal(&mut empty(), &[(0, 1, 100)], later), Some(96));

    let mut behind_the_end = empty();
    let has_more = Standing { start_offset: Offset(0), end_offset: Some(Offset(1)) };
    behind_the_end.stands(Some(&BTreeMap::from([(source(1), has_more)])));
    assert_eq!(seal(&mut behind_the_end, &[(0, 1, 100)], later), None, "somebody has its record");

    let mut deferred = empty();
    let calls = decisions([(1, 0)]);
    let (times, decided) = (EventTimes::new(), decisions([(0, 1)]));
    deferred.seal(SealedTimes { decided: &decided, deferred: &calls, times: &times }, later);
    assert_eq!(deferred.watermark(), None, "its record is with a call");
    assert_eq!(seal(&mut deferred, &[(0, 2, 200), (1, 0, 50)], later), Some(46), "and is not late then");

    // Both are idle when somebody looks: it is as if he had looked when only the first was.
    let mut both = empty();
    assert_eq!(seal(&mut both, &[(0, 1, 100)], now + Duration::from_secs(1)), None);
    both.advance(later + timeout);
    assert_eq!(both.watermark(), Some(Watermark(96)));

    let mut never = Watermarks::restore(settings().with_idle_timeout(None), None, now);
    never.stands(Some(&standing(&[(0, 0), (1, 0)])));
    assert_eq!(seal(&mut never, &[(0, 0, 100)], later), None);
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_the_group_does_not_know_any_more_is_forgotten_at_the_next_start() {
    let now = Clock::system().now();
    let mut before = machine(&[0, 1], now);
    // Partition 1 has a hole: its topic was created again meanwhile.
    assert_eq!(seal(&mut before, &[(0, 0, 100), (1, 0, 50), (1, 2, 60)], now), Some(46));
    let mut after = Watermarks::restore(settings(), Some(&before.snapshot()), now);
    after.begin(Some(&standing(&[(0, 1)])));
    assert_eq!(after.watermark(), Some(Watermark(46)));
    assert_eq!(seal(&mut after, &[(0, 1, 200)], now), Some(196));
}

#[test]
fn at_its_bounds_it_forgets_only_what_holds_it_back() {
    let mut progress = PartitionProgress::default();
    progress.raise(Offset(0));
    // Every second offset: all ranges are apart, and each has a time.
    let count = 3 * i64::try_from(RANGES_MAX).unwrap();
    for index in 1..=count {
        progress.mark(Offset(2 * index), index);
        progress.decide(Offset(2 * index), Offset(2 * index));
    }
    let kept = progress.snapshot(TopicId::default(), PartitionIndex(0));
    assert!(kept.decided_above.len() <= RANGES_MAX && kept.times_above.len() <= MARKS_MAX);
    assert_eq!(progress.max_ms(), None);
    progress.raise(Offset(count));
    assert!(progress.max_ms() <= Some(count / 2), "{:?}", progress.max_ms());
    progress.raise(Offset(2 * count + 1));
    assert_eq!(progress.max_ms(), Some(count));
}

/// A record in the world: its time, and whether a committed checkpoint has decided it.
#[derive(Clone, Debug)]
struct World {
    times: Vec<Vec<Option<i64>>>,
    /// By partition, of sealed and of committed epochs.
    sealed: Vec<BTreeSet<i64>>,
    committed: Vec<BTreeSet<i64>>,
    watermark: Option<i64>,
    committed_watermark: Option<i64>,
}

impl World {
    fn new(times: Vec<Vec<Option<i64>>>) -> Self {
        let none = vec![BTreeSet::new(); times.len()];
        World { times, sealed: none.clone(), committed: none, watermark: None, committed_watermark: None }
    }

    fn first_undecided(decided: &BTreeSet<i64>) -> i64 {
        (0..).find(|offset| !decided.contains(offset)).unwrap()
    }

    /// By the words of the design.
    fn advance(&mut self) {
        let mut reached = i64::MAX;
        for (times, decided) in self.times.iter().zip(&self.sealed) {
            let prefix = usize::try_from(Self::first_undecided(decided)).unwrap();
            let Some(latest) = times[..prefix].iter().flatten().max() else { return };
            reached = reached.min(latest - BOUND_MS - 1);
        }
        self.watermark = self.watermark.max(Some(reached));
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Hands on records (by a draw among the undecided) and seals; some stay with calls. Times are told in chunks.
    Epoch {
        draws: Vec<(usize, usize, bool)>,
        chunk: usize,
        is_committed: bool,
    },
    Crash,
    /// The group's start offset is looked at.
    Look,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let draws = proptest::collection::vec((0usize..2, 0usize..12, proptest::bool::weighted(0.2)), 0..12);
    let epoch = (draws, 1usize..4, any::<bool>()).prop_map(|(draws, chunk, is_committed)| Step::Epoch {
        draws,
        chunk,
        is_committed,
    });
    proptest::collection::vec(prop_oneof![6 => epoch, 1 => Just(Step::Crash), 1 => Just(Step::Look)], 1..40)
}

fn times() -> impl Strategy<Value = Vec<Vec<Option<i64>>>> {
    let time = proptest::option::weighted(0.9, 0i64..200);
    proptest::collection::vec(proptest::collection::vec(time, 30), 2)
}

proptest! {
    #[test]
    fn it_is_what_the_design_says_whatever_the_order_and_after_every_restart(
        times in times(), steps in steps(), is_exact: bool,
    ) {
        let now = Clock::system().now();
        let settings = settings().with_idle_timeout(None);
        let mut world = World::new(times);
        let mut machine = Watermarks::restore(settings.clone(), None, now);
        machine.stands(Some(&standing(&[(0, 0), (1, 0)])));
        let mut stored = machine.snapshot();
        let mut calls: BTreeSet<(usize, i64)> = BTreeSet::new();
        let mut told = Watermark(i64::MIN);
        for step in steps {
            match step {
                Step::Epoch { draws, chunk, is_committed } => {
                    let mut handed_on: BTreeSet<(usize, i64)> = BTreeSet::new();
                    let mut deferred = BTreeSet::new();
                    for (partition, draw, is_deferred) in draws {
                        let undecided = (0..30i64).filter(|offset| {
                            !world.sealed[partition].contains(offset) && !calls.contains(&(partition, *offset))
                        });
                        let Some(offset) = undecided.take(draw + 1).last() else { continue };
                        if handed_on.insert((partition, offset)) && is_deferred {
                            deferred.insert((partition, offset));
                        }
                    }
                    let mut told_times = EventTimes::new();
                    let records: Vec<(usize, i64)> = handed_on.iter().copied().collect();
                    for records in records.chunk_by(|a, b| a.0 == b.0) {
                        for records in records.chunks(if is_exact { 1 } else { chunk }) {
                            let (partition, last) = *records.last().unwrap();
                            let of = |(partition, offset): &(usize, i64)| world.times[*partition][*offset as usize];
                            if let Some(time) = records.iter().filter_map(of).max() {
                                let entry = told_times.entry(source(partition as i32)).or_default();
                                entry.push((Offset(last), time));
                            }
                        }
                    }
                    let decided: BTreeSet<(usize, i64)> =
                        handed_on.union(&calls).copied().filter(|record| !deferred.contains(record)).collect();
                    calls = deferred;
                    let by_member = |records: &BTreeSet<(usize, i64)>| {
                        decisions(records.iter().map(|(partition, offset)| (*partition as i32, *offset)))
                    };
                    let (now_decided, now_deferred) = (by_member(&decided), by_member(&calls));
                    machine.seal(
                        SealedTimes { decided: &now_decided, deferred: &now_deferred, times: &told_times },
                        now,
                    );
                    for (partition, offset) in decided {
                        world.sealed[partition].insert(offset);
                    }
                    world.advance();
                    if is_committed {
                        stored = machine.snapshot();
                        world.committed = world.sealed.clone();
                        world.committed_watermark = world.watermark;
                        // Nothing that is told to operators may fall, after a crash either.
                        prop_assert!(machine.watermark().is_none_or(|watermark| watermark >= told));
                        told = machine.watermark().unwrap_or(told);
                    }
                }
                Step::Crash => {
                    machine = Watermarks::restore(settings.clone(), Some(&stored), now);
                    world.sealed = world.committed.clone();
                    world.watermark = world.committed_watermark;
                    calls.clear();
                }
                Step::Look => {
                    let start = |partition: usize| World::first_undecided(&world.committed[partition]);
                    machine.stands(Some(&standing(&[(0, start(0)), (1, start(1))])));
                }
            }
            let found = machine.watermark().map(|watermark| watermark.0);
            if is_exact {
                prop_assert_eq!(found, world.watermark);
            } else {
                prop_assert!(found <= world.watermark, "{:?} above {:?}", found, world.watermark);
            }
        }
        // Once all is decided, how times were told makes no difference.
        let rest: Vec<(i32, i64)> = (0..2).flat_map(|partition| (0..30).map(move |offset| (partition, offset))).collect();
        let all = decisions(rest);
        let mut times = EventTimes::new();
        for (partition, offset) in (0..2usize).flat_map(|partition| (0..30i64).map(move |offset| (partition, offset))) {
            let time = world.times[partition][offset as usize];
            if let (Some(time), false) = (time, world.sealed[partition].contains(&offset)) {
                times.entry(source(partition as i32)).or_default().push((Offset(offset), time));
            }
            world.sealed[partition].insert(offset);
        }
        machine.seal(SealedTimes { decided: &all, deferred: &[], times: &times }, now);
        world.advance();
        prop_assert_eq!(machine.watermark().map(|watermark| watermark.0), world.watermark);
    }
}
