//! A job stays within the memory that its file gives it, whatever its records decompress to, and every record has an end.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(clippy::disallowed_methods, reason = "a test without a reactor waits for another process")]

mod process;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use process::{Broker, write_job};
use serde_json::Value;
use sharestream_base::Env;
use sharestream_client::{Client, ClientConfig, Producer, WriterConfig};
use sharestream_wire::records::Compression;

const MIB: usize = 1 << 20;
/// Shared out over one source, one channel and one sink, a batch may decompress to 12 MiB of this.
const JOB: &str = r#"
[job]
name = "lengths"
memory = "64MiB"
[source]
brokers = "127.0.0.1:1"
topics = ["large"]
group = "lengths"
format = "raw"
[source.group_config]
share.auto.offset.reset = "earliest"
share.isolation.level = "read_committed"
[transform]
sql = "SELECT octet_length(CAST(value AS VARCHAR)) AS bytes FROM source"
[sink]
topic = "sizes"
partitions = 1
[dead_letter]
topic = "withheld"
"#;
/// Batches of eight records of a mebibyte each: 480 MiB, which are some kilobytes as they come.
const BATCHES: usize = 60;
const RECORDS_OF_BATCH: usize = 8;
/// And one record of so many, which nobody is to hold.
const LARGEST_MIB: usize = 24;
/// Beside payload: the program, its threads, and rows decoded beside the bytes that they come from. All at once it would be
/// 500 MiB more.
const PEAK_MAX: usize = 330 * MIB;

#[test]
fn records_that_decompress_to_far_more_than_the_memory_of_a_job_pass_within_it() {
    let broker = Broker::start();
    broker.text(&["topic", "create", "large", "--partitions", "1"], "");
    produce(&broker.address);
    let folder = tempfile::tempdir().unwrap();
    let job = write_job(folder.path(), JOB);

    let child = Command::new(env!("CARGO_BIN_EXE_sharestream"))
        .args(["run", &job, "--until-caught-up", "--brokers", &broker.address, "--json"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let peak = peak_of(child);
    println!("peak resident set {} MiB", peak / MIB);
    assert!(peak < PEAK_MAX, "{} MiB", peak / MIB);

    let lines = |topic: &str| broker.text(&["read", topic, "--json"], "").lines().count();
    assert_eq!((lines("sizes"), lines("withheld")), (BATCHES * RECORDS_OF_BATCH, 1));
    let report: Value = serde_json::from_str(&broker.text(&["verify", &job, "--json"], "")).unwrap();
    assert_eq!(report["violations"], Value::Array(Vec::new()), "{report}");
}

fn produce(address: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = ClientConfig::with_bootstrap(address).unwrap();
        let client = Client::connect(Env::system(), config).await.unwrap();
        let mut writer = WriterConfig::default();
        (writer.compression, writer.batch_bytes_max) = (Compression::Zstd, 64 * MIB);
        let mut producer = Producer::connect(client, writer).await.unwrap();
        let record = vec![b'x'; MIB];
        for batch in 0..BATCHES {
            for _ in 0..RECORDS_OF_BATCH {
                producer.send("large", None, Some(&record), &[]).await.unwrap();
            }
            producer.flush().await.unwrap();
            if batch == BATCHES / 2 {
                producer.send("large", None, Some(&record.repeat(LARGEST_MIB)), &[]).await.unwrap();
                producer.flush().await.unwrap();
            }
        }
    });
}

/// The most that the process ever had resident, as the kernel says; it must end well.
fn peak_of(mut child: Child) -> usize {
    let mut peak = 0;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return peak;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
        peak = peak.max(kib.unwrap_or(0) * 1_024);
        std::thread::sleep(Duration::from_millis(20));
    }
}
