//! What checkpoints of a large state write. Run it in release, with a gigabyte:
//! `STATE_MEGABYTES=1000 cargo test --release -p sharestream-core --test engine -- --ignored --nocapture state_size`

use std::sync::Arc;
use std::time::Duration;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, SchemaRef};
use async_trait::async_trait;
use sharestream_base::ids::CheckpointId;
use sharestream_base::{Env, Rng};
use sharestream_checkpoints::{CheckpointStore, JobKey};
use sharestream_core::operator::{KeyedOperator, KeyedOperatorFactory, OperatorOutput};
use sharestream_core::source::{InFlight, Source, SourceEvent, SourceFactory, SourceReport};
use sharestream_core::state::KeyedState;
use sharestream_core::{JobBuilder, JobControl, JobId, JobOptions, Result, Stream};

use crate::fixtures::{Row, rows};
use crate::throughput::{Nothing, accepted};

/// Bytes of the text that is kept for each key, so that a row takes about 128 bytes in all.
const TEXT_BYTES: usize = 100;
const ROW_BYTES: u64 = 128;
const BATCH_ROWS: i64 = 8_192;
const CHECKPOINTS: u64 = 100;

/// Hands on every key once, and then random ones, 1 % of them for each checkpoint.
#[derive(Clone)]
struct Keys {
    rng: Rng,
    key_count: i64,
    next_key: i64,
    /// Random keys of this checkpoint that are still to come.
    left: i64,
    offset: i64,
    first: i64,
}

#[async_trait]
impl Source for Keys {
    async fn next(&mut self) -> Result<SourceEvent> {
        let keys: Vec<i64> = if self.next_key < self.key_count {
            let start = self.next_key;
            self.next_key = (start + BATCH_ROWS).min(self.key_count);
            (start..self.next_key).collect()
        } else if self.left == 0 {
            self.left = self.key_count / 100;
            // Dry: a checkpoint of what came before.
            return Ok(SourceEvent::Idle);
        } else {
            let count = self.left.min(BATCH_ROWS);
            self.left -= count;
            (0..count).map(|_| self.rng.below(self.key_count as u64) as i64).collect()
        };
        self.offset += keys.len() as i64;
        let rows: Vec<Row> = keys.into_iter().map(|offset| Row { partition: 0, offset }).collect();
        Ok(SourceEvent::Records { rows: rows::batch(&rows), rejected: None })
    }

    async fn barrier(&mut self, _checkpoint: CheckpointId) -> Result<SourceReport> {
        let report = accepted(self.first, self.offset);
        self.first = self.offset;
        Ok(report)
    }

    fn in_flight(&self) -> InFlight {
        InFlight { record_count: (self.offset - self.first) as u64, ..InFlight::default() }
    }

    async fn committed(&mut self, _checkpoint: CheckpointId) -> Result<()> {
        Ok(())
    }

    async fn stop_acquiring(&mut self) -> Result<()> {
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl SourceFactory for Keys {
    fn name(&self) -> &str {
        "keys"
    }

    fn schema(&self) -> SchemaRef {
        rows::schema()
    }

    async fn create(&self, _subtask: usize) -> Result<Box<dyn Source>> {
        Ok(Box::new(self.clone()))
    }
}

/// Keeps a count and a text for each key; the text changes with the count.
struct Texts;

impl KeyedOperatorFactory for Texts {
    fn name(&self) -> &str {
        "texts"
    }

    fn id(&self) -> &str {
        "texts"
    }

    fn key_columns(&self, _input: usize) -> Vec<String> {
        vec!["value".to_owned()]
    }

    fn state_fields(&self) -> Vec<FieldRef> {
        vec![
            Arc::new(Field::new("count", DataType::Int64, false)),
            Arc::new(Field::new("text", DataType::Utf8, false)),
        ]
    }

    fn output_schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(inputs[0].clone())
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn KeyedOperator>> {
        Ok(Box::new(Texts))
    }
}

impl KeyedOperator for Texts {
    fn process(
        &mut self,
        input: usize,
        batch: RecordBatch,
        state: &mut KeyedState,
    ) -> Result<OperatorOutput> {
        let slots = state.slots(input, &batch)?;
        let kept = slots.values.column(0).as_primitive::<Int64Type>();
        let counts: Int64Array = (0..slots.len())
            .map(|slot| Some(if kept.is_null(slot) { 1 } else { kept.value(slot) + 1 }))
            .collect();
        let mut texts = StringBuilder::with_capacity(slots.len(), slots.len() * TEXT_BYTES);
        for count in counts.values() {
            texts.append_value(format!("{count:0>TEXT_BYTES$}"));
        }
        let columns: Vec<ArrayRef> = vec![Arc::new(counts), Arc::new(texts.finish())];
        let values = RecordBatch::try_new(state.value_schema().clone(), columns).unwrap();
        state.put(&slots, &values, None)?;
        Ok(OperatorOutput { rows: Some(batch), rejected: None })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; run it alone, in release"]
async fn state_size() {
    let megabytes: u64 = std::env::var("STATE_MEGABYTES").map_or(50, |text| text.parse().unwrap());
    let key_count = (megabytes * 1_000_000 / ROW_BYTES) as i64;
    let env = Env::system();
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::local(folder.path(), JobKey::new("state", "0")).await.unwrap();
    let source = Keys { rng: Rng::seeded(1), key_count, next_key: 0, left: 0, offset: 0, first: 0 };
    let hour = Duration::from_secs(3_600);
    let options = JobOptions::default()
        .with_checkpoint_interval(Duration::from_secs(600))
        .with_barrier_alignment_timeout(hour)
        .with_commit_deadline(hour)
        .with_recovery_deadline(hour)
        .with_drain_deadline(hour)
        .with_epoch_rows_max(u64::MAX);
    let job = JobBuilder::new(JobId::new("state", "0"))
        .stream(Stream::from_source(Arc::new(source), 1).keyed(Arc::new(Texts), 2))
        .sink(Arc::new(Nothing), 2)
        .commit(Box::new(Nothing))
        .checkpoints(Some(store))
        .options(options)
        .build()
        .unwrap();
    let control = JobControl::new();
    let (report, first) = tokio::join!(job.run(env.clone(), control.clone()), async {
        let mut status = control.status();
        let first = status.wait_for(|status| status.commits >= 1).await.unwrap().clone();
        let started_at = env.clock.now();
        status.wait_for(|status| status.commits > CHECKPOINTS).await.unwrap();
        println!("{CHECKPOINTS} checkpoints in {:?}", env.clock.now() - started_at);
        control.drain();
        first
    });
    let last = report.unwrap().status;
    let checkpoints = (last.commits - first.commits) as f64;
    // The first checkpoint has written everything once: that is the size of the state as it is stored.
    let stored = first.state_compacted_bytes as f64;
    let share = |bytes: u64| 100.0 * bytes as f64 / checkpoints / stored;
    println!(
        "{key_count} keys, {:.0} MB in memory, {:.0} MB stored; 1 % of the keys changed for each of {checkpoints} \
         checkpoints: {:.2} % of the state written because it had changed, {:.2} % so that old parts can go; \
         barrier {:?}, commit {:?}",
        last.state_bytes as f64 / 1e6,
        stored / 1e6,
        share(last.state_written_bytes - first.state_written_bytes),
        share(last.state_compacted_bytes - first.state_compacted_bytes),
        last.barrier_ms,
        last.commit_ms,
    );
}
