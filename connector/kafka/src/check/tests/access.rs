//! Who is in the group, and what the job may do.

use super::*;

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
