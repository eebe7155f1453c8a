//! A graph is checked as a whole before anything is connected.

use std::sync::Arc;
use std::time::Duration;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use sharestream_core::operator::{Operator, OperatorFactory};
use sharestream_core::{ErrorKind, JobBuilder, JobId, JobOptions, Result};

use crate::fixtures::Setup;

/// An operator that forgets the hidden columns.
struct Forgetful;

impl OperatorFactory for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }

    fn output_schema(&self, _input: SchemaRef) -> Result<SchemaRef> {
        Ok(Arc::new(Schema::new(vec![Field::new("value", DataType::Int64, false)])))
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn Operator>> {
        unreachable!("the graph is refused")
    }
}

#[tokio::test(start_paused = true)]
async fn every_fault_of_a_graph_is_reported_at_once() {
    let options = JobOptions::default().with_commit_deadline(Duration::ZERO).with_epoch_rows_max(0);
    let error = JobBuilder::new(JobId::new("a/b", "")).options(options).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    for fault in [
        "job name 'a/b'",
        "instance name ''",
        "no source",
        "no sink",
        "no commit protocol",
        "commit_deadline",
        "epoch_rows_max",
    ] {
        assert!(error.to_string().contains(fault), "{fault} is missing in: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_drops_the_hidden_columns_is_refused_by_name() {
    let error = Setup::new(1, 1).builder().operator(Arc::new(Forgetful)).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("schema of forgetful"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn parallelism_is_bounded() {
    let mut setup = Setup::new(1, 1);
    (setup.sources, setup.sinks) = (0, 1_000);
    let error = setup.builder().build().unwrap_err();
    assert!(error.to_string().contains("source parallelism is 0"), "{error}");
    assert!(error.to_string().contains("sink parallelism is 1000"), "{error}");
}
