//! One attempt of a job.

use std::fmt;

use sharestream_base::Env;

use crate::Result;
use crate::coordinator;
use crate::graph::JobGraph;
use crate::kept::KeptSources;
use crate::status::{JobControl, JobReport, JobState};

/// A checked job, ready for one attempt.
pub struct Job {
    graph: JobGraph,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("id", &self.graph.id).finish_non_exhaustive()
    }
}

impl Job {
    pub(crate) fn new(graph: JobGraph) -> Self {
        Job { graph }
    }

    /// Recovers, runs until the job is drained or stopped or something fails, and leaves nothing running.
    ///
    /// # Errors
    /// `Abort`, `Retry`, `Indeterminate`: this attempt is over, the next may go on where the last commit was.
    /// `Fenced`, `Corrupt`, `InvalidInput`, `Bug`: starting again does not help. `Closed`: the drain deadline
    /// passed; what was not committed was given back.
    ///
    /// # Cancel safety
    /// Dropping the future ends all tasks at once, like [`JobControl::stop`], and whoever watches sees that it has ended.
    pub async fn run(self, env: Env, control: JobControl) -> Result<JobReport> {
        let _ended = control.ends_with_run();
        self.attempt(env, control, None).await
    }

    /// As [`Job::run`]; after a failure it is for the caller to say whether the job has ended, and to close what was `kept`.
    pub(crate) async fn attempt(
        self,
        env: Env,
        control: JobControl,
        kept: Option<KeptSources>,
    ) -> Result<JobReport> {
        let failing = control.clone();
        let result = coordinator::run(self.graph, env, control, kept).await;
        if let Err(error) = &result {
            failing.recorder().failed(error.kind());
            failing.set_state(JobState::Failing);
        }
        result
    }
}
