//! Logs on disks that fail and machines that go down.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sharestream_base::ids::{NodeId, Offset, PartitionIndex, ProducerEpoch, ProducerId};
use sharestream_base::{ErrorKind, Rng};
use sharestream_wire::records::{BatchBuilder, BatchMeta, RawBatch};

use super::faulty::{Failure, FaultyFiles};
use super::{Disk, FsyncPolicy, Opened, SystemFiles};
use crate::access::AccessSettings;
use crate::cluster::Cluster;
use crate::config::BrokerConfig;
use crate::error::{ErrorCode, Result};
use crate::log::{Isolation, Led, Marker, Origin, Partition, TransactionVersion};
use crate::topics::NewTopic;

mod compaction;
mod crashes;
mod power_cuts;
#[path = "../../tests/fixtures/mod.rs"]
mod raw;
#[path = "../../tests/disk/workload.rs"]
mod workload;

const NODE: NodeId = NodeId(1);
const TOPIC: &str = "t";

/// A cluster of one node without the node: its topics can be written.
struct Machine {
    files: FaultyFiles,
    cluster: Cluster,
}

impl Machine {
    fn start(files: FaultyFiles) -> Result<Machine> {
        Machine::start_with(files, FsyncPolicy::Always)
    }

    fn start_with(files: FaultyFiles, policy: FsyncPolicy) -> Result<Machine> {
        let opened: Opened = Disk::open(Arc::new(files.clone()), policy)?;
        let config = BrokerConfig {
            share_state_partitions: 1,
            transaction_state_partitions: 1,
            ..BrokerConfig::default()
        };
        let cluster =
            Cluster::new(&Rng::seeded(7), &config, AccessSettings::default(), &[NODE], Some(opened))?;
        cluster.join(NODE, sharestream_base::HostPort::new("h", 1));
        Ok(Machine { files, cluster })
    }

    fn create(&self, configs: &[(&str, &str)]) {
        let configs = configs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let new = NewTopic { name: TOPIC.to_owned(), partitions: 1, configs };
        self.cluster.create_topic(new, &BrokerConfig::default()).unwrap();
    }

    fn partition(&self) -> Arc<Partition> {
        self.cluster.topics.partition(TOPIC, PartitionIndex(0)).unwrap()
    }

    fn led(&self) -> Led {
        self.partition().led_by(NODE).unwrap()
    }

    async fn sync(&self) -> std::result::Result<(), super::DiskFailed> {
        self.cluster.durable().await
    }
}

fn append(
    led: &Led,
    producer: Option<(i64, i16, i32)>,
    transactional: bool,
    key: &str,
    value: Option<&str>,
) -> std::result::Result<Offset, ErrorCode> {
    let mut builder = BatchBuilder::new();
    builder.append(1_000, Some(key.as_bytes()), value.map(str::as_bytes), &[]).unwrap();
    let (producer_id, producer_epoch, base_sequence) = producer.unwrap_or((-1, -1, -1));
    let meta =
        BatchMeta { producer_id, producer_epoch, base_sequence, transactional, ..BatchMeta::default() };
    let blob: Bytes = builder.build(&meta).unwrap();
    let version = TransactionVersion::V2;
    let raw = RawBatch::from_bytes(blob.clone()).unwrap();
    let guard = if transactional { led.verification_guard(&raw, version)? } else { None };
    led.append(&blob, Origin::Client { guard, version }).map(|info| info.base_offset)
}

fn plain(led: &Led, key: &str, value: &str) -> std::result::Result<Offset, ErrorCode> {
    append(led, None, false, key, Some(value))
}

fn mark(led: &Led, producer: i64, epoch: i16, commit: bool) -> std::result::Result<Offset, ErrorCode> {
    let (producer_id, producer_epoch) = (ProducerId(producer), ProducerEpoch(epoch));
    led.append_marker(&Marker { producer_id, producer_epoch, coordinator_epoch: 0, commit }, 2_000)
}

/// Offset, key and value of every record that a reader of committed data gets.
fn committed(partition: &Partition) -> Vec<(i64, String, Option<String>)> {
    let read = partition.read(partition.ends().log_start, usize::MAX, Isolation::ReadCommitted).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut found = Vec::new();
    for batch in &read.batches {
        batch.verify_crc().unwrap();
        let header = batch.header;
        let aborted = read.aborted.iter().any(|aborted| {
            aborted.producer_id.0 == header.producer_id
                && aborted.first_offset.0 <= header.base_offset
                && header.base_offset < aborted.marker_offset.0
        });
        if header.is_control() || aborted {
            continue;
        }
        for record in batch.records().unwrap().iter() {
            let record = record.unwrap();
            found.push((record.offset, text(record.key.unwrap()), record.value.map(text)));
        }
    }
    found
}

#[tokio::test]
async fn what_was_there_is_there_again_after_an_orderly_end_and_after_a_kill() {
    for orderly in [true, false] {
        let machine = Machine::start(FaultyFiles::default()).unwrap();
        machine.create(&[("segment.bytes", "400")]);
        let led = machine.led();
        for round in 0..20 {
            append(&led, Some((5, 0, round)), false, "k", Some("v")).unwrap();
        }
        append(&led, Some((6, 0, 0)), true, "open", Some("v")).unwrap();
        led.delete_before(Offset(7)).unwrap();
        let epoch = led.epoch();
        let (before, producers) = (led.ends(), led.producers());
        let batches = led.batches();
        let disk = Arc::clone(machine.cluster.disk().unwrap());
        let files = machine.files.clone();
        let ids = machine.cluster.allocate_producer_id();
        let cluster_id = machine.cluster.id.clone();
        assert!(files.named(".log").len() > 4, "{:?}", files.named(".log"));
        if orderly {
            disk.close();
            drop(machine);
        }
        let again = Machine::start(if orderly { files } else { files.after_kill() }).unwrap();
        assert_eq!(again.cluster.id, cluster_id);
        assert!(again.cluster.allocate_producer_id() > ids);
        let led = again.led();
        assert_eq!((led.ends(), led.producers()), (before, producers));
        assert_eq!(led.batches(), batches);
        assert!(led.epoch() > epoch, "a leader after a restart has a later epoch");
        // Producers go on where they were; a repetition is recognised.
        assert_eq!(append(&led, Some((5, 0, 19)), false, "k", Some("v")), Ok(Offset(19)));
        assert_eq!(
            append(&led, Some((5, 0, 25)), false, "k", Some("v")),
            Err(ErrorCode::OutOfOrderSequenceNumber)
        );
        assert_eq!(append(&led, Some((5, 0, 20)), false, "k", Some("v")), Ok(Offset(21)));
        assert_eq!(
            mark(&led, 6, 0, true),
            Err(ErrorCode::InvalidProducerEpoch),
            "the open transaction has version 2"
        );
        assert_eq!(mark(&led, 6, 1, false), Ok(Offset(22)));
        assert_eq!(led.ends().last_stable_offset, Offset(23));
    }
}

#[tokio::test]
async fn a_full_disk_refuses_the_write_and_takes_the_next_when_there_is_room() {
    let machine = Machine::start(FaultyFiles::default()).unwrap();
    machine.create(&[]);
    let led = machine.led();
    machine.files.fail_once(Failure::ShortWrite);
    assert_eq!(plain(&led, "a", "lost"), Err(ErrorCode::KafkaStorageError), "the first segment is not begun");
    plain(&led, "a", "1").unwrap();
    machine.files.fail_once(Failure::ShortWrite);
    assert_eq!(plain(&led, "a", "lost"), Err(ErrorCode::KafkaStorageError));
    machine.files.fail_once(Failure::ShortWrite);
    assert_eq!(led.delete_before(Offset(1)), Err(ErrorCode::KafkaStorageError));
    plain(&led, "a", "2").unwrap();
    machine.files.fail_once(Failure::ShortWrite);
    let new = NewTopic { name: "u".to_owned(), partitions: 1, configs: BTreeMap::new() };
    let refused = machine.cluster.create_topic(new, &BrokerConfig::default());
    assert_eq!(refused.unwrap_err(), ErrorCode::KafkaStorageError);
    machine.sync().await.unwrap();
    let again = Machine::start(machine.files.after_crash(&Rng::seeded(1))).unwrap();
    let expected =
        [(0, "1"), (1, "2")].map(|(offset, value)| (offset, "a".to_owned(), Some(value.to_owned())));
    assert_eq!(committed(&again.partition()), expected);
    assert!(again.cluster.topics.by_name("u").is_none());
}

#[tokio::test]
async fn a_failed_sync_ends_all_writing_for_nobody_knows_what_is_there() {
    let machine = Machine::start(FaultyFiles::default()).unwrap();
    machine.create(&[]);
    let led = machine.led();
    machine.sync().await.unwrap();
    plain(&led, "a", "1").unwrap();
    machine.files.fail_once(Failure::Sync);
    let failed = machine.sync().await.unwrap_err();
    assert!(failed.to_string().contains("must be started again"), "{failed}");
    assert_eq!(machine.sync().await, Err(failed), "a second sync would succeed for nothing");
    assert_eq!(plain(&led, "a", "2"), Err(ErrorCode::KafkaStorageError));
}

#[tokio::test]
async fn under_other_policies_nobody_waits_and_a_kill_loses_nothing() {
    for policy in [FsyncPolicy::Never, FsyncPolicy::Interval(std::time::Duration::from_secs(1))] {
        let machine = Machine::start_with(FaultyFiles::default(), policy).unwrap();
        machine.create(&[]);
        plain(&machine.led(), "a", "1").unwrap();
        machine.files.fail_once(Failure::Sync);
        machine.sync().await.unwrap();
        let again = Machine::start(machine.files.after_kill()).unwrap();
        assert_eq!(committed(&again.partition()).len(), 1);
    }
}

#[test]
fn damage_that_no_crash_explains_is_not_cut_away() {
    let written = || {
        let machine = Machine::start(FaultyFiles::default()).unwrap();
        machine.create(&[("segment.bytes", "100")]);
        for _ in 0..3 {
            plain(&machine.led(), "a", "1").unwrap();
        }
        machine
    };
    // In a segment that is not the last.
    let machine = written();
    let files = machine.files.after_kill();
    files.damage("00000000000000000001.log", 3);
    let error = Machine::start(files).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.context().contains("00000000000000000001.log is damaged at byte"), "{error}");
    // At the end of the last, after an orderly end.
    let machine = written();
    machine.cluster.disk().unwrap().close();
    let files = machine.files.after_kill();
    files.damage("00000000000000000002.log", 3);
    assert_eq!(Machine::start(files).err().unwrap().kind(), ErrorKind::Corrupt);
    // The same without one is a torn write.
    let machine = written();
    let files = machine.files.after_kill();
    files.damage("00000000000000000002.log", 3);
    assert_eq!(committed(&Machine::start(files).unwrap().partition()).len(), 2);
    let machine = written();
    let files = machine.files.after_kill();
    files.damage("meta.log", 3);
    drop(Machine::start(files).unwrap());
}

#[test]
fn two_brokers_do_not_share_a_folder_and_the_second_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let files = SystemFiles::new(folder.path()).unwrap();
        Disk::open(Arc::new(files), FsyncPolicy::Always)
    };
    let first = open().unwrap();
    let error = open().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.context().contains("is in use by another broker"), "{error}");
    drop(first);
    drop(open().unwrap());
}

#[test]
fn a_folder_that_cannot_be_used_is_named_with_what_to_do() {
    let files = FaultyFiles::default();
    files.fail_once(Failure::ShortWrite);
    let error = Disk::open(Arc::new(files), FsyncPolicy::Always).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        error.context(),
        "data folder data cannot be used: the disk is full: free some space or name another folder"
    );
    let files = FaultyFiles::default();
    files.fail_once(Failure::Open);
    let error = Disk::open(Arc::new(files), FsyncPolicy::Always).err().unwrap();
    assert!(error.context().contains("change its permissions"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("meta.log"), b"notes of mine").unwrap();
    let error =
        Disk::open(Arc::new(SystemFiles::new(folder.path()).unwrap()), FsyncPolicy::Always).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    std::fs::write(folder.path().join("meta.log"), b"SHMETA\x00\x07").unwrap();
    let error =
        Disk::open(Arc::new(SystemFiles::new(folder.path()).unwrap()), FsyncPolicy::Always).err().unwrap();
    assert!(error.context().contains("format 7, this build reads up to 1: use a newer build"), "{error}");
    assert!(Path::new(folder.path()).join("lock").exists());
}
