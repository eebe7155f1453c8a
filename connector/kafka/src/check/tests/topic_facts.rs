//! Topics that are missing, and settings of those that are there.

use super::*;

fn missing(facts: &mut Facts, topic: usize, creation: Option<Creation>) {
    facts.topics[topic].described = Ok(None);
    facts.topics[topic].settings = Err(NoAnswer::because("it is not there"));
    facts.topics[topic].creation = creation;
}

fn creation(copies: Option<i16>, checked: Asked<()>) -> Option<Creation> {
    Some(Creation { partitions: 4, copies, checked })
}

#[test]
fn topics_that_are_missing() {
    use Area::Topics;
    check_each(&[
        (
            "a source",
            |facts| missing(facts, SOURCE, None),
            &[(Topics, "exists", Refused)],
            &["source topic 'flights' does not exist", "sharestream topic create flights"],
        ),
        (
            "an output that nobody creates",
            |facts| missing(facts, OUTPUT, None),
            &[(Topics, "exists", Refused)],
            &["output topic 'delayed'", "sink.partitions"],
        ),
        (
            "an output that the start creates",
            |facts| missing(facts, OUTPUT, creation(None, Ok(()))),
            &[],
            &[],
        ),
        (
            "one that may not be created",
            |facts| missing(facts, OUTPUT, creation(None, Err(refusal()))),
            &[(Topics, "exists", Refused)],
            &["cannot be created", "needs an ACL"],
        ),
        (
            "one that gets one copy",
            |facts| missing(facts, OUTCOMES, creation(Some(1), Ok(()))),
            &[(Topics, "exists", Warning)],
            &["4 partitions, 1 copy", "three copies"],
        ),
        (
            "one that gets one copy by default",
            |facts| {
                missing(facts, OUTPUT, creation(None, Ok(())));
                let brokers = facts.group.brokers.as_mut().unwrap();
                brokers.insert("default.replication.factor".to_owned(), "1".to_owned());
            },
            &[(Topics, "exists", Warning)],
            &["default.replication.factor"],
        ),
        (
            "one that may not be seen",
            |facts| facts.topics[SOURCE].described = Err(refusal()),
            &[(Topics, "exists", Refused)],
            &["needs an ACL"],
        ),
        (
            "one of which nobody knows",
            |facts| facts.topics[SOURCE].described = Err(no_answer()),
            &[(Topics, "exists", NotChecked)],
            &["no answer"],
        ),
    ]);
}

#[test]
fn topics_that_are_there() {
    use Area::{Outcomes, Topics};
    check_each(&[
        (
            "settings that cannot be read",
            |facts| facts.topics[OUTPUT].settings = Err(no_answer()),
            &[(Topics, "settings", NotChecked)],
            &["settings of output topic 'delayed'"],
        ),
        (
            "partitions without leaders",
            |facts| there(facts, SOURCE).leaderless_count = 2,
            &[(Topics, "leaders", Warning)],
            &["2 partitions without a leader"],
        ),
        (
            "one copy of the output",
            |facts| {
                there(facts, OUTPUT).replicas_min = 1;
                there(facts, OUTPUT).in_sync_min = 1;
                set(facts, OUTPUT, "min.insync.replicas", "1");
            },
            &[(Topics, "copies", Warning)],
            &["one copy on 3 brokers"],
        ),
        (
            "more in sync than there are",
            |facts| set(facts, OUTPUT, "min.insync.replicas", "4"),
            &[(Topics, "in-sync", Refused)],
            &["3 copies and min.insync.replicas=4", "min.insync.replicas=2"],
        ),
        (
            "too few in sync",
            |facts| there(facts, LETTERS).in_sync_min = 1,
            &[(Topics, "in-sync", Warning)],
            &["with 1 copy in sync"],
        ),
        (
            "the leader alone",
            |facts| set(facts, PARKING, "min.insync.replicas", "1"),
            &[(Topics, "in-sync", Warning)],
            &["leader alone"],
        ),
        (
            "unclean elections",
            |facts| set(facts, OUTPUT, "unclean.leader.election.enable", "true"),
            &[(Topics, "unclean-election", Warning)],
            &["what was committed may be lost"],
        ),
        (
            "a compacted output",
            |facts| set(facts, OUTPUT, "cleanup.policy", "compact,delete"),
            &[(Topics, "compacted", Warning)],
            &["no order for each key"],
        ),
        (
            "compacted dead letters",
            |facts| set(facts, LETTERS, "cleanup.policy", "compact"),
            &[(Topics, "compacted", Warning)],
            &["a dead letter is gone"],
        ),
        (
            "compacted parked records",
            |facts| set(facts, PARKING, "cleanup.policy", "compact"),
            &[(Topics, "compacted", Refused)],
            &["a parked record is lost"],
        ),
        (
            "a compacted source",
            |facts| set(facts, SOURCE, "cleanup.policy", "compact"),
            &[(Topics, "compacted", Hint)],
            &["before it is handed out"],
        ),
        (
            "a small output",
            |facts| set(facts, OUTPUT, "max.message.bytes", "1000"),
            &[(Topics, "record-size", Hint)],
            &["1000 bytes", "524288"],
        ),
        (
            "a large source",
            |facts| set(facts, SOURCE, "max.message.bytes", "2000000"),
            &[(Topics, "record-size", Warning), (Topics, "record-size", Warning)],
            &["cannot be replayed", "cannot be parked", "max.message.bytes=2000000"],
        ),
        (
            "a source of records that are not decoded",
            |facts| facts.record_bytes_max = 1_000_000,
            &[(Topics, "record-size", Hint)],
            &["too_large"],
        ),
        (
            "outcomes that are deleted",
            |facts| set(facts, OUTCOMES, "cleanup.policy", "delete"),
            &[(Outcomes, "cleanup-policy", Refused)],
            &["cleanup.policy=compact"],
        ),
        (
            "outcomes with one copy",
            |facts| set(facts, OUTCOMES, "min.insync.replicas", "1"),
            &[(Outcomes, "in-sync", Warning)],
            &["one failure may lose"],
        ),
    ]);
}
