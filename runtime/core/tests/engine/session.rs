//! Sessions: the guarantees of a job for a loop of one's own, with a fault at every step.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use async_trait::async_trait;
use futures::{FutureExt, TryStreamExt};
use sharestream_base::ids::{CheckpointId, Offset};
use sharestream_base::{Clock, Instant};
use sharestream_core::commit::{CommitProtocol, CommitStep};
use sharestream_core::session::Session;
use sharestream_core::sink::SinkFactory;
use sharestream_core::source::{Delivery, InFlight, Source, SourceEvent, SourceFactory, SourceReport};
use sharestream_core::{ErrorKind, JobId, JobOptions, JobParts, Result, StepHook};

use crate::fixtures::rows::{Fate, fate, rows_of};
use crate::fixtures::{Fault, PartFault, Row, Setup};

/// Parts whose source has locks to look after, every 100 ms, and perhaps a record near its limit.
struct WithLocks {
    inner: Arc<dyn JobParts>,
    watch: Watch,
}

#[derive(Clone)]
struct Watch {
    clock: Clock,
    maintained: Arc<AtomicU32>,
    near: Arc<Mutex<Option<Delivery>>>,
    /// Whether a record near its limit asks for a barrier.
    wants_barrier: Arc<AtomicBool>,
}

struct LockedSource {
    inner: Box<dyn Source>,
    watch: Watch,
    due_at: Instant,
}

impl JobParts for WithLocks {
    fn source_factory(&self) -> Arc<dyn SourceFactory> {
        Arc::new(WithLocks { inner: self.inner.clone(), watch: self.watch.clone() })
    }

    fn sink_factory(&self) -> Arc<dyn SinkFactory> {
        self.inner.sink_factory()
    }

    fn commit_protocol(&self, hook: Option<StepHook>) -> Box<dyn CommitProtocol> {
        self.inner.commit_protocol(hook)
    }
}

#[async_trait]
impl SourceFactory for WithLocks {
    fn name(&self) -> &str {
        "with-locks"
    }

    fn schema(&self) -> SchemaRef {
        self.inner.source_factory().schema()
    }

    async fn create(&self, subtask: usize) -> Result<Box<dyn Source>> {
        let inner = self.inner.source_factory().create(subtask).await?;
        let due_at = self.watch.clock.now() + LOCK_TIME;
        Ok(Box::new(LockedSource { inner, watch: self.watch.clone(), due_at }))
    }
}

#[async_trait]
impl Source for LockedSource {
    async fn next(&mut self) -> Result<SourceEvent> {
        self.inner.next().await
    }

    fn maintain_at(&self) -> Option<Instant> {
        Some(self.due_at)
    }

    async fn maintain(&mut self) -> Result<()> {
        assert!(self.watch.clock.now() < self.due_at + LOCK_TIME / 2, "the locks were left alone");
        self.watch.maintained.fetch_add(1, Ordering::SeqCst);
        self.due_at = self.watch.clock.now() + LOCK_TIME;
        Ok(())
    }

    async fn barrier(&mut self, checkpoint: CheckpointId) -> Result<SourceReport> {
        self.inner.barrier(checkpoint).await
    }

    fn in_flight(&self) -> InFlight {
        let nearest_limit = *self.watch.near.lock().unwrap();
        let in_flight = self.inner.in_flight();
        let is_asked = self.watch.wants_barrier.load(Ordering::SeqCst);
        let wants_barrier = is_asked && nearest_limit.is_some() && in_flight.record_count > 0;
        InFlight { nearest_limit, wants_barrier, ..in_flight }
    }

    fn can_release(&self) -> bool {
        true
    }

    async fn committed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.inner.committed(checkpoint).await
    }

    async fn stop_acquiring(&mut self) -> Result<()> {
        self.inner.stop_acquiring().await
    }

    async fn close(&mut self) -> Result<()> {
        self.inner.close().await
    }
}

const LOCK_TIME: Duration = Duration::from_millis(100);

async fn open_with_locks(setup: &Setup) -> (Session, Watch) {
    let clock = setup.env.clock.clone();
    let wants_barrier = Arc::new(AtomicBool::new(true));
    let watch = Watch { clock, maintained: Arc::default(), near: Arc::default(), wants_barrier };
    let parts = Arc::new(WithLocks { inner: setup.parts(), watch: watch.clone() });
    let session = Session::builder(JobId::new("test", "0"), parts);
    (session.open(setup.env.clone()).await.unwrap(), watch)
}

#[tokio::test(start_paused = true)]
async fn locks_are_looked_after_while_a_session_waits_for_anything() {
    let setup = Setup::new(1, 7);
    let (mut session, watch) = open_with_locks(&setup).await;
    let clock = &setup.env.clock;
    let count = || watch.maintained.load(Ordering::SeqCst);
    let batch = session.next().await.unwrap().unwrap();
    assert_eq!(
        session
            .keep(async {
                clock.sleep(Duration::from_secs(1)).await;
                5
            })
            .await
            .unwrap(),
        5
    );
    assert!((8..=10).contains(&count()), "{}", count());
    session.write(with_fate(&batch.rows, Fate::Output)).await.unwrap();
    session.reject(&with_fate(&batch.rows, Fate::Rejected), "refused").await.unwrap();
    setup.gate.close();
    let (commit, ()) = tokio::join!(session.commit(), async {
        clock.sleep(Duration::from_secs(1)).await;
        setup.gate.open();
    });
    commit.unwrap();
    assert!((17..=20).contains(&count()), "{}", count());
    let until = clock.now() + Duration::from_secs(1);
    while clock.now() < until {
        assert!(session.next().await.unwrap().is_none());
    }
    assert!((26..=31).contains(&count()), "{}", count());
    setup.broker.assert_exactly_once();
    assert!(setup.broker.all_decided());
}

#[tokio::test(start_paused = true)]
async fn a_record_near_its_limit_is_committed_before_anything_else_and_never_given_back() {
    let setup = Setup::new(1, 100);
    let (mut session, watch) = open_with_locks(&setup).await;
    let batch = session.next().await.unwrap().unwrap();
    let partition = Row { partition: 0, offset: 0 }.source_partition();
    let near = |count| Some(Delivery { partition, offset: Offset(0), count, limit: 5 });
    *watch.near.lock().unwrap() = near(5);
    assert!(session.next().await.unwrap().is_none() && session.is_commit_due());
    let is_refused = |result: Result<()>, what: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    is_refused(session.release(&batch.rows.slice(0, 1)).await, "near its delivery limit");
    is_refused(session.abort().await, "archived by the broker");
    // Also when nothing more comes, and no barrier is asked for because of it.
    watch.wants_barrier.store(false, Ordering::SeqCst);
    is_refused(session.release(&batch.rows.slice(0, 1)).await, "near its delivery limit");
    watch.wants_barrier.store(true, Ordering::SeqCst);
    assert!(session.has_attempt());
    session.write(with_fate(&batch.rows, Fate::Output)).await.unwrap();
    session.reject(&with_fate(&batch.rows, Fate::Rejected), "refused").await.unwrap();
    session.commit().await.unwrap();
    *watch.near.lock().unwrap() = None;
    // Failures use up deliveries: the session stops in front of the last.
    for (count, again) in [(3, true), (4, false)] {
        session.next().await.unwrap().unwrap();
        *watch.near.lock().unwrap() = near(count);
        setup.faults.plan(CommitStep::BeforeStaging, Fault::Error(ErrorKind::Abort), 0, false);
        assert!(session.commit().await.unwrap_err().is_restartable());
        match again {
            true => session.recover().await.unwrap(),
            false => is_refused(session.recover().await, "4 times of at most 5"),
        }
        *watch.near.lock().unwrap() = None;
    }
    assert!(!session.has_attempt());
    setup.broker.assert_exactly_once();
}

#[tokio::test(start_paused = true)]
async fn a_session_that_stops_gives_back_what_it_did_not_hand_out_and_commits_the_rest() {
    let setup = Setup::new(1, 100);
    let mut session = open(&setup).await.unwrap();
    let batch = session.next().await.unwrap().unwrap();
    session.stop_acquiring().await.unwrap();
    assert!(session.next().await.unwrap().is_none(), "nothing is acquired any more");
    session.write(with_fate(&batch.rows, Fate::Output)).await.unwrap();
    session.reject(&with_fate(&batch.rows, Fate::Rejected), "refused").await.unwrap();
    assert_eq!(session.commit().await.unwrap().records_in, 7);
    session.close().await.unwrap();
    assert_eq!((setup.broker.decided_count(), setup.broker.open_count()), (7, 0));
    setup.broker.assert_exactly_once();
}

const PARTITIONS: usize = 3;
const RECORDS: i64 = 200;

async fn open(setup: &Setup) -> Result<Session> {
    let faults = setup.faults.clone();
    Session::builder(JobId::new("test", "0"), setup.parts())
        .options(setup.options.clone())
        .step_hook(Arc::new(move |checkpoint, step| faults.crash_at(checkpoint, step)))
        .open(setup.env.clone())
        .await
}

fn with_fate(rows: &RecordBatch, wanted: Fate) -> RecordBatch {
    let mask: BooleanArray = rows_of(rows).iter().map(|row| Some(fate(row.offset) == wanted)).collect();
    filter_record_batch(rows, &mask).unwrap()
}

/// The loop of a user, to the end of the source.
async fn process(session: &mut Session) -> Result<()> {
    loop {
        let batch = session.next().await?;
        if let Some(batch) = &batch {
            session.write(with_fate(&batch.rows, Fate::Output)).await?;
            session.reject(&with_fate(&batch.rows, Fate::Rejected), "refused").await?;
        }
        if session.is_commit_due() {
            session.commit().await?;
        } else if batch.is_none() {
            return Ok(());
        }
    }
}

/// Runs until everything is decided; gives how many attempts failed or crashed.
async fn process_all(setup: &Setup) -> u32 {
    let mut failed_attempts = 0;
    let mut session: Option<Session> = None;
    while !setup.broker.all_decided() {
        let attempt = async {
            match &mut session {
                Some(session) => session.recover().await?,
                none => *none = Some(open(setup).await?),
            }
            process(session.as_mut().unwrap()).await
        };
        match AssertUnwindSafe(attempt).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                assert!(error.to_string().contains("planned"), "{error}");
                assert!(error.is_restartable());
                failed_attempts += 1;
                let over = session.as_mut().map(|session| session.has_attempt());
                assert_ne!(over, Some(true));
            }
            Err(_planned_panic) => {
                // The process is gone, and with it the session.
                session = None;
                failed_attempts += 1;
            }
        }
        setup.broker.assert_exactly_once();
    }
    // Resolves what a crash behind the last commit has left open.
    drop(session);
    open(setup).await.unwrap().close().await.unwrap();
    setup.broker.assert_exactly_once();
    assert_eq!(setup.broker.open_count(), 0, "a transaction was left open");
    failed_attempts
}

#[tokio::test(start_paused = true)]
async fn a_loop_of_ones_own_gives_every_record_one_outcome() {
    let setup = Setup::new(PARTITIONS, RECORDS);
    assert_eq!(process_all(&setup).await, 0);
    assert!(setup.broker.commit_count() > 10, "the row budget of 40 cuts: {}", setup.broker.commit_count());
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_step_neither_loses_nor_doubles() {
    for step in CommitStep::ALL {
        if step == CommitStep::BetweenStagedLeaders {
            // One source: it has one member to stage.
            continue;
        }
        for reaches_broker in [false, true] {
            let setup = Setup::new(PARTITIONS, RECORDS);
            for after in [0, 2, 0, 3] {
                setup.faults.plan(step, Fault::Crash, after, reaches_broker);
            }
            assert_eq!(process_all(&setup).await, 4, "{step:?}: every planned crash happened");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_anywhere_neither_loses_nor_doubles() {
    let steps = [
        CommitStep::AfterOutcome,
        CommitStep::BeforeStaging,
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
                let setup = Setup::new(PARTITIONS, RECORDS);
                for after in [1, 0, 2] {
                    setup.faults.plan(step, Fault::Error(kind), after, reaches_broker);
                }
                assert_eq!(process_all(&setup).await, 3, "{step:?} {kind}");
            }
        }
    }
    for fault in [PartFault::SourceError(ErrorKind::Abort), PartFault::SinkError(ErrorKind::Retry)] {
        let setup = Setup::new(PARTITIONS, RECORDS);
        for after in [0, 5, 1] {
            setup.part_faults.plan(fault, after);
        }
        assert_eq!(process_all(&setup).await, 3, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_gives_everything_back_and_nothing_written_becomes_visible() {
    let setup = Setup::new(PARTITIONS, RECORDS);
    let mut session = open(&setup).await.unwrap();
    let batch = session.next().await.unwrap().unwrap();
    session.write(with_fate(&batch.rows, Fate::Output)).await.unwrap();
    session.abort().await.unwrap();
    assert_eq!((setup.broker.output_count(), setup.broker.decided_count()), (0, 0));
    let error = session.write(batch.rows.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "rows of before the abort are not ours: {error}");
    let again = session.next().await.unwrap().unwrap();
    assert_eq!(rows_of(&again.rows), rows_of(&batch.rows));
    session.close().await.unwrap();
    assert_eq!(process_all(&setup).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_released_is_not_decided_and_the_rest_is_committed() {
    let mut setup = Setup::new(1, 100);
    // None of the first two batches has a record that does not decode.
    setup.batch_rows = 5;
    let mut session = open(&setup).await.unwrap();
    let batch = session.next().await.unwrap().unwrap();
    let all = rows_of(&batch.rows);
    // Offset 1 goes back; the others are committed, 4 without a row.
    let one = batch.rows.slice(1, 1);
    assert_eq!(rows_of(&one), [Row { partition: 0, offset: 1 }]);
    session.release(&one).await.unwrap();
    let kept = filter_record_batch(
        &with_fate(&batch.rows, Fate::Output),
        &rows_of(&with_fate(&batch.rows, Fate::Output)).iter().map(|row| Some(row.offset != 1)).collect(),
    );
    session.write(kept.unwrap()).await.unwrap();
    session.reject(&with_fate(&batch.rows, Fate::Rejected), "refused").await.unwrap();
    let commit = session.commit().await.unwrap();
    assert_eq!(commit.records_in, all.len() as u64 - 1);
    assert_eq!(commit.checkpoint, session.last_committed());
    setup.broker.assert_exactly_once();
    assert_eq!(setup.broker.decided_count(), commit.records_in);
    // All of an epoch is released: nothing is committed, and the session goes on.
    let batch = session.next().await.unwrap().unwrap();
    assert_eq!(rows_of(&batch.rows)[0].offset, 1, "it comes again");
    session.release(&batch.rows).await.unwrap();
    let nothing = session.commit().await.unwrap();
    assert_eq!((nothing.checkpoint, nothing.records_in), (commit.checkpoint, 0));
    process(&mut session).await.unwrap();
    assert!(setup.broker.all_decided());
    setup.broker.assert_exactly_once();
    session.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rows_that_cannot_be_used_are_refused_and_change_nothing() {
    let setup = Setup::new(1, 100);
    let mut session = open(&setup).await.unwrap();
    let batch = session.next().await.unwrap().unwrap();
    let (output, refused) = (with_fate(&batch.rows, Fate::Output), with_fate(&batch.rows, Fate::Rejected));
    session.write(output.clone()).await.unwrap();
    session.reject(&refused, "refused").await.unwrap();
    let is_refused = |result: Result<()>, what: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    is_refused(session.write(refused.clone()).await, "are rejected");
    is_refused(session.reject(&refused, "again").await, "one outcome");
    is_refused(session.reject(&output, "too late").await, "one outcome");
    is_refused(session.release(&output).await, "cannot be released any more");
    let filtered = with_fate(&batch.rows, Fate::Filtered);
    let twice = arrow_select::concat::concat_batches(&filtered.schema(), [&filtered, &filtered]).unwrap();
    is_refused(session.reject(&twice, "twice").await, "one outcome");
    let bare = output.project(&[0]).unwrap();
    is_refused(session.write(bare).await, "hidden columns");
    session.commit().await.unwrap();
    is_refused(session.write(output).await, "keep no rows over a commit");
    assert!(session.has_attempt());
    setup.broker.assert_exactly_once();
    process(&mut session).await.unwrap();
    assert!(setup.broker.all_decided());
    setup.broker.assert_exactly_once();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_half_way_ends_the_attempt_and_next_may_be_dropped() {
    let setup = Setup::new(1, 100);
    setup.gate.close();
    let clock = setup.env.clock.clone();
    let mut session = open(&setup).await.unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..40 {
        // Some of them come to nothing: no row may get lost by that.
        if let Ok(batch) = clock.timeout(Duration::from_micros(60), session.next()).await {
            seen.extend(batch.unwrap().map(|batch| rows_of(&batch.rows)).unwrap_or_default());
        }
    }
    assert_eq!(seen.len(), (0..100).filter(|o| !matches!(fate(*o), Fate::Gap | Fate::Undecodable)).count());
    assert!(clock.timeout(Duration::from_secs(1), session.commit()).await.is_err(), "the gate is closed");
    assert_eq!(session.next().await.unwrap_err().kind(), ErrorKind::Abort);
    assert!(!session.has_attempt());
    setup.gate.open();
    session.recover().await.unwrap();
    process(&mut session).await.unwrap();
    assert!(setup.broker.all_decided());
    setup.broker.assert_exactly_once();
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_end_is_indeterminate_and_the_older_of_two_is_fenced() {
    let mut setup = Setup::new(1, 100);
    setup.options = JobOptions::default().with_commit_deadline(Duration::from_secs(3));
    let mut old = open(&setup).await.unwrap();
    setup.gate.close();
    old.next().await.unwrap().unwrap();
    assert_eq!(old.commit().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    setup.gate.open();
    old.recover().await.unwrap();
    old.next().await.unwrap().unwrap();
    let mut new = open(&setup).await.unwrap();
    assert_eq!(old.commit().await.unwrap_err().kind(), ErrorKind::Fenced);
    process(&mut new).await.unwrap();
    assert!(setup.broker.all_decided());
    setup.broker.assert_exactly_once();
}

#[tokio::test(start_paused = true)]
async fn batches_are_a_stream_up_to_a_budget_or_the_end_of_the_source() {
    let setup = Setup::new(1, 100);
    let mut session = open(&setup).await.unwrap();
    let mut row_counts = Vec::new();
    loop {
        let batches: Vec<_> = session.batches(20).try_collect().await.unwrap();
        let row_count: usize = batches.iter().map(|batch| batch.rows.num_rows()).sum();
        for batch in &batches {
            assert_eq!(batch.coordinates().unwrap().offsets.len(), batch.rows.num_rows());
            session.write(with_fate(&batch.rows, Fate::Output)).await.unwrap();
            session.reject(&with_fate(&batch.rows, Fate::Rejected), "refused").await.unwrap();
        }
        session.commit().await.unwrap();
        if batches.is_empty() {
            break;
        }
        row_counts.push(row_count);
    }
    assert!(
        row_counts[..row_counts.len() - 1].iter().all(|count| (20..27).contains(count)),
        "{row_counts:?}"
    );
    assert!(setup.broker.all_decided());
    setup.broker.assert_exactly_once();
}
