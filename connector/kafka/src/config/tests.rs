//! Defaults, faults and policies.

use super::*;

fn valid() -> KafkaJobConfig {
    KafkaJobConfig {
        bootstrap: vec!["localhost:9092".to_owned()],
        ..KafkaJobConfig::new("job", "group", vec!["in".to_owned()], SinkConfig::to_topic("out"))
    }
}

#[test]
fn sound_settings_have_no_fault() {
    assert_eq!(valid().validate(), []);
}

#[test]
fn all_faults_are_reported_at_once() {
    let mut config = valid();
    config.bootstrap = vec!["nowhere".to_owned()];
    config.job = "a job".to_owned();
    config.topics = vec!["in".to_owned(), "in".to_owned()];
    config.sink.topic = "in".to_owned();
    config.commit_deadline = config.transaction_timeout;
    config.bad_records = Some(BadRecords::DeadLetter);
    let fields: Vec<_> = config.validate().into_iter().map(|fault| fault.field).collect();
    assert_eq!(fields, ["bootstrap", "job", "topics", "sink.topic", "bad-records", "commit-deadline"]);
}

#[test]
fn parking_needs_a_topic_of_its_own_and_a_group_that_reads_what_is_committed() {
    let mut config = valid();
    config.parking_topic = Some("job.parked".to_owned());
    assert_eq!(config.validate(), []);
    assert_eq!(config.acquired_topics(), ["in", "job.parked"]);
    config.dead_letter_topic = Some("dead".to_owned());
    for taken in ["in", "out", "dead", "sharestream.outcomes", "no name", ""] {
        let config = KafkaJobConfig { parking_topic: Some(taken.to_owned()), ..config.clone() };
        let fields: Vec<_> = config.validate().into_iter().map(|fault| fault.field).collect();
        assert_eq!(fields, ["parking-topic"], "{taken}");
    }
    config.group_configs.insert(ISOLATION_LEVEL.to_owned(), "read_uncommitted".to_owned());
    let faults = config.validate();
    assert!(faults.len() == 1 && faults[0].message.contains("aborted"), "{faults:?}");
}

#[test]
fn each_kind_of_error_has_its_own_policy_or_that_of_all() {
    let policies = |config: &KafkaJobConfig| RejectKind::ALL.map(|kind| config.policy(kind));
    use BadRecords::{DeadLetter, Fail, Reject};
    let mut config = valid();
    assert_eq!(policies(&config), [Fail; 5]);
    config.call_policy = Some(DeadLetter);
    let fields: Vec<_> = config.validate().into_iter().map(|fault| fault.field).collect();
    assert_eq!(fields, ["call-policy"], "there is no topic for them");
    config.dead_letter_topic = Some("bad".to_owned());
    assert_eq!(config.validate(), []);
    (config.decode_policy, config.delivery_limit_policy) = (Some(Reject), Some(Fail));
    assert_eq!(policies(&config), [Reject, DeadLetter, DeadLetter, Fail, DeadLetter]);
    (config.too_large_policy, config.record_bytes_max) = (Some(Reject), 1_023);
    assert_eq!(config.policy(RejectKind::TooLarge), Reject);
    assert_eq!(config.validate().len(), 1, "record-bytes-max");
    for (ahead, batch, fields) in [
        (1_024, 1_024, &[][..]),
        (1_023, DECOMPRESSED_BYTES_MAX, &["decompressed-bytes-max"]),
        (1_024, 1_023, &["decompressed-batch-bytes-max"]),
        (1_024, DECOMPRESSED_BYTES_MAX + 1, &["decompressed-batch-bytes-max"]),
    ] {
        let mut config = valid();
        (config.decompressed_bytes_max, config.decompressed_batch_bytes_max) = (ahead, batch);
        let found: Vec<_> = config.validate().into_iter().map(|fault| fault.field).collect();
        assert_eq!(found, fields);
    }
    let written: BadRecords = serde_json::from_str("\"drop\"").unwrap();
    assert_eq!(written, Reject, "the name that it had before");
}

#[test]
fn auto_is_transactional_else_ledger_and_never_at_least_once() {
    use AckModeChoice::{AtLeastOnce, Auto, Ledger, Transactional};
    let support = |transactional: bool, ledger: bool| ModeSupport {
        transactional: transactional.then_some(()).ok_or_else(|| "share.version is 2".to_owned()),
        ledger: ledger.then_some(()).ok_or_else(|| "transaction.version is 1".to_owned()),
    };
    for (choice, transactional, ledger, expected) in [
        (Auto, true, true, Ok(AckMode::Transactional)),
        (Auto, false, true, Ok(AckMode::Ledger)),
        (Auto, false, false, Err("share.version is 2")),
        (Auto, false, false, Err("transaction.version is 1")),
        (Transactional, true, true, Ok(AckMode::Transactional)),
        (Transactional, false, true, Err("share.version is 2")),
        (Ledger, true, true, Ok(AckMode::Ledger)),
        (Ledger, true, false, Err("transaction.version is 1")),
        (AtLeastOnce, true, true, Ok(AckMode::AtLeastOnce)),
        (AtLeastOnce, false, false, Ok(AckMode::AtLeastOnce)),
    ] {
        let resolved = resolve_mode(choice, support(transactional, ledger));
        match (resolved, expected) {
            (Ok(mode), expected) => assert_eq!(Ok(mode), expected, "{choice:?}"),
            (Err(text), Err(reason)) => assert!(text.contains(reason), "{text}"),
            (Err(text), Ok(mode)) => panic!("{choice:?} should be {mode:?}: {text}"),
        }
    }
}
