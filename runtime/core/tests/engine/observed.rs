//! What is measured of a job agrees with what it did, and a checkpoint leaves one span with all of its steps.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::memory::InMemory;
use sharestream_checkpoints::{CheckpointStore, JobKey};
use sharestream_core::commit::CommitStep;
use sharestream_core::{CheckpointStep, ErrorKind, JobControl, RestartOptions, Supervisor};
use tracing::field::{Field, Visit};
use tracing::span;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::fixtures::{Fault, PartFault, Setup};

async fn setup_with_store() -> Setup {
    let mut setup = Setup::new(2, 400);
    let store = CheckpointStore::open(Arc::new(InMemory::new()), JobKey::new("test", "0")).await.unwrap();
    setup.store = Some(store);
    setup
}

#[tokio::test(start_paused = true)]
async fn figures_over_several_attempts_agree_with_the_status() {
    let setup = setup_with_store().await;
    setup.part_faults.plan(PartFault::SourceError(ErrorKind::Abort), 5);
    setup.faults.plan(CommitStep::AfterStaging, Fault::Error(ErrorKind::Abort), 2, false);
    let control = JobControl::new();
    let factory = setup.clone();
    let options = RestartOptions::default().with_backoff(Duration::from_millis(1), Duration::from_millis(10));
    let supervisor = Supervisor::new(move |_attempt: u64| Ok(factory.job()), options);
    let run = supervisor.run(setup.env.clone(), control.clone());
    let (report, ()) = tokio::join!(run, setup.drain_when_done(&control));
    let (status, metrics) = (report.unwrap().status, control.metrics());
    assert!(status.commits > 2, "{status:?}");
    assert_eq!(metrics.checkpoints.values().sum::<u64>(), status.commits);
    assert_eq!(metrics.checkpoint_seconds.count(), status.commits);
    assert_eq!(metrics.checkpoint_records.sum(), status.records_in as f64);
    assert_eq!(metrics.checkpoint_records.count(), status.commits);
    assert!(metrics.decided_offsets >= status.records_in, "{metrics:?}");
    assert!(metrics.manifest_bytes > status.commits * 100, "{metrics:?}");
    for step in CheckpointStep::ALL {
        let count = metrics.step_seconds[&step].count();
        if step == CheckpointStep::Visible {
            assert_eq!(count, status.visible_ms.count, "{step:?} is a sample");
        } else {
            assert_eq!(count, status.commits, "{step:?}");
        }
    }
    assert_eq!(metrics.failures, BTreeMap::from([("abort".to_owned(), status.attempts - 1)]));
    assert!(metrics.aborted_transactions >= 2, "each failed attempt had an epoch open: {metrics:?}");
    assert_eq!((metrics.fenced, status.state_bytes), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fenced_attempt_is_counted() {
    let setup = Setup::new(2, 2_000);
    let (old, new) = (JobControl::new(), JobControl::new());
    let old_run = setup.job().run(setup.env.clone(), old.clone());
    let new_run = async {
        setup.env.clock.sleep(Duration::from_millis(5)).await;
        let run = setup.job().run(setup.env.clone(), new.clone());
        tokio::join!(run, setup.drain_when_done(&new)).0
    };
    let (old_result, new_result) = tokio::join!(old_run, new_run);
    assert_eq!(old_result.unwrap_err().kind(), ErrorKind::Fenced);
    new_result.unwrap();
    assert_eq!((old.metrics().fenced, new.metrics().fenced), (1, 0));
    assert_eq!(old.metrics().failures, BTreeMap::from([("fenced".to_owned(), 1)]));
}

/// Fields as text.
#[derive(Clone, Debug, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// What a span had, and the names of its steps.
type Traced = (Fields, Vec<String>);

/// Closed spans called `checkpoint`, each with the names of its steps.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Traced>>>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert((fields, Vec::<String>::new()));
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut extensions = span.extensions_mut();
        let (fields, _) = extensions.get_mut::<Traced>().unwrap();
        values.record(fields);
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (Some(step), Some(span)) = (fields.0.get("step"), context.event_span(event)) else { return };
        assert!(fields.0.contains_key("duration_ms"), "{fields:?}");
        let mut extensions = span.extensions_mut();
        extensions.get_mut::<Traced>().unwrap().1.push(step.trim_matches('"').to_owned());
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        if span.name() == "checkpoint" {
            let closed = span.extensions_mut().remove::<Traced>().unwrap();
            self.0.lock().unwrap().push(closed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_a_span_with_its_reason_its_counts_and_the_time_of_every_step() {
    let seen = Seen::default();
    // With one subscriber, tracing asks only the thread that comes to an event first whether anybody wants it, and
    // remembers the answer; that thread may be another test's. With two it asks both subscribers.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(seen.clone()));
    let setup = setup_with_store().await;
    let control = JobControl::new();
    let run = setup.job().run(setup.env.clone(), control.clone());
    let (report, ()) = tokio::join!(run, setup.drain_when_done(&control));
    let status = report.unwrap().status;
    let spans = seen.0.lock().unwrap().clone();
    let committed: Vec<_> =
        spans.iter().filter(|(fields, _)| fields.0["result"] == "\"committed\"").collect();
    assert_eq!(committed.len() as u64, status.commits);
    let sum = |name: &str| -> u64 {
        committed.iter().map(|(fields, _)| fields.0[name].parse::<u64>().unwrap()).sum()
    };
    assert_eq!((sum("records_in"), sum("rows_out")), (status.records_in, status.rows_out));
    assert_eq!((sum("dead_letters"), sum("filtered")), (status.dead_letters, status.filtered));
    let ids: Vec<u64> =
        committed.iter().map(|(fields, _)| fields.0["checkpoint_id"].parse().unwrap()).collect();
    assert!(ids.is_sorted() && ids[0] == 1, "{ids:?}");
    for (fields, steps) in committed {
        assert_eq!(fields.0["job"], "test/0");
        assert!(["\"rows\"", "\"idle\"", "\"drain\""].contains(&&*fields.0["reason"]), "{fields:?}");
        let expected = ["align", "flush", "manifest", "outcome", "stage", "end_txn", "complete"];
        let sure: Vec<&String> = steps.iter().filter(|step| *step != "visible").collect();
        assert_eq!(sure, expected, "{fields:?}");
    }
    let visible = spans.iter().filter(|(_, steps)| steps.iter().any(|step| step == "visible")).count() as u64;
    assert_eq!(visible, status.visible_ms.count);
}
