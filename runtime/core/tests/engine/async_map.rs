//! Calls to the outside beside checkpoints: nothing waits for them, and nothing is lost or doubled by that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::{DataType, Field};
use sharestream_base::Clock;
use sharestream_core::async_map::{AsyncMap, AsyncMapOptions, AsyncOutcome, AsyncRow, CallError};
use sharestream_core::commit::CommitStep;
use sharestream_core::{BoundBy, ErrorKind, JobControl, RestartOptions, Supervisor};

use crate::fixtures::{Fault, PartFault, Setup};

const PARTITIONS: usize = 3;
const RECORDS: i64 = 200;

fn offset_of(row: &AsyncRow) -> i64 {
    row.batch().column(0).as_primitive::<Int64Type>().value(row.index())
}

fn doubled(row: &AsyncRow) -> AsyncOutcome {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![2 * offset_of(row)]));
    AsyncOutcome::Columns(vec![column])
}

/// Calls that take between 1 and 50 ms, every 40th a second.
pub(crate) fn slow_map(clock: &Clock) -> AsyncMap {
    let clock = clock.clone();
    let column = Field::new("doubled", DataType::Int64, false);
    AsyncMap::from_fn("call", [column], move |row| {
        let clock = clock.clone();
        async move {
            let offset = offset_of(&row);
            let ms = if offset % 40 == 39 { 1_000 } else { 1 + (offset * 7) % 50 };
            clock.sleep(Duration::from_millis(ms as u64)).await;
            Ok(doubled(&row))
        }
    })
}

fn setup_with(map: AsyncMap) -> Setup {
    let mut setup = Setup::new(PARTITIONS, RECORDS);
    setup.async_map = Some(map);
    setup
}

fn assert_complete(setup: &Setup) {
    assert!(setup.broker.all_decided(), "something was never processed");
    setup.broker.assert_exactly_once();
    assert_eq!(setup.broker.violations(), Vec::<String>::new());
    assert_eq!(setup.broker.open_count(), 0, "a transaction was left open");
}

#[tokio::test(start_paused = true)]
async fn checkpoints_go_on_while_a_record_is_slow() {
    let clock = Clock::system();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let column = Field::new("doubled", DataType::Int64, false);
    let (waits, sleeps) = (gate.clone(), clock.clone());
    let map = AsyncMap::from_fn("call", [column], move |row| {
        let (gate, clock) = (waits.clone(), sleeps.clone());
        async move {
            if offset_of(&row) == 0 {
                let _permit = gate.acquire().await;
            }
            clock.sleep(Duration::from_millis(2)).await;
            Ok::<_, CallError>(doubled(&row))
        }
    });
    let hour = Duration::from_secs(3_600);
    let setup = setup_with(map.options(AsyncMapOptions::default().with_timeout(hour)));
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let observe = async {
        clock.sleep(Duration::from_secs(60)).await;
        assert!(!setup.broker.all_decided());
        let status = control.snapshot();
        let good = PARTITIONS as u64 * RECORDS as u64;
        assert!(status.records_in > good * 9 / 10, "only the slow records are left: {status:?}");
        assert!(status.commits > 5);
        let call = &status.calls[0];
        assert_eq!((call.name.as_str(), call.running), ("call", PARTITIONS as u64));
        let oldest = call.oldest.as_ref().expect("the slow record is named");
        assert_eq!((oldest.topic.as_str(), oldest.offset), ("t", 0));
        assert!(oldest.for_ms > 50_000, "{oldest:?}");
        assert_eq!(status.bound_by, Some(BoundBy::Source));
        let commits = status.commits;
        clock.sleep(Duration::from_secs(600)).await;
        assert_eq!(control.snapshot().commits, commits, "nothing is committed for nothing");
        gate.add_permits(PARTITIONS);
        setup.drain_when_done(&control).await;
    };
    let (report, ()) = tokio::join!(run, observe);
    let status = report.unwrap().status;
    assert_complete(&setup);
    assert_eq!(status.records_in, status.rows_out + status.dead_letters + status.filtered, "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn any_mix_of_crashes_neither_loses_nor_doubles() {
    for is_ordered in [false, true] {
        for subtasks in [None, Some(3)] {
            for step in CommitStep::ALL {
                let options = AsyncMapOptions::default().with_order(is_ordered).with_concurrency(8);
                let mut setup = setup_with(slow_map(&Clock::system()).options(options));
                setup.async_subtasks = subtasks;
                for (after, reaches_broker) in [(0, false), (2, true), (1, true)] {
                    setup.faults.plan(step, Fault::Error(ErrorKind::Abort), after, reaches_broker);
                }
                setup.part_faults.plan(PartFault::SinkError(ErrorKind::Abort), 4);
                let control = JobControl::new();
                let factory = setup.clone();
                let supervisor =
                    Supervisor::new(move |_attempt: u64| Ok(factory.job()), RestartOptions::default());
                let run = supervisor.run(setup.env.clone(), control.clone());
                let (report, ()) = tokio::join!(run, setup.drain_when_done(&control));
                report.unwrap();
                assert_complete(&setup);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_calls_and_gives_back_what_takes_too_long() {
    let clock = Clock::system();
    let column = Field::new("doubled", DataType::Int64, false);
    let sleeps = clock.clone();
    let map = AsyncMap::from_fn("call", [column], move |row| {
        let clock = sleeps.clone();
        async move {
            let seconds = if offset_of(&row) == 2 { 1_000 } else { 3 };
            clock.sleep(Duration::from_secs(seconds)).await;
            Ok::<_, CallError>(doubled(&row))
        }
    });
    let hour = Duration::from_secs(3_600);
    let setup = setup_with(map.options(AsyncMapOptions::default().with_timeout(hour)));
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let observe = async {
        clock.sleep(Duration::from_secs(1)).await;
        control.drain();
    };
    let (report, ()) = tokio::join!(run, observe);
    let status = report.unwrap().status;
    assert!(status.rows_out > 0, "calls that ended in time are committed: {status:?}");
    assert!(!setup.broker.all_decided());
    setup.broker.assert_exactly_once();
    assert_eq!(setup.broker.open_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn calls_that_end_behind_the_last_barrier_do_not_hold_up_a_drain() {
    let clock = Clock::system();
    let column = Field::new("doubled", DataType::Int64, false);
    let sleeps = clock.clone();
    // The drain begins after a second and waits 15 for calls: these end a millisecond apart, before and after that.
    let map = AsyncMap::from_fn("call", [column], move |row| {
        let clock = sleeps.clone();
        async move {
            clock.sleep(Duration::from_millis((15_980 + offset_of(&row)) as u64)).await;
            Ok::<_, CallError>(doubled(&row))
        }
    });
    let setup = setup_with(map.options(AsyncMapOptions::default().with_concurrency(600)));
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let observe = async {
        clock.sleep(Duration::from_secs(1)).await;
        control.drain();
    };
    let (report, ()) = tokio::join!(run, observe);
    report.unwrap();
    assert!(!setup.broker.all_decided(), "some were too late");
    setup.broker.assert_exactly_once();
    assert_eq!(setup.broker.open_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn while_everything_fails_calls_are_held_and_nothing_becomes_a_dead_letter() {
    let clock = Clock::system();
    let is_down = Arc::new(AtomicU32::new(1));
    let calls = Arc::new(AtomicU32::new(0));
    let column = Field::new("doubled", DataType::Int64, false);
    let (down, counted) = (is_down.clone(), calls.clone());
    let map = AsyncMap::from_fn("call", [column], move |row| {
        counted.fetch_add(1, Ordering::SeqCst);
        let is_down = down.load(Ordering::SeqCst) == 1;
        async move { if is_down { Err(CallError::transient("503")) } else { Ok(doubled(&row)) } }
    });
    let setup = setup_with(map);
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let observe = async {
        clock.sleep(Duration::from_secs(60)).await;
        let status = control.snapshot();
        assert_eq!(status.bound_by, Some(BoundBy::Circuit));
        assert!(status.calls.iter().all(|call| call.is_holding), "{:?}", status.calls);
        // Two subtasks: the calls that ran when it began, and a probe a second.
        assert!(calls.load(Ordering::SeqCst) < 2 * 64 + 2 * 65, "{calls:?}");
        is_down.store(0, Ordering::SeqCst);
        setup.drain_when_done(&control).await;
    };
    let (report, ()) = tokio::join!(run, observe);
    let status = report.unwrap().status;
    assert_complete(&setup);
    let rejected = (0..RECORDS).filter(|offset| crate::fixtures::is_bad(*offset)).count() * PARTITIONS;
    assert_eq!(status.dead_letters, rejected as u64, "those that the operator and the decoder refuse");
}

#[tokio::test(start_paused = true)]
async fn a_column_of_another_type_ends_the_job_with_both_types() {
    let column = Field::new("doubled", DataType::Utf8, false);
    let map = AsyncMap::from_fn("call", [column], |row| async move { Ok::<_, CallError>(doubled(&row)) });
    let setup = setup_with(map);
    let error = setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("doubled Utf8") && error.to_string().contains("Int64"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_column_that_is_there_already_is_refused_before_the_start() {
    for name in ["value", "_offset"] {
        let column = Field::new(name, DataType::Int64, false);
        let map = AsyncMap::from_fn("call", [column], |row| async move { Ok::<_, CallError>(doubled(&row)) });
        let setup = setup_with(map);
        let error = setup.builder().build().unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn records_that_take_too_long_are_parked_once_or_come_out_once_whatever_crashes() {
    for (index, step) in CommitStep::ALL.into_iter().enumerate() {
        let options = AsyncMapOptions::default()
            .with_order(index % 2 == 1)
            .with_concurrency(8)
            .with_park_after(Duration::from_millis(40));
        let mut setup = setup_with(slow_map(&Clock::system()).options(options));
        setup.async_subtasks = Some(3);
        for (after, reaches_broker) in [(0, false), (2, true), (1, true)] {
            setup.faults.plan(step, Fault::Error(ErrorKind::Abort), after, reaches_broker);
        }
        setup.part_faults.plan(PartFault::SinkError(ErrorKind::Abort), 4);
        let control = JobControl::new();
        let factory = setup.clone();
        let supervisor = Supervisor::new(move |_attempt: u64| Ok(factory.job()), RestartOptions::default());
        let run = supervisor.run(setup.env.clone(), control.clone());
        let (report, ()) = tokio::join!(run, setup.drain_when_done(&control));
        let status = report.unwrap().status;
        assert_complete(&setup);
        // One call in five takes longer. Commits of failed attempts that turn out to have committed count in no status.
        assert!(status.parked > 0, "{step:?}: {status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn parking_moves_a_partition_on_that_a_slow_record_holds() {
    let clock = Clock::system();
    let sleeps = clock.clone();
    let column = Field::new("doubled", DataType::Int64, false);
    let dropped = Arc::new(AtomicU32::new(0));
    let counted = dropped.clone();
    let map = AsyncMap::from_fn("call", [column], move |row| {
        let (clock, counted) = (sleeps.clone(), counted.clone());
        async move {
            if offset_of(&row) == 0 {
                struct Dropped(Arc<AtomicU32>);
                impl Drop for Dropped {
                    fn drop(&mut self) {
                        self.0.fetch_add(1, Ordering::SeqCst);
                    }
                }
                let _dropped = Dropped(counted);
                std::future::pending::<()>().await;
            }
            clock.sleep(Duration::from_millis(2)).await;
            Ok::<_, CallError>(doubled(&row))
        }
    });
    let options = AsyncMapOptions::default()
        .with_timeout(Duration::from_secs(3_600))
        .with_park_after(Duration::from_secs(5));
    let setup = setup_with(map.options(options));
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let (report, ()) = tokio::join!(run, setup.drain_when_done(&control));
    let status = report.unwrap().status;
    assert_complete(&setup);
    assert_eq!(status.parked, PARTITIONS as u64, "{status:?}");
    assert_eq!(dropped.load(Ordering::SeqCst), PARTITIONS as u32, "a call whose record is parked is dropped");
}

#[tokio::test(start_paused = true)]
async fn parking_is_refused_where_it_cannot_be() {
    let options = AsyncMapOptions::default().with_park_after(Duration::from_secs(1));
    let mut setup = setup_with(slow_map(&Clock::system()).options(options.clone()));
    setup.sink_parks = false;
    let error = setup.builder().build().unwrap_err().to_string();
    assert!(error.contains("call parks records") && error.contains("no topic for them"), "{error}");
    setup.sink_parks = true;
    assert!(setup.builder().build().is_ok());
    setup.keyed = Some((Arc::new(crate::state::COUNT), 2));
    let error = setup.builder().build().unwrap_err().to_string();
    assert!(error.contains("call: park_after parks whole records"), "{error}");
    for (bad, name) in [
        (options.clone().with_park_after(Duration::ZERO), "park_after"),
        (options.clone().with_park_max(0), "park_max"),
    ] {
        let setup = setup_with(slow_map(&Clock::system()).options(bad));
        let error = setup.builder().build().unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}
