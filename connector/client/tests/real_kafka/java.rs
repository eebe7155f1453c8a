//! Kafka's own Java clients and tools beside ours, from the jars in the folder that `SHARESTREAM_KAFKA_JARS` names.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use sharestream_base::Env;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_client::{
    AcknowledgeType, BatchWriter, Client, Isolation, PartitionReader, Producer, TransactionConfig,
    TransactionSession, WriterConfig,
};
use sharestream_wire::records::Compression;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::common::{
    acknowledge_all, acquired_values, client, poll_count, read_values, share_consumer, topic, unique,
    wait_until_decided,
};

const LIMIT: Duration = Duration::from_secs(90);
const ONE: PartitionIndex = PartitionIndex(0);

/// A cluster, a client of ours and what Java needs.
struct Java {
    bootstrap: String,
    client: Client,
    class_path: String,
}

/// The peers, compiled once.
async fn compiled(jars: &Path) -> &'static Path {
    static CLASSES: OnceCell<PathBuf> = OnceCell::const_new();
    let compile = async || {
        let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
        let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/peers/build");
        let output = Command::new(build).arg(jars).arg(&classes).output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        classes
    };
    CLASSES.get_or_init(compile).await
}

impl Java {
    async fn find() -> Option<Java> {
        let bootstrap = std::env::var("SHARESTREAM_KAFKA_BOOTSTRAP").ok();
        let jars = std::env::var("SHARESTREAM_KAFKA_JARS").ok();
        let (Some(bootstrap), Some(jars)) = (bootstrap, jars) else {
            crate::say(
                "skipped: needs SHARESTREAM_KAFKA_BOOTSTRAP=host:port, SHARESTREAM_KAFKA_JARS=folder of Kafka's jars \
                 and a JDK",
            );
            return None;
        };
        let classes = compiled(Path::new(&jars)).await;
        let class_path = format!("{}:{jars}/*", classes.display());
        Some(Java { client: client(&bootstrap).await, bootstrap, class_path })
    }

    fn command(&self, class: &str) -> Command {
        let mut command = Command::new("java");
        command.args([
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            &self.class_path,
            class,
        ]);
        command.kill_on_drop(true);
        command
    }

    fn peer(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("Peers");
        command.arg(arguments[0]).arg(&self.bootstrap).args(&arguments[1..]);
        command
    }

    /// Lines that a peer prints, with tabs between their parts.
    async fn lines(&self, arguments: &[&str]) -> Vec<String> {
        text(self.peer(arguments).output().await.unwrap()).lines().map(str::to_owned).collect()
    }
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn name_of(codec: Compression) -> String {
    codec.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_codec_of_a_java_producer_is_read_and_ours_by_a_java_consumer() {
    let Some(java) = Java::find().await else { return };
    for codec in Compression::ALL {
        let name = topic(&java.client, "java-codec", 1).await;
        java.lines(&["produce", &name, &name_of(codec), "30"]).await;
        let mut reader = PartitionReader::new(java.client.clone());
        let isolation = Isolation::ReadCommitted;
        let fetched = reader.fetch(&name, ONE, Offset(0), isolation, 1 << 20, LIMIT).await.unwrap();
        let mut count = 0;
        for batch in &fetched.batches {
            assert_eq!(batch.header.compression().unwrap(), codec);
            for (record, n) in batch.records().unwrap().iter().zip(count..) {
                let record = record.unwrap();
                let value = (n % 10 != 0).then(|| format!("{codec}-{n}"));
                assert_eq!(record.key, Some(format!("key-{n}").as_bytes()));
                assert_eq!(record.value, value.as_ref().map(String::as_bytes));
                let headers: Vec<_> = record.headers.iter().collect();
                let trace = &b"trace"[..];
                assert_eq!(headers, [(trace, Some(&b"1"[..])), (trace, None), (trace, Some(&b""[..]))]);
                count = n + 1;
            }
        }
        assert_eq!(count, 30);

        let name = topic(&java.client, "java-codec-back", 1).await;
        let config = WriterConfig { compression: codec, ..WriterConfig::default() };
        let mut producer = Producer::connect(java.client.clone(), config).await.unwrap();
        for n in 0..30 {
            let (key, value) = (format!("key-{n}"), format!("{codec}-{n}"));
            let value = (n % 10 != 0).then_some(value.as_bytes());
            let headers: [(&[u8], Option<&[u8]>); 2] = [(b"h", None), (b"h", Some(b"2"))];
            let writer = producer.writer();
            writer.append(&name, ONE, 1_000, Some(key.as_bytes()), value, &headers).await.unwrap();
        }
        producer.flush().await.unwrap();
        let expected: Vec<String> = (0..30)
            .map(|n| {
                let value = if n % 10 == 0 { "-".to_owned() } else { format!("{codec}-{n}") };
                format!("0\t{n}\tkey-{n}\t{value}\th=-,h=2")
            })
            .collect();
        assert_eq!(java.lines(&["read", &name, "30"]).await, expected, "{codec}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_see_only_what_the_other_committed() {
    let Some(java) = Java::find().await else { return };
    let name = topic(&java.client, "java-txn", 1).await;
    java.lines(&["transactions", &name, &unique("java-txn-id"), "6"]).await;
    let committed = ["txn-1", "txn-3", "txn-5"];
    assert_eq!(read_values(&java.client, &name, 0, Isolation::ReadCommitted).await, committed);
    let group = unique("java-txn-group");
    let mut consumer = share_consumer(&java.client, &group, &name).await;
    let mut values = Vec::new();
    let clock = Env::system().clock;
    let deadline = clock.now() + LIMIT;
    while values.len() < 3 && clock.now() < deadline {
        let polls = [consumer.poll().await.unwrap()];
        values.extend(acquired_values(&polls).into_keys());
        acknowledge_all(&mut consumer, &polls, AcknowledgeType::Accept);
        consumer.commit_acknowledgements().await.unwrap();
    }
    assert_eq!(values, committed);
    let quiet = poll_count(&mut consumer, 1, Duration::from_millis(300)).await;
    assert_eq!(acquired_values(&quiet).len(), 0, "no aborted record comes");
    consumer.close().await.unwrap();

    let name = topic(&java.client, "our-txn", 1).await;
    let config = TransactionConfig::new(unique("our-txn-id"));
    let mut session = TransactionSession::new(java.client.clone(), config).unwrap();
    session.init().await.unwrap();
    let mut writer = BatchWriter::new(java.client.clone(), WriterConfig::default());
    for round in 0..6 {
        writer.set_identity(&session.begin().unwrap());
        let value = format!("ours-{round}");
        writer.append(&name, ONE, 1_000, None, Some(value.as_bytes()), &[]).await.unwrap();
        writer.flush().await.unwrap();
        if round % 2 == 1 { session.commit().await.unwrap() } else { session.abort().await.unwrap() }
    }
    let seen: Vec<String> = java.lines(&["read", &name, "3"]).await;
    let values: Vec<&str> = seen.iter().filter_map(|line| line.split('\t').nth(3)).collect();
    assert_eq!(values, ["ours-1", "ours-3", "ours-5"]);
}

/// True while no partition of `name`, all of which have records, is wholly decided, as far as the brokers say.
async fn is_undecided(client: &Client, group: &str, name: &str) -> bool {
    let offsets = client.admin().describe_share_group_offsets(group, &[name]).await.unwrap();
    offsets.iter().all(|offset| offset.lag != Some(0) && offset.start_offset.is_none_or(|start| start.0 == 0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_share_consumer_and_a_java_one_are_members_of_one_group() {
    const COUNT: usize = 400;
    let Some(java) = Java::find().await else { return };
    let name = topic(&java.client, "java-share", 2).await;
    let group = unique("java-share-group");
    let mut ours = share_consumer(&java.client, &group, &name).await;
    let mut peer = java.peer(&["share", &name, &group, "100000"]);
    let mut peer = peer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(peer.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("started"));
    let admin = java.client.admin();
    let clock = Env::system().clock;
    let deadline = clock.now() + LIMIT;
    while admin.describe_share_group(&group).await.unwrap().is_none_or(|group| group.members.len() < 2) {
        assert!(clock.now() < deadline, "the Java member never joined");
        clock.sleep(Duration::from_millis(50)).await;
    }
    // Each partition goes to both or to one: enough records, slowly, that each member gets some.
    let mut producer = Producer::connect(java.client.clone(), WriterConfig::default()).await.unwrap();
    let mut by_us = Vec::new();
    for n in 0..COUNT {
        let index = PartitionIndex(i32::try_from(n % 2).unwrap());
        producer
            .writer()
            .append(&name, index, 1_000, None, Some(n.to_string().as_bytes()), &[])
            .await
            .unwrap();
        if n % 10 == 9 {
            producer.flush().await.unwrap();
            // A member may hear only with its next heartbeat, seconds later, which partitions it has: ours leaves the first
            // records to the other.
            while n == 9 && is_undecided(&java.client, &group, &name).await {
                assert!(clock.now() < deadline + LIMIT, "the Java member takes nothing");
                clock.sleep(Duration::from_millis(50)).await;
            }
            if n % 20 == 9 {
                // Ours is quicker: half of the records lie there for a while, for the other to take.
                clock.sleep(Duration::from_millis(200)).await;
            }
            let polls = [ours.poll().await.unwrap()];
            by_us.extend(acquired_values(&polls).into_keys());
            acknowledge_all(&mut ours, &polls, AcknowledgeType::Accept);
            ours.commit_acknowledgements().await.unwrap();
        }
    }
    // The tool sees both members and, in the end, nothing left.
    let mut tool = java.command("org.apache.kafka.tools.consumer.group.ShareGroupCommand");
    let arguments = ["--bootstrap-server", &java.bootstrap, "--describe", "--group", &group];
    let members = text(tool.args(arguments).arg("--members").output().await.unwrap());
    let member_id = ours.share_group_metadata().member_id;
    assert!(members.contains(&member_id) && members.contains("java-peer"), "{members}");
    while clock.now() < deadline + LIMIT {
        let polls = [ours.poll().await.unwrap()];
        by_us.extend(acquired_values(&polls).into_keys());
        acknowledge_all(&mut ours, &polls, AcknowledgeType::Accept);
        ours.commit_acknowledgements().await.unwrap();
        let offsets = admin.describe_share_group_offsets(&group, &[&name]).await.unwrap();
        if offsets.iter().all(|offset| offset.lag == Some(0)) {
            break;
        }
    }
    wait_until_decided(&java.client, &group, &name).await;
    let mut tool = java.command("org.apache.kafka.tools.consumer.group.ShareGroupCommand");
    let offsets = text(tool.args(arguments).output().await.unwrap());
    assert_eq!(offsets.lines().filter(|line| line.contains(&name)).count(), 2, "{offsets}");
    drop(peer.stdin.take());
    let mut rest = String::new();
    clock.timeout(LIMIT, lines.get_mut().read_to_string(&mut rest)).await.unwrap().unwrap();
    drop(peer);
    let by_java: Vec<String> =
        rest.lines().filter_map(|line| line.split('\t').nth(3)).map(str::to_owned).collect();
    println!("ours {}, Java's {}", by_us.len(), by_java.len());
    assert!(!by_us.is_empty() && !by_java.is_empty(), "ours {}, Java's {}", by_us.len(), by_java.len());
    let mut all: Vec<usize> = by_us.iter().chain(&by_java).map(|value| value.parse().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..COUNT).collect::<Vec<_>>(), "each record once, at one of the two");
    ours.close().await.unwrap();
}
