//! Every line of DESIGN section 2, Recovery, as a row.

use super::*;

fn name(id: u64, epoch: u64) -> String {
    paths::pending_name(CheckpointId(id), JobEpoch(epoch))
}

/// A hash that tells manifests apart.
fn sha256(id: u64, epoch: u64) -> String {
    format!("sha-of-{id}-{epoch}")
}

fn stored(id: u64, epoch: u64, state: StoredState, content: Content) -> StoredManifest {
    let stored =
        StoredCheckpoint { id: CheckpointId(id), job_epoch: JobEpoch(epoch), name: name(id, epoch), state };
    StoredManifest { stored, content }
}

fn pending(id: u64, epoch: u64, predecessor: Option<u64>) -> StoredManifest {
    let predecessor = predecessor.map(CheckpointId);
    stored(id, epoch, StoredState::Pending, intact(id, epoch, predecessor))
}

fn completed(id: u64, epoch: u64) -> StoredManifest {
    stored(id, epoch, StoredState::Completed, intact(id, epoch, None))
}

fn intact(id: u64, epoch: u64, predecessor: Option<CheckpointId>) -> Content {
    Content::Intact { sha256: sha256(id, epoch), predecessor, outcome_topic_id: Some(topic(1)) }
}

fn topic(id: u128) -> TopicId {
    TopicId(uuid::Uuid::from_u128(id))
}

/// What the log of before says.
fn log(last_committed: Option<LastCommitted>, highest_seen: Option<CheckpointId>) -> Outcomes {
    Outcomes { topic_id: Some(topic(1)), last_committed, highest_seen }
}

fn outcome(id: u64, epoch: u64) -> Option<LastCommitted> {
    let manifest = Some(ManifestRef { name: name(id, epoch), sha256: sha256(id, epoch) });
    Some(LastCommitted { checkpoint: CheckpointId(id), manifest })
}

fn outcome_without_store(id: u64) -> Option<LastCommitted> {
    Some(LastCommitted { checkpoint: CheckpointId(id), manifest: None })
}

/// What a row expects: restored, completed, deleted (id, epoch) and the next id; or part of the error.
type Expected = Result<(Option<(u64, u64)>, bool, Vec<(u64, u64)>, u64), &'static str>;

struct Row {
    rule: &'static str,
    stored: Vec<StoredManifest>,
    outcome: Option<LastCommitted>,
    highest_seen: Option<u64>,
    expected: Expected,
}

fn row(
    rule: &'static str,
    stored: Vec<StoredManifest>,
    outcome: Option<LastCommitted>,
    expected: Expected,
) -> Row {
    Row { rule, stored, outcome, highest_seen: None, expected }
}

fn rows() -> Vec<Row> {
    use StoredState::{CompletedWithoutManifest, Pending};
    let damaged = || Content::Damaged("it is damaged".to_owned());
    let mut rows = vec![
        row("a new job starts without state", vec![], None, Ok((None, false, vec![], 1))),
        row(
            "a pending manifest that the outcome names by name and hash is committed: complete and restore it",
            vec![completed(4, 1), pending(5, 1, Some(4))],
            outcome(5, 1),
            Ok((Some((5, 1)), true, vec![], 6)),
        ),
        row(
            "the first checkpoint, committed but not completed, is restored",
            vec![pending(1, 1, None)],
            outcome(1, 1),
            Ok((Some((1, 1)), true, vec![], 2)),
        ),
        row(
            "a completed manifest that the outcome names is restored as it is",
            vec![completed(4, 1), completed(5, 1)],
            outcome(5, 1),
            Ok((Some((5, 1)), false, vec![], 6)),
        ),
        row(
            "a pending manifest with no committed outcome never happened: delete it, restore its predecessor",
            vec![completed(4, 1), pending(5, 1, Some(4))],
            outcome(4, 1),
            Ok((Some((4, 1)), false, vec![(5, 1)], 6)),
        ),
        row(
            "predecessor committed but its completion not noted: both are settled",
            vec![pending(4, 1, Some(3)), pending(5, 1, Some(4))],
            outcome(4, 1),
            Ok((Some((4, 1)), true, vec![(5, 1)], 6)),
        ),
        row(
            "the first pending manifest with no outcome at all never happened",
            vec![pending(1, 1, None)],
            None,
            Ok((None, false, vec![(1, 1)], 2)),
        ),
        row(
            "a pending manifest below the committed one is a leftover",
            vec![pending(3, 1, Some(2)), completed(5, 1)],
            outcome(5, 1),
            Ok((Some((5, 1)), false, vec![(3, 1)], 6)),
        ),
        row(
            "two incarnations wrote the same id: the name that the outcome carries is the one",
            vec![pending(5, 1, Some(4)), pending(5, 2, Some(4))],
            outcome(5, 2),
            Ok((Some((5, 2)), true, vec![(5, 1)], 6)),
        ),
        row(
            "a late manifest of a fenced incarnation never happened, whatever its predecessor",
            vec![completed(7, 2), pending(8, 1, Some(6))],
            outcome(7, 2),
            Ok((Some((7, 2)), false, vec![(8, 1)], 9)),
        ),
        row(
            "a leftover note of completion below the committed one goes",
            vec![stored(3, 1, CompletedWithoutManifest, Content::NotRead), completed(5, 1)],
            outcome(5, 1),
            Ok((Some((5, 1)), false, vec![(3, 1)], 6)),
        ),
        row(
            "completed ones before the restored one are left to retention, unread",
            vec![stored(4, 1, StoredState::Completed, Content::NotRead), completed(5, 1)],
            outcome(5, 1),
            Ok((Some((5, 1)), false, vec![], 6)),
        ),
        row(
            "a damaged manifest of a fenced incarnation does no harm",
            vec![completed(7, 2), stored(8, 1, Pending, damaged())],
            outcome(7, 2),
            Ok((Some((7, 2)), false, vec![(8, 1)], 9)),
        ),
        row(
            "a job that committed without a store starts without state behind that outcome",
            vec![pending(9, 1, Some(8))],
            outcome_without_store(8),
            Ok((None, false, vec![(9, 1)], 10)),
        ),
        // Corrupt: absence proves nothing.
        row(
            "outcome missing but a completed checkpoint exists",
            vec![completed(5, 1)],
            None,
            Err("no outcome is committed"),
        ),
        row(
            "outcome missing but a pending manifest has a predecessor",
            vec![pending(5, 1, Some(4))],
            None,
            Err("has predecessor 4"),
        ),
        row(
            "outcome neither the pending manifest nor its predecessor (behind it)",
            vec![completed(3, 1), pending(5, 1, Some(4))],
            outcome(3, 1),
            Err("has predecessor 4"),
        ),
        row(
            "outcome neither the pending manifest nor its predecessor (pending says there is none)",
            vec![completed(3, 1), pending(5, 1, None)],
            outcome(3, 1),
            Err("has predecessor none"),
        ),
        row(
            "a completed checkpoint is newer than the outcome",
            vec![completed(4, 1), completed(5, 1)],
            outcome(4, 1),
            Err("checkpoint 5"),
        ),
        row(
            "a note of completion is newer than the outcome",
            vec![completed(4, 1), stored(5, 1, CompletedWithoutManifest, Content::NotRead)],
            outcome(4, 1),
            Err("checkpoint 5"),
        ),
        row(
            "another manifest of the committed id was completed",
            vec![completed(5, 1), completed(5, 2)],
            outcome(5, 2),
            Err("was completed"),
        ),
        row(
            "the committed manifest is missing: never restore an older one",
            vec![completed(4, 1)],
            outcome(5, 1),
            Err("is not stored"),
        ),
        row(
            "the committed manifest is missing from an empty folder",
            vec![],
            outcome(5, 1),
            Err("is not stored"),
        ),
        row(
            "of the committed manifest only the note is left",
            vec![completed(4, 1), stored(5, 1, CompletedWithoutManifest, Content::NotRead)],
            outcome(5, 1),
            Err("is not stored"),
        ),
        row(
            "the committed manifest is damaged",
            vec![stored(5, 1, Pending, damaged())],
            outcome(5, 1),
            Err("it is damaged"),
        ),
        row(
            "a damaged pending manifest hides its predecessor",
            vec![completed(4, 1), stored(5, 1, Pending, damaged())],
            outcome(4, 1),
            Err("predecessor cannot be checked"),
        ),
        row(
            "a completed checkpoint behind an outcome without a store",
            vec![completed(9, 1)],
            outcome_without_store(8),
            Err("was completed"),
        ),
    ];
    let mut wrong_hash = outcome(5, 1);
    if let Some(ManifestRef { sha256, .. }) = wrong_hash.as_mut().and_then(|o| o.manifest.as_mut()) {
        *sha256 = "another".to_owned();
    }
    rows.push(row(
        "the hash of the committed manifest differs from its outcome's",
        vec![pending(5, 1, Some(4))],
        wrong_hash,
        Err("has sha256 sha-of-5-1, its committed outcome says another"),
    ));
    let mut wrong_name = outcome(5, 1);
    if let Some(outcome) = &mut wrong_name {
        outcome.checkpoint = CheckpointId(6);
    }
    rows.push(row(
        "the outcome names the manifest of another checkpoint",
        vec![completed(5, 1)],
        wrong_name,
        Err("of another"),
    ));
    rows.push(Row {
        rule: "ids that aborted outcomes used are not used again",
        stored: vec![completed(5, 1)],
        outcome: outcome(5, 1),
        highest_seen: Some(8),
        expected: Ok((Some((5, 1)), false, vec![], 9)),
    });
    rows
}

#[test]
fn every_line_of_the_recovery_rule_holds() {
    for Row { rule, stored, outcome, highest_seen, expected } in rows() {
        // The order of listing must not matter.
        for reverse in [false, true] {
            let mut stored = stored.clone();
            if reverse {
                stored.reverse();
            }
            let highest_seen = highest_seen.map(CheckpointId);
            let facts = Facts { stored, outcomes: log(outcome.clone(), highest_seen) };
            match (&expected, decide(&facts)) {
                (Ok((restore, complete, delete, next)), Ok(decision)) => {
                    let manifest_ref = |(id, epoch): (u64, u64)| ManifestRef {
                        name: name(id, epoch),
                        sha256: sha256(id, epoch),
                    };
                    assert_eq!(decision.restore, restore.map(manifest_ref), "{rule}: restore");
                    let completes = complete.then_some(*restore).flatten().map(manifest_ref);
                    assert_eq!(decision.complete, completes, "{rule}: complete");
                    let mut deleted = decision.delete.clone();
                    deleted.sort();
                    let expected: Vec<_> = delete.iter().map(|(id, epoch)| name(*id, *epoch)).collect();
                    assert_eq!(deleted, expected, "{rule}: delete");
                    assert_eq!(decision.next_checkpoint, CheckpointId(*next), "{rule}: next");
                    let last = outcome.as_ref().map(|outcome| outcome.checkpoint);
                    assert_eq!(decision.predecessor, last, "{rule}: predecessor");
                }
                (Err(part), Err(error)) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{rule}: {error}");
                    assert!(error.to_string().contains(part), "{rule}: '{error}' does not say '{part}'");
                }
                (expected, got) => panic!("{rule}: expected {expected:?}, got {got:?}"),
            }
        }
    }
}

#[test]
fn a_manifest_that_names_another_outcome_topic_is_corrupt_and_one_that_names_none_is_as_before() {
    let first = || vec![pending(1, 1, None)];
    let with =
        |stored, topic_id| decide(&Facts { stored, outcomes: Outcomes { topic_id, ..Outcomes::default() } });
    // Nothing but the topic's id tells a commit that was lost with the topic from one that never happened.
    assert_eq!(with(first(), Some(topic(1))).unwrap().delete, [name(1, 1)]);
    for now in [Some(topic(2)), None] {
        let error = with(first(), now).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let text = error.to_string();
        for part in ["checkpoint 1 (", &topic(1).to_string(), "created again", "empty checkpoint folder"] {
            assert!(text.contains(part), "'{text}' does not say '{part}'");
        }
    }
    // Also when the log, copied from elsewhere, does name the manifest.
    let outcomes = Outcomes { topic_id: Some(topic(2)), ..log(outcome(5, 1), None) };
    let error = decide(&Facts { stored: vec![completed(5, 1)], outcomes }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    // The first format did not say.
    let content = Content::Intact { sha256: sha256(1, 1), predecessor: None, outcome_topic_id: None };
    let old = vec![stored(1, 1, StoredState::Pending, content)];
    assert_eq!(with(old, Some(topic(2))).unwrap().delete, [name(1, 1)]);
}

/// A job that checkpoints, crashes anywhere and recovers, against the truth of what was committed.
mod histories {
    use proptest::prelude::*;

    use super::*;

    /// Where an attempt at one checkpoint ends.
    #[derive(Clone, Copy, Debug)]
    enum End {
        BeforePublish,
        Published,
        Committed,
        Completed,
    }

    fn end() -> impl Strategy<Value = (End, bool)> {
        let end = prop_oneof![
            Just(End::BeforePublish),
            Just(End::Published),
            Just(End::Committed),
            Just(End::Completed)
        ];
        (end, any::<bool>())
    }

    proptest! {
        #[test]
        fn recovery_always_restores_the_last_committed_checkpoint(
            steps in proptest::collection::vec(end(), 1..40)
        ) {
            let mut store: Vec<StoredManifest> = Vec::new();
            let mut committed: Option<LastCommitted> = None;
            let (mut next, mut epoch, mut predecessor) = (1, 1, None);
            for (end, crash) in steps {
                let id = next;
                next += 1;
                match end {
                    End::BeforePublish => {}
                    End::Published => store.push(pending(id, epoch, predecessor)),
                    End::Committed => {
                        store.push(pending(id, epoch, predecessor));
                        committed = outcome(id, epoch);
                    }
                    End::Completed => {
                        store.push(completed(id, epoch));
                        committed = outcome(id, epoch);
                        predecessor = Some(id);
                    }
                }
                // Anything but a whole checkpoint ends the attempt.
                if crash || !matches!(end, End::Completed) {
                    epoch += 1;
                    let facts = Facts { stored: store.clone(), outcomes: log(committed.clone(), None) };
                    let decision = decide(&facts).unwrap();
                    let named = committed.as_ref().and_then(|outcome| outcome.manifest.clone());
                    prop_assert_eq!(&decision.restore, &named);
                    prop_assert!(facts.stored.iter().all(|manifest| manifest.stored.id < decision.next_checkpoint));
                    store.retain(|manifest| !decision.delete.contains(&manifest.stored.name));
                    if let Some(completes) = &decision.complete {
                        for manifest in store.iter_mut().filter(|m| m.stored.name == completes.name) {
                            manifest.stored.state = StoredState::Completed;
                        }
                    }
                    next = decision.next_checkpoint.0;
                    predecessor = decision.predecessor.map(|id| id.0);
                    let settled = store.iter().all(|manifest| manifest.stored.state == StoredState::Completed);
                    prop_assert!(settled, "nothing pending survives recovery");
                }
            }
        }
    }
}
