//! Sessions on the embedded broker: a loop of one's own, in processes that die at every step of a commit.

mod fixtures;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use fixtures::{Fate, Findings, PATIENCE, World, runtime, stop_at};
use sharestream_base::{CancellationToken, Env};
use sharestream_core::commit::{AckMode, CommitStep, StepHook};
use sharestream_core::session::Session;
use sharestream_core::{ErrorKind, Result};
use sharestream_kafka::{AckModeChoice, KafkaJob, KafkaJobConfig};
use tokio::sync::oneshot;

const RECORDS: i64 = 3_000;
const NOTHING: Findings = Findings { lost: 0, doubled: 0 };

fn with_fate(rows: &RecordBatch, wanted: Fate) -> RecordBatch {
    let ids = rows.column(0).as_primitive::<Int64Type>().values();
    let mask = BooleanArray::from_iter(ids.iter().map(|id| Some(Fate::of(*id) == wanted)));
    filter_record_batch(rows, &mask).expect("same length")
}

/// A process with a session in it.
struct Process {
    stop: CancellationToken,
    crash: oneshot::Sender<()>,
    end: mpsc::Receiver<Result<u64>>,
}

/// In a thread and a runtime of its own, and there in a task, which a crash leaves where it is.
#[allow(clippy::disallowed_methods, reason = "stands for a process of its own, which a crash ends")]
fn start(config: KafkaJobConfig, hook: Option<StepHook>) -> Process {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let (sender, end) = mpsc::channel();
    let (crash, crashed) = oneshot::channel();
    std::thread::spawn(move || {
        let runtime = runtime();
        let task = runtime.spawn(async move { run(config, hook, stopped).await });
        let result = runtime.block_on(async {
            tokio::select! {
                result = task => Some(result.expect("no panic")),
                _ = crashed => None,
            }
        });
        runtime.shutdown_background();
        if let Some(result) = result {
            let _ = sender.send(result);
        }
    });
    Process { stop, crash, end }
}

/// The program of a user: gives how many records it has committed.
async fn run(config: KafkaJobConfig, hook: Option<StepHook>, stopped: CancellationToken) -> Result<u64> {
    let env = Env::system();
    let kafka = KafkaJob::connect(env.clone(), config).await?;
    let hook = hook.unwrap_or_else(|| Arc::new(|_, _| {}));
    let mut session = kafka.into_session().step_hook(hook).open(env.clone()).await?;
    let (mut record_count, mut failure_count) = (0, 0);
    while !stopped.is_cancelled() {
        match step(&mut session, &mut record_count).await {
            Ok(()) => {}
            Err(error) if error.is_restartable() && failure_count < 20 => {
                failure_count += 1;
                env.clock.sleep(Duration::from_millis(50)).await;
                session.recover().await?;
            }
            Err(error) => return Err(error),
        }
    }
    session.commit().await?;
    session.close().await?;
    Ok(record_count)
}

async fn step(session: &mut Session, record_count: &mut u64) -> Result<()> {
    if let Some(batch) = session.next().await? {
        // Every hundredth is given back at its first delivery, and filtered at the next.
        let ids = batch.rows.column(0).as_primitive::<Int64Type>().values().iter();
        let counts = batch.coordinates()?.delivery_counts.values().iter();
        let again =
            BooleanArray::from_iter(ids.zip(counts).map(|(id, count)| Some(id % 100 == 51 && *count == 1)));
        session.release(&filter_record_batch(&batch.rows, &again).expect("same length")).await?;
        session.write(with_fate(&batch.rows, Fate::Written)).await?;
        session.reject(&with_fate(&batch.rows, Fate::Refused), "refused").await?;
    }
    if session.is_commit_due() {
        *record_count += session.commit().await?.records_in;
    }
    Ok(())
}

impl Process {
    /// Lets it commit everything that is there, and stops it.
    fn finish(self, world: &World) -> u64 {
        let clock = Env::system().clock;
        let deadline = clock.now() + PATIENCE;
        while !world.is_caught_up() {
            if let Ok(end) = self.end.try_recv() {
                panic!("the session ended while it should catch up: {end:?}");
            }
            assert!(clock.now() < deadline, "it does not catch up");
            world.block_on(clock.sleep(Duration::from_millis(20)));
        }
        self.stop.cancel();
        self.end.recv_timeout(PATIENCE).expect("it stops in time").expect("it stops")
    }
}

#[test]
fn a_session_gives_every_record_one_outcome_in_both_exactly_once_modes() {
    for (choice, mode) in
        [(AckModeChoice::Transactional, AckMode::Transactional), (AckModeChoice::Ledger, AckMode::Ledger)]
    {
        let mut world = World::with_records(RECORDS);
        world.mode = choice;
        assert_eq!(start(world.config(), None).finish(&world), RECORDS as u64);
        assert_eq!(world.check_output(RECORDS), NOTHING, "{mode:?}");
        if mode == AckMode::Transactional {
            assert_eq!(world.check_outcomes(mode), NOTHING);
        }
        world.shut_down();
    }
}

#[test]
fn a_crash_of_a_session_at_any_step_loses_and_doubles_nothing() {
    let steps = [
        CommitStep::BeforeManifest,
        CommitStep::AfterOutcome,
        CommitStep::BetweenStagedLeaders,
        CommitStep::AfterStaging,
        CommitStep::DuringEndTxn,
        CommitStep::AfterEndTxn,
    ];
    let world = World::with_records(RECORDS);
    let mut total = RECORDS;
    for (index, step) in steps.into_iter().enumerate() {
        let (hook, reached) = stop_at(step, index as u64 % 3);
        let process = start(world.config(), Some(hook));
        let mut rounds = 0;
        while reached.recv_timeout(Duration::from_millis(50)).is_err() {
            world.produce(total..total + 100);
            total += 100;
            rounds += 1;
            assert!(rounds < 400, "{step:?} was not reached: {:?}", process.end.try_recv());
        }
        let _ = process.crash.send(());
        // The sender goes when the runtime is gone.
        let _ = process.end.recv_timeout(PATIENCE);
    }
    start(world.config(), None).finish(&world);
    assert_eq!(world.check_output(total), NOTHING);
    assert_eq!(world.check_outcomes(AckMode::Transactional), NOTHING);
    world.shut_down();
}

#[test]
fn a_second_session_fences_the_first() {
    let world = World::with_records(200);
    let first = start(world.config(), None);
    let clock = Env::system().clock;
    while !world.is_caught_up() {
        world.block_on(clock.sleep(Duration::from_millis(20)));
    }
    let second = start(world.config(), None);
    let mut total = 200;
    let ended = loop {
        world.produce(total..total + 100);
        total += 100;
        if let Ok(ended) = first.end.recv_timeout(Duration::from_millis(50)) {
            break ended;
        }
        assert!(total < 40_000, "the first was not fenced");
    };
    assert_eq!(ended.expect_err("it was fenced").kind(), ErrorKind::Fenced);
    second.finish(&world);
    assert_eq!(world.check_output(total), NOTHING);
    world.shut_down();
}
