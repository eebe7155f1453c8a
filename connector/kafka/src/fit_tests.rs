//! Each relation between times, at its bounds.

use super::*;

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

/// Fits, with nothing to spare where a bound is strict.
fn times() -> Times {
    Times {
        goal: ms(2_000),
        interval: ms(2_000),
        barrier: ms(12_000),
        commit: ms(15_000),
        end_txn: ms(10_000),
        transaction_timeout: ms(29_001),
        is_ledger: true,
    }
}

fn limits() -> ClusterLimits {
    ClusterLimits {
        transaction_timeout_max: Some(ms(29_001)),
        lock_duration: Some(ms(6_000)),
        renews_locks: true,
        record_locks_max: None,
    }
}

/// What is said beside hints.
fn said(times: Times, limits: ClusterLimits) -> Vec<(Weight, String)> {
    let findings = fit(&times, &limits).into_iter();
    findings
        .filter(|finding| finding.weight > Weight::Hint)
        .map(|finding| (finding.weight, finding.to_string()))
        .collect()
}

#[test]
fn each_relation_holds_at_its_bound_and_not_beyond() {
    assert_eq!(said(times(), limits()), []);
    assert_eq!(said(Times { is_ledger: false, end_txn: ms(14_999), ..times() }, limits()), []);
    assert_eq!(said(times(), ClusterLimits { lock_duration: Some(ms(30_000)), ..limits() }), []);
    let without = ClusterLimits { renews_locks: false, lock_duration: Some(ms(29_001)), ..limits() };
    assert_eq!(said(times(), without), []);
    use Weight::{Refused, Warning};
    let short = Times { goal: ms(400), interval: ms(400), ..times() };
    let at = |lock: u64| ClusterLimits { lock_duration: Some(ms(lock)), ..limits() };
    assert_eq!(said(short, at(1_500)), []);
    let table: [(Times, ClusterLimits, Weight, &[&str]); 10] = [
        (
            Times { transaction_timeout: ms(29_000), ..times() },
            limits(),
            Refused,
            &["transaction-timeout 29s is not above 29s", "2s", "12s", "15s", "raise transaction-timeout"],
        ),
        (
            Times { barrier: ms(12_001), ..times() },
            limits(),
            Refused,
            &["is not above 29.001s", "barrier_alignment_timeout"],
        ),
        (Times { interval: ms(2_001), ..times() }, limits(), Refused, &["an epoch may be open for 2.001s"]),
        (
            times(),
            ClusterLimits { transaction_timeout_max: Some(ms(29_000)), ..limits() },
            Refused,
            &["above the 29s that the brokers allow", "transaction.max.timeout.ms", "at least 29001"],
        ),
        (
            times(),
            ClusterLimits { transaction_timeout_max: None, ..limits() },
            Warning,
            &["transaction.max.timeout.ms of the brokers is not known", "29.001s"],
        ),
        (
            Times { is_ledger: false, end_txn: ms(15_000), ..times() },
            limits(),
            Refused,
            &["commit-deadline 15s", "not below the 15s of the whole commit"],
        ),
        (
            Times { end_txn: ms(10_002), ..times() },
            limits(),
            Warning,
            &["may wait 5.001s for the claim of another", "it has 15s"],
        ),
        (
            Times { goal: ms(2_001), ..times() },
            limits(),
            Refused,
            &[
                "a latency goal of 2.001s is too long for record locks of 6s",
                "at most a third, 2s",
                "at least 6003",
            ],
        ),
        (
            short,
            at(1_494),
            Refused,
            &["record locks of 1.494s", "leave 249ms for a renewal", "each needs 250ms", "at least 1500"],
        ),
        (
            times(),
            ClusterLimits { renews_locks: false, lock_duration: Some(ms(29_000)), ..limits() },
            Refused,
            &[
                "cannot be renewed",
                "29s (share.record.lock.duration.ms) is not above the 29s",
                "above 29000 ms",
            ],
        ),
    ];
    for (times, limits, weight, parts) in table {
        let said = said(times, limits);
        assert_eq!(said.len(), 1, "{parts:?}: {said:?}");
        let (found, text) = &said[0];
        assert_eq!(*found, weight, "{text}");
        for part in parts {
            assert!(text.contains(part), "{part:?} is missing in: {text}");
        }
    }
    let unknown = said(times(), ClusterLimits { lock_duration: None, ..limits() });
    assert_eq!(unknown.len(), 1);
    assert_eq!(unknown[0].0, Warning);
}

#[test]
fn every_finding_is_told_at_once() {
    let times = Times { transaction_timeout: ms(5_000), end_txn: ms(20_000), goal: ms(60_000), ..times() };
    let limits = ClusterLimits {
        transaction_timeout_max: Some(ms(1_000)),
        lock_duration: Some(ms(1_000)),
        record_locks_max: Some(2_000),
        ..limits()
    };
    let weights: Vec<Weight> = fit(&times, &limits).iter().map(|finding| finding.weight).collect();
    use Weight::{Hint, Refused};
    assert_eq!(weights, [Refused, Refused, Refused, Refused, Refused, Hint]);
}

#[test]
fn a_long_time_out_and_what_locks_allow_are_hints() {
    let roomy = ClusterLimits { transaction_timeout_max: Some(ms(900_000)), ..limits() };
    let long = fit(&Times { transaction_timeout: ms(116_001), ..times() }, &roomy);
    assert_eq!((long.len(), long[0].weight), (1, Weight::Hint));
    assert_eq!(fit(&Times { transaction_timeout: ms(116_000), ..times() }, &roomy), []);
    let rate = fit(&times(), &ClusterLimits { record_locks_max: Some(2_000), ..limits() });
    assert!(rate[0].message.contains("to 1000 records/s"), "{}", rate[0]);
}

#[test]
fn what_the_job_sets_comes_before_what_the_group_has_and_that_before_the_brokers() {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let brokers = map(&[
        ("group.share.record.lock.duration.ms", "7000"),
        ("group.share.partition.max.record.locks", "100"),
        ("transaction.max.timeout.ms", "900000"),
    ]);
    let group = map(&[(LOCK_DURATION_MS, "8000"), (RENEWAL_ENABLED, "false")]);
    let wanted = map(&[(LOCK_DURATION_MS, "9000")]);
    let none = BTreeMap::new();
    let lock = |wanted, group, brokers| ClusterLimits::of(wanted, group, brokers).lock_duration;
    assert_eq!(lock(&wanted, &group, &brokers), Some(ms(9_000)));
    assert_eq!(lock(&none, &group, &brokers), Some(ms(8_000)));
    assert_eq!(lock(&none, &none, &brokers), Some(ms(7_000)), "Kafka 4.2");
    assert_eq!(lock(&none, &none, &none), None);
    let all = ClusterLimits::of(&wanted, &group, &brokers);
    assert_eq!(all.transaction_timeout_max, Some(ms(900_000)));
    assert_eq!((all.renews_locks, all.record_locks_max), (false, Some(100)));
    let nonsense = map(&[("transaction.max.timeout.ms", "soon"), (LOCK_DURATION_MS, "0")]);
    let limits = ClusterLimits::of(&none, &nonsense, &nonsense);
    assert_eq!((limits.transaction_timeout_max, limits.lock_duration), (None, None));
}
