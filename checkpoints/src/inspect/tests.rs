use sharestream_base::ids::{Offset, PartitionIndex, TopicId};

use super::*;
use crate::decide::LastCommitted;
use crate::{
    DecidedOffsets, JobKey, OffsetDecision, OperatorSnapshot, Owner, SourceSnapshot, StatePartKind,
    StatePartPlace, StoreLocation,
};

struct World {
    folder: tempfile::TempDir,
    store: CheckpointStore,
    owner: Owner,
}

impl World {
    /// Checkpoints 1 to 3 completed, 4 pending.
    async fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::local(folder.path(), JobKey::new("flights", "main")).await.unwrap();
        let owner = store.acquire_ownership("host-a process 17", 5).await.unwrap();
        let world = World { folder, store, owner };
        for id in 1..=3 {
            let published = world.publish(id, (id > 1).then(|| id - 1)).await;
            world.store.complete(&world.owner, &published).await.unwrap();
        }
        world.publish(4, Some(3)).await;
        world
    }

    async fn publish(&self, id: u64, predecessor: Option<u64>) -> ManifestRef {
        let predecessor = predecessor.map(CheckpointId);
        let mut manifest =
            Manifest::new(self.store.key(), self.owner.epoch, CheckpointId(id), predecessor, 1);
        let range = |first, last| DecidedOffsets {
            first: Offset(first),
            last: Offset(last),
            decision: OffsetDecision::Accept,
        };
        manifest.sources.push(SourceSnapshot {
            topic: None,
            topic_id: TopicId::default(),
            partition: PartitionIndex(0),
            // An id of 9 stands for a manifest that nobody would write.
            decided: if id == 9 { vec![range(5, 9), range(9, 12)] } else { vec![range(0, 4), range(7, 7)] },
        });
        self.store.publish_pending(&self.owner, &manifest).await.unwrap().manifest_ref
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("instances/main").join(name)
    }

    fn object(&self, id: u64, suffix: &str) -> std::path::PathBuf {
        self.path(&format!("manifests/{id:020}-{:020}.{suffix}", 1))
    }

    async fn inspect(&self) -> Inspection {
        Inspection::of(&self.store).await.unwrap()
    }

    async fn faults(&self) -> Vec<(Option<u64>, String)> {
        let faults = self.inspect().await.faults();
        faults.into_iter().map(|fault| (fault.checkpoint.map(|id| id.0), fault.what)).collect()
    }
}

#[tokio::test]
async fn a_store_that_a_job_left_has_no_faults_and_is_shown_with_sizes_and_owners() {
    let world = World::new().await;
    let seen = world.inspect().await;
    assert_eq!(seen.faults(), []);
    assert_eq!(seen.last_completed().unwrap().stored.id, CheckpointId(3));
    assert_eq!(seen.owners[0].by.as_deref(), Some("host-a process 17"));
    let files = std::fs::metadata(world.object(1, "pending")).unwrap().len()
        + std::fs::metadata(world.object(1, "completed")).unwrap().len();
    assert_eq!(seen.checkpoints[0].bytes, files);
}

#[tokio::test]
async fn looking_writes_nothing() {
    let world = World::new().await;
    let location = StoreLocation::folder(world.folder.path());
    let opened = location.open_existing().await.unwrap();
    assert_eq!(CheckpointStore::job_of(&opened).await.unwrap().as_deref(), Some("flights"));
    assert_eq!(CheckpointStore::instances_of(&opened).await.unwrap(), ["main"]);
    let store = CheckpointStore::open_existing(&opened, JobKey::new("flights", "other")).await.unwrap();
    assert_eq!(Inspection::of(&store).await.unwrap().checkpoints, []);
    assert_eq!(CheckpointStore::instances_of(&opened).await.unwrap(), ["main"], "nothing was created");
    world.store.check_owner(&world.owner).await.unwrap();
    let error = CheckpointStore::open_existing(&opened, JobKey::new("orders", "main")).await.unwrap_err();
    assert!(error.to_string().contains("belongs to job 'flights'"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let opened = StoreLocation::folder(empty.path()).open_existing().await.unwrap();
    let error = CheckpointStore::open_existing(&opened, JobKey::new("flights", "main")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "nothing was created");
}

#[tokio::test]
async fn damage_is_found_at_the_checkpoint_that_has_it() {
    let world = World::new().await;
    std::fs::write(world.object(2, "pending"), "garbage").unwrap();
    let faults = world.faults().await;
    assert!(matches!(&faults[..], [(Some(2), what)] if what.contains("is damaged")), "{faults:?}");
}

#[tokio::test]
async fn a_note_of_another_hash_is_found() {
    let world = World::new().await;
    std::fs::write(world.object(3, "completed"), format!("{}\n", "0".repeat(64))).unwrap();
    let faults = world.faults().await;
    assert!(
        matches!(&faults[..], [(Some(3), what)] if what.contains("the note of its completion")),
        "{faults:?}"
    );
}

#[tokio::test]
async fn a_missing_link_is_found_and_what_retention_took_is_not() {
    let world = World::new().await;
    for suffix in ["pending", "completed"] {
        std::fs::remove_file(world.object(1, suffix)).unwrap();
    }
    assert_eq!(world.faults().await, [], "the oldest ones go");
    let world = World::new().await;
    for suffix in ["pending", "completed"] {
        std::fs::remove_file(world.object(2, suffix)).unwrap();
    }
    let faults = world.faults().await;
    assert!(matches!(&faults[..], [(Some(3), what)] if what.contains("follows 2, but 1")), "{faults:?}");
}

#[tokio::test]
async fn a_note_without_its_manifest_is_found() {
    let world = World::new().await;
    std::fs::remove_file(world.object(1, "pending")).unwrap();
    let faults = world.faults().await;
    assert!(matches!(&faults[..], [(Some(1), what)] if what.contains("is missing")), "{faults:?}");
}

#[tokio::test]
async fn a_pending_one_that_follows_nothing_is_found() {
    let world = World::new().await;
    world.publish(5, Some(2)).await;
    let faults = world.faults().await;
    assert!(matches!(&faults[..], [(Some(5), what)] if what.contains("follows 2, but 3")), "{faults:?}");
}

#[tokio::test]
async fn deleted_owners_are_found() {
    let world = World::new().await;
    std::fs::remove_file(world.path("owners/00000000000000000001")).unwrap();
    let faults = world.faults().await;
    assert_eq!(faults.len(), 4, "at each checkpoint");
    assert!(faults.iter().all(|(_, what)| what.contains("owner objects were deleted")), "{faults:?}");
}

#[tokio::test]
async fn state_that_is_missing_or_damaged_is_found() {
    let world = World::new().await;
    let mut manifest =
        Manifest::new(world.store.key(), world.owner.epoch, CheckpointId(5), Some(CheckpointId(3)), 1);
    let mut parts = Vec::new();
    for number in 0..3 {
        let place = StatePartPlace { checkpoint: CheckpointId(5), operator: "count", subtask: 0, number };
        let (name, sha256) = world.store.write_state(&world.owner, place, "state".into()).await.unwrap();
        let (kind, checkpoint) = (StatePartKind::Base, CheckpointId(5));
        let (first_group, last_group) = (0, 127);
        parts.push(StatePart { name, sha256, bytes: 5, rows: 1, kind, checkpoint, first_group, last_group });
    }
    let names: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
    manifest.operators.push(OperatorSnapshot {
        operator: "count".to_owned(),
        state_version: 1,
        key_groups: 128,
        parts,
    });
    world.store.publish_pending(&world.owner, &manifest).await.unwrap();
    let seen = world.inspect().await;
    assert_eq!((seen.faults(), seen.state_faults(&world.store).await.unwrap()), (vec![], vec![]));
    assert_eq!(seen.find("5").unwrap().state_bytes(), 15);

    let state = |number: usize| world.path("state").join(&names[number]);
    std::fs::remove_file(state(0)).unwrap();
    std::fs::write(state(1), "longer than before").unwrap();
    std::fs::write(state(2), "stale").unwrap();
    let seen = world.inspect().await;
    let faults: Vec<String> = seen.faults().into_iter().map(|fault| fault.what).collect();
    assert!(faults[0].contains("is missing") && faults[1].contains("has 18 bytes"), "{faults:?}");
    assert_eq!(faults.len(), 2, "{faults:?}");
    let damaged = seen.state_faults(&world.store).await.unwrap();
    assert_eq!(damaged.len(), 2, "each part that is there is read: {damaged:?}");
    assert!(damaged.iter().all(|fault| fault.what.contains("its hash is not")), "{damaged:?}");
}

#[tokio::test]
async fn ranges_that_nobody_would_write_are_found() {
    let world = World::new().await;
    world.publish(9, Some(3)).await;
    let faults = world.faults().await;
    assert!(matches!(&faults[..], [(Some(9), what)] if what.contains("offsets 9 to 12")), "{faults:?}");
}

#[tokio::test]
async fn what_a_start_would_do_is_what_recovery_decides() {
    let world = World::new().await;
    let seen = world.inspect().await;
    let named = |id: u64, index: usize| {
        let (manifest_ref, _) = seen.checkpoints[index].manifest.as_ref().unwrap();
        let last = LastCommitted { checkpoint: CheckpointId(id), manifest: Some(manifest_ref.clone()) };
        Outcomes { last_committed: Some(last), ..Outcomes::default() }
    };
    let decision = seen.recovery(named(4, 3)).unwrap();
    assert_eq!(decision.complete.unwrap().name, seen.checkpoints[3].stored.name, "it was committed");
    let decision = seen.recovery(named(3, 2)).unwrap();
    assert_eq!(decision.delete, [seen.checkpoints[3].stored.name.clone()], "it never happened");
    let error = seen.recovery(named(2, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[tokio::test]
async fn what_a_start_needs_must_stay() {
    let world = World::new().await;
    let seen = world.inspect().await;
    let needed: Vec<Option<String>> =
        seen.checkpoints.iter().map(|checkpoint| seen.needed(&checkpoint.stored)).collect();
    assert_eq!(needed[..2], [None, None]);
    assert!(needed[2].as_ref().unwrap().contains("last completed"));
    assert!(needed[3].as_ref().unwrap().contains("host-a process 17"));
    world.store.acquire_ownership("the newer one", 6).await.unwrap();
    let seen = world.inspect().await;
    assert!(
        seen.needed(&seen.checkpoints[3].stored).unwrap().contains("may be committed"),
        "also of a fenced owner"
    );

    world.store.remove(&seen.checkpoints[0].stored).await.unwrap();
    assert_eq!(world.inspect().await.checkpoints.len(), 3);
    assert_eq!(world.faults().await, []);
}

#[tokio::test]
async fn a_checkpoint_is_found_by_id_and_by_id_and_epoch() {
    let world = World::new().await;
    let mut seen = world.inspect().await;
    assert_eq!(seen.find("2").unwrap().stored.id, CheckpointId(2));
    assert_eq!(seen.find("2-1").unwrap().stored.id, CheckpointId(2));
    for (wanted, expected) in [
        ("7", "stored: 1, 2, 3, 4"),
        ("2-9", "there is no checkpoint 2-9"),
        ("x", "write its id"),
        ("2-x", "write its id"),
    ] {
        let error = seen.find(wanted).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let mut twin = seen.checkpoints[1].clone();
    twin.stored.job_epoch = JobEpoch(2);
    seen.checkpoints.push(twin);
    assert!(seen.find("2").unwrap_err().to_string().contains("2-1 or 2-2"));
    assert_eq!(seen.find("2-2").unwrap().stored.job_epoch, JobEpoch(2));
}
