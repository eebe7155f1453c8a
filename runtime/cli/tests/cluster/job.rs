//! One run of the flights job on the cluster: its own names, its records, its workers, and the check at the end.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flate2::read::GzDecoder;
use serde_json::Value;
use sharestream_base::ids::{NodeId, Offset, PartitionIndex};
use sharestream_base::{Clock, Env, Instant, OwnedTask, TaskKind};
use sharestream_client::{
    Client, Isolation, NewTopic, PartitionReader, Producer, WriterConfig, committed_records,
};
use tokio::process::Command;

use crate::nodes::{Cluster, Part, connect};
use crate::worker::Worker;

/// Partitions of the input and of the output.
const PARTITIONS: i32 = 4;
/// Column of the carrier, the key, from 0.
const CARRIER: usize = 9;
/// Records of one piece, and the pause behind it: records arrive all through a fault.
const PIECE: usize = 250;
const PIECE_PAUSE: Duration = Duration::from_millis(50);
/// Longest wait until everything is processed after the last fault.
const CAUGHT_UP_MAX: Duration = Duration::from_secs(180);
/// Workers that may end because their last checkpoint aborts.
const DRAINS_MAX: usize = 4;
/// Rounds of [`JobRun::load_until_one_is_fenced`], and looks of each at the workers.
const ROUNDS_MAX: usize = 20;
const ROUND_LOOKS: usize = 50;
/// The example's limit of deliveries, and how near to it the job gives up (`KafkaJobConfig::delivery_reserve`).
const DELIVERY_COUNT_LIMIT: u16 = 10;
const DELIVERY_RESERVE: u16 = 2;
/// The transaction time-out of a job with the example's interval (`settings::kafka_config`).
pub(crate) const TRANSACTION_TIMEOUT: Duration = Duration::from_millis(42_050);
/// How late a coordinator that is there may notice: it looks each second, and the markers take their time.
const TIMEOUT_SLACK: Duration = Duration::from_secs(5);

/// Dead letters of records that can be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// Nothing makes any.
    None,
    /// The fault costs deliveries that the job does not see: those near the limit may be given up, and say so.
    NearTheLimit,
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Records of the input.
    pub(crate) records: usize,
    /// Records after which a checkpoint is taken.
    pub(crate) records_per_transaction: usize,
    /// How often each fault comes.
    pub(crate) bounces: usize,
}

/// A job with topics, group and names of its own.
pub(crate) struct JobRun<'a> {
    /// The cluster that it runs on.
    pub(crate) cluster: &'a Cluster,
    /// The worker that runs now.
    pub(crate) worker: Worker,
    name: String,
    mode: String,
    size: Size,
    /// `None` when everything so far is loaded.
    loader: Option<OwnedTask<()>>,
    /// Records that the loader has, or will have, sent.
    records: usize,
    watch: OwnedTask<()>,
    /// Longest that a transaction of the job was seen open.
    longest_open: Arc<Mutex<Duration>>,
    folder: tempfile::TempDir,
}

impl<'a> JobRun<'a> {
    /// Creates the topics, starts a worker and begins to load.
    pub(crate) async fn start(cluster: &'a Cluster, name: &str, mode: &str, size: Size) -> JobRun<'a> {
        let env = &cluster.env;
        let name = format!("{name}-{:06x}", env.rng.next_u64() & 0xff_ffff);
        for topic in ["in", "out", "rejected"] {
            let mut topic = NewTopic::new(format!("{name}.{topic}"), PARTITIONS);
            topic.replication = 3;
            cluster.client.admin().create_topic(topic).await.unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/flights/job.toml");
        std::fs::copy(example, folder.path().join("job.toml")).unwrap();
        let longest_open = Arc::new(Mutex::new(Duration::ZERO));
        let watch = watch_transactions(cluster.client.clone(), name.clone(), longest_open.clone());
        let watch = OwnedTask::spawn(&env.spawner, "transactions", TaskKind::Service, watch);
        let load = load(env.clone(), cluster.direct(), format!("{name}.in"), 0, size.records);
        let loader = Some(OwnedTask::spawn(&env.spawner, "loader", TaskKind::Service, load));
        let records = size.records;
        let arguments = run_arguments(folder.path(), &cluster.bootstrap(), &name, mode, size);
        let worker = Worker::start(env, &arguments);
        let mode = mode.to_owned();
        JobRun { cluster, worker, name, mode, size, loader, records, watch, longest_open, folder }
    }

    /// Starts another worker of the same job and instance.
    pub(crate) fn another_worker(&self) -> Worker {
        let bootstrap = self.cluster.bootstrap();
        let arguments = run_arguments(self.folder.path(), &bootstrap, &self.name, &self.mode, self.size);
        Worker::start(&self.cluster.env, &arguments)
    }

    /// Kills the worker and starts another.
    pub(crate) async fn replace_killed_worker(&mut self) {
        self.worker.kill().await;
        self.worker = self.another_worker();
    }

    /// Waits until the present worker has committed something since now.
    pub(crate) async fn progress(&mut self) {
        let before = self.worker.records_in();
        let deadline = self.clock().now() + CAUGHT_UP_MAX;
        while self.worker.records_in() <= before {
            self.pause_or_fail(deadline, "the worker makes no progress").await;
        }
    }

    /// The same, or until there is nothing left to commit.
    pub(crate) async fn progress_or_done(&mut self) {
        let before = self.worker.records_in();
        let deadline = self.clock().now() + CAUGHT_UP_MAX;
        while self.worker.records_in() <= before && !(self.is_loaded() && self.is_caught_up().await) {
            self.pause_or_fail(deadline, "the worker makes no progress").await;
        }
    }

    /// The node that plays `part` for this job.
    pub(crate) async fn node_of(&self, part: Part) -> NodeId {
        let transactional_id = format!("{}.main.0", self.name);
        self.cluster.node_of(part, &format!("{}.in", self.name), &self.name, &transactional_id).await
    }

    /// Everything is loaded and processed by the worker that runs now; it ends well, and `verify` finds no fault.
    /// `paused`: how long a coordinator could not end a transaction.
    pub(crate) async fn finish(mut self, paused: Duration, given_up: GivenUp) {
        self.loaded().await;
        self.catch_up_and_drain().await;
        let report = self.verify().await;
        self.check_dead_letters(&report, given_up).await;
        let watched = self.watch.is_finished();
        assert!(!watched, "the watch of the transactions ended");
        let longest = *self.longest_open.lock().unwrap_or_else(PoisonError::into_inner);
        println!("  longest open transaction: {} ms", longest.as_millis());
        let bound = TRANSACTION_TIMEOUT + TIMEOUT_SLACK + paused;
        assert!(longest <= bound, "a transaction was open for {longest:?}, more than {bound:?}");
    }

    async fn catch_up_and_drain(&mut self) {
        for _ in 0..DRAINS_MAX {
            let deadline = self.clock().now() + CAUGHT_UP_MAX;
            // A worker that has only just begun does not know of signals yet.
            while !self.worker.last_words().contains(r#""event":"started""#) || !self.is_caught_up().await {
                self.pause_or_fail(deadline, "the worker does not catch up").await;
            }
            let code = self.worker.drain().await;
            if code == 0 {
                return;
            }
            // What a fault made late comes a second time, and the last checkpoint holds it: no drain goes on after an
            // aborted one.
            let words = self.worker.last_words();
            assert!(code == 1 && words.contains(r#""kind":"abort""#), "ended with {code}:\n{words}");
            self.worker = self.another_worker();
        }
        panic!("no worker ends well:\n{}", self.worker.last_words());
    }

    /// Loads a little more, again and again, until the present worker or `other` ends as fenced; the one that is left is
    /// the present worker then. A worker that is given no records has nothing to be fenced at. `replaced`: the present one
    /// had taken the job before `other` woke, and must keep it.
    pub(crate) async fn load_until_one_is_fenced(&mut self, mut other: Worker, replaced: bool) {
        for _ in 0..ROUNDS_MAX {
            self.loaded().await;
            let topic = format!("{}.in", self.name);
            let env = &self.cluster.env;
            let load = load(env.clone(), self.cluster.direct(), topic, self.records, PIECE);
            self.loader = Some(OwnedTask::spawn(&env.spawner, "loader", TaskKind::Service, load));
            self.records += PIECE;
            for _ in 0..ROUND_LOOKS {
                if let Some(code) = self.worker.exit() {
                    assert!(!replaced, "the older took the job back:\n{}", self.worker.last_words());
                    // Both started at the same moment, and the other was the last to write its owner record.
                    std::mem::swap(&mut self.worker, &mut other);
                    return assert_fenced(code, &other);
                }
                if let Some(code) = other.exit() {
                    return assert_fenced(code, &other);
                }
                self.clock().sleep(Duration::from_millis(100)).await;
            }
        }
        panic!("both workers go on:\n{}\n{}", self.worker.last_words(), other.last_words());
    }

    fn is_loaded(&self) -> bool {
        self.loader.as_ref().is_none_or(OwnedTask::is_finished)
    }

    async fn loaded(&mut self) {
        if let Some(mut loader) = self.loader.take() {
            loader.join().await.expect("loading does not fail");
        }
    }

    async fn pause_or_fail(&mut self, deadline: Instant, what: &str) {
        if let Some(code) = self.worker.exit() {
            panic!("the worker ended with {code}:\n{}", self.worker.last_words());
        }
        assert!(self.clock().now() < deadline, "{what}:\n{}", self.worker.last_words());
        self.clock().sleep(Duration::from_millis(100)).await;
    }

    fn clock(&self) -> Clock {
        self.cluster.env.clock.clone()
    }

    async fn is_caught_up(&self) -> bool {
        let topic = format!("{}.in", self.name);
        let offsets =
            self.cluster.client.admin().describe_share_group_offsets(&self.name, &[topic.as_str()]).await;
        let Ok(offsets) = offsets else { return false };
        offsets.len() == usize::try_from(PARTITIONS).unwrap()
            && offsets.iter().all(|offset| offset.lag == Some(0))
    }

    async fn verify(&self) -> Value {
        let direct = self.cluster.direct();
        let mut arguments = vec!["verify".to_owned()];
        arguments.extend(job_arguments(self.folder.path(), &direct, &self.name, &self.mode, self.size));
        let output = Command::new(env!("CARGO_BIN_EXE_sharestream"))
            .args(&arguments)
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        assert_eq!(report["records_in"], self.records, "{said}");
        let mut forbidden = vec!["lost", "torn", "wrong", "remaining", "open_transactions"];
        // What at-least-once may do, it says so; without a fault between commit and acknowledgement it does not.
        if self.mode != "at-least-once" {
            forbidden.extend(["doubled", "decided_twice"]);
        }
        for count in forbidden {
            assert_eq!(report[count], 0, "{count}\n{said}");
        }
        println!(
            "  {} in, {} out, {} dead letters, {} lost, {} doubled, {} torn",
            report["records_in"],
            report["records_out"],
            report["dead_lettered"],
            report["lost"],
            report["doubled"],
            report["torn"]
        );
        report
    }

    /// `verify` has seen that each record that does not fit has its dead letter; of others there are none, or each says
    /// that it was near the limit of deliveries.
    async fn check_dead_letters(&self, report: &Value, given_up: GivenUp) {
        let total = report["dead_lettered"].as_u64().unwrap();
        let surplus = report["dead_letters_without_fault"].as_u64().unwrap();
        if given_up == GivenUp::None {
            assert_eq!(surplus, 0, "records became dead letters that can be processed: {report}");
        }
        let mut counts = Vec::new();
        let mut reasons = Vec::new();
        for partition in 0..PARTITIONS {
            let topic = format!("{}.rejected", self.name);
            let letters = dead_letters(&self.cluster.client, &topic, PartitionIndex(partition)).await;
            for (reason, delivery_count) in letters {
                match reason.starts_with("delivery ") {
                    true => counts.push((delivery_count, reason)),
                    false => reasons.push(reason),
                }
            }
        }
        assert_eq!((counts.len() + reasons.len()) as u64, total, "dead letters in the topic");
        // A record that does not fit may be given up too.
        assert!(counts.len() as u64 >= surplus, "{surplus} given up, by another reason: {reasons:?}");
        for (delivery_count, reason) in &counts {
            let is_near = *delivery_count + DELIVERY_RESERVE > DELIVERY_COUNT_LIMIT
                && reason.contains(&format!("of at most {DELIVERY_COUNT_LIMIT}:"));
            assert!(is_near && given_up == GivenUp::NearTheLimit, "{reason}");
        }
        println!("  {surplus} records given up near the limit of {DELIVERY_COUNT_LIMIT} deliveries");
    }
}

/// Reason and delivery count of each committed dead letter in a partition.
async fn dead_letters(client: &Client, topic: &str, partition: PartitionIndex) -> Vec<(String, u16)> {
    let mut reader = PartitionReader::new(client.clone());
    let (mut from, mut letters) = (Offset(0), Vec::new());
    loop {
        let wait = Duration::from_millis(500);
        let fetched =
            reader.fetch(topic, partition, from, Isolation::ReadCommitted, 1 << 20, wait).await.unwrap();
        for batch in committed_records(&fetched).unwrap() {
            for record in batch.records().unwrap().iter().map(Result::unwrap) {
                if record.offset < from.0 {
                    continue;
                }
                let text = |name: &str| {
                    let value = record.headers.iter().find(|(key, _)| *key == name.as_bytes());
                    String::from_utf8(value.unwrap().1.unwrap().to_vec()).unwrap()
                };
                letters
                    .push((text("sharestream.error"), text("sharestream.delivery-count").parse().unwrap()));
            }
        }
        let next = fetched.next_offset(from);
        if next == from {
            return letters;
        }
        from = next;
    }
}

/// A worker of which another took the job over ends, and says why.
fn assert_fenced(code: i32, worker: &Worker) {
    let words = worker.last_words();
    assert!(code == 1 && words.to_lowercase().contains("fenced"), "ended with {code}:\n{words}");
}

/// Arguments of `run` for a worker.
fn run_arguments(folder: &Path, bootstrap: &str, name: &str, mode: &str, size: Size) -> Vec<String> {
    let mut arguments = vec!["run".to_owned()];
    arguments.extend(job_arguments(folder, bootstrap, name, mode, size));
    arguments
}

/// The example's job with names of its own.
fn job_arguments(folder: &Path, bootstrap: &str, name: &str, mode: &str, size: Size) -> Vec<String> {
    let settings = [
        format!("source.brokers={bootstrap}"),
        format!("job.name={name}"),
        format!("source.topics={name}.in"),
        format!("source.group={name}"),
        format!("sink.topic={name}.out"),
        format!("dead_letter.topic={name}.rejected"),
        format!("ack.mode={mode}"),
        format!("ack.outcome_topic={name}.outcomes"),
        format!("checkpoint.records={}", size.records_per_transaction),
        // Short, so that what a dead worker held comes back while the test waits.
        "source.group_config.share.record.lock.duration.ms=6000".to_owned(),
    ];
    let mut arguments = vec![folder.join("job.toml").to_str().unwrap().to_owned(), "--json".to_owned()];
    arguments.extend(settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]));
    arguments
}

/// Sends `count` flights from `first` on, piece by piece, whatever happens to the brokers.
async fn load(env: Env, bootstrap: String, topic: String, first: usize, count: usize) {
    let client = connect(&env, &bootstrap).await;
    let mut producer = Producer::connect(client, WriterConfig::default()).await.unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/flights.csv.gz");
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    for (index, line) in text.lines().skip(1 + first).take(count).enumerate() {
        let carrier = line.split(',').nth(CARRIER).map(str::as_bytes);
        producer.send(&topic, carrier, Some(line.as_bytes()), &[]).await.unwrap();
        if index % PIECE == PIECE - 1 {
            producer.flush().await.unwrap();
            env.clock.sleep(PIECE_PAUSE).await;
        }
    }
    producer.flush().await.unwrap();
}

/// Notes how long transactions of the job stay open.
async fn watch_transactions(client: Client, name: String, longest: Arc<Mutex<Duration>>) {
    let clock = client.env().clock.clone();
    let prefix = format!("{name}.");
    loop {
        clock.sleep(Duration::from_millis(500)).await;
        // A broker that is down cannot be asked; the next look sees what was open meanwhile.
        let Ok(listed) = client.admin().list_transactions().await else { continue };
        let ids: Vec<&str> = listed
            .iter()
            .map(|listing| listing.transactional_id.as_str())
            .filter(|id| id.starts_with(&prefix))
            .collect();
        let Ok(described) = client.admin().describe_transactions(&ids).await else { continue };
        for transaction in described {
            let Some(start_ms) = transaction.start_ms.filter(|_| transaction.state == "Ongoing") else {
                continue;
            };
            let open_ms = u64::try_from(clock.wall_ms() - start_ms).unwrap_or(0);
            let mut longest = longest.lock().unwrap_or_else(PoisonError::into_inner);
            *longest = (*longest).max(Duration::from_millis(open_ms));
        }
    }
}
