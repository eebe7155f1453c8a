//! The coordinator.

use sharestream_base::Env;

use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::graph::JobGraph;
use crate::status::{JobControl, JobReport};

pub(crate) async fn run(graph: JobGraph, _env: Env, _control: JobControl) -> Result<JobReport> {
    let JobGraph { id, .. } = graph;
    Err(Error::new(ErrorKind::Bug, format!("job {id}: the engine is not in place yet")))
}
