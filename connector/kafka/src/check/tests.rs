//! Each finding appears exactly when it should: facts of a good job, one of them changed at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_base::ids::{MemberEpoch, ProducerEpoch, ProducerId, TopicId};
use sharestream_client::{
    AclOperation, GroupListing, Operations, ShareGroupDescription, ShareGroupMember, TopicDescription,
    TransactionDescription,
};
use uuid::Uuid;

use super::finding::NoAnswer;
use super::group::{BrokerLetters, Standing};
use super::topics::Creation;
use super::*;
use crate::AckModeChoice;
use crate::config::ModeSupport;

use AclOperation::{AlterConfigs, Describe, DescribeConfigs, Read, Write};
use Weight::{Hint, NotChecked, Refused, Warning};

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn no_answer() -> NoAnswer {
    NoAnswer::because("no answer within 10s")
}

fn refusal() -> NoAnswer {
    NoAnswer { why: "x: TOPIC_AUTHORIZATION_FAILED; 'User:job' needs an ACL".to_owned(), is_refusal: true }
}

fn topic(role: Role, name: &str, operations: &[AclOperation]) -> TopicFacts {
    let mut operations = operations.to_vec();
    operations.extend([Describe, DescribeConfigs]);
    let described = TopicDescription {
        name: name.to_owned(),
        topic_id: TopicId(Uuid::from_u128(1)),
        partition_count: 8,
        replicas_min: 3,
        in_sync_min: 3,
        leaderless_count: 0,
        operations: Some(Operations::of(&operations)),
    };
    let policy = if role == Role::Outcomes { "compact" } else { "delete" };
    let settings = texts([
        ("cleanup.policy", policy),
        ("min.insync.replicas", "2"),
        ("unclean.leader.election.enable", "false"),
        ("max.message.bytes", "1048588"),
        ("delete.retention.ms", "86400000"),
    ]);
    TopicFacts {
        role,
        name: name.to_owned(),
        described: Ok(Some(described)),
        settings: Ok(settings),
        creation: None,
    }
}

fn member(client_id: &str) -> ShareGroupMember {
    ShareGroupMember {
        member_id: client_id.to_owned(),
        rack: None,
        member_epoch: MemberEpoch(1),
        client_id: client_id.to_owned(),
        client_host: "/10.0.0.1".to_owned(),
        subscribed_topics: Vec::new(),
        assignment: Vec::new(),
    }
}

fn described(members: &[&str]) -> ShareGroupDescription {
    ShareGroupDescription {
        group_id: "late".to_owned(),
        state: "Stable".to_owned(),
        group_epoch: 1,
        assignment_epoch: 1,
        assignor: "simple".to_owned(),
        members: members.iter().map(|id| member(id)).collect(),
    }
}

fn transaction(slot: usize, state: &str) -> TransactionFacts {
    let id = format!("late.main.{slot}");
    let described = TransactionDescription {
        transactional_id: id.clone(),
        producer_id: ProducerId(7),
        producer_epoch: ProducerEpoch(1),
        state: state.to_owned(),
        timeout: Duration::from_secs(42),
        start_ms: (state == "Ongoing").then_some(95_000),
        partitions: Vec::new(),
    };
    TransactionFacts { id, described: Ok(Some(described)), may_write: Ok(true) }
}

/// A job in ledger mode on three brokers, with nothing to say about it.
fn good() -> Facts {
    let levels = || BTreeMap::from([("share.version".to_owned(), 1), ("transaction.version".to_owned(), 2)]);
    let broker = |node| BrokerFacts { node, address: format!("b{node}:9092"), features: Ok(levels()) };
    let ms = Duration::from_millis;
    Facts {
        choice: AckModeChoice::Auto,
        support: ModeSupport { transactional: Err("it needs share.version 3".to_owned()), ledger: Ok(()) },
        brokers: [1, 2, 3].map(broker).to_vec(),
        times: Times {
            goal: ms(200),
            interval: ms(200),
            barrier: ms(12_000),
            commit: ms(15_000),
            end_txn: ms(10_000),
            transaction_timeout: ms(42_200),
            is_ledger: true,
        },
        limits: ClusterLimits {
            transaction_timeout_max: Some(ms(900_000)),
            lock_duration: Some(ms(30_000)),
            renews_locks: true,
            record_locks_max: None,
        },
        group: GroupFacts {
            group: "late".to_owned(),
            wanted: texts([("share.auto.offset.reset", "earliest")]),
            change: Some(Ok(())),
            unknown: Vec::new(),
            told: Ok(texts([
                ("share.isolation.level", "read_committed"),
                ("share.delivery.count.limit", "5"),
                ("share.renew.acknowledge.enable", "true"),
                ("errors.deadletterqueue.topic.name", ""),
            ])),
            brokers: Ok(texts([("default.replication.factor", "3")])),
            share_version: 1,
            standing: Ok(Standing { partition_count: 8, unread_count: 8, unread_records: 1_000 }),
            letters: None,
            delivery_reserve: 2,
            goal: ms(200),
            has_dead_letters: true,
        },
        group_operations: Ok(Some(Operations::of(&[Read, Describe, DescribeConfigs, AlterConfigs]))),
        members: MemberFacts {
            group: "late".to_owned(),
            job: "late".to_owned(),
            instance: "main".to_owned(),
            mode: Some(AckMode::Ledger),
            listed: Ok(Some(GroupListing {
                group_id: "late".to_owned(),
                kind: "share".to_owned(),
                state: "Stable".to_owned(),
            })),
            described: Ok(Some(described(&["sharestream-late-other"]))),
        },
        topics: vec![
            topic(Role::Source, "flights", &[Read]),
            topic(Role::Output, "delayed", &[Write]),
            topic(Role::DeadLetters, "rejected", &[Write]),
            topic(Role::Parking, "parked", &[Read, Write]),
            topic(Role::Outcomes, "outcomes", &[Read, Write]),
        ],
        batch_bytes_max: 524_288,
        record_bytes_max: 33_554_432,
        transactions: vec![transaction(0, "CompleteCommit"), transaction(1, "Empty")],
        principal: Some("User:job".to_owned()),
        now_ms: 100_000,
    }
}

const SOURCE: usize = 0;
const OUTPUT: usize = 1;
const LETTERS: usize = 2;
const PARKING: usize = 3;
const OUTCOMES: usize = 4;

fn set(facts: &mut Facts, topic: usize, key: &str, value: &str) {
    let settings = facts.topics[topic].settings.as_mut().unwrap();
    settings.insert(key.to_owned(), value.to_owned());
}

fn there(facts: &mut Facts, topic: usize) -> &mut TopicDescription {
    facts.topics[topic].described.as_mut().unwrap().as_mut().unwrap()
}

fn tell(facts: &mut Facts, key: &str, value: &str) {
    facts.group.told.as_mut().unwrap().insert(key.to_owned(), value.to_owned());
}

/// What is not as it should be.
fn said(facts: &Facts) -> Vec<(Area, &'static str, Weight)> {
    let report = findings(facts);
    let heavy = report.findings.iter().filter(|finding| finding.weight > Weight::Ok);
    heavy.map(|finding| (finding.area, finding.name, finding.weight)).collect()
}

#[test]
fn a_good_job_has_a_word_for_everything_and_nothing_against_it() {
    let facts = good();
    assert_eq!(said(&facts), []);
    let report = findings(&facts);
    assert_eq!(report.mode, Some(AckMode::Ledger));
    let named: Vec<String> =
        report.findings.iter().map(|finding| format!("{}/{}", finding.area.name(), finding.name)).collect();
    for expected in [
        "brokers/features",
        "mode/mode",
        "times/fit",
        "group/settings",
        "group/offset-reset",
        "group/isolation",
        "group/delivery-limit",
        "group/renewal",
        "members/members",
        "topics/exists",
        "outcomes/settings",
        "rights/topic",
        "rights/group",
        "rights/transactional-id",
        "transactions/open",
    ] {
        assert!(named.iter().any(|name| name == expected), "{expected} in {named:?}");
    }
}

type Change = fn(&mut Facts);
type Expected = &'static [(Area, &'static str, Weight)];

/// Changes one fact at a time; each row says what is found then, beside what is fine.
fn check_each(rows: &[(&str, Change, Expected, &[&str])]) {
    for (what, change, expected, words) in rows {
        let mut facts = good();
        change(&mut facts);
        assert_eq!(said(&facts), *expected, "{what}");
        let report = findings(&facts);
        let heavy = report.findings.iter().filter(|finding| finding.weight > Weight::Ok);
        let text: Vec<String> = heavy.map(ToString::to_string).collect();
        let text = text.join("\n");
        for word in *words {
            assert!(text.contains(word), "{what}: '{word}' in\n{text}");
        }
    }
}

#[test]
fn brokers_and_mode() {
    use Area::{Brokers, Mode};
    check_each(&[
        (
            "one broker is away",
            |facts| facts.brokers[1].features = Err(no_answer()),
            &[(Brokers, "unreachable", Warning)],
            &["broker 2 at b2:9092", "no answer within 10s", "advertised.listeners"],
        ),
        (
            "all are away",
            |facts| facts.brokers.iter_mut().for_each(|broker| broker.features = Err(no_answer())),
            &[(Brokers, "unreachable", Refused); 3],
            &["broker 3"],
        ),
        (
            "an upgrade is under way",
            |facts| {
                facts.brokers[2].features.as_mut().unwrap().insert("share.version".to_owned(), 2);
            },
            &[(Brokers, "features-differ", Warning)],
            &["share.version 1", "has 2"],
        ),
        (
            "one broker",
            |facts| facts.brokers.truncate(1),
            &[(Brokers, "one-broker", Hint)],
            &["three brokers"],
        ),
        (
            "no share groups",
            |facts| facts.group.share_version = 0,
            &[(Mode, "share-groups", Refused)],
            &["kafka-features.sh"],
        ),
        (
            "no exactly-once mode",
            |facts| facts.support.ledger = Err("it needs transaction.version 2".to_owned()),
            &[(Mode, "mode", Refused)],
            &["it needs share.version 3", "it needs transaction.version 2", "at-least-once"],
        ),
        (
            "a mode that cannot be had",
            |facts| facts.choice = AckModeChoice::Transactional,
            &[(Mode, "mode", Refused)],
            &["KIP-1289"],
        ),
        (
            "duplicates by choice",
            |facts| facts.choice = AckModeChoice::AtLeastOnce,
            &[(Mode, "mode", Warning)],
            &["a crash doubles records", "can do ledger"],
        ),
    ]);
}

#[test]
fn times_and_group() {
    use Area::{Group, Times};
    check_each(&[
        (
            "a transaction longer than the brokers allow",
            |facts| facts.limits.transaction_timeout_max = Some(Duration::from_secs(20)),
            &[(Times, "transaction-timeout-max", Refused)],
            &["42.2s", "20s", "at least 42200"],
        ),
        (
            "locks that are not known",
            |facts| facts.limits.lock_duration = None,
            &[(Times, "lock", Warning)],
            &["share.record.lock.duration.ms"],
        ),
        (
            "the window",
            |facts| {
                facts.limits.record_locks_max = Some(2_000);
                tell(facts, "share.partition.max.record.locks", "2000");
            },
            &[(Times, "record-locks", Hint), (Group, "window", Hint)],
            &[
                "bound a partition to 10000 records/s",
                "8 source partitions",
                "bound the job to 80000 records/s",
            ],
        ),
        (
            "a newcomer begins at the end",
            |facts| {
                facts.group.wanted.clear();
                facts.group.change = None;
            },
            &[(Group, "offset-reset", Warning)],
            &["latest, Kafka's default", "8 of 8 partitions", "1000 records", "\"earliest\""],
        ),
        (
            "somebody who has read does not begin",
            |facts| {
                facts.group.wanted.clear();
                facts.group.change = None;
                facts.group.standing.as_mut().unwrap().unread_count = 0;
            },
            &[],
            &[],
        ),
        (
            "latest is asked for",
            |facts| facts.group.wanted = texts([("share.auto.offset.reset", "latest")]),
            &[(Group, "offset-reset", Warning)],
            &["(share.auto.offset.reset = latest)"],
        ),
        (
            "nobody says where it begins",
            |facts| {
                facts.group.wanted.clear();
                facts.group.change = None;
                facts.group.told = Err(no_answer());
            },
            &[
                (Group, "offset-reset", NotChecked),
                (Group, "isolation", NotChecked),
                (Group, "delivery-limit", NotChecked),
                (Group, "renewal", NotChecked),
                (Group, "broker-dead-letters", NotChecked),
            ],
            &["no answer within 10s"],
        ),
        (
            "nobody says where it stands",
            |facts| facts.group.standing = Err(no_answer()),
            &[(Group, "offset-reset", NotChecked)],
            &["where group 'late' stands"],
        ),
        (
            "aborted records are read",
            |facts| tell(facts, "share.isolation.level", "read_uncommitted"),
            &[(Group, "isolation", Hint)],
            &["read_committed"],
        ),
        (
            "a limit of 2",
            |facts| tell(facts, "share.delivery.count.limit", "2"),
            &[(Group, "delivery-limit", Warning)],
            &["is 2", "at least 3"],
        ),
        ("a limit of 3", |facts| tell(facts, "share.delivery.count.limit", "3"), &[], &[]),
        (
            "a limit of the brokers",
            |facts| {
                facts.group.told.as_mut().unwrap().remove("share.delivery.count.limit");
                let brokers = facts.group.brokers.as_mut().unwrap();
                brokers.insert("group.share.delivery.count.limit".to_owned(), "1".to_owned());
            },
            &[(Group, "delivery-limit", Warning)],
            &["is 1"],
        ),
        (
            "no protection",
            |facts| facts.group.delivery_reserve = 0,
            &[(Group, "delivery-limit", Warning)],
            &["delivery-reserve is 0"],
        ),
        (
            "no renewal",
            |facts| tell(facts, "share.renew.acknowledge.enable", "false"),
            &[(Group, "renewal", Warning)],
            &["share.renew.acknowledge.enable"],
        ),
        (
            "settings that are refused",
            |facts| facts.group.change = Some(Err(NoAnswer::because("INVALID_CONFIG (too small)"))),
            &[(Group, "settings", Refused)],
            &["too small", "[source.group_config]"],
        ),
        (
            "settings that this Kafka has for all groups only",
            |facts| {
                facts.group.change = Some(Err(no_answer()));
                let limit = "share.delivery.count.limit";
                facts.group.wanted.insert(limit.to_owned(), "10".to_owned());
                facts.group.unknown = vec![limit.to_owned()];
                facts.group.told.as_mut().unwrap().remove(limit);
                facts.group.brokers.as_mut().unwrap().insert(format!("group.{limit}"), "2".to_owned());
            },
            &[(Group, "settings", Warning), (Group, "delivery-limit", Warning)],
            &["do not have share.delivery.count.limit", "group.<name>", "is 2"],
        ),
    ]);
}

fn letters(facts: &mut Facts, allowed: &str) {
    facts.group.share_version = 2;
    let brokers = facts.group.brokers.as_mut().unwrap();
    brokers.insert("errors.deadletterqueue.topic.name.prefix".to_owned(), "dlq.".to_owned());
    let described = topic(Role::DeadLetters, "dlq.late", &[]).described;
    let settings = Ok(texts([("errors.deadletterqueue.group.enable", allowed)]));
    facts.group.letters = Some(BrokerLetters { topic: "dlq.late".to_owned(), described, settings });
}

#[test]
fn dead_letters_of_the_brokers() {
    use Area::Group;
    const NAME: &str = "broker-dead-letters";
    check_each(&[
        ("they work", |facts| letters(facts, "true"), &[], &[]),
        (
            "the topic takes none",
            |facts| letters(facts, "false"),
            &[(Group, NAME, Warning)],
            &["errors.deadletterqueue.group.enable=true"],
        ),
        (
            "the level is too low",
            |facts| {
                letters(facts, "true");
                facts.group.share_version = 1;
            },
            &[(Group, NAME, Warning)],
            &["share.version is 1"],
        ),
        (
            "a name of another kind",
            |facts| {
                letters(facts, "true");
                facts.group.letters.as_mut().unwrap().topic = "late.dead".to_owned();
            },
            &[(Group, NAME, Warning)],
            &["'dlq.'"],
        ),
        (
            "a topic that is not there",
            |facts| {
                letters(facts, "true");
                facts.group.letters.as_mut().unwrap().described = Ok(None);
            },
            &[(Group, NAME, Warning)],
            &["does not exist"],
        ),
        (
            "a topic that the brokers make",
            |facts| {
                letters(facts, "true");
                facts.group.letters.as_mut().unwrap().described = Ok(None);
                let brokers = facts.group.brokers.as_mut().unwrap();
                brokers
                    .insert("errors.deadletterqueue.auto.create.topics.enable".to_owned(), "true".to_owned());
            },
            &[],
            &[],
        ),
        (
            "a topic that cannot be seen",
            |facts| {
                letters(facts, "true");
                facts.group.letters.as_mut().unwrap().described = Err(no_answer());
            },
            &[(Group, NAME, NotChecked)],
            &["dlq.late"],
        ),
    ]);
    assert_eq!(group::letters_topic([&texts([]), &texts([])]), None);
    let named = |topic| texts([("errors.deadletterqueue.topic.name", topic)]);
    assert_eq!(group::letters_topic([&texts([]), &named("dlq.a")]).as_deref(), Some("dlq.a"));
    assert_eq!(group::letters_topic([&named(""), &named("dlq.a")]), None, "the job file switches it off");
}

#[test]
fn members() {
    use Area::Members;
    fn join(facts: &mut Facts, who: &[&str]) {
        facts.members.described = Ok(Some(described(who)));
    }
    check_each(&[
        ("nobody", |facts| join(facts, &[]), &[], &[]),
        ("a new group", |facts| facts.members.described = Ok(None), &[], &[]),
        (
            "the same job",
            |facts| join(facts, &["sharestream-late-main"]),
            &[(Members, "same-job", Warning)],
            &["late/main runs already", "10.0.0.1", "job.instance"],
        ),
        (
            "another job",
            |facts| join(facts, &["sharestream-early-main"]),
            &[(Members, "other-job", Warning)],
            &["sharestream-early-main"],
        ),
        (
            "others, many of them, beside a ledger",
            |facts| join(facts, &["java-1", "java-2", "java-3", "java-4", "java-5"]),
            &[(Members, "foreign", Refused)],
            &["java-1", "2 more", "in no ledger"],
        ),
        (
            "others, beside transactions",
            |facts| {
                join(facts, &["java-1"]);
                facts.members.mode = Some(AckMode::Transactional);
            },
            &[(Members, "foreign", Warning)],
            &["never reaches the output"],
        ),
        (
            "a consumer group of this name",
            |facts| {
                facts.members.described = Ok(None);
                facts.members.listed.as_mut().unwrap().as_mut().unwrap().kind = "consumer".to_owned();
            },
            &[(Members, "other-type", Refused)],
            &["is a consumer group (Stable)"],
        ),
        (
            "no answers",
            |facts| {
                facts.members.described = Err(no_answer());
                facts.members.listed = Err(no_answer());
            },
            &[(Members, "other-type", NotChecked), (Members, "members", NotChecked)],
            &["no answer"],
        ),
    ]);
}

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

#[test]
fn rights() {
    use Area::{Rights, Transactions};
    fn may(facts: &mut Facts, topic: usize, operations: &[AclOperation]) {
        there(facts, topic).operations = Some(Operations::of(operations));
    }
    check_each(&[
        (
            "a source that may not be read",
            |facts| may(facts, SOURCE, &[Describe]),
            &[(Rights, "topic", Refused)],
            &["Read on source topic 'flights'", "'User:job'", "--operation Read --topic 'flights'"],
        ),
        (
            "outcomes that may not be touched",
            |facts| may(facts, OUTCOMES, &[Describe]),
            &[(Rights, "topic", Refused), (Rights, "topic", Refused), (Rights, "topic-settings", Warning)],
            &["--operation Read --topic 'outcomes'", "--operation Write --topic 'outcomes'"],
        ),
        (
            "brokers that do not tell",
            |facts| there(facts, OUTPUT).operations = None,
            &[(Rights, "topic", NotChecked)],
            &["output topic 'delayed'"],
        ),
        (
            "a group that may not be joined or set",
            |facts| facts.group_operations = Ok(Some(Operations::of(&[Describe, DescribeConfigs]))),
            &[(Rights, "group", Refused), (Rights, "group", Refused)],
            &["--operation Read --group 'late'", "--operation AlterConfigs --group 'late'"],
        ),
        (
            "a group without settings of its own",
            |facts| {
                facts.group.wanted.clear();
                facts.group.change = None;
                facts.group.standing.as_mut().unwrap().unread_count = 0;
                facts.group_operations = Ok(Some(Operations::of(&[Read, Describe])));
            },
            &[(Rights, "group", Warning)],
            &["DescribeConfigs"],
        ),
        (
            "a group that may not be seen",
            |facts| facts.group_operations = Err(refusal()),
            &[(Rights, "group", Refused)],
            &["needs an ACL"],
        ),
        (
            "rights on a group that nobody tells",
            |facts| facts.group_operations = Ok(None),
            &[(Rights, "group", NotChecked)],
            &["do not tell"],
        ),
        (
            "an id that may not be used",
            |facts| facts.transactions[0].may_write = Ok(false),
            &[(Rights, "transactional-id", Refused)],
            &["--transactional-id 'late.main.0'"],
        ),
        (
            "ids that nobody may see",
            |facts| {
                for one in &mut facts.transactions {
                    (one.may_write, one.described) = (Err(refusal()), Err(refusal()));
                }
            },
            &[
                (Rights, "transactional-id", Refused),
                (Rights, "transactional-id", Refused),
                (Transactions, "open", NotChecked),
                (Transactions, "open", NotChecked),
            ],
            &["needs an ACL"],
        ),
        (
            "no answer about an id",
            |facts| facts.transactions[1].may_write = Err(no_answer()),
            &[(Rights, "transactional-id", NotChecked)],
            &["late.main.1"],
        ),
        (
            "an open transaction",
            |facts| facts.transactions[1] = transaction(1, "Ongoing"),
            &[(Transactions, "open", Warning)],
            &["late.main.1 has an open transaction (Ongoing since 5 s", "42s"],
        ),
        ("an id that is new", |facts| facts.transactions[0].described = Ok(None), &[], &[]),
        ("a group without a standing", |facts| facts.group.standing = Ok(Standing::default()), &[], &[]),
    ]);
}

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
