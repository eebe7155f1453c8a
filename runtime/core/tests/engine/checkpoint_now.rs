//! Checkpoints on request, and the stream of the status.

use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use futures::StreamExt;
use futures::future::join_all;
use sharestream_core::async_map::{AsyncMap, AsyncMapOptions, AsyncOutcome};
use sharestream_core::commit::CommitStep;
use sharestream_core::{ErrorKind, JobControl, JobEnd, JobOptions, JobState, RestartOptions, Supervisor};

use crate::fixtures::{Fault, Setup};

const HOUR: Duration = Duration::from_secs(3_600);

/// A job that never commits by itself while its sources have more.
fn lazy(partitions: usize, records: i64) -> Setup {
    let mut setup = Setup::new(partitions, records);
    setup.options = JobOptions::default()
        .with_epoch_rows_max(u64::MAX)
        .with_epoch_bytes_max(u64::MAX)
        .with_checkpoint_interval(Duration::from_secs(600))
        .with_window_fill_threshold(1.0);
    setup
}

#[tokio::test(start_paused = true)]
async fn everything_handed_on_before_the_call_is_committed_when_it_returns() {
    let setup = lazy(4, 10_000);
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let ask = async {
        let mut last = None;
        for pause_us in [50_000, 0, 1, 333, 7_000] {
            setup.env.clock.sleep(Duration::from_micros(pause_us)).await;
            let (commits, handed_out) = (setup.broker.commit_count(), setup.broker.handed_out_count());
            let checkpoint = control.checkpoint().await.unwrap();
            assert!(setup.broker.decided_count() >= handed_out, "{handed_out} were handed out");
            assert!(checkpoint > last, "{checkpoint:?} after {last:?}");
            assert!(control.snapshot().checkpoint >= checkpoint);
            assert!(setup.broker.commit_count() - commits <= 2, "the one before may have been under way");
            last = checkpoint;
        }
        assert_eq!(setup.broker.commit_count() as u64, control.snapshot().commits);
        control.drain();
    };
    let (report, ()) = tokio::join!(run, ask);
    assert_eq!(report.unwrap().end, JobEnd::Drained);
    setup.broker.assert_exactly_once();
}

#[tokio::test(start_paused = true)]
async fn with_nothing_in_flight_it_returns_at_once_with_the_last_checkpoint() {
    let empty = Setup::new(2, 0);
    let control = JobControl::new();
    let run = empty.job().run(empty.env.clone(), control.clone());
    let ask = async {
        assert_eq!(control.checkpoint().await.unwrap(), None, "nothing was ever committed");
        control.drain();
    };
    tokio::join!(run, ask).0.unwrap();
    let setup = Setup::new(2, 200);
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let ask = async {
        while !setup.broker.all_decided() {
            setup.env.clock.sleep(Duration::from_millis(1)).await;
        }
        setup.env.clock.sleep(Duration::from_secs(1)).await;
        let (now, commits) = (setup.env.clock.now(), setup.broker.commit_count());
        let checkpoint = control.checkpoint().await.unwrap();
        assert_eq!((checkpoint, setup.env.clock.now()), (control.snapshot().checkpoint, now));
        assert_eq!(setup.broker.commit_count(), commits, "nothing is committed for nothing");
        control.drain();
    };
    tokio::join!(run, ask).0.unwrap();
}

#[tokio::test(start_paused = true)]
async fn calls_that_run_are_waited_for_and_hold_nothing_else_up() {
    let mut setup = lazy(2, 300);
    let clock = setup.env.clock.clone();
    let map = AsyncMap::from_fn("call", [], move |row| {
        let clock = clock.clone();
        async move {
            let offset = row.batch().column(0).as_primitive::<Int64Type>().value(row.index());
            clock.sleep(if offset == 0 { Duration::from_secs(60) } else { Duration::from_millis(2) }).await;
            Ok(AsyncOutcome::Columns(Vec::new()))
        }
    });
    setup.async_map = Some(map.options(AsyncMapOptions::default().with_timeout(HOUR)));
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let ask = async {
        let clock = &setup.env.clock;
        clock.sleep(Duration::from_millis(5)).await;
        let (started_at, handed_out) = (clock.now(), setup.broker.handed_out_count());
        let early = async {
            clock.sleep(Duration::from_secs(30)).await;
            assert!(control.snapshot().commits > 0, "what is done is committed");
            let before = control.checkpoint().await.unwrap();
            assert!(clock.now() - started_at >= Duration::from_secs(59), "the slow record is in flight");
            before
        };
        let (checkpoint, early) = tokio::join!(control.checkpoint(), early);
        assert!(checkpoint.unwrap() <= early, "the second may have found a further slow record");
        assert!(clock.now() - started_at < Duration::from_secs(61));
        assert!(setup.broker.decided_count() >= handed_out);
        assert!(setup.broker.all_decided());
        control.drain();
    };
    tokio::join!(run, ask).0.unwrap();
    setup.broker.assert_exactly_once();
}

#[tokio::test(start_paused = true)]
async fn it_goes_on_over_attempts_and_knows_a_commit_that_only_recovery_finds() {
    for step in CommitStep::ALL {
        for reaches_broker in [false, true] {
            let setup = lazy(2, 2_000);
            for _ in 0..2 {
                setup.faults.plan(step, Fault::Crash, 0, reaches_broker);
            }
            setup.faults.plan(
                CommitStep::DuringEndTxn,
                Fault::Error(ErrorKind::Indeterminate),
                0,
                reaches_broker,
            );
            let control = JobControl::new();
            // A crash is a panic in the coordinator's task, which the supervisor of this test is.
            let attempts = async {
                loop {
                    let attempt = setup.clone();
                    let factory = move |_attempt: u64| Ok(attempt.job());
                    let run = Supervisor::new(factory, RestartOptions::default())
                        .run(setup.env.clone(), control.clone());
                    match run.await {
                        Ok(report) => return report,
                        Err(error) => assert!(error.to_string().contains("planned"), "{error}"),
                    }
                }
            };
            let ask = async {
                let mut answers = 0;
                while answers < 3 {
                    setup.env.clock.sleep(Duration::from_millis(3)).await;
                    match control.checkpoint().await {
                        Ok(checkpoint) => {
                            let committed = setup.broker.last_committed().checkpoint;
                            assert!(checkpoint <= committed, "{step:?}: {checkpoint:?} is not committed");
                            answers += 1;
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
                    }
                }
                setup.drain_when_done(&control).await;
            };
            let (report, ()) = tokio::join!(attempts, ask);
            assert_eq!(report.end, JobEnd::Drained);
            setup.broker.assert_exactly_once();
            assert!(!setup.faults.are_left(), "{step:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_the_supervisor_takes_does_not_end_the_call() {
    for reaches_broker in [false, true] {
        let setup = lazy(2, 2_000);
        let fault = Fault::Error(ErrorKind::Indeterminate);
        setup.faults.plan(CommitStep::DuringEndTxn, fault, 0, reaches_broker);
        let control = JobControl::new();
        let factory = setup.clone();
        let supervisor = Supervisor::new(move |_attempt: u64| Ok(factory.job()), RestartOptions::default());
        let run = supervisor.run(setup.env.clone(), control.clone());
        let ask = async {
            setup.env.clock.sleep(Duration::from_millis(3)).await;
            let checkpoint = control.checkpoint().await.unwrap();
            assert!(!setup.faults.are_left());
            assert_eq!(checkpoint, setup.broker.last_committed().checkpoint);
            let expected = if reaches_broker { 1 } else { 2 };
            assert_eq!(checkpoint.map(|checkpoint| checkpoint.0), Some(expected));
            control.drain();
        };
        tokio::join!(run, ask).0.unwrap();
        setup.broker.assert_exactly_once();
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_job_ends_the_call() {
    for how in ["stopped", "dropped", "failed", "ended before", "drained"] {
        let setup = lazy(2, 10_000);
        setup.gate.close();
        if how == "failed" {
            setup.gate.open();
            setup.faults.plan(CommitStep::BeforeStaging, Fault::Error(ErrorKind::InvalidInput), 0, false);
        }
        let control = JobControl::new();
        if how == "ended before" {
            control.stop();
            setup.job().run(setup.env.clone(), control.clone()).await.unwrap();
        }
        let run = async {
            let limit = if how == "dropped" { Duration::from_secs(1) } else { HOUR };
            let run = Box::pin(setup.job().run(setup.env.clone(), control.clone()));
            let _ended = Box::pin(setup.env.clock.timeout(limit, run)).await;
        };
        let end = async {
            setup.env.clock.sleep(Duration::from_millis(500)).await;
            match how {
                "stopped" => control.stop(),
                "drained" => {
                    control.drain();
                    setup.gate.open();
                }
                _ => {}
            }
        };
        let ask = async {
            if how != "ended before" {
                setup.env.clock.sleep(Duration::from_millis(100)).await;
            }
            control.checkpoint().await
        };
        let (asked, (), ()) = tokio::join!(ask, run, end);
        match how {
            "drained" => assert_eq!(asked.unwrap().map(|checkpoint| checkpoint.0), Some(1)),
            _ => assert_eq!(asked.unwrap_err().kind(), ErrorKind::Closed, "{how}"),
        }
        assert_eq!(control.snapshot().state, JobState::Ended, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_takes_nothing_with_it_and_many_share_a_barrier() {
    let setup = lazy(4, 10_000);
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let ask = async {
        let clock = &setup.env.clock;
        clock.sleep(Duration::from_millis(10)).await;
        for _ in 0..10 {
            let limit = Duration::from_micros(50);
            assert!(clock.timeout(limit, control.checkpoint()).await.is_err(), "too soon");
        }
        let commits = setup.broker.commit_count();
        let all = join_all((0..10_000).map(|_| control.checkpoint())).await;
        assert!(all.into_iter().all(|checkpoint| checkpoint.is_ok_and(|checkpoint| checkpoint.is_some())));
        assert!(setup.broker.commit_count() - commits <= 3);
        control.drain();
    };
    tokio::join!(run, ask).0.unwrap();
    setup.broker.assert_exactly_once();
}

#[tokio::test(start_paused = true)]
async fn the_status_is_a_stream_that_ends_with_the_job() {
    for is_dropped in [false, true] {
        let setup = Setup::new(2, 300);
        let control = JobControl::new();
        let run = async {
            let limit = if is_dropped { Duration::from_millis(50) } else { HOUR };
            let run = setup.job().run(setup.env.clone(), control.clone());
            let done = setup.drain_when_done(&control);
            let run = Box::pin(async { tokio::join!(run, done).0.unwrap() });
            Box::pin(setup.env.clock.timeout(limit, run)).await.is_err()
        };
        if is_dropped {
            setup.gate.close();
        }
        let watch = control.status_stream().collect::<Vec<_>>();
        let (dropped, seen) = tokio::join!(run, watch);
        assert_eq!(dropped, is_dropped);
        assert_eq!(seen[0].state, JobState::Created);
        assert!(seen.iter().any(|status| status.state == JobState::Running));
        assert_eq!(seen.last().unwrap().state, JobState::Ended);
        assert_eq!(seen.iter().filter(|status| status.state == JobState::Ended).count(), 1);
        assert!(seen.is_sorted_by_key(|status| status.records_in));
        assert_eq!(seen.last().unwrap().commits, setup.broker.commit_count() as u64);
    }
}
