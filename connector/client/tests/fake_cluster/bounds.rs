//! Nothing waits for ever: every call against a cluster that has stopped answering.

use std::time::Duration;

use futures::future::BoxFuture;
use kafka_protocol::messages::{
    FindCoordinatorRequest, InitProducerIdRequest, InitProducerIdResponse, MetadataRequest,
};
use kafka_protocol::protocol::Request;
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_client::{
    BatchWriter, Client, Isolation, NewTopic, OffsetSpec, PartitionReader, Producer, ResetTo, ShareConsumer,
    ShareConsumerConfig, StartOffset, TransactionConfig, TransactionSession, WriterConfig,
};
use uuid::Uuid;

use crate::common::fake::{Fake, Reply, coordinator, metadata};

const ONE: PartitionIndex = PartitionIndex(0);

/// Answers what lets a client get started; everything else is never answered.
async fn silent() -> Fake {
    let mut init_count = 0;
    Fake::start(1, &[], move |seen| match seen.header.api_key {
        MetadataRequest::KEY => seen.answer(&metadata(1, &[1], 1)),
        FindCoordinatorRequest::KEY => seen.answer(&coordinator()),
        InitProducerIdRequest::KEY => {
            init_count += 1;
            // The first one for a session, so that it can begin.
            let answer = InitProducerIdResponse::default().with_producer_id(7.into());
            if init_count == 1 { seen.answer(&answer) } else { Reply::Silence }
        }
        _other => Reply::Silence,
    })
    .await
}

type Call = (&'static str, Box<dyn FnOnce(Client) -> BoxFuture<'static, bool>>);

/// A call by name; true when it failed.
macro_rules! calls {
    ($($name:literal: |$client:ident| $body:expr;)*) => {
        vec![$(($name, Box::new(|$client: Client| {
            Box::pin(async move { $body.await.is_err() }) as BoxFuture<'static, bool>
        })),)*]
    };
}

fn admin_calls() -> Vec<Call> {
    calls! {
        "create_topic": |client| client.admin().create_topic(NewTopic::new("u", 1));
        "create_partitions": |client| client.admin().create_partitions("t", 2);
        "delete_topic": |client| client.admin().delete_topic("t");
        "list_offsets": |client| client.admin().list_offsets("t", &[], OffsetSpec::Latest);
        "alter_group_config": |client| client.admin().alter_group_config("g", &[]);
        "check_new_topic": |client| client.admin().check_new_topic(NewTopic::new("u", 1));
        "check_group_config": |client| client.admin().check_group_config("g", &[]);
        "describe_group_config": |client| client.admin().describe_group_config("g");
        "find_group": |client| client.admin().find_group("g");
        "group_operations": |client| client.admin().group_operations("g");
        "may_write_transactional_id": |client| client.admin().may_write_transactional_id("tx");
        "list_share_groups": |client| client.admin().list_share_groups();
        "describe_share_group": |client| client.admin().describe_share_group("g");
        "delete_share_group": |client| client.admin().delete_share_group("g");
        "delete_share_group_offsets": |client| client.admin().delete_share_group_offsets("g", &["t"]);
        "describe_share_group_offsets": |client| client.admin().describe_share_group_offsets("g", &[]);
        "plan_share_group_reset":
            |client| client.admin().plan_share_group_reset("g", &["t"], ResetTo::Earliest);
        "alter_share_group_offsets": |client| async move {
            let offset =
                StartOffset { topic: "t".to_owned(), partition: ONE, start_offset: Offset(0) };
            client.admin().alter_share_group_offsets("g", &[offset]).await
        };
        "list_transactions": |client| client.admin().list_transactions();
        "describe_transactions": |client| client.admin().describe_transactions(&["tx"]);
        "abort_transaction": |client| client.admin().abort_transaction("tx");
    }
}

fn data_calls() -> Vec<Call> {
    calls! {
        "topic_by_id": |client| client.topic_by_id(TopicId(Uuid::from_u128(99)));
        "fetch": |client| async move {
            let (isolation, wait) = (Isolation::ReadCommitted, Duration::from_millis(100));
            PartitionReader::new(client).fetch("t", ONE, Offset(0), isolation, 1_000, wait).await
        };
        "flush": |client| async move {
            let mut producer = Producer::connect(client, WriterConfig::default()).await?;
            producer.send("t", None, Some(b"v"), &[]).await?;
            producer.flush().await
        };
        "commit": |client| async move {
            let config = TransactionConfig {
                end_deadline: Duration::from_secs(10),
                ..TransactionConfig::new("tx")
            };
            let mut session = TransactionSession::new(client, config)?;
            session.init().await?;
            session.begin()?;
            session.commit().await
        };
        "init": |client| async move {
            let config = TransactionConfig::new("tx");
            TransactionSession::new(client.clone(), config.clone())?.init().await?;
            TransactionSession::new(client, config)?.init().await
        };
        "transactional flush": |client| async move {
            let mut session = TransactionSession::new(client.clone(), TransactionConfig::new("tx"))?;
            session.init().await?;
            let mut writer = BatchWriter::new(client, WriterConfig::default());
            writer.set_identity(&session.begin()?);
            writer.append("t", ONE, 0, None, None, &[]).await?;
            writer.flush().await
        };
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_ends_within_its_time() {
    for (name, call) in admin_calls().into_iter().chain(data_calls()) {
        let fake = silent().await;
        let config = fake.client.config();
        // The last attempt may begin just before the deadline.
        let bound = config.operation_timeout + config.request_timeout + config.connect_timeout;
        let start = fake.env.clock.now();
        let ended = fake.env.clock.timeout(bound, call(fake.client.clone())).await;
        let elapsed = fake.env.clock.now() - start;
        assert_eq!(ended.ok(), Some(true), "{name} must fail; it took {elapsed:?} of {bound:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_consumer_polls_commits_and_closes_without_a_coordinator() {
    let fake = silent().await;
    let config = ShareConsumerConfig::new("g", ["t"]);
    let max_wait = config.max_wait;
    let mut consumer = ShareConsumer::join(fake.client.clone(), config).await.unwrap();
    let start = fake.env.clock.now();
    for _ in 0..10 {
        assert!(consumer.poll().await.unwrap().is_empty());
    }
    assert!(fake.env.clock.now() - start <= max_wait * 11);
    assert!(consumer.commit_acknowledgements().await.unwrap().is_empty());
    let start = fake.env.clock.now();
    let _late_or_not = consumer.close().await;
    assert!(fake.env.clock.now() - start <= fake.client.config().request_timeout);
}
