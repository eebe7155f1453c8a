//! A loop of your own, without the runtime: take rows, write what you like, commit. One transaction holds the output,
//! the dead letters and the acknowledgements of everything since the last commit.
//!
//! `cargo run -p sharestream-examples --example own_loop`

use anyhow::Result;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use futures::TryStreamExt;
use sharestream_base::Env;
use sharestream_core::session::Session;
use sharestream_examples::{DEAD_LETTERS, OUTPUT, World};
use sharestream_kafka::KafkaJob;

/// The rows of a batch whose amount is as asked for.
fn orders(rows: &RecordBatch, wanted: impl Fn(i64) -> bool) -> Result<RecordBatch> {
    let amounts = rows.column(1).as_primitive::<Int64Type>();
    let mask: BooleanArray = amounts.iter().map(|amount| amount.map(&wanted)).collect();
    Ok(filter_record_batch(rows, &mask)?)
}

/// Takes everything that is there. Returns how many records it has committed.
async fn drain(session: &mut Session) -> Result<u64> {
    let mut record_count = 0;
    loop {
        let batch = session.next().await?;
        if let Some(batch) = &batch {
            session.write(orders(&batch.rows, |amount| amount >= 500)?).await?;
            session.reject(&orders(&batch.rows, |amount| amount < 0)?, "a negative amount").await?;
            // Whatever is neither written nor rejected nor released is accepted, too: it was filtered.
        }
        if session.is_commit_due() {
            record_count += session.commit().await?.records_in;
        } else if batch.is_none() {
            return Ok(record_count);
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let world = World::start().await?;
    world.order((0..1_000).map(|n| format!("ann,{n}"))).await?;
    world.order(["bob,-5", "bob,nonsense"]).await?;

    let kafka = KafkaJob::connect(Env::system(), world.config("own-loop")).await?;
    let mut session = kafka.into_session().open(Env::system()).await?;

    // Plans change: what was written is never seen, and the records come again.
    let batches: Vec<_> = session.batches(100).try_collect().await?;
    for batch in batches {
        session.write(batch.rows).await?;
    }
    session.abort().await?;
    assert!(world.committed(OUTPUT).await?.is_empty());

    let mut record_count = 0;
    while record_count < 1_002 {
        record_count += drain(&mut session).await?;
    }
    // Readers see a commit a moment after it is known.
    let (output, dead) = (world.wait_for(OUTPUT, 500).await?, world.wait_for(DEAD_LETTERS, 2).await?);
    assert_eq!((record_count, output.len()), (1_002, 500));
    assert_eq!(dead.len(), 2, "the negative one, and the one that does not decode: {dead:?}");
    println!("{record_count} orders: {} written, {} dead letters {dead:?}", output.len(), dead.len());
    println!("last commit: checkpoint {:?}", session.last_committed());
    session.close().await?;
    world.shutdown().await;
    Ok(())
}
