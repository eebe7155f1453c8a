//! One job that dies again and again: its workers, one after another, and the records that it is sent meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use sharestream_base::Instant;
use sharestream_base::ids::PartitionIndex;
use sharestream_checkpoints::CheckpointStore;
use sharestream_client::{Producer, WriterConfig};
use sharestream_core::commit::CommitStep;
use sharestream_kafka::AckModeChoice;

use super::check::{Row, check, key_of, last_state};
use super::plan::{Death, deaths};
use super::replicas;
use crate::place::Place;
use crate::process::Process;
use crate::worker::{CrashAt, WorkerSpec};

/// Records that are sent at once, over all partitions; small, so that a worker makes many commits.
const PIECE: i64 = 16;
/// Pause between two pieces.
pub(super) const PIECE_PAUSE: Duration = Duration::from_millis(12);
/// Interval of checkpoints; sources that run dry between two pieces make more of them.
const INTERVAL: Duration = Duration::from_millis(20);
const PARTITIONS: i32 = 8;
/// A worker that has not started by then, or not come to its step, is an error.
const STEP_WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest wait until the last worker has decided everything.
const FINISH_WAIT_MAX: Duration = Duration::from_secs(120);

/// What the job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Records pass as they are.
    Stateless,
    /// Records are counted by key.
    Stateful,
    /// As stateless, by three processes at once, which are killed, told to stop, and made to stand still.
    Replicas,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Stateless => "stateless",
            Kind::Stateful => "stateful",
            Kind::Replicas => "replicas",
        }
    }
}

/// How the rounds are made.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    pub(crate) count: u32,
    pub(crate) seed: u64,
    pub(crate) mode: AckModeChoice,
    pub(crate) steps: Vec<CommitStep>,
}

/// What the rounds came to.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) records: i64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) torn: u64,
    pub(crate) open_transactions: u64,
    pub(crate) seconds: f64,
    /// Rounds by the step at which they ended; `random`, `recovery` (a random moment before the job ran).
    pub(crate) by_step: BTreeMap<String, u64>,
}

impl Outcome {
    pub(crate) fn is_right(&self) -> bool {
        (self.lost, self.doubled, self.torn, self.open_transactions) == (0, 0, 0, 0)
    }
}

/// One job.
pub(super) struct Line<'a> {
    pub(super) place: &'a Place,
    pub(super) spec: WorkerSpec,
    producer: Producer,
    /// Records sent so far; the next one has this id.
    sent: i64,
    by_step: BTreeMap<String, u64>,
}

/// Runs all rounds, lets the job finish, and checks.
pub(crate) async fn run(
    place: &Place,
    kind: Kind,
    rounds: &Rounds,
    folder: &Path,
) -> anyhow::Result<Outcome> {
    let clock = &place.env.clock;
    let begin = clock.now();
    let mut line = Line::new(place, kind, rounds.mode, folder).await?;
    match kind {
        Kind::Stateless | Kind::Stateful => {
            let plan = deaths(rounds.seed, kind.word(), rounds.count, &rounds.steps);
            for (index, death) in plan.into_iter().enumerate() {
                let what = || format!("{} round {index}, {death:?}, seed {}", kind.word(), rounds.seed);
                line.round(death).await.with_context(what)?;
            }
        }
        Kind::Replicas => replicas::rounds(&mut line, rounds.count, rounds.seed).await?,
    }
    line.finish().await?;
    let seconds = clock.now().duration_since(begin).as_secs_f64();
    line.outcome(kind, seconds).await
}

impl<'a> Line<'a> {
    async fn new(
        place: &'a Place,
        kind: Kind,
        mode: AckModeChoice,
        folder: &Path,
    ) -> anyhow::Result<Line<'a>> {
        let name = place.named(kind.word());
        let (input, output) = (format!("{name}-in"), format!("{name}-out"));
        place.topic(&input, PARTITIONS).await?;
        place.topic(&output, PARTITIONS).await?;
        let mut spec = WorkerSpec::new(&place.brokers, &name, &input, &output);
        (spec.mode, spec.interval) = (mode, INTERVAL);
        spec.counting_subtasks = match kind {
            Kind::Stateless | Kind::Replicas => 0,
            Kind::Stateful => 3,
        };
        // With a store, also where nothing needs it: without one, half of the steps are none.
        spec.store = Some(folder.join(kind.word()));
        if kind == Kind::Replicas {
            let lock = replicas::LOCK.as_millis().to_string();
            spec.group_configs.insert("share.record.lock.duration.ms".to_owned(), lock);
        }
        // As much room for deliveries as Kafka allows.
        spec.group_configs.insert("share.delivery.count.limit".to_owned(), "10".to_owned());
        let producer = Producer::connect(place.client.clone(), WriterConfig::default()).await?;
        Ok(Line { place, spec, producer, sent: 0, by_step: BTreeMap::new() })
    }

    /// One worker from its start to its death.
    async fn round(&mut self, death: Death) -> anyhow::Result<()> {
        let clock = self.place.env.clock.clone();
        let begin = clock.now();
        let mut spec = self.spec.clone();
        let dies_at = match death {
            Death::AtStep { step, count } => {
                spec.crash_at = Some(CrashAt { step, count });
                None
            }
            Death::After(life) => Some(begin + life),
        };
        let mut worker = Process::start(&self.place.env, "a worker", &spec.arguments()?)?;
        let end = self.feed_until_end(&mut worker, dies_at, begin + STEP_WAIT_MAX).await?;
        worker.kill().await?;
        self.count(&end);
        Ok(())
    }

    /// Counts a round by how it ended.
    pub(super) fn count(&mut self, end: &str) {
        *self.by_step.entry(end.to_owned()).or_default() += 1;
    }

    /// Sends records while the worker runs; gives the word for how its life ends.
    async fn feed_until_end(
        &mut self,
        worker: &mut Process,
        dies_at: Option<Instant>,
        deadline: Instant,
    ) -> anyhow::Result<String> {
        let clock = self.place.env.clock.clone();
        let mut is_started = false;
        let mut next_piece = clock.now();
        loop {
            tokio::select! {
                biased;
                () = clock.sleep_until_any(dies_at) => {
                    return Ok(if is_started { "random" } else { "recovery" }.to_owned());
                }
                event = worker.event() => {
                    let event = event?;
                    match event["event"].as_str().unwrap_or_default() {
                        "started" => is_started = true,
                        "step" => return Ok(event["step"].as_str().unwrap_or_default().to_owned()),
                        _ => anyhow::bail!("the worker says {event}"),
                    }
                }
                () = clock.sleep_until(next_piece), if is_started => {
                    self.send_piece().await?;
                    next_piece = clock.now() + PIECE_PAUSE;
                }
                () = clock.sleep_until(deadline) => {
                    anyhow::bail!("the worker did not come to its step; started: {is_started}");
                }
            }
        }
    }

    pub(super) async fn send_piece(&mut self) -> anyhow::Result<()> {
        let now_ms = self.place.env.clock.wall_ms();
        for id in self.sent..self.sent + PIECE {
            let value = format!("{},{id}", key_of(id));
            // Not by key: the records of one key come from many partitions.
            let partition = PartitionIndex(i32::try_from(id % i64::from(PARTITIONS))?);
            let writer = self.producer.writer();
            writer.append(&self.spec.input, partition, now_ms, None, Some(value.as_bytes()), &[]).await?;
        }
        self.producer.flush().await?;
        self.sent += PIECE;
        Ok(())
    }

    /// The last worker decides what is left, and ends in good order.
    async fn finish(&mut self) -> anyhow::Result<()> {
        let arguments = self.spec.arguments()?;
        let mut worker = Process::start(&self.place.env, "the last worker", &arguments)?;
        worker.wait_for("started").await?;
        self.send_piece().await?;
        let deadline = self.place.env.clock.now() + FINISH_WAIT_MAX;
        self.place.wait_decided(&self.spec.name, &self.spec.input, deadline).await?;
        let ended = worker.drain().await?;
        anyhow::ensure!(ended.success(), "the last worker ended with {ended}");
        Ok(())
    }

    async fn outcome(self, kind: Kind, seconds: f64) -> anyhow::Result<Outcome> {
        let mut output = Vec::new();
        self.place
            .read_committed(&self.spec.output, |value| {
                output.push(Row::parse(value)?);
                Ok(())
            })
            .await?;
        let state = match (kind, &self.spec.store) {
            (Kind::Stateful, Some(folder)) => {
                Some(last_state(&CheckpointStore::local(folder, self.spec.store_key()).await?).await?)
            }
            (Kind::Stateful, None) | (Kind::Stateless | Kind::Replicas, _) => None,
        };
        let wrong = check(self.sent, &output, state.as_ref());
        Ok(Outcome {
            records: self.sent,
            lost: wrong.lost,
            doubled: wrong.doubled,
            torn: wrong.torn,
            open_transactions: self.place.open_transactions(&self.spec.name).await?,
            seconds,
            by_step: self.by_step,
        })
    }
}

/// The word of a step, as events have it.
pub(crate) fn step_word(step: CommitStep) -> String {
    match serde_json::to_value(step) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => format!("{step:?}"),
    }
}
