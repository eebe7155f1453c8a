//! The checkpoint store, and the clock of its server.

use super::*;

#[test]
fn clocks_are_compared_where_a_store_tells_its_time() {
    let weights = |store| -> Vec<(&'static str, Weight)> {
        store::clock(store).iter().map(|finding| (finding.name, finding.weight)).collect()
    };
    let brokers = ("brokers", NotChecked);
    assert_eq!(weights(Err("no bucket")), [("store", NotChecked), brokers]);
    // Written between 100 s and 101 s by our clock; told in whole seconds.
    let between = (100_000, 101_000);
    for (told, weight) in [
        (100_500, Weight::Ok),
        (99_000, Weight::Ok),
        (107_000, Warning),
        (106_000, Weight::Ok),
        (94_999, Warning),
        (95_000, Weight::Ok),
    ] {
        assert_eq!(weights(Ok((told, between))), [("store", weight), brokers], "{told}");
    }
    let behind = store::clock(Ok((161_000, between)));
    assert!(behind[0].message.contains("60s behind"), "{}", behind[0].message);
}

#[tokio::test]
async fn a_store_is_tried_and_left_as_it_was() {
    use sharestream_base::Env;
    use sharestream_checkpoints::{CheckpointStore, JobKey, StoreLocation};
    let env = Env::system();
    let key = JobKey::new("late", "main");
    let look = async |location: Option<StoreLocation>| -> Vec<(Area, &'static str, Weight, String)> {
        let found = store(&env, location.as_ref(), &key).await;
        let of_store = found.into_iter().filter(|finding| finding.area == Area::Store);
        of_store.map(|finding| (finding.area, finding.name, finding.weight, finding.message)).collect()
    };
    let weights = |found: &[(Area, &'static str, Weight, String)]| -> Vec<(&'static str, Weight)> {
        found.iter().map(|(_, name, weight, _)| (*name, *weight)).collect()
    };
    assert_eq!(weights(&look(None).await), [("store", Weight::Ok)]);
    let memory = StoreLocation::parse("memory://", "".as_ref(), BTreeMap::new()).unwrap();
    assert_eq!(weights(&look(Some(memory)).await), [("store", Warning)]);

    let folder = tempfile::tempdir().unwrap();
    let place = || Some(StoreLocation::folder(folder.path().join("checkpoints")));
    let found = look(place()).await;
    assert_eq!(weights(&found), [("store", Weight::Ok)]);
    assert!(found[0].3.contains("will be created"), "{}", found[0].3);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");

    let own = CheckpointStore::local(folder.path().join("checkpoints"), key.clone()).await.unwrap();
    own.acquire_ownership("host-a pid 17", env.clock.wall_ms() - 5_500).await.unwrap();
    let found = look(place()).await;
    assert_eq!(weights(&found), [("store", Weight::Ok), ("last-owner", Hint)]);
    let message = &found[1].3;
    assert!(message.contains("job epoch 1: host-a pid 17, 5 s ago"), "{message}");

    let other = StoreLocation::folder(folder.path().join("other"));
    CheckpointStore::local(folder.path().join("other"), JobKey::new("early", "main")).await.unwrap();
    let found = look(Some(other)).await;
    assert_eq!(weights(&found), [("owner", Refused)]);
    assert!(found[0].3.contains("belongs to job 'early', not to job 'late'"), "{}", found[0].3);

    std::fs::write(folder.path().join("file"), "").unwrap();
    let found = look(Some(StoreLocation::folder(folder.path().join("file")))).await;
    assert_eq!(weights(&found), [("store", Refused)]);
}
