//! Checkpoints in a folder of the local file system.

use std::fs;

use sharestream_base::Clock;
use sharestream_base::ids::{CheckpointId, Offset, PartitionIndex, TopicId};
use sharestream_checkpoints::decide::Outcomes;
use sharestream_checkpoints::{
    CheckpointStore, DecidedOffsets, ErrorKind, JobKey, Manifest, OffsetDecision, Recovery, SourceSnapshot,
};

fn key() -> JobKey {
    JobKey::new("flights", "main")
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a-file");
    fs::write(&file, "").unwrap();
    let error = CheckpointStore::local(file.join("checkpoints"), key()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("a-file/checkpoints"), "{error}");
}

#[tokio::test]
async fn damage_on_disk_is_corrupt_and_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::local(folder.path(), key()).await.unwrap();
    let owner = store.acquire_ownership("test", 1).await.unwrap();
    let manifest = Manifest::new(store.key(), owner.epoch, CheckpointId(1), None, 1);
    let manifest_ref = store.publish_pending(&owner, &manifest).await.unwrap().manifest_ref;
    let path = folder.path().join("instances/main/manifests").join(&manifest_ref.name);
    let text = fs::read_to_string(&path).unwrap().replace("\"created_ms\":1", "\"created_ms\":2");
    fs::write(&path, text).unwrap();
    let error = store.load(&manifest_ref).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn a_damaged_identity_is_corrupt_and_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    CheckpointStore::local(folder.path(), key()).await.unwrap();
    fs::write(folder.path().join("job.json"), "{").unwrap();
    let error = CheckpointStore::local(folder.path(), key()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("job.json"), "{error}");
}

#[tokio::test]
async fn half_written_objects_of_a_crash_are_not_seen() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::local(folder.path(), key()).await.unwrap();
    let owner = store.acquire_ownership("test", 1).await.unwrap();
    let manifest = Manifest::new(store.key(), owner.epoch, CheckpointId(1), None, 1);
    let manifest_ref = store.publish_pending(&owner, &manifest).await.unwrap().manifest_ref;
    let manifests = folder.path().join("instances/main/manifests");
    assert_eq!(fs::read_dir(&manifests).unwrap().count(), 1, "no temporary stays behind");
    fs::rename(manifests.join(&manifest_ref.name), manifests.join(format!("{}#77", manifest_ref.name)))
        .unwrap();
    fs::write(manifests.join("notes.txt"), "a person's file").unwrap();
    assert_eq!(store.list().await.unwrap(), []);
    let recovered =
        Recovery::inspect(&store).await.unwrap().finish(&store, &owner, Outcomes::default()).await.unwrap();
    assert_eq!(recovered.next_checkpoint, CheckpointId(1));
}

/// Run with `-- --ignored --nocapture`. It is the disk's time for two syncs (file, folder) and little else.
#[tokio::test]
#[ignore = "a measurement of the disk"]
async fn the_cost_of_a_checkpoint_is_printed() {
    let clock = Clock::system();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = CheckpointStore::local(folder.path(), key()).await.unwrap();
    let owner = store.acquire_ownership("test", 1).await.unwrap();
    let (mut publish_us, mut complete_us) = (Vec::new(), Vec::new());
    for id in 1..=300 {
        let mut manifest = Manifest::new(store.key(), owner.epoch, CheckpointId(id), None, 1);
        manifest.sources.extend((0..8).map(|partition| {
            SourceSnapshot {
                topic: Some("flights".to_owned()),
                topic_id: TopicId::default(),
                partition: PartitionIndex(partition),
                decided: (0..10)
                    .map(|n| DecidedOffsets {
                        first: Offset(n * 200),
                        last: Offset(n * 200 + 150),
                        decision: OffsetDecision::Accept,
                    })
                    .collect(),
            }
        }));
        let started = clock.now();
        let published = store.publish_pending(&owner, &manifest).await.unwrap();
        publish_us.push(clock.now().duration_since(started).as_micros());
        let started = clock.now();
        store.complete(&owner, &published.manifest_ref).await.unwrap();
        complete_us.push(clock.now().duration_since(started).as_micros());
    }
    for (what, mut us) in [("publish", publish_us), ("complete", complete_us)] {
        us.sort_unstable();
        println!("{what}: p50 {} us, p90 {} us", us[us.len() / 2], us[us.len() * 9 / 10]);
    }
}
