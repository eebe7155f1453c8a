//! Starts of a job that follow others, or meet them: numbers of incarnations, transactional ids of before, owners.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::time::Duration;

use sharestream_base::ids::{JobEpoch, PartitionIndex};
use sharestream_base::{Env, ErrorKind};
use sharestream_broker::{Broker, RunningBroker};
use sharestream_client::{
    BatchWriter, Client, ClientConfig, NewTopic, Producer, TransactionConfig, TransactionSession,
    WriterConfig,
};
use sharestream_core::commit::{CommitProtocol, RecoverRequest};
use sharestream_core::{JobBuilder, JobControl, JobId, JobState};
use sharestream_kafka::formats::{Column, ColumnType, CsvFormat, Format};
use sharestream_kafka::outcome::{FORMAT_VERSION, OutcomeLog, OwnerRecord, outcome_partition, read_outcomes};
use sharestream_kafka::{KafkaJob, KafkaJobConfig, SinkConfig};

const HOUR_MS: i64 = 3_600_000;

struct World {
    env: Env,
    broker: RunningBroker,
    client: Client,
    config: KafkaJobConfig,
}

impl World {
    async fn new(seed: u64) -> World {
        let env = Env::seeded(seed);
        let broker = Broker::builder(env.clone()).start().await.unwrap();
        let bootstrap = broker.bootstrap();
        let client =
            Client::connect(env.clone(), ClientConfig::with_bootstrap(&bootstrap).unwrap()).await.unwrap();
        for topic in ["words", "counts"] {
            client.admin().create_topic(NewTopic::new(topic, 1)).await.unwrap();
        }
        let mut config =
            KafkaJobConfig::new("job", "group", vec!["words".to_owned()], SinkConfig::to_topic("counts"));
        config.bootstrap = vec![bootstrap];
        let columns = vec![Column::new("id", ColumnType::Int64)];
        config.format = Format::Csv(CsvFormat { columns, ..CsvFormat::default() });
        World { env, broker, client, config }
    }

    async fn job(&self) -> KafkaJob {
        KafkaJob::connect(self.env.clone(), self.config.clone()).await.unwrap()
    }

    async fn protocol(&self) -> Box<dyn CommitProtocol> {
        self.job().await.commit_protocol(None)
    }

    async fn outcome_partition(&self) -> PartitionIndex {
        let topic = self.client.fresh_topic(&self.config.outcome_topic).await.unwrap();
        outcome_partition(&self.config.group, topic.partitions.len() as i32)
    }

    async fn owner(&self) -> OwnerRecord {
        let mut log = OutcomeLog::new();
        let partition = self.outcome_partition().await;
        read_outcomes(&self.client, &self.config.outcome_topic, partition, &mut log).await.unwrap();
        log.owner(&self.config.job, &self.config.instance).unwrap().clone()
    }

    /// What a build with another naming has written when it started.
    async fn write_owner(&self, transactional_ids: &[&str]) {
        let owner = OwnerRecord {
            format_version: FORMAT_VERSION,
            job: self.config.job.clone(),
            instance: self.config.instance.clone(),
            job_epoch: JobEpoch(1),
            incarnation: "another".to_owned(),
            since_ms: 0,
            transactional_ids: transactional_ids.iter().map(|id| (*id).to_owned()).collect(),
        };
        let partition = self.outcome_partition().await;
        let mut producer = Producer::connect(self.client.clone(), WriterConfig::default()).await.unwrap();
        let (key, value) = (owner.key(), owner.encode().unwrap());
        producer
            .writer()
            .append(&self.config.outcome_topic, partition, 0, Some(key.as_bytes()), Some(&value), &[])
            .await
            .unwrap();
        producer.flush().await.unwrap();
    }

    /// A transaction with a write in it, by someone who does not know that another start follows.
    async fn open_transaction(&self, transactional_id: &str) -> TransactionSession {
        let config = TransactionConfig::new(transactional_id);
        let mut zombie = TransactionSession::new(self.client.clone(), config).unwrap();
        zombie.init().await.unwrap();
        let mut writer = BatchWriter::new(self.client.clone(), WriterConfig::default());
        writer.set_identity(&zombie.begin().unwrap());
        writer.append("counts", PartitionIndex(0), 0, None, Some(b"late"), &[]).await.unwrap();
        writer.flush().await.unwrap();
        zombie
    }

    /// Runs the job for a moment; the number of its incarnation.
    async fn run(&self) -> JobEpoch {
        let kafka = self.job().await;
        let job = JobBuilder::new(JobId::new(&self.config.job, &self.config.instance))
            .source(kafka.source_factory(), 1)
            .sink(kafka.sink_factory(), 1)
            .commit(kafka.commit_protocol(None))
            .build()
            .unwrap();
        let control = JobControl::new();
        let drain = async {
            while control.snapshot().state != JobState::Running {
                self.env.clock.sleep(Duration::from_millis(1)).await;
            }
            control.drain();
        };
        let (report, ()) = tokio::join!(job.run(self.env.clone(), control.clone()), drain);
        report.unwrap().status.job_epoch.unwrap()
    }
}

fn request(job_epoch: u64) -> RecoverRequest {
    RecoverRequest { job_epoch: JobEpoch(job_epoch), pending_transactional_ids: Vec::new() }
}

fn ids(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn incarnations_are_numbered_upwards_although_the_clock_goes_back() {
    let world = World::new(1).await;
    let first = world.run().await;
    world.env.clock.step_wall(-HOUR_MS);
    assert_eq!(world.run().await, JobEpoch(first.0 + 1));
    assert_eq!(world.owner().await.job_epoch, JobEpoch(first.0 + 1));
    world.broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn transactional_ids_that_an_earlier_owner_names_are_fenced_though_they_are_not_ours() {
    let world = World::new(2).await;
    let mut protocol = world.protocol().await;
    world.write_owner(&["an-older-naming"]).await;
    let mut zombie = world.open_transaction("an-older-naming").await;
    let mut bystander = world.open_transaction("of-another-job").await;
    protocol.recover(request(2)).await.unwrap();
    assert_eq!(zombie.commit().await.unwrap_err().kind(), ErrorKind::Fenced);
    bystander.commit().await.unwrap();
    // Whoever comes before we have fenced it, and sees our record alone, fences it as well.
    let expected = ids(&["an-older-naming", "job.0.0", "job.0.1"]);
    assert_eq!(world.owner().await.transactional_ids, expected);
    protocol.close().await.unwrap();
    world.broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_record_without_transactional_ids_is_followed() {
    let world = World::new(3).await;
    let mut protocol = world.protocol().await;
    world.write_owner(&[]).await;
    let mut zombie = world.open_transaction("job.0.1").await;
    protocol.recover(request(2)).await.unwrap();
    assert_eq!(zombie.commit().await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(world.owner().await.transactional_ids, ids(&["job.0.0", "job.0.1"]));
    world.broker.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn of_starts_at_the_same_time_the_last_owner_goes_on_and_no_other_starts_again() {
    for seed in 0..20 {
        let world = World::new(100 + seed).await;
        let (mut first, mut second) = (world.protocol().await, world.protocol().await);
        let delay = Duration::from_micros(seed * 300);
        let second_start = async {
            world.env.clock.sleep(delay).await;
            second.recover(request(2)).await
        };
        let (one, two) = tokio::join!(first.recover(request(1)), second_start);
        let last = world.owner().await.job_epoch;
        for (job_epoch, result) in [(JobEpoch(1), one), (JobEpoch(2), two)] {
            match result {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Fenced, "seed {seed}: {error}");
                    assert_ne!(job_epoch, last, "seed {seed}: the owner goes on");
                }
            }
        }
        world.broker.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifest_names_the_outcome_topic_by_its_id() {
    let world = World::new(4).await;
    let protocol = world.protocol().await;
    let topic = world.client.fresh_topic(&world.config.outcome_topic).await.unwrap();
    assert_eq!(protocol.outcome_topic_id(), Some(topic.topic_id));
    world.broker.shutdown().await;
}

/// Between the reading of the log and the writing of the own owner record another start writes its own: it comes before
/// ours, and what we have read does not name its transactional ids.
#[tokio::test(start_paused = true)]
async fn an_owner_that_comes_between_our_reading_and_our_writing_is_fenced_too() {
    let mut missed_count = 0;
    for yields in 0..120 {
        let world = World::new(200).await;
        let mut protocol = world.protocol().await;
        let mut zombie = world.open_transaction("an-older-naming").await;
        let other = async {
            for _ in 0..yields * 4 {
                tokio::task::yield_now().await;
            }
            world.write_owner(&["an-older-naming"]).await;
        };
        let (recovered, ()) = tokio::join!(protocol.recover(request(2)), other);
        let owner = world.owner().await;
        match recovered {
            Ok(_) if owner.job_epoch == JobEpoch(2) => {
                missed_count += u32::from(!owner.transactional_ids.contains("an-older-naming"));
                assert_eq!(zombie.commit().await.unwrap_err().kind(), ErrorKind::Fenced, "{yields}");
            }
            // The other is the last owner: it is for it to go on.
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Fenced, "{yields}: {error}"),
        }
        world.broker.shutdown().await;
    }
    assert!(missed_count > 0, "the record never came between the two");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_after_it_has_lost_the_job_says_that_it_has_lost_it() {
    let mut fenced_count = 0;
    for yields in 0..120 {
        let world = World::new(300).await;
        let mut protocol = world.protocol().await;
        let other = async {
            for _ in 0..yields * 4 {
                tokio::task::yield_now().await;
            }
            world.write_owner(&[]).await;
        };
        // No broker takes this one.
        let request = RecoverRequest { pending_transactional_ids: vec![String::new()], ..request(2) };
        let (recovered, ()) = tokio::join!(protocol.recover(request), other);
        let error = recovered.unwrap_err();
        if error.kind() == ErrorKind::Fenced {
            fenced_count += 1;
            assert_eq!(world.owner().await.job_epoch, JobEpoch(1), "{error}");
        }
        world.broker.shutdown().await;
    }
    assert!(fenced_count > 0, "the other never came before the failure was known");
}

/// A process that slept, lost its locks and starts its next attempt must not take the job back from the one that replaced
/// it.
#[tokio::test]
async fn an_attempt_after_another_process_has_taken_the_job_ends_as_fenced() {
    let world = World::new(8).await;
    let (older, newer) = (world.job().await, world.job().await);
    older.commit_protocol(None).recover(request(1)).await.unwrap();
    // As long as nobody else has come, a further attempt is welcome.
    let mut again = older.commit_protocol(None);
    again.check_not_replaced().await.unwrap();
    again.recover(request(2)).await.unwrap();

    newer.commit_protocol(None).recover(request(3)).await.unwrap();
    let owner = world.owner().await;
    let mut woken = older.commit_protocol(None);
    assert_eq!(woken.check_not_replaced().await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(woken.recover(request(4)).await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(world.owner().await, owner, "nothing was written");

    newer.commit_protocol(None).recover(request(5)).await.unwrap();
    // A start by somebody's hand is the newest again.
    let mut started = world.job().await.commit_protocol(None);
    started.check_not_replaced().await.unwrap();
    started.recover(request(6)).await.unwrap();
}
