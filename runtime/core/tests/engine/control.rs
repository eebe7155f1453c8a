//! Drain, stop, fencing, failures of parts, deadlines.

use std::time::Duration;

use async_trait::async_trait;
use sharestream_core::async_map::AsyncMapOptions;
use sharestream_core::{
    AttemptFactory, ErrorKind, Job, JobControl, JobEnd, JobState, RestartOptions, Result, Supervisor,
};

use crate::async_map::slow_map;
use crate::fixtures::Setup;
use crate::state::{self, COUNT};

/// The three ways to end a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Drain,
    Stop,
    DropTheRun,
}

/// Runs the job, ends it after a while, and gives what it said.
async fn run_and_end(setup: &Setup, how: End, after: Duration) -> Option<JobEnd> {
    let control = JobControl::new();
    let clock = &setup.env.clock;
    let limit = if how == End::DropTheRun { after } else { Duration::from_secs(3_600) };
    let run = Box::pin(setup.job().run(setup.env.clone(), control.clone()));
    let run = clock.timeout(limit, run);
    let end = async {
        clock.sleep(after).await;
        match how {
            End::Drain => control.drain(),
            End::Stop => control.stop(),
            End::DropTheRun => {}
        }
    };
    let (result, ()) = tokio::join!(run, end);
    assert_eq!(control.snapshot().state, JobState::Ended);
    assert_eq!(result.is_err(), how == End::DropTheRun);
    result.ok().map(|report| report.unwrap().end)
}

#[tokio::test(start_paused = true)]
async fn no_end_of_a_job_that_keeps_state_or_calls_out_loses_or_doubles() {
    for has_state in [false, true] {
        for how in [End::Drain, End::Stop, End::DropTheRun] {
            let (mut setup, _objects) = state::setup().await;
            if has_state {
                setup.options = setup.options.with_epoch_rows_max(20);
            } else {
                let options = AsyncMapOptions::default().with_concurrency(8);
                setup.async_map = Some(slow_map(&setup.env.clock).options(options));
                (setup.keyed, setup.store) = (None, None);
            }
            // Moments before, in and after the first commits; what a run has left the next ones do.
            for after_us in [1, 300, 1_000, 2_345, 5_000, 7_777, 20_000, 60_000, 250_000] {
                let end = Box::pin(run_and_end(&setup, how, Duration::from_micros(after_us))).await;
                setup.broker.assert_exactly_once();
                match how {
                    End::Drain => {
                        assert_eq!(end, Some(JobEnd::Drained));
                        assert_eq!(setup.broker.open_count(), 0, "{after_us}");
                    }
                    End::Stop => assert_eq!(end, Some(JobEnd::Stopped)),
                    End::DropTheRun => assert_eq!(end, None),
                }
            }
            let control = JobControl::new();
            let run = setup.job().run(setup.env.clone(), control.clone());
            tokio::join!(run, setup.drain_when_done(&control)).0.unwrap();
            setup.broker.assert_exactly_once();
            assert_eq!(setup.broker.open_count(), 0);
            if has_state {
                assert_eq!(state::counts(&setup, &COUNT).await, state::expected(), "{how:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_commits_what_was_handed_on_and_gives_back_the_rest() {
    for drain_after_us in [0, 500, 1_000, 3_000, 7_777, 20_000] {
        let setup = Setup::new(2, 2_000);
        let control = JobControl::new();
        let run = setup.job().run(setup.env.clone(), control.clone());
        let (report, ()) = tokio::join!(run, async {
            setup.env.clock.sleep(Duration::from_micros(drain_after_us)).await;
            control.drain();
        });
        let report = report.unwrap();
        assert_eq!(report.end, JobEnd::Drained);
        assert_eq!(report.status.state, JobState::Ended);
        assert!(!setup.broker.all_decided());
        setup.broker.assert_exactly_once();
        assert_eq!(setup.broker.open_count(), 0);
        assert_eq!(report.status.commits, setup.broker.commit_count() as u64);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_cannot_commit_ends_at_its_deadline() {
    let mut setup = Setup::new(2, 10_000);
    setup.options = setup.options.with_drain_deadline(Duration::from_secs(8));
    setup.gate.close();
    let control = JobControl::new();
    let started_at = setup.env.clock.now();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let (report, ()) = tokio::join!(run, async {
        setup.env.clock.sleep(Duration::from_secs(1)).await;
        control.drain();
    });
    let error = report.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(error.to_string().contains("draining took longer"), "{error}");
    let took = setup.env.clock.now() - started_at;
    assert!(
        took <= Duration::from_secs(1 + 8 + 5 + 1),
        "the held commit is bounded by the close deadline: {took:?}"
    );
    setup.broker.assert_exactly_once();
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_at_once_and_names_the_commit_under_way() {
    let setup = Setup::new(2, 10_000);
    setup.gate.close();
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let (report, stopped_at) = tokio::join!(run, async {
        setup.env.clock.sleep(Duration::from_secs(1)).await;
        control.stop();
        setup.env.clock.now()
    });
    let report = report.unwrap();
    assert_eq!(report.end, JobEnd::Stopped);
    assert_eq!(report.unresolved.map(|checkpoint| checkpoint.0), Some(1));
    assert_eq!(setup.env.clock.now(), stopped_at);
    setup.broker.assert_exactly_once();
}

#[tokio::test(start_paused = true)]
async fn the_older_of_two_incarnations_is_fenced() {
    let setup = Setup::new(2, 2_000);
    let (old, new) = (JobControl::new(), JobControl::new());
    let old_run = setup.job().run(setup.env.clone(), old.clone());
    let new_run = async {
        setup.env.clock.sleep(Duration::from_millis(5)).await;
        let run = setup.job().run(setup.env.clone(), new.clone());
        tokio::join!(run, setup.drain_when_done(&new)).0
    };
    let (old_result, new_result) = tokio::join!(old_run, new_run);
    let error = old_result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    new_result.unwrap();
    assert!(setup.broker.all_decided());
    setup.broker.assert_exactly_once();
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_end_is_indeterminate_at_its_deadline() {
    let mut setup = Setup::new(1, 100);
    setup.options = setup.options.with_commit_deadline(Duration::from_secs(3));
    setup.gate.close();
    let started_at = setup.env.clock.now();
    let error = setup.job().run(setup.env.clone(), JobControl::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(setup.env.clock.now() - started_at < Duration::from_secs(4));
    setup.broker.assert_exactly_once();
}

/// Its brokers never answer.
struct NeverBuilt;

#[async_trait]
impl AttemptFactory for NeverBuilt {
    async fn build(&mut self, _attempt: u64) -> Result<Job> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_be_built_yet_ends_when_it_is_told_to() {
    for (drains, expected) in [(true, JobEnd::Drained), (false, JobEnd::Stopped)] {
        let setup = Setup::new(1, 1);
        let control = JobControl::new();
        let run =
            Supervisor::new(NeverBuilt, RestartOptions::default()).run(setup.env.clone(), control.clone());
        let (report, asked, ()) = tokio::join!(run, control.checkpoint(), async {
            setup.env.clock.sleep(Duration::from_secs(1)).await;
            if drains { control.drain() } else { control.stop() }
        });
        assert_eq!(report.unwrap().end, expected);
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::Closed);
    }
}
