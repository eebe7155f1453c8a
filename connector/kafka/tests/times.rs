//! A job whose times do not fit is refused by its start, before anything is joined or created.

use std::time::Duration;

use sharestream_base::Env;
use sharestream_broker::{Broker, BrokerConfig, RunningBroker};
use sharestream_client::{Client, ClientConfig, NewTopic};
use sharestream_core::{ErrorKind, JobControl, JobOptions};
use sharestream_kafka::fit::{self, Weight};
use sharestream_kafka::{KafkaJob, KafkaJobConfig, Pipeline, SinkConfig};

async fn start(config: BrokerConfig) -> (RunningBroker, Client, KafkaJobConfig) {
    let broker = Broker::builder(Env::system()).config(config).start().await.unwrap();
    let client = ClientConfig::with_bootstrap(&broker.bootstrap()).unwrap();
    let client = Client::connect(Env::system(), client).await.unwrap();
    for topic in ["in", "out"] {
        client.admin().create_topic(NewTopic::new(topic, 1)).await.unwrap();
    }
    let mut job = KafkaJobConfig::new("job", "group", vec!["in".to_owned()], SinkConfig::to_topic("out"));
    job.bootstrap = vec![broker.bootstrap()];
    (broker, client, job)
}

async fn topics(client: &Client) -> Vec<String> {
    let mut topics: Vec<String> = client
        .admin()
        .list_topics()
        .await
        .unwrap()
        .iter()
        .map(|topic| topic.name.to_string())
        .filter(|name| !name.starts_with("__"))
        .collect();
    topics.sort();
    topics
}

#[tokio::test]
async fn a_start_whose_times_do_not_fit_is_refused_before_anything_is_created() {
    let config = BrokerConfig { transaction_timeout_max: Duration::from_secs(20), ..BrokerConfig::default() };
    let (broker, client, mut job) = start(config).await;
    job.group_configs.insert("share.record.lock.duration.ms".to_owned(), "1000".to_owned());
    job.group_configs.insert("share.auto.offset.reset".to_owned(), "earliest".to_owned());
    let before = client.admin().describe_group_config("group").await.unwrap();

    let error = Pipeline::new(job.clone()).run(Env::system(), JobControl::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let text = error.to_string();
    for part in [
        "transaction-timeout 30s",
        "20s",
        "transaction.max.timeout.ms",
        "at least 30000",
        "locks of 1s",
        "1500",
    ] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    let with_session = job.clone();
    let options = JobOptions::default().with_latency_goal(Duration::from_millis(500));
    let error = KafkaJob::connect_for(Env::system(), with_session, &options).await.unwrap_err();
    assert!(
        error.to_string().contains("a latency goal of 500ms is too long for record locks of 1s"),
        "{error}"
    );
    assert_eq!(topics(&client).await, ["in", "out"]);
    assert_eq!(client.admin().describe_group_config("group").await.unwrap(), before);
    assert_eq!(client.admin().list_share_groups().await.unwrap().len(), 0);
    broker.shutdown().await;
}

#[tokio::test]
async fn times_that_fit_the_brokers_are_not_refused_and_what_they_allow_is_told() {
    let config = BrokerConfig { transaction_timeout_max: Duration::from_secs(30), ..BrokerConfig::default() };
    let (broker, client, job) = start(config).await;
    let options = JobOptions::default()
        .with_barrier_alignment_timeout(Duration::from_secs(5))
        .with_commit_deadline(Duration::from_secs(21));
    let findings = fit::findings(&client, &job, &options).await;
    assert!(findings.iter().all(|finding| finding.weight == Weight::Hint), "{findings:?}");
    assert!(findings[0].to_string().contains("2000 record locks"), "{findings:?}");
    KafkaJob::connect_for(Env::system(), job, &options).await.unwrap();
    assert_eq!(topics(&client).await, ["in", "out", "sharestream.outcomes"]);
    broker.shutdown().await;
}
