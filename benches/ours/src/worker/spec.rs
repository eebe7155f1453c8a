//! What a worker is told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sharestream_base::Env;
use sharestream_base::ids::CheckpointId;
use sharestream_checkpoints::{CheckpointStore, JobKey};
use sharestream_core::StepHook;
use sharestream_core::commit::CommitStep;
use sharestream_kafka::formats::{CsvFormat, Format, OutputFormat};
use sharestream_kafka::{AckModeChoice, KafkaJobConfig, Pipeline, SinkConfig};

use super::count::{self, Count};
use super::work::Work;

/// Leaves 20 s for a barrier and 40 s for a commit: what shares its processors with others is slow, and not wrong.
pub(crate) const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Settings of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerSpec {
    /// Bootstrap brokers.
    pub(crate) brokers: String,
    /// Name of the job and of its share group.
    pub(crate) name: String,
    /// Which replica it is.
    pub(crate) instance: String,
    pub(crate) input: String,
    pub(crate) output: String,
    pub(crate) mode: AckModeChoice,
    /// Longest time between two checkpoints.
    pub(crate) interval: Duration,
    /// Settings of the group.
    pub(crate) group_configs: BTreeMap<String, String>,
    /// What is done for each record of a job without state.
    pub(crate) work: Work,
    /// Subtasks of the operator that counts records by key ([`Count`]); 0: values pass as they are.
    pub(crate) counting_subtasks: usize,
    /// Folder of the checkpoints.
    pub(crate) store: Option<PathBuf>,
    pub(crate) crash_at: Option<CrashAt>,
}

/// Where a worker stands still, to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CrashAt {
    pub(crate) step: CommitStep,
    /// At the so manieth commit that reaches the step, from 1.
    pub(crate) count: u32,
}

impl FromStr for WorkerSpec {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

impl WorkerSpec {
    /// A job that copies `input` to `output`, replica `0`, in transactional mode.
    pub(crate) fn new(brokers: &str, name: &str, input: &str, output: &str) -> WorkerSpec {
        let earliest = ("share.auto.offset.reset".to_owned(), "earliest".to_owned());
        WorkerSpec {
            brokers: brokers.to_owned(),
            name: name.to_owned(),
            instance: "0".to_owned(),
            input: input.to_owned(),
            output: output.to_owned(),
            mode: AckModeChoice::Transactional,
            interval: Duration::from_millis(100),
            group_configs: BTreeMap::from([earliest]),
            work: Work::Nothing,
            counting_subtasks: 0,
            store: None,
            crash_at: None,
        }
    }

    /// The command line of a worker.
    pub(crate) fn arguments(&self) -> anyhow::Result<Vec<String>> {
        Ok(vec!["worker".to_owned(), serde_json::to_string(self)?])
    }

    /// Key of its store.
    pub(crate) fn store_key(&self) -> JobKey {
        JobKey::new(&self.name, &self.instance)
    }

    /// The job.
    pub(crate) async fn pipeline(&self, env: &Env) -> anyhow::Result<Pipeline> {
        let is_counting = self.counting_subtasks > 0;
        let output = if is_counting { OutputFormat::Json } else { OutputFormat::Raw };
        let sink = SinkConfig::to_topic(&self.output).with_format(output);
        let mut config = KafkaJobConfig::new(&self.name, &self.name, vec![self.input.clone()], sink);
        config.bootstrap = vec![self.brokers.clone()];
        config.instance.clone_from(&self.instance);
        config.mode = self.mode;
        config.outcome_topic = format!("{}-outcomes", self.name);
        config.group_configs.clone_from(&self.group_configs);
        config.transaction_timeout = TRANSACTION_TIMEOUT;
        config.format = match is_counting {
            true => Format::Csv(CsvFormat { columns: count::columns(), ..CsvFormat::default() }),
            false => Format::Raw,
        };
        // On one node there is one leader: a crash between two needs two requests.
        config.stage_separately =
            self.crash_at.is_some_and(|crash| crash.step == CommitStep::BetweenStagedLeaders);
        let interval = self.interval;
        let mut pipeline =
            Pipeline::new(config).options(move |options| options.with_checkpoint_interval(interval));
        if let Some(folder) = &self.store {
            let store = CheckpointStore::local(folder, self.store_key()).await?;
            pipeline = pipeline.checkpoints(store);
        }
        if let Some(crash) = self.crash_at {
            pipeline = pipeline.step_hook(crash.hook());
        }
        let (work, clock, subtasks) = (self.work, env.clock.clone(), self.counting_subtasks);
        Ok(pipeline.stream(move |source| match subtasks {
            0 => work.done_by(source, &clock),
            subtasks => source.keyed(Arc::new(Count), subtasks),
        }))
    }
}

impl CrashAt {
    /// Says so and never returns once the step was reached often enough.
    fn hook(self) -> StepHook {
        let seen = AtomicU32::new(0);
        Arc::new(move |checkpoint: CheckpointId, step: CommitStep| {
            if step != self.step || seen.fetch_add(1, Ordering::Relaxed) + 1 != self.count {
                return;
            }
            println!("{}", json!({ "event": "step", "step": step, "checkpoint": checkpoint.0 }));
            loop {
                std::thread::park();
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_told_what_its_parent_means() {
        let mut spec = WorkerSpec::new("127.0.0.1:9092", "job", "in", "out");
        spec.work = Work::Sleep { for_each: Duration::from_millis(5), at_once: 32 };
        spec.crash_at = Some(CrashAt { step: CommitStep::BeforeEndTxn, count: 2 });
        spec.store = Some(PathBuf::from("/a folder/with \"quotes\""));
        let arguments = spec.arguments().unwrap();
        assert_eq!(arguments[1].parse::<WorkerSpec>().unwrap(), spec);
        assert!("{}".parse::<WorkerSpec>().is_err());
    }
}
