//! Exactly once, with a fault at every step of a commit, each followed by a restart.

use std::sync::Arc;

use object_store::memory::InMemory;
use sharestream_checkpoints::{CheckpointStore, JobKey};
use sharestream_core::commit::CommitStep;
use sharestream_core::{ErrorKind, JobControl, JobEnd, JobStatus, RestartOptions, Supervisor};

use crate::fixtures::{Fault, Setup, is_bad};

const PARTITIONS: usize = 3;
const RECORDS: i64 = 200;

/// Runs attempts until one is drained; each planned fault ends one of them.
async fn run_to_the_end(setup: &Setup) -> (JobStatus, u32) {
    let control = JobControl::new();
    let mut failed_attempts = 0;
    loop {
        let run = setup.job().run(setup.env.clone(), control.clone());
        let (result, ()) = tokio::join!(run, async {
            tokio::select! {
                () = setup.drain_when_done(&control) => {}
                () = ended(&control) => {}
            }
        });
        setup.broker.assert_exactly_once();
        match result {
            Ok(report) => {
                assert_eq!(report.end, JobEnd::Drained);
                return (report.status, failed_attempts);
            }
            Err(error) => {
                assert!(error.to_string().contains("planned"), "{error}");
                failed_attempts += 1;
            }
        }
    }
}

/// The attempt is over.
async fn ended(control: &JobControl) {
    let mut status = control.status();
    // A new attempt leaves the ended state of the one before at once.
    status.wait_for(|status| status.state != sharestream_core::JobState::Ended).await.unwrap();
    status.wait_for(|status| status.state == sharestream_core::JobState::Ended).await.unwrap();
}

fn assert_complete(setup: &Setup) {
    assert!(setup.broker.all_decided(), "something was never processed");
    setup.broker.assert_exactly_once();
    assert_eq!(setup.broker.open_count(), 0, "a transaction was left open");
}

async fn with_store(mut setup: Setup) -> Setup {
    let objects = Arc::new(InMemory::new());
    setup.store = Some(CheckpointStore::open(objects, JobKey::new("test", "0")).await.unwrap());
    setup
}

#[tokio::test(start_paused = true)]
async fn without_faults_every_count_is_right() {
    let setup = Setup::new(PARTITIONS, RECORDS);
    let (status, failed_attempts) = run_to_the_end(&setup).await;
    assert_complete(&setup);
    assert_eq!(failed_attempts, 0);
    let per_partition =
        |wanted: &dyn Fn(i64) -> bool| (0..RECORDS).filter(|offset| wanted(*offset)).count() as u64;
    let partitions = PARTITIONS as u64;
    assert_eq!(status.records_in, partitions * per_partition(&|offset| offset % 17 != 16));
    assert_eq!(status.rows_out, setup.broker.output_count() as u64);
    assert_eq!(status.dead_letters, partitions * per_partition(&is_bad));
    assert_eq!(status.records_in, status.rows_out + status.dead_letters + status.filtered);
    assert_eq!(status.commits, setup.broker.commit_count() as u64);
    assert_eq!(status.commit_ms.count, status.commits);
    assert!(status.commit_ms.p50 > 0.0 && status.visible_ms.p50 >= status.commit_ms.p50, "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_step_neither_loses_nor_doubles() {
    for has_store in [false, true] {
        for step in CommitStep::ALL {
            for reaches_broker in [false, true] {
                let mut setup = Setup::new(PARTITIONS, RECORDS);
                if has_store {
                    setup = with_store(setup).await;
                }
                for after in [0, 2, 0, 3] {
                    setup.faults.plan(step, Fault::Crash, after, reaches_broker);
                }
                let (_, failed_attempts) = run_to_the_end(&setup).await;
                assert_complete(&setup);
                assert_eq!(failed_attempts, 4, "{step:?}: every planned crash happened");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_at_any_step_neither_loses_nor_doubles_under_the_supervisor() {
    let steps = [
        CommitStep::AfterOutcome,
        CommitStep::BeforeStaging,
        CommitStep::BetweenStagedLeaders,
        CommitStep::AfterStaging,
        CommitStep::BeforeEndTxn,
        CommitStep::DuringEndTxn,
    ];
    for step in steps {
        let kinds = match step {
            CommitStep::DuringEndTxn => vec![ErrorKind::Indeterminate],
            _ => vec![ErrorKind::Abort, ErrorKind::Retry],
        };
        for kind in kinds {
            for reaches_broker in [false, true] {
                let setup = with_store(Setup::new(PARTITIONS, RECORDS)).await;
                for after in [1, 0, 2] {
                    setup.faults.plan(step, Fault::Error(kind), after, reaches_broker);
                }
                let control = JobControl::new();
                let factory = setup.clone();
                let supervisor =
                    Supervisor::new(move |_attempt: u64| Ok(factory.job()), RestartOptions::default());
                let run = supervisor.run(setup.env.clone(), control.clone());
                let (report, ()) = tokio::join!(run, setup.drain_when_done(&control));
                let status = report.unwrap().status;
                assert_complete(&setup);
                assert!(!setup.faults.are_left(), "{step:?} {kind}");
                assert_eq!(status.attempts, 4, "{step:?} {kind}");
                assert!(status.last_error.is_some_and(|error| error.contains("planned failure")));
            }
        }
    }
}
