//! Sinks whose target takes longer for the first rows of an attempt than locks last.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use sharestream_base::Clock;
use sharestream_base::ids::CheckpointId;
use sharestream_core::Result;
use sharestream_core::sink::{Router, Sink, SinkFactory, SinkReport};

/// Makes them of ordinary ones.
pub(crate) struct SlowSinks {
    pub(crate) sinks: Arc<dyn SinkFactory>,
    /// What the first write of each sink takes longer.
    pub(crate) first_write: Duration,
    pub(crate) clock: Clock,
}

#[async_trait]
impl SinkFactory for SlowSinks {
    fn name(&self) -> &str {
        self.sinks.name()
    }

    fn check_schema(&self, input: SchemaRef) -> Result<()> {
        self.sinks.check_schema(input)
    }

    fn gives_back(&self) -> bool {
        self.sinks.gives_back()
    }

    fn parks(&self) -> bool {
        self.sinks.parks()
    }

    async fn create(&self, subtask: usize, subtask_count: usize) -> Result<Box<dyn Sink>> {
        let sink = self.sinks.create(subtask, subtask_count).await?;
        Ok(Box::new(SlowSink { sink, first_write: Some(self.first_write), clock: self.clock.clone() }))
    }

    fn router(&self, subtask_count: usize) -> Result<Box<dyn Router>> {
        self.sinks.router(subtask_count)
    }
}

struct SlowSink {
    sink: Box<dyn Sink>,
    first_write: Option<Duration>,
    clock: Clock,
}

#[async_trait]
impl Sink for SlowSink {
    async fn write(&mut self, checkpoint: CheckpointId, rows: RecordBatch) -> Result<()> {
        if let Some(longer) = self.first_write.take() {
            self.clock.sleep(longer).await;
        }
        self.sink.write(checkpoint, rows).await
    }

    async fn write_rejected(&mut self, checkpoint: CheckpointId, rejected: RecordBatch) -> Result<()> {
        self.sink.write_rejected(checkpoint, rejected).await
    }

    async fn write_parked(&mut self, checkpoint: CheckpointId, parked: RecordBatch) -> Result<()> {
        self.sink.write_parked(checkpoint, parked).await
    }

    async fn idle(&mut self) -> Result<()> {
        self.sink.idle().await
    }

    async fn flush(&mut self, checkpoint: CheckpointId) -> Result<SinkReport> {
        self.sink.flush(checkpoint).await
    }

    async fn close(&mut self) -> Result<()> {
        self.sink.close().await
    }
}
