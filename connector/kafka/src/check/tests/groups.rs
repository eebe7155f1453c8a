//! Times, settings of the group, and dead letters that brokers write.

use super::*;

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
