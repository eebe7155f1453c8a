use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_core::decision::Decision;

use super::*;
use crate::check::logs::{Fate, Writer};

const PLACE: Place = Place { partition: 0, offset: 3 };

fn found(fate: Fate, read_committed: bool, decision: Option<Decision>, done: Option<Done>) -> Vec<String> {
    found_at(4, fate, read_committed, decision, done)
}

fn found_at(
    delivery_count: u16,
    fate: Fate,
    read_committed: bool,
    decision: Option<Decision>,
    done: Option<Done>,
) -> Vec<String> {
    let record = Logged {
        partition: PartitionIndex(0),
        offset: Offset(3),
        writer: Writer { producer_id: 0, producer_epoch: 0 },
        fate,
        id: Some(7),
        provenance: None,
        delivery_count: None,
        digest: 0,
    };
    let logs = Logs { topics: [(SOURCE, vec![record])].into(), source_id: None };
    let mut plan = Plan::draw(0);
    plan.group.read_committed = read_committed;
    plan.group.delivery_limit = 10;
    let mut decided = DecidedBy::default();
    if let Some(decision) = decision {
        decided.insert(PLACE, decision);
    }
    let last_seen = |_| LastSeen { done, delivery_count };
    check(&logs, &plan, &decided, last_seen).iter().map(ToString::to_string).collect()
}

#[test]
fn a_record_that_is_archived_was_rejected_by_the_job() {
    let archived = Some(Done::Archived);
    assert!(found(Fate::Plain, true, Some(Decision::Reject), archived).is_empty());
    assert!(found(Fate::Plain, true, Some(Decision::Gap), archived).is_empty());
    for decision in [None, Some(Decision::Accept)] {
        let texts = found(Fate::Plain, true, decision, archived);
        assert!(texts.concat().contains("lost, with delivery count 4 of at most 10"), "{texts:?}");
        assert!(texts.concat().starts_with("archived: record 0/3"), "{texts:?}");
    }
}

#[test]
fn a_record_that_ran_out_of_deliveries_is_told_apart() {
    for done in [Done::Archived, Done::Below] {
        let texts = found_at(10, Fate::Plain, true, None, Some(done));
        assert!(texts.concat().starts_with("delivery-limit: record 0/3"), "{texts:?}");
    }
}

#[test]
fn a_record_that_the_group_has_passed_was_decided_by_the_job() {
    assert_eq!(found(Fate::Plain, true, None, Some(Done::Below)).len(), 1);
    assert!(found(Fate::Plain, true, Some(Decision::Accept), Some(Done::Below)).is_empty());
    assert!(found(Fate::Plain, true, None, None).is_empty(), "it is not decided yet: not lost");
}

#[test]
fn aborted_data_may_be_archived_when_the_group_is_not_shown_it() {
    assert!(found(Fate::Aborted, true, None, Some(Done::Archived)).is_empty());
    assert_eq!(found(Fate::Aborted, false, None, Some(Done::Archived)).len(), 1);
}
