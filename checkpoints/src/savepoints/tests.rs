use std::sync::Arc;

use bytes::Bytes;
use object_store::memory::InMemory;
use sharestream_base::ids::{CheckpointId, JobEpoch, Offset, PartitionIndex, TopicId};

use super::*;
use crate::{
    DecidedOffsets, JobKey, Manifest, OffsetDecision, OperatorSnapshot, OutcomePosition, Retention,
    SavepointSource, StatePart, StatePartKind, StatePartPlace, StoreLocation,
};

async fn store() -> (CheckpointStore, Owner) {
    let store = CheckpointStore::open(Arc::new(InMemory::new()), JobKey::new("j", "0")).await.unwrap();
    let owner = store.acquire_ownership("test", 0).await.unwrap();
    (store, owner)
}

/// Commits checkpoint `id`, the state of which is one part of its own.
async fn commit(store: &CheckpointStore, owner: &Owner, id: u64) -> (ManifestRef, Vec<OperatorSnapshot>) {
    let checkpoint = CheckpointId(id);
    let place = StatePartPlace { checkpoint, operator: "count", subtask: 0, number: 0 };
    let content = Bytes::from(format!("state {id}"));
    let bytes = content.len() as u64;
    let (name, sha256) = store.write_state(owner, place, content).await.unwrap();
    let (kind, first_group, last_group) = (StatePartKind::Base, 0, 127);
    let part = StatePart { name, sha256, bytes, rows: 1, kind, checkpoint, first_group, last_group };
    let (operator, parts) = ("count".to_owned(), vec![part]);
    let operators = vec![OperatorSnapshot { operator, state_version: 1, key_groups: 128, parts }];
    let before = (id > 1).then(|| CheckpointId(id - 1));
    let mut manifest = Manifest::new(store.key(), owner.epoch, checkpoint, before, 0);
    manifest.operators.clone_from(&operators);
    let published = store.publish_pending(owner, &manifest).await.unwrap();
    store.complete(owner, &published.manifest_ref).await.unwrap();
    (published.manifest_ref, operators)
}

fn savepoint(name: &str, checkpoint: u64, of: Option<(ManifestRef, Vec<OperatorSnapshot>)>) -> Savepoint {
    let (manifest, operators) =
        of.map_or((None, Vec::new()), |(manifest, operators)| (Some(manifest), operators));
    let range = |first, last, decision| DecidedOffsets { first: Offset(first), last: Offset(last), decision };
    Savepoint {
        format_version: Savepoint::FORMAT_VERSION,
        name: name.to_owned(),
        job: "j".to_owned(),
        instance: "0".to_owned(),
        job_epoch: JobEpoch(1),
        checkpoint: CheckpointId(checkpoint),
        manifest,
        group: "g".to_owned(),
        generation: 0,
        outcome: OutcomePosition {
            topic: "outcomes".to_owned(),
            topic_id: TopicId(uuid::Uuid::from_u128(5)),
            partition: PartitionIndex(3),
            checkpoint: Offset(40),
            end: Offset(45),
        },
        sources: vec![SavepointSource {
            topic: "flights".to_owned(),
            topic_id: TopicId(uuid::Uuid::from_u128(1)),
            partition: PartitionIndex(2),
            start_offset: Offset(10),
            decided: vec![range(12, 19, OffsetDecision::Accept), range(20, 20, OffsetDecision::Gap)],
        }],
        operators,
        event_time: None,
        created_ms: 1_767_225_600_000,
    }
}

#[test]
fn the_first_format_stays_readable_and_is_what_is_written() {
    let body = concat!(
        r#"{"format_version":1,"name":"savepoint-8-ab","job":"j","instance":"0","job_epoch":1,"checkpoint":8,"#,
        r#""manifest":null,"group":"g","generation":0,"outcome":{"topic":"outcomes","#,
        r#""topic_id":"AAAAAAAAAAAAAAAAAAAABQ","partition":3,"checkpoint":40,"end":45},"sources":[{"#,
        r#""topic":"flights","topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partition":2,"start_offset":10,"#,
        r#""decided":[[12,19,"accept"],[20,20,"gap"]]}],"operators":[],"created_ms":1767225600000}"#,
        "\n"
    );
    let bytes = format!("sharestream-savepoint sha256={}\n{body}", codec::sha256_hex(body.as_bytes()));
    let read: Savepoint = codec::decode("s", bytes.as_bytes()).unwrap();
    assert_eq!(read, savepoint("savepoint-8-ab", 8, None));
    assert_eq!(codec::encode(&read).unwrap(), bytes.as_bytes());
    let newer = body.replace("\"format_version\":1", "\"format_version\":2");
    let bytes = format!("sharestream-savepoint sha256={}\n{newer}", codec::sha256_hex(newer.as_bytes()));
    let error = codec::decode::<Savepoint>("s", bytes.as_bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("format version 2"), "{error}");
}

#[test]
fn ranges_that_no_build_would_write_are_faults() {
    let mut wrong = savepoint("s", 1, None);
    assert_eq!(wrong.faults(), [""; 0]);
    wrong.sources[0].start_offset = Offset(12);
    assert_eq!(
        wrong.faults().len(),
        1,
        "a range at the start offset would have raised it: {:?}",
        wrong.faults()
    );
    wrong.sources[0].start_offset = Offset(10);
    wrong.sources[0].decided.swap(0, 1);
    assert_eq!(wrong.faults().len(), 1);
    wrong.outcome.end = wrong.outcome.checkpoint;
    assert_eq!(wrong.faults().len(), 2);
}

#[tokio::test]
async fn retention_never_takes_what_a_savepoint_holds() {
    let (store, owner) = store().await;
    let first = commit(&store, &owner, 1).await;
    let savepoints = Savepoints::of_store(&store);
    let written = savepoints.write(Some(&store), &savepoint("before", 1, Some(first.clone()))).await.unwrap();
    for id in 2..=5 {
        commit(&store, &owner, id).await;
    }
    Retention::keep_last(1).run(&store, CheckpointId(5)).await.unwrap();
    assert!(store.read_state(&first.1[0].parts[0]).await.is_err(), "the job's own part is gone");
    assert_eq!(written.verify().await.unwrap(), [""; 0]);
    let listed = savepoints.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].loaded.as_ref().unwrap().sha256, written.sha256);
    // And it comes back, as it was.
    written.restore_state(&store).await.unwrap();
    assert_eq!(store.read_state(&first.1[0].parts[0]).await.unwrap(), "state 1");
    assert!(savepoints.named("before").unwrap().delete().await.unwrap() >= 3);
    assert!(savepoints.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn nothing_is_deleted_while_somebody_copies() {
    let (store, owner) = store().await;
    let first = commit(&store, &owner, 1).await;
    commit(&store, &owner, 2).await;
    let hold = store.hold("test").await.unwrap();
    assert_eq!(Retention::keep_last(1).run(&store, CheckpointId(2)).await.unwrap(), 0);
    assert!(store.read_state(&first.1[0].parts[0]).await.is_ok());
    hold.release().await.unwrap();
    assert_eq!(Retention::keep_last(1).run(&store, CheckpointId(2)).await.unwrap(), 1);
    assert!(store.read_state(&first.1[0].parts[0]).await.is_err());
}

#[tokio::test]
async fn a_damaged_or_missing_copy_is_told_by_name_and_an_unfinished_folder_is_no_savepoint() {
    let (store, owner) = store().await;
    let first = commit(&store, &owner, 1).await;
    let name = first.1[0].parts[0].name.clone();
    let savepoints = Savepoints::of_store(&store);
    let written = savepoints.write(Some(&store), &savepoint("s", 1, Some(first.clone()))).await.unwrap();
    let again = savepoints.write(Some(&store), &savepoint("s", 1, Some(first.clone()))).await.unwrap();
    assert_eq!(again.sha256, written.sha256, "the same again is success");
    let other = savepoints.write(Some(&store), &savepoint("s", 2, Some(first))).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::InvalidInput);
    assert!(other.to_string().contains("never changed"), "{other}");

    let part = Path::from(format!("savepoints/s/state/{name}"));
    store.delete(&part).await.unwrap();
    let wrong = written.verify().await.unwrap();
    assert!(wrong.len() == 1 && wrong[0].contains(&name) && wrong[0].contains("missing"), "{wrong:?}");
    let error = written.restore_state(&store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    store.create(&part, Bytes::from_static(b"other")).await.unwrap();
    let wrong = written.verify().await.unwrap();
    assert!(wrong.len() == 1 && wrong[0].contains("damaged"), "{wrong:?}");

    store.delete(&Path::from("savepoints/s/savepoint.json")).await.unwrap();
    let listed = savepoints.list().await.unwrap();
    assert!(listed[0].loaded.as_ref().unwrap_err().contains("written last"), "{listed:?}");
    for name in ["", "..", "a/b", ".x", "a b"] {
        assert_eq!(savepoints.named(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
    }
}

#[tokio::test]
async fn a_store_that_was_lost_gets_its_checkpoint_back_from_a_savepoint_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = StoreLocation::folder(folder.path()).open().await.unwrap();
    let (store, owner) = store().await;
    let first = commit(&store, &owner, 1).await;
    let saved = savepoint("s", 1, Some(first.clone()));
    Savepoints::at(&elsewhere).unwrap().write(Some(&store), &saved).await.unwrap();

    let one = StoreLocation::folder(folder.path().join("s")).open_existing().await.unwrap();
    let loaded = SavepointPlace::at(&one).unwrap().load().await.unwrap();
    let (empty, _) = self::store().await;
    assert!(loaded.restore_checkpoint(&empty).await.unwrap());
    assert!(!loaded.restore_checkpoint(&empty).await.unwrap(), "the second time nothing is missing");
    let manifest = empty.load(&first.0).await.unwrap();
    assert_eq!(empty.read_state(&manifest.operators[0].parts[0]).await.unwrap(), "state 1");
}
