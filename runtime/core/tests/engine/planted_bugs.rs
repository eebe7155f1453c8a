//! The checks find what they are there to find: each planted mistake makes them fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use sharestream_core::JobControl;
use sharestream_core::commit::CommitStep;

use crate::fixtures::{Fault, PartFault, PlantedBug, Setup};

async fn violation(setup: &Setup) -> String {
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let (_, ()) = tokio::join!(run, async {
        setup.env.clock.sleep(Duration::from_secs(1)).await;
        control.drain();
    });
    let panic = catch_unwind(AssertUnwindSafe(|| setup.broker.assert_exactly_once()))
        .expect_err("the planted bug was not found");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn acknowledging_before_end_txn_is_found_when_the_transaction_is_lost() {
    let mut setup = Setup::new(2, 300);
    setup.planted = Some(PlantedBug::AcknowledgeBeforeEndTxn);
    setup.faults.plan(CommitStep::BeforeEndTxn, Fault::Crash, 1, false);
    assert!(violation(&setup).await.contains("lost or torn"));
}

#[tokio::test(start_paused = true)]
async fn a_skipped_outcome_record_is_found() {
    let mut setup = Setup::new(2, 300);
    setup.planted = Some(PlantedBug::SkipOutcomeRecord);
    assert!(violation(&setup).await.contains("without an outcome record"));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_range_is_found() {
    let mut setup = Setup::new(2, 300);
    setup.planted = Some(PlantedBug::DropDecidedRange);
    assert!(violation(&setup).await.contains("torn"));
}

#[tokio::test(start_paused = true)]
async fn an_output_written_twice_is_found() {
    let setup = Setup::new(2, 300);
    setup.part_faults.plan(PartFault::SinkWritesTwice, 3);
    assert!(violation(&setup).await.contains("doubled"));
}
