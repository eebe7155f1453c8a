//! Each finding appears exactly when it should: facts of a good job, one of them changed at a time.

mod access;
mod groups;
mod stores;
mod topic_facts;

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
