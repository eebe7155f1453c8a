//! Calls to a service, many at once: one slow record holds up neither the others nor their commits.
//!
//! `cargo run -p sharestream-examples --example call_out`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, StringArray};
use arrow_schema::{DataType, Field};
use sharestream_base::{Clock, Env};
use sharestream_core::JobControl;
use sharestream_core::async_map::{AsyncMap, AsyncMapOptions, AsyncOutcome, AsyncRow, CallError};
use sharestream_examples::{DEAD_LETTERS, OUTPUT, World};
use sharestream_kafka::Pipeline;

/// A service that grades orders. It takes 5 ms, sometimes 2 s, and is not always there.
async fn grade(
    clock: Clock,
    calls: Arc<AtomicU32>,
    was_down: Arc<AtomicBool>,
    row: AsyncRow,
) -> Result<AsyncOutcome, CallError> {
    let amount = row.batch().column(1).as_primitive::<Int64Type>().value(row.index());
    calls.fetch_add(1, Ordering::Relaxed);
    clock.sleep(if amount == 0 { Duration::from_secs(2) } else { Duration::from_millis(5) }).await;
    if amount == 7 && !was_down.swap(true, Ordering::Relaxed) {
        // Called again after a pause, with the same row.idempotency_key().
        return Err(CallError::transient("the service is restarting"));
    }
    if amount == 13 {
        return Ok(AsyncOutcome::Reject("nobody grades 13".to_owned()));
    }
    let grade: ArrayRef = Arc::new(StringArray::from(vec![if amount > 250 { "large" } else { "small" }]));
    Ok(AsyncOutcome::Columns(vec![grade]))
}

#[tokio::main]
async fn main() -> Result<()> {
    let world = World::start().await?;
    world.order((0..500).map(|n| format!("ann,{n}"))).await?;

    let clock = Env::system().clock;
    let (service, calls, was_down) = (clock.clone(), Arc::<AtomicU32>::default(), Arc::default());
    let counted = calls.clone();
    let column = Field::new("grade", DataType::Utf8, false);
    let map = AsyncMap::from_fn("grade", [column], move |row| {
        grade(service.clone(), counted.clone(), Arc::clone(&was_down), row)
    })
    .options(AsyncMapOptions::default().with_concurrency(64));

    let control = JobControl::new();
    let job = Pipeline::new(world.config("call-out"))
        .stream(move |orders| orders.async_map(map.clone()))
        .run(Env::system(), control.clone());
    let started_at = clock.now();
    let (report, seen) = tokio::join!(job, async {
        // All but the slow order and the one that is rejected.
        let early = world.wait_for(OUTPUT, 498).await;
        let early_after = clock.now() - started_at;
        let all = world.wait_for(OUTPUT, 499).await;
        control.drain();
        Ok::<_, anyhow::Error>((early?.len(), early_after, all?, clock.now() - started_at))
    });
    let (report, (early, early_after, all, all_after)) = (report?, seen?);

    assert!(early_after < Duration::from_secs(2), "the slow order held up the others: {early_after:?}");
    assert!(all_after >= Duration::from_secs(2));
    assert_eq!(all.iter().filter(|row| row["grade"] == "large").count(), 249);
    assert_eq!(world.wait_for(DEAD_LETTERS, 1).await?.len(), 1);
    assert_eq!((report.status.records_in, report.status.dead_letters), (500, 1));
    assert_eq!(calls.load(Ordering::Relaxed), 501, "one call was repeated");
    println!("{early} graded and committed after {early_after:?}, the slow one after {all_after:?}");
    world.shutdown().await;
    Ok(())
}
