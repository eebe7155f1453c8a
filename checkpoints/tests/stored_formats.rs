//! Folders that builds of every format have left behind stay readable.
//!
//! `tests/formats/v<N>` is a checkpoint folder as a build with manifests of format N writes it: two checkpoints, the
//! second pending. It is never changed. A build that raises `Manifest::FORMAT_VERSION` adds its own:
//! `cargo test -p sharestream-checkpoints --test stored_formats -- --ignored` writes it, once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use sharestream_base::ids::{CheckpointId, JobEpoch, Offset, PartitionIndex, TopicId};
use sharestream_checkpoints::decide::{LastCommitted, Outcomes};
use sharestream_checkpoints::{
    CheckpointStore, DecidedOffsets, ErrorKind, EventTimeSnapshot, Inspection, JobKey, Manifest, ManifestRef,
    OffsetDecision, OperatorSnapshot, Owner, PartitionTimes, Recovery, SourceSnapshot, StatePart,
    StatePartKind, StatePartPlace, StoredState,
};

fn formats() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

fn key() -> JobKey {
    JobKey::new("flights", "main")
}

fn outcome_topic() -> TopicId {
    TopicId(uuid::Uuid::from_u128(5))
}

/// What checkpoint `id` of each folder says, but for what its format does not have.
fn expected(version: u32, id: u64) -> Manifest {
    let predecessor = (id > 1).then(|| CheckpointId(id - 1));
    let mut manifest = Manifest::new(&key(), JobEpoch(1), CheckpointId(id), predecessor, 1_767_225_600_000);
    manifest.format_version = version;
    manifest.transactional_id = Some(format!("flights.main.{}", id % 2));
    manifest.outcome_topic_id = (version >= 2).then(outcome_topic);
    let first = i64::try_from(id).unwrap() * 100;
    let range = |first, last, decision| DecidedOffsets { first: Offset(first), last: Offset(last), decision };
    manifest.sources.push(SourceSnapshot {
        topic: Some("flights".to_owned()),
        topic_id: TopicId(uuid::Uuid::from_u128(1)),
        partition: PartitionIndex(2),
        decided: vec![
            range(first, first + 9, OffsetDecision::Accept),
            range(first + 10, first + 10, OffsetDecision::Gap),
            range(first + 20, first + 21, OffsetDecision::Reject),
        ],
    });
    if version >= 3 {
        let content = state_of(id);
        let part = StatePart {
            name: format!("{id:020}-{:020}-count-0-0.arrow", 1),
            sha256: sha256_of_state(id).to_owned(),
            bytes: content.len() as u64,
            rows: 1,
            kind: StatePartKind::Base,
            checkpoint: CheckpointId(id),
            first_group: 0,
            last_group: 127,
        };
        let (operator, parts) = ("count".to_owned(), vec![part]);
        manifest.operators.push(OperatorSnapshot { operator, state_version: 1, key_groups: 128, parts });
    }
    if version >= 4 {
        let times = PartitionTimes {
            topic_id: TopicId(uuid::Uuid::from_u128(1)),
            partition: PartitionIndex(2),
            next_offset: Some(Offset(first + 11)),
            max_ms: Some(1_767_225_600_000 + first),
            decided_above: vec![(Offset(first + 20), Offset(first + 21))],
            times_above: vec![(Offset(first + 21), 1_767_225_601_000)],
        };
        let partitions = vec![times];
        manifest.event_time = Some(EventTimeSnapshot { watermark_ms: Some(1_767_225_600_000), partitions });
    }
    manifest
}

fn state_of(id: u64) -> String {
    format!("state of checkpoint {id}")
}

fn sha256_of_state(id: u64) -> &'static str {
    [
        "9329c8e030f5bd1611fe4226f5b694f685d9a06e80ac0f65b8428f670a06e949",
        "08c57242c6d9aa1973a4d27f8e21868e5880ff0c8736c7e812de366bf5df1eef",
    ][usize::try_from(id).unwrap() - 1]
}

async fn write_state(store: &CheckpointStore, owner: &Owner, id: u64) {
    let place = StatePartPlace { checkpoint: CheckpointId(id), operator: "count", subtask: 0, number: 0 };
    let (name, sha256) = store.write_state(owner, place, state_of(id).into()).await.unwrap();
    let manifest = expected(Manifest::FORMAT_VERSION, id);
    let part = &manifest.operators[0].parts[0];
    assert_eq!((name, sha256), (part.name.clone(), part.sha256.clone()));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn a_folder_of_every_format_is_recovered_from() {
    for version in 1..=Manifest::FORMAT_VERSION {
        let written = formats().join(format!("v{version}"));
        assert!(written.is_dir(), "{}: write it, see the head of this file", written.display());
        let folder = tempfile::tempdir().unwrap();
        copy(&written, folder.path());
        let store = CheckpointStore::local(folder.path(), key()).await.unwrap();
        let states: Vec<StoredState> = store.list().await.unwrap().iter().map(|one| one.state).collect();
        assert_eq!(states, [StoredState::Completed, StoredState::Pending], "v{version}");

        let owner = store.acquire_ownership("a later build", 1).await.unwrap();
        assert_eq!(owner.epoch, JobEpoch(2), "v{version}: the owner of before counts");
        let recovery = Recovery::inspect(&store).await.unwrap();
        let ids: Vec<&str> = recovery.pending_transactional_ids().collect();
        assert_eq!(ids, ["flights.main.0"], "v{version}");
        let note = format!("instances/main/manifests/{:020}-{:020}.completed", 1, 1);
        let sha256 = fs::read_to_string(folder.path().join(note)).unwrap().trim().to_owned();
        let name = format!("{:020}-{:020}.pending", 1, 1);
        let manifest = Some(ManifestRef { name, sha256 });
        let outcomes = Outcomes {
            topic_id: Some(outcome_topic()),
            last_committed: Some(LastCommitted { checkpoint: CheckpointId(1), manifest }),
            highest_seen: Some(CheckpointId(2)),
        };
        let recovered = recovery.finish(&store, &owner, outcomes).await.unwrap();
        let restored = recovered.restored.unwrap().1;
        assert_eq!(restored, expected(version, 1), "v{version}");
        for part in restored.operators.iter().flat_map(|operator| &operator.parts) {
            assert_eq!(store.read_state(part).await.unwrap(), state_of(1), "v{version}");
        }
        assert_eq!(Inspection::of(&store).await.unwrap().faults(), [], "v{version}");
        assert_eq!(recovered.next_checkpoint, CheckpointId(3), "v{version}");
    }
}

#[tokio::test]
async fn a_manifest_of_a_newer_format_is_refused_with_what_to_do_and_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    copy(&formats().join("newer"), folder.path());
    let store = CheckpointStore::local(folder.path(), key()).await.unwrap();
    let error = Recovery::inspect(&store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "it is not called damage: {error}");
    let text = error.to_string();
    assert!(text.contains("format version 1000") && text.contains("start the newer sharestream"), "{text}");
    assert_eq!(store.list().await.unwrap().len(), 1, "it stays");
}

/// Writes the folder of this build's format. Refuses to write one that is there: a format that was once written is
/// what users have.
#[tokio::test]
#[ignore = "writes the fixture of a new format"]
async fn the_folder_of_this_format_is_written() {
    let folder = formats().join(format!("v{}", Manifest::FORMAT_VERSION));
    assert!(!folder.exists(), "{} is there and stays as it is", folder.display());
    let store = CheckpointStore::local(&folder, key()).await.unwrap();
    let owner = store.acquire_ownership("host-a process 17", 1_767_225_600_000).await.unwrap();
    write_state(&store, &owner, 1).await;
    let published =
        store.publish_pending(&owner, &expected(Manifest::FORMAT_VERSION, 1)).await.unwrap().manifest_ref;
    store.complete(&owner, &published).await.unwrap();
    write_state(&store, &owner, 2).await;
    store.publish_pending(&owner, &expected(Manifest::FORMAT_VERSION, 2)).await.unwrap();
}
