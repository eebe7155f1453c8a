//! Epoch n+1 is filled while epoch n commits, and no epoch is written before it is open.

use std::time::Duration;

use sharestream_base::ids::CheckpointId;
use sharestream_core::JobControl;

use crate::fixtures::Setup;

/// Runs the job while no commit ends, until `observe` is done; then lets all of them end, and drains.
async fn with_commits_held(setup: &Setup, observe: impl AsyncFnOnce()) {
    setup.gate.close();
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let observe = async {
        observe().await;
        setup.gate.open();
        setup.drain_when_done(&control).await;
    };
    let (report, ()) = tokio::join!(run, observe);
    report.unwrap();
    setup.broker.assert_exactly_once();
}

#[tokio::test(start_paused = true)]
async fn the_next_epoch_is_filled_while_a_commit_is_held() {
    let setup = Setup::new(2, 1_000);
    with_commits_held(&setup, async || {
        setup.env.clock.sleep(Duration::from_secs(1)).await;
        // Epoch 1 is sealed and held, epoch 2 is filled and sealed, and epoch 3 must not be open.
        assert_eq!(setup.broker.commit_count(), 0);
        assert_eq!(setup.broker.open_count(), 2);
        assert!(setup.broker.written_count(CheckpointId(1)) > 0);
        assert!(setup.broker.written_count(CheckpointId(2)) > 0);
        assert_eq!(setup.broker.violations(), Vec::<String>::new());
        let handed_out = setup.broker.handed_out_count();
        setup.env.clock.sleep(Duration::from_secs(1)).await;
        let more = setup.broker.handed_out_count() - handed_out;
        assert_eq!(more % 7, 0);
    })
    .await;
    assert!(setup.broker.all_decided());
}

#[tokio::test(start_paused = true)]
async fn with_one_epoch_at_a_time_the_next_waits_for_the_commit() {
    let mut setup = Setup::new(2, 1_000);
    setup.options = setup.options.with_epochs_open_max(1);
    with_commits_held(&setup, async || {
        setup.env.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(setup.broker.commit_count(), 0);
        assert_eq!(setup.broker.open_count(), 1);
        assert!(setup.broker.written_count(CheckpointId(1)) > 0);
        assert_eq!(setup.broker.written_count(CheckpointId(2)), 0);
    })
    .await;
    assert!(setup.broker.all_decided());
}

#[tokio::test(start_paused = true)]
async fn full_channels_hold_the_source_while_no_epoch_is_open() {
    let mut setup = Setup::new(1, 5_000);
    setup.options = setup.options.with_channel_rows_max(50);
    with_commits_held(&setup, async || {
        setup.env.clock.sleep(Duration::from_secs(5)).await;
        let handed_out = setup.broker.handed_out_count();
        // Two epochs of 40 rows, and what the channels between three tasks each hold, twice; not the whole topic.
        assert!(handed_out < 1_000, "{handed_out}");
        setup.env.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(setup.broker.handed_out_count(), handed_out, "full means wait");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_job_commits_nothing() {
    let setup = Setup::new(1, 30);
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let observe = async {
        setup.env.clock.sleep(Duration::from_secs(2)).await;
        assert!(setup.broker.all_decided());
        let commits = setup.broker.commit_count();
        setup.env.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(setup.broker.commit_count(), commits, "no empty transactions");
        control.drain();
    };
    let (report, ()) = tokio::join!(run, observe);
    assert_eq!(report.unwrap().status.commits, setup.broker.commit_count() as u64);
    assert_eq!(setup.broker.open_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_epoch_holds_the_source_until_its_barrier_may_be_sent() {
    let mut setup = Setup::new(1, 5_000);
    setup.options = setup.options.with_epoch_bytes_max(40).with_epoch_rows_max(1_000_000);
    with_commits_held(&setup, async || {
        setup.env.clock.sleep(Duration::from_secs(5)).await;
        let handed_out = setup.broker.handed_out_count();
        // One epoch waits for its commit and one for that of the one before, each cut when both sources together had handed on
        // enough; one is filled, by each of the two up to the bound. A record has a byte here, and a batch seven.
        let (sources, batch) = (2, 7);
        assert!(handed_out < 2 * (40 + sources * batch) + sources * (40 + batch), "{handed_out}");
        setup.env.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(setup.broker.handed_out_count(), handed_out, "full means wait");
    })
    .await;
    assert!(setup.broker.all_decided());
}
