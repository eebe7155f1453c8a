//! What a job does with its brokers, with exactly the rights that `docs/security.md` says it needs, against
//! the embedded broker with three nodes, users and access control (requirement R21 of
//! `docs/requirements.md`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use common::logged::Logged;
use common::{acknowledge_all, poll_count, read_values, start_at_the_beginning, wait_until_decided};
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{Env, ErrorKind};
use sharestream_broker::access::{Acl, Operation, Principal, ResourcePattern, ResourceType};
use sharestream_broker::{Broker, RunningBroker};
use sharestream_client::{
    AcknowledgeType, AclOperation, BatchWriter, Client, ClientConfig, Error, Isolation, NewTopic, OffsetSpec,
    Operations, PartitionReader, Producer, SecuritySettings, ShareConsumer, ShareConsumerConfig,
    TransactionConfig, TransactionSession, WriterConfig,
};

const LIMIT: Duration = Duration::from_secs(20);
const SOURCE: &str = "flights";
const OUTPUT: &str = "late";
const DEAD_LETTERS: &str = "late.dead";
const OUTCOMES: &str = "sharestream-outcomes";
const TOPICS: [&str; 4] = [SOURCE, OUTPUT, DEAD_LETTERS, OUTCOMES];
const GROUP: &str = "late-group";
/// Begins with `JOB.INSTANCE.`.
const ID: &str = "late.0.a";
const PASSWORD: &str = "c0rrect-horse";

/// What all tests here log. A subscriber of one test alone would miss events: those that another thread meets first,
/// before there is a subscriber, stay switched off.
static LOGGED: LazyLock<Logged> = LazyLock::new(|| {
    let logged = Logged::default();
    tracing::subscriber::set_global_default(logged.subscriber().finish()).unwrap();
    logged
});

/// The rights that the page's table gives to a job that makes no topic and has no group settings, without those that it
/// can do without.
fn documented_rights() -> Vec<Acl> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("## ACLs that a job needs").nth(1).expect("the page has the section");
    let mut rights = Vec::new();
    for row in section.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (operations, on) = (cells[1], cells[2]);
        let is_spared = ["where the job is to make it", "when the job file has", "without it"];
        if operations == "operation" || is_spared.iter().any(|words| on.contains(words)) {
            continue;
        }
        let mut patterns = Vec::new();
        for (words, pattern) in [
            ("source topics", ResourcePattern::topic(SOURCE)),
            ("share group", ResourcePattern::group(GROUP)),
            ("output", ResourcePattern::topic(OUTPUT)),
            ("dead letter", ResourcePattern::topic(DEAD_LETTERS)),
            ("outcome topic", ResourcePattern::topic(OUTCOMES)),
            ("outcome topics", ResourcePattern::topic(OUTCOMES)),
            ("transactional ids", ResourcePattern::transactional_id("late.0.").prefixed()),
        ] {
            if on.contains(words) && !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        }
        assert!(!patterns.is_empty(), "what is '{on}'?");
        for operation in operations.split(", ") {
            let operation = match operation {
                "Read" => Operation::Read,
                "Write" => Operation::Write,
                "Describe" => Operation::Describe,
                other => panic!("operation {other}"),
            };
            let acl = |on: &ResourcePattern| Acl::allow(Principal::user("job"), operation, on.clone());
            rights.extend(patterns.iter().map(acl));
        }
    }
    assert_eq!(rights.len(), 13, "{rights:#?}");
    rights
}

struct World {
    broker: RunningBroker,
    admin: Client,
    job: Client,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start(rights: &[Acl]) -> World {
        LazyLock::force(&LOGGED);
        let folder = tempfile::tempdir().unwrap();
        let users = [("admin", "admin-secret"), ("job", PASSWORD)];
        let builder = Broker::builder(Env::system()).nodes(3).users(users);
        let broker = builder.super_user(Principal::user("admin")).start().await.unwrap();
        rights.iter().for_each(|acl| broker.access().add(acl.clone()).unwrap());
        let admin = log_in(&broker, folder.path(), "admin", "admin-secret").await.unwrap();
        for topic in TOPICS {
            admin.admin().create_topic(NewTopic::new(topic, 2)).await.unwrap();
        }
        start_at_the_beginning(&admin, GROUP).await;
        let mut producer = Producer::connect(admin.clone(), WriterConfig::default()).await.unwrap();
        for n in 0..10 {
            let value = n.to_string();
            producer.send(SOURCE, Some(value.as_bytes()), Some(value.as_bytes()), &[]).await.unwrap();
        }
        producer.flush().await.unwrap();
        let job = log_in(&broker, folder.path(), "job", PASSWORD).await.unwrap();
        World { broker, admin, job, _folder: folder }
    }

    /// All that a job does in a life of one checkpoint.
    async fn run_job(&self) -> Result<(), Error> {
        let client = &self.job;
        let mut session = TransactionSession::new(client.clone(), TransactionConfig::new(ID)).unwrap();
        for topic in TOPICS {
            client.topic(topic).await?;
        }
        session.init().await?;
        let described = client.admin().describe_transactions(&[ID]).await?;
        assert_eq!(described[0].state, "Empty");
        let config = ShareConsumerConfig::new(GROUP, [SOURCE]);
        let mut consumer = ShareConsumer::join(client.clone(), config).await?;
        let offsets = client.admin().describe_share_group_offsets(GROUP, &[SOURCE]).await?;
        assert_eq!(offsets.len(), 2);
        let mut polls = Vec::new();
        while polls.iter().map(sharestream_client::ShareRecords::acquired_count).sum::<u64>() < 10 {
            polls.push(consumer.poll().await?);
        }
        acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
        let mut writer = BatchWriter::new(client.clone(), WriterConfig::default());
        writer.set_identity(&session.begin()?);
        for topic in [OUTPUT, DEAD_LETTERS, OUTCOMES] {
            writer.append(topic, PartitionIndex(0), 0, Some(b"k"), Some(b"v"), &[]).await?;
        }
        writer.flush().await?;
        let spec = OffsetSpec::Latest;
        let ends = client.admin().list_offsets(OUTCOMES, &[PartitionIndex(0)], spec).await?;
        assert_eq!(ends[&PartitionIndex(0)], Offset(1));
        let mut reader = PartitionReader::new(client.clone());
        let isolation = Isolation::ReadUncommitted;
        let wait = Duration::from_millis(200);
        reader.fetch(OUTCOMES, PartitionIndex(0), Offset(0), isolation, 1 << 20, wait).await?;
        let acknowledgements = consumer.acknowledgements_for_transaction()?;
        let metadata = consumer.share_group_metadata();
        session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await?;
        session.commit().await?;
        consumer.close().await
    }
}

async fn log_in(broker: &RunningBroker, folder: &Path, user: &str, password: &str) -> Result<Client, Error> {
    let file = folder.join(format!("{user}.password"));
    std::fs::write(&file, password).unwrap();
    let properties = [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", user),
        ("sasl.password.file", file.to_str().unwrap()),
    ];
    let properties: BTreeMap<String, String> =
        properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let config = ClientConfig::with_bootstrap(&broker.bootstrap())
        .unwrap()
        .with_request_timeout(LIMIT)
        .with_operation_timeout(LIMIT)
        .with_security(SecuritySettings::from_properties(&properties).unwrap());
    Client::connect(Env::system(), config).await
}

fn resource(on: &ResourcePattern) -> String {
    match on.kind {
        ResourceType::Topic => format!("topic '{}'", on.name),
        ResourceType::Group => format!("group '{}'", on.name),
        ResourceType::TransactionalId => format!("transactional id '{ID}'"),
        ResourceType::Cluster => "the cluster".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_with_exactly_the_rights_of_the_page() {
    let world = World::start(&documented_rights()).await;
    world.run_job().await.unwrap();
    for topic in [OUTPUT, DEAD_LETTERS, OUTCOMES] {
        assert_eq!(read_values(&world.admin, topic, 0, Isolation::ReadCommitted).await, ["v"], "{topic}");
    }
    wait_until_decided(&world.admin, GROUP, SOURCE).await;
    // A job cannot do more than that.
    let refused = world.job.admin().create_topic(NewTopic::new("more", 1)).await.map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("needs an ACL for Create on topic 'more'"), "{refused}");
    world.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_one_of_its_rights_says_which_in_one_sentence() {
    let all = documented_rights();
    for missing in &all {
        // To read or write is to describe, so DESCRIBE is missing only where nothing else implies it.
        let only_describe = missing.operation == Operation::Describe;
        let left = |acl: &&Acl| *acl != missing && !(only_describe && acl.on == missing.on);
        let rights: Vec<Acl> = all.iter().filter(left).cloned().collect();
        let world = World::start(&rights).await;
        let error = world.run_job().await.unwrap_err();
        let what = format!("{:?} on {}", missing.operation, resource(&missing.on));
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "without {what}: {text}");
        assert!(text.contains(&format!("'User:job' needs an ACL for {what}")), "without {what}: {text}");
        assert!(!text.contains('\n') && !text.contains(PASSWORD), "{text}");
        assert_eq!(
            read_values(&world.admin, OUTPUT, 0, Isolation::ReadCommitted).await,
            Vec::<String>::new(),
            "without {what}"
        );
        world.broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stage_names_the_right_that_went_before_it() {
    let read = |on| Acl::allow(Principal::user("job"), Operation::Read, on);
    let write = Acl::allow(
        Principal::user("job"),
        Operation::Write,
        ResourcePattern::transactional_id("late.0.").prefixed(),
    );
    for (taken, what) in [
        (read(ResourcePattern::topic(SOURCE)), format!("Read on topic '{SOURCE}'")),
        (read(ResourcePattern::group(GROUP)), format!("Read on group '{GROUP}'")),
        (write, format!("Write on transactional id '{ID}'")),
    ] {
        let world = World::start(&documented_rights()).await;
        let config = ShareConsumerConfig::new(GROUP, [SOURCE]);
        let mut consumer = ShareConsumer::join(world.job.clone(), config).await.unwrap();
        let polls = poll_count(&mut consumer, 10, LIMIT).await;
        acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
        let acknowledgements = consumer.acknowledgements_for_transaction().unwrap();
        let metadata = consumer.share_group_metadata();
        let mut session = TransactionSession::new(world.job.clone(), TransactionConfig::new(ID)).unwrap();
        session.init().await.unwrap();
        session.begin().unwrap();
        assert!(world.broker.access().remove(&taken));
        let staged = session.send_share_acknowledgements_to_transaction(&acknowledgements, &metadata).await;
        let text = staged.unwrap_err().to_string();
        assert!(text.contains(&format!("'User:job' needs an ACL for {what}")), "{text}");
        world.broker.shutdown().await;
    }
}

/// An operator wants to know before a job starts, and while another one runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_done_is_told_and_nothing_is_done() {
    let world = World::start(&documented_rights()).await;
    let (admin, job) = (world.admin.admin(), world.job.admin());
    let told = job.describe_topic(SOURCE).await.unwrap().unwrap();
    assert_eq!((told.partition_count, told.replicas_min, told.leaderless_count), (2, 1, 0));
    assert_eq!(told.operations, Some(Operations::of(&[AclOperation::Read, AclOperation::Describe])));
    assert_eq!(admin.describe_topic("nothing").await.unwrap(), None);
    let text = job.describe_topic("nothing").await.unwrap_err().to_string();
    assert!(text.contains("'User:job' needs an ACL for Describe on topic 'nothing'"), "{text}");
    let of_group = job.group_operations(GROUP).await.unwrap();
    assert_eq!(of_group, Some(Operations::of(&[AclOperation::Read, AclOperation::Describe])));
    let of_nobody = admin.group_operations("nobody").await.unwrap().unwrap();
    assert!(of_nobody.allows(AclOperation::AlterConfigs), "a group need not be there");
    let text = job.group_operations("nobody").await.unwrap_err().to_string();
    assert!(text.contains("needs an ACL for Describe on group 'nobody'"), "{text}");

    // Asked while a transaction of the id is open, it stays open and commits.
    let mut session = TransactionSession::new(world.job.clone(), TransactionConfig::new(ID)).unwrap();
    session.init().await.unwrap();
    let mut writer = BatchWriter::new(world.job.clone(), WriterConfig::default());
    writer.set_identity(&session.begin().unwrap());
    writer.append(OUTPUT, PartitionIndex(0), 0, None, Some(b"kept"), &[]).await.unwrap();
    writer.flush().await.unwrap();
    assert!(job.may_write_transactional_id(ID).await.unwrap());
    assert!(job.may_write_transactional_id("late.0.new").await.unwrap(), "an id need not be there");
    session.commit().await.unwrap();
    assert_eq!(read_values(&world.admin, OUTPUT, 0, Isolation::ReadCommitted).await, ["kept"]);
    let describe =
        Acl::allow(Principal::user("job"), Operation::Describe, ResourcePattern::transactional_id("seen"));
    world.broker.access().add(describe).unwrap();
    assert!(!job.may_write_transactional_id("seen").await.unwrap());
    let text = job.may_write_transactional_id("other").await.unwrap_err().to_string();
    assert!(text.contains("on transactional id 'other'"), "{text}");
    let ids = admin.list_transactions().await.unwrap();
    assert_eq!(ids.iter().map(|one| &*one.transactional_id).collect::<Vec<_>>(), [ID]);

    admin.check_new_topic(NewTopic::new("new", 3)).await.unwrap();
    let text = admin.check_new_topic(NewTopic::new(SOURCE, 3)).await.unwrap_err().to_string();
    assert!(text.contains("TOPIC_ALREADY_EXISTS"), "{text}");
    let text = job.check_new_topic(NewTopic::new("new", 3)).await.unwrap_err().to_string();
    assert!(text.contains("needs an ACL for Create on topic 'new'"), "{text}");
    assert_eq!(admin.describe_topic("new").await.unwrap(), None, "nothing was created");
    let limit = |value: &str| [("share.delivery.count.limit".to_owned(), value.to_owned())];
    let before = admin.describe_group_config(GROUP).await.unwrap();
    admin.check_group_config(GROUP, &limit("9")).await.unwrap();
    let text = admin.check_group_config(GROUP, &limit("many")).await.unwrap_err().to_string();
    assert!(text.contains("INVALID_CONFIG"), "{text}");
    let text = job.check_group_config(GROUP, &limit("9")).await.unwrap_err().to_string();
    assert!(text.contains("needs an ACL for AlterConfigs on group"), "{text}");
    assert_eq!(admin.describe_group_config(GROUP).await.unwrap(), before, "nothing was set");

    let brokers = admin.broker_features().await;
    assert_eq!(brokers.len(), 3);
    for broker in brokers {
        assert_eq!(broker.features.unwrap().finalized["share.version"], 3, "{}", broker.address);
    }
    assert_eq!(admin.find_group(GROUP).await.unwrap(), None, "nobody was in it yet");
    let consumer = ShareConsumer::join(world.job.clone(), ShareConsumerConfig::new(GROUP, [SOURCE])).await;
    let mut consumer = consumer.unwrap();
    poll_count(&mut consumer, 10, LIMIT).await;
    assert_eq!(admin.find_group(GROUP).await.unwrap().unwrap().kind, "share");
    drop(consumer);
    world.broker.shutdown().await;
}

#[tokio::test]
async fn a_password_is_in_no_log_of_client_and_broker() {
    let world = World::start(&documented_rights()).await;
    world.run_job().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let wrong = format!("{PASSWORD}-wrong");
    let refused = log_in(&world.broker, folder.path(), "job", &wrong).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("refused user 'job' by PLAIN"), "{refused}");
    let shown = format!("{:?} {:?} {refused} {refused:?}", world.broker, world.broker.access());
    world.broker.shutdown().await;
    let log = LOGGED.text();
    assert!(log.contains("connected"), "something was logged");
    for secret in [PASSWORD, "admin-secret"] {
        assert!(!log.contains(secret) && !shown.contains(secret), "a password is shown");
    }
}
