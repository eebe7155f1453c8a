//! Kafka's own Java clients and command-line tools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sharestream_base::Env;
use sharestream_broker::RunningBroker;
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::{LOCK, broker};

/// A process that takes longer is killed and fails its test.
const LIMIT: Duration = Duration::from_secs(45);

const SHARE_GROUPS: &str = "consumer.group.ShareGroupCommand";

/// A broker and what Java needs to reach it.
struct Java {
    env: Env,
    broker: RunningBroker,
    class_path: String,
}

/// The peers, compiled once.
async fn compiled(env: &Env, jars: &str) -> &'static Path {
    static CLASSES: OnceCell<PathBuf> = OnceCell::const_new();
    let compile = async || {
        let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foreign-peers");
        let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/peers/build");
        let mut command = Command::new(build);
        run(env, command.arg(jars).arg(&classes)).await;
        classes
    };
    CLASSES.get_or_init(compile).await
}

/// Standard output of a process that ends well and in time.
async fn run(env: &Env, command: &mut Command) -> String {
    let output = command.kill_on_drop(true).output();
    let output = env.clock.timeout(LIMIT, output).await.expect("the process takes too long").unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out.into_owned()
}

impl Java {
    async fn start(nodes: u16) -> Option<Java> {
        let Ok(jars) = std::env::var("SHARESTREAM_KAFKA_JARS") else {
            let needs = "skipped: needs SHARESTREAM_KAFKA_JARS=folder of Kafka's jars, and a JDK";
            assert!(std::env::var_os("SHARESTREAM_REQUIRE_WITNESSES").is_none(), "{needs}");
            println!("{needs}");
            return None;
        };
        let env = Env::system();
        let classes = compiled(&env, &jars).await;
        let class_path = format!("{}:{jars}/*", classes.display());
        Some(Java { broker: broker(&env, nodes).await, env, class_path })
    }

    async fn class(&self, class: &str, arguments: &[&str]) -> String {
        let mut command = Command::new("java");
        command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &self.class_path]);
        run(&self.env, command.arg(class).args(arguments)).await
    }

    /// What a command of `ForeignPeers` saw: facts by their kind, in the order in which they were seen.
    async fn peer(&self, command: &str) -> BTreeMap<String, Vec<String>> {
        let mut facts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in self.class("ForeignPeers", &[command, &self.broker.bootstrap()]).await.lines() {
            let (kind, fact) = line.split_once('\t').unwrap();
            facts.entry(kind.to_owned()).or_default().push(fact.replace('\t', " "));
        }
        facts
    }

    /// Output of one of Kafka's tools; `arguments` are separated by spaces.
    async fn tool(&self, class: &str, arguments: &str) -> String {
        let bootstrap = self.broker.bootstrap();
        let mut all = vec!["--bootstrap-server", &bootstrap];
        all.extend(arguments.split(' '));
        self.class(&format!("org.apache.kafka.tools.{class}"), &all).await
    }

    /// The lines of a table of `ShareGroupCommand` that begin with `first`, without what only fills columns.
    async fn share_groups(&self, arguments: &str, first: &str) -> Vec<String> {
        let output = self.tool(SHARE_GROUPS, arguments).await;
        let lines = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let mut lines: Vec<String> = lines.filter(|line| line.starts_with(first)).collect();
        lines.sort_unstable();
        lines
    }
}

/// Values v-0, v-1 and so on, in the order of their text.
fn values(count: usize) -> Vec<String> {
    let mut values: Vec<String> = (0..count).map(|n| format!("v-{n}")).collect();
    values.sort_unstable();
    values
}

async fn transactions_of_a_java_producer(nodes: u16) {
    let Some(java) = Java::start(nodes).await else { return };
    let seen = java.peer("transactions").await;
    // The first copies four and commits, the second two and aborts, the third one.
    let copied: Vec<&str> = seen["copied"].iter().map(|fact| fact.split_once(' ').unwrap().1).collect();
    assert_eq!(copied, ["v-0", "v-1", "v-2", "v-3", "v-5"]);
    assert_eq!(seen["after the abort"], ["4"], "an aborted transaction moves no group");
    assert_eq!(seen["in the end"], ["6"]);
    assert_eq!(seen["listed"], ["from-0 6"]);
    java.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_and_offsets_of_a_java_transaction_stand_or_fall_together() {
    transactions_of_a_java_producer(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_and_offsets_of_a_java_transaction_stand_or_fall_together_on_three_nodes() {
    transactions_of_a_java_producer(3).await;
}

async fn a_java_share_consumer(nodes: u16) {
    let Some(java) = Java::start(nodes).await else { return };
    let seen = java.peer("share").await;

    let mut expected: Vec<String> = Vec::new();
    for n in 0..12 {
        let partition = n % 3;
        match n % 4 {
            1 => expected
                .extend([format!("{partition} v-{n} 1 release"), format!("{partition} v-{n} 2 accept")]),
            2 => expected.push(format!("{partition} v-{n} 1 reject")),
            _ => expected.push(format!("{partition} v-{n} 1 accept")),
        }
    }
    expected.sort_unstable();
    let mut explicit = seen["explicit"].clone();
    explicit.sort_unstable();
    assert_eq!(explicit, expected);

    let mut implicit: Vec<&str> =
        seen["implicit"].iter().map(|fact| fact.split(' ').nth(1).unwrap()).collect();
    implicit.sort_unstable();
    assert_eq!(implicit, values(12), "each record once");

    assert_eq!(seen["lock"], [LOCK.as_millis().to_string()]);
    assert_eq!(seen["deliveries"], ["[1]"], "no lock ran out while it was renewed");
    let renewed: Vec<(&str, u32)> = seen["renewed"]
        .iter()
        .map(|fact| fact.split_once(' ').unwrap())
        .map(|(value, count)| (value, count.parse().unwrap()))
        .collect();
    assert_eq!(renewed.iter().map(|(value, _)| *value).collect::<Vec<_>>(), values(12));
    assert!(renewed.iter().all(|(_, count)| *count > 1), "{renewed:?}");

    let three = ["shared-0 4", "shared-1 4", "shared-2 4"].as_slice();
    for (group, ends) in [("explicit", three), ("implicit", three), ("renew", &["renewed-0 12"])] {
        assert_eq!(seen.get(&format!("{group}-left")), None, "{group}: nothing is left for another member");
        assert_eq!(seen[&format!("{group}-offset")], ends, "{group}");
    }
    java.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_share_consumer_acknowledges_explicitly_implicitly_and_renews() {
    a_java_share_consumer(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_share_consumer_acknowledges_explicitly_implicitly_and_renews_on_three_nodes() {
    a_java_share_consumer(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_java_admin_sees_and_moves_share_groups() {
    let Some(java) = Java::start(3).await else { return };
    let seen = java.peer("admin").await;
    let mut features = seen["feature"].clone();
    features.sort_unstable();
    assert_eq!(features, ["group.version 1", "share.version 3", "transaction.version 2"]);
    assert_eq!(seen["topic"], ["2"]);
    assert_eq!(seen["config"], ["earliest"]);
    assert_eq!(seen["described"], ["with a member Stable 1 2", "without Empty 0 0"]);
    assert_eq!(seen["consumed"], ["administered-0 5", "administered-1 5"]);
    assert_eq!(seen["altered"], ["administered-0 2", "administered-1 5"]);
    assert_eq!(seen.get("deleted"), None, "offsets that were deleted are not listed");
    assert_eq!(seen["groups"], ["[group Share Empty]", "[]"]);
    assert_eq!(seen["topics"], ["[]"]);
    java.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafkas_tools_read_move_and_delete_share_groups() {
    let Some(java) = Java::start(1).await else { return };
    java.peer("prepare").await;

    // Offset 0 is accepted; 1 is renewed, comes again and takes the next of the pattern; 2 is released; 3 is rejected.
    let arguments = "--topic tools --group-id verifiable --offset-reset-strategy earliest --max-messages 30 \
                     --acknowledgement-mode sync --ack-pattern accept,renew,release,reject";
    let events = java.tool("VerifiableShareConsumer", arguments).await;
    let events: Vec<serde_json::Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |name: &str| -> u64 {
        let named = events.iter().filter(|event| event["name"] == name);
        named.map(|event| event["count"].as_u64().unwrap()).sum()
    };
    assert!(sum("records_consumed") >= 30, "{events:?}");
    assert_eq!(sum("records_consumed"), sum("offsets_acknowledged"), "{events:?}");
    let mut acknowledged = events.iter().filter(|event| event["name"] == "offsets_acknowledged");
    assert!(acknowledged.all(|event| event["success"] == true), "{events:?}");
    assert!(events.iter().any(|event| event["name"] == "shutdown_complete"), "{events:?}");
    let start = java.share_groups("--describe --group verifiable", "verifiable tools").await;
    assert_eq!(start.len(), 3);

    let console = "--topic tools --group console --timeout-ms 15000 --formatter-property print.delivery=true";
    let printed = java.tool("consumer.ConsoleShareConsumer", &format!("{console} --max-messages 30")).await;
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> = values(30).iter().map(|value| format!("Delivery:1\t{value}")).collect();
    assert_eq!(lines, expected);

    let arguments = "--topic tools --group performance --num-records 30 --timeout 15000 --hide-header";
    let measured = java.tool("ShareConsumerPerformance", arguments).await;
    let columns: Vec<&str> = measured.trim().split(", ").collect();
    assert_eq!(columns.get(5), Some(&"30"), "records consumed: {measured}");

    let mut groups: Vec<String> = java.share_groups("--list", "").await;
    groups.retain(|group| !group.is_empty());
    assert_eq!(groups, ["console", "performance", "verifiable"]);
    let offsets = java.share_groups("--describe --group console", "console").await;
    assert_eq!(offsets, ["console tools 0 10 0", "console tools 1 10 0", "console tools 2 10 0"]);
    let state = java.share_groups("--describe --state --group console", "console").await;
    assert!(state.len() == 1 && state[0].ends_with("Empty 0"), "{state:?}");

    let reset = "--reset-offsets --group console --topic tools:0,1 --to-offset 4 --execute";
    assert_eq!(java.share_groups(reset, "console").await, ["console tools 0 4", "console tools 1 4"]);
    let printed = java.tool("consumer.ConsoleShareConsumer", &format!("{console} --max-messages 12")).await;
    assert_eq!(printed.lines().count(), 12, "six of two partitions come again: {printed}");
    let deleted = java.share_groups("--delete-offsets --group console --topic tools", "tools").await;
    assert_eq!(deleted, ["tools Successful"]);
    let none = java.share_groups("--describe --group console", "console").await;
    assert_eq!(none, [""; 0]);
    java.tool(SHARE_GROUPS, "--delete --group console --group verifiable").await;
    let mut groups: Vec<String> = java.share_groups("--list", "").await;
    groups.retain(|group| !group.is_empty());
    assert_eq!(groups, ["performance"]);
    java.broker.shutdown().await;
}
