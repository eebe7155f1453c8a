//! The line of rows against what it promises.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use proptest::prelude::*;
use sharestream_base::Clock;

use super::*;

fn options() -> AsyncMapOptions {
    AsyncMapOptions::default().with_concurrency(2).with_attempts_max(3).with_holds_after_failures(0)
}

fn line_of(options: AsyncMapOptions, rows: usize, now: Instant) -> Line {
    let mut line = Line::new(options);
    let batch = Arc::new(RecordBatch::new_empty(Arc::new(Schema::empty())));
    for index in 0..rows {
        line.arrive(AsyncRow::new(batch.clone(), index), 0, now);
    }
    line
}

fn started(line: &mut Line, now: Instant) -> Vec<u64> {
    std::iter::from_fn(|| line.start_next(now).map(|start| start.number)).collect()
}

fn left(line: &mut Line) -> Vec<(usize, bool)> {
    let is_reject = |fate| matches!(fate, Fate::Outcome(AsyncOutcome::Reject(_)));
    line.take_done(usize::MAX).into_iter().map(|done| (done.row.index(), is_reject(done.fate))).collect()
}

const OK: CallEnd = CallEnd::Returned(Ok(AsyncOutcome::Drop));

fn transient() -> CallEnd {
    CallEnd::Returned(Err(CallError::transient("busy")))
}

fn permanent() -> CallEnd {
    CallEnd::Returned(Err(CallError::permanent("404")))
}

fn plain(pause: Duration) -> Duration {
    pause
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_concurrency_run_and_rows_leave_as_they_are_done() {
    let now = Clock::system().now();
    let mut line = line_of(options(), 4, now);
    assert_eq!(started(&mut line, now), [0, 1]);
    line.finished(1, OK, now, plain).unwrap();
    assert_eq!(left(&mut line), [(1, false)]);
    assert_eq!(started(&mut line, now), [2]);
    assert_eq!(line.outstanding().map(AsyncRow::index).collect::<Vec<_>>(), [0, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn in_order_a_slow_row_holds_back_those_behind_it() {
    let now = Clock::system().now();
    let mut line = line_of(options().with_order(true), 4, now);
    assert_eq!(started(&mut line, now), [0, 1]);
    line.finished(1, OK, now, plain).unwrap();
    assert!(left(&mut line).is_empty());
    assert_eq!(line.len(), 4, "a row that is done and has not left is outstanding");
    line.finished(0, OK, now, plain).unwrap();
    assert_eq!(left(&mut line), [(0, false), (1, false)]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_repeated_after_its_pause_and_given_up_after_the_last() {
    let now = Clock::system().now();
    let ms = Duration::from_millis;
    let mut line = line_of(options(), 1, now);
    assert_eq!(started(&mut line, now), [0]);
    line.finished(0, transient(), now, plain).unwrap();
    assert!(started(&mut line, now).is_empty());
    assert_eq!(line.wake_at(), Some(now + ms(100)));
    assert_eq!(started(&mut line, now + ms(100)), [0]);
    let asked = CallEnd::Returned(Err(CallError::retry_after("429", Duration::from_secs(7))));
    line.finished(0, asked, now, plain).unwrap();
    assert_eq!(line.wake_at(), Some(now + ms(7_000)), "the service asked for a longer pause");
    assert_eq!(started(&mut line, now + ms(7_000)), [0]);
    line.finished(0, transient(), now, plain).unwrap();
    assert_eq!(left(&mut line), [(0, true)]);
    assert_eq!(line.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_not_repeated() {
    let now = Clock::system().now();
    let mut line = line_of(options(), 1, now);
    started(&mut line, now);
    line.finished(0, permanent(), now, plain).unwrap();
    assert_eq!(left(&mut line), [(0, true)]);
}

#[tokio::test(start_paused = true)]
async fn fail_ends_the_attempt_and_names_the_failure() {
    let now = Clock::system().now();
    let mut line = line_of(options().with_on_exhausted(OnExhausted::Fail), 1, now);
    started(&mut line, now);
    // The test's batch has no coordinates, so the error is that of the batch; the kind says that it is not silent.
    assert!(line.finished(0, permanent(), now, plain).is_err());
}

#[tokio::test(start_paused = true)]
async fn when_everything_fails_nothing_is_given_up_and_one_row_probes() {
    let second = Duration::from_secs(1);
    let mut now = Clock::system().now();
    let mut line = line_of(options().with_holds_after_failures(2).with_attempts_max(2), 5, now);
    assert_eq!(started(&mut line, now), [0, 1]);
    line.finished(0, transient(), now, plain).unwrap();
    line.finished(1, transient(), now, plain).unwrap();
    assert!(line.load().is_holding);
    assert!(started(&mut line, now).is_empty());
    for probe in [2, 3, 4] {
        now = line.wake_at().unwrap();
        assert_eq!(started(&mut line, now), [probe], "a fresh row probes");
        assert_eq!(line.wake_at(), None, "its end is waited for");
        line.finished(probe, transient(), now, plain).unwrap();
    }
    for _ in 0..10 {
        now = line.wake_at().unwrap().max(now + second);
        let probes = started(&mut line, now);
        assert_eq!(probes.len(), 1);
        line.finished(probes[0], transient(), now, plain).unwrap();
    }
    assert!(left(&mut line).is_empty(), "a record that is not at fault is not given up");
    assert_eq!(line.len(), 5);
    now = line.wake_at().unwrap().max(now + second);
    let probe = started(&mut line, now);
    line.finished(probe[0], OK, now, plain).unwrap();
    assert!(!line.load().is_holding);
    now += 60 * second;
    while line.len() > 0 {
        for number in started(&mut line, now) {
            line.finished(number, OK, now, plain).unwrap();
        }
        left(&mut line);
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_of_a_call_that_does_not_run_is_a_bug() {
    let now = Clock::system().now();
    let mut line = line_of(options(), 1, now);
    assert_eq!(line.finished(0, OK, now, plain).unwrap_err().kind(), ErrorKind::Bug);
    assert_eq!(line.finished(9, OK, now, plain).unwrap_err().kind(), ErrorKind::Bug);
}

fn parking() -> AsyncMapOptions {
    options().with_attempts_max(9).with_park_after(Duration::from_secs(1)).with_park_max(2)
}

fn parked(line: &mut Line) -> Vec<usize> {
    let done = line.take_done(usize::MAX).into_iter();
    done.filter(|done| matches!(done.fate, Fate::Parked)).map(|done| done.row.index()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_when_its_time_is_up_parks_its_row_and_leaves_room_for_the_next() {
    let now = Clock::system().now();
    let second = Duration::from_secs(1);
    let mut line = line_of(parking().with_order(true), 3, now);
    let starts: Vec<Start> = std::iter::from_fn(|| line.start_next(now)).collect();
    let park_at: Vec<_> = starts.iter().map(|start| start.park_at).collect();
    assert_eq!(park_at, [Some(now + second); 2]);
    line.finished(1, OK, now, plain).unwrap();
    assert_eq!(line.done_count(), 0, "in order, the slow row holds it back");
    line.finished(0, CallEnd::Overdue, now + second, plain).unwrap();
    let fates: Vec<_> = line.take_done(9).into_iter().map(|done| matches!(done.fate, Fate::Parked)).collect();
    assert_eq!(fates, [true, false], "the parked row leaves in its place, and those behind it follow");
    assert_eq!(line.start_next(now + second).map(|start| start.number), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_waits_for_another_call_is_parked_when_its_time_is_up() {
    let now = Clock::system().now();
    let ms = Duration::from_millis;
    let mut line = line_of(parking(), 1, now);
    started(&mut line, now);
    let asked = CallEnd::Returned(Err(CallError::retry_after("429", Duration::from_secs(60))));
    line.finished(0, asked, now + ms(10), plain).unwrap();
    assert_eq!(line.wake_at(), Some(now + ms(1_000)), "not when the service wants to be asked again");
    line.park_overdue(now + ms(999)).unwrap();
    assert_eq!(parked(&mut line), [] as [usize; 0]);
    line.park_overdue(now + ms(1_000)).unwrap();
    assert_eq!(parked(&mut line), [0]);
    assert_eq!((line.len(), line.wake_at()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_was_parked_waits_longer_and_is_given_up_after_the_last_time() {
    let now = Clock::system().now();
    let second = Duration::from_secs(1);
    for (times, seconds, is_parked) in [(0, 1, true), (1, 2, true), (2, 4, false), (30, 16, false)] {
        let mut line = line_of(parking(), 0, now);
        let batch = Arc::new(RecordBatch::new_empty(Arc::new(Schema::empty())));
        line.arrive(AsyncRow::new(batch, 0), times, now);
        // Time that it waits for room is not counted.
        let begun = now + 100 * second;
        let until = begun + seconds * second;
        assert_eq!(line.start_next(begun).unwrap().park_at, Some(until), "{times}");
        line.finished(0, CallEnd::Overdue, until, plain).unwrap();
        let done = line.take_done(1);
        match &done[0].fate {
            Fate::Parked => assert!(is_parked, "{times}"),
            Fate::Outcome(AsyncOutcome::Reject(error)) => {
                assert!(!is_parked && error.contains(&format!("parked {times} times")), "{error}");
            }
            Fate::Outcome(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_service_is_down_nothing_is_parked_and_its_time_is_not_counted() {
    let now = Clock::system().now();
    let second = Duration::from_secs(1);
    let mut line = line_of(parking().with_concurrency(3).with_holds_after_failures(2), 3, now);
    assert_eq!(started(&mut line, now), [0, 1, 2]);
    line.finished(0, CallEnd::Overdue, now + second, plain).unwrap();
    assert_eq!(parked(&mut line), [0], "one may be slow by itself");
    line.finished(1, CallEnd::Overdue, now + second, plain).unwrap();
    assert!(line.load().is_holding, "two in a row are the service");
    line.park_overdue(now + 500 * second).unwrap();
    assert_eq!(parked(&mut line), [] as [usize; 0]);
    // It answers again, after a long time.
    line.finished(2, OK, now + 500 * second, plain).unwrap();
    line.park_overdue(now + 500 * second).unwrap();
    assert_eq!(parked(&mut line), [] as [usize; 0]);
    assert_eq!(line.start_next(now + 500 * second).unwrap().park_at, Some(now + 501 * second));
}

proptest! {
    /// Whatever calls come to, every row leaves exactly once, and the line always knows when to look again.
    #[test]
    fn every_row_leaves_once(
        is_ordered: bool,
        holds in 0u32..4,
        parks: bool,
        ends in proptest::collection::vec((0usize..8, 0u8..5), 0..200),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut now = Clock::system().now();
            let mut options = options().with_order(is_ordered).with_holds_after_failures(holds).with_concurrency(3);
            options.park_after = parks.then_some(Duration::from_millis(150));
            let mut line = line_of(options, 20, now);
            let mut running: Vec<u64> = Vec::new();
            let mut gone = Vec::new();
            let mut ends = ends.into_iter();
            while line.len() > 0 {
                line.park_overdue(now).unwrap();
                gone.extend(left(&mut line).into_iter().map(|(index, _)| index));
                running.extend(started(&mut line, now));
                assert!(running.len() <= 3);
                if line.len() == 0 {
                    break;
                }
                if running.is_empty() {
                    now = line.wake_at().expect("rows are left and nothing runs, so it must say when to look");
                    continue;
                }
                // When the plan is at its end, everything succeeds.
                let (pick, how) = ends.next().unwrap_or((0, 0));
                let number = running.swap_remove(pick % running.len());
                let result = match how {
                    0 => OK,
                    1 | 2 => transient(),
                    3 => CallEnd::Overdue,
                    _ => permanent(),
                };
                line.finished(number, result, now, plain).unwrap();
                gone.extend(left(&mut line).into_iter().map(|(index, _)| index));
            }
            if !is_ordered {
                gone.sort_unstable();
            }
            assert_eq!(gone, (0..20).collect::<Vec<_>>());
        });
    }
}
