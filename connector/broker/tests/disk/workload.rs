//! Transactions over two partitions, one after another, until the broker is gone; and what must be true afterwards.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use sharestream_base::{Env, HostPort};

use super::raw::{Client, READ_COMMITTED, batch};

pub(crate) const PARTITIONS: i32 = 2;
/// Each transaction stages its number as this group's offset.
const GROUP: &str = "readers";

/// What was begun and what was answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answered {
    /// Numbers of transactions whose commit was answered.
    pub(crate) committed: BTreeSet<u32>,
    /// Numbers of those whose abort was answered.
    pub(crate) aborted: BTreeSet<u32>,
    next: u32,
}

pub(crate) type Shared = Arc<Mutex<Answered>>;

/// Runs until the broker does not answer any more: then it panics, which ends its task.
pub(crate) async fn run(env: Env, address: HostPort, shared: Shared) {
    let mut client = Client::connect(&env, &address).await;
    let mut producer = client.init_patiently("tx").await;
    loop {
        let number = {
            let mut answered = shared.lock().unwrap();
            answered.next += 1;
            answered.next
        };
        let commit = !number.is_multiple_of(5);
        for partition in 0..PARTITIONS {
            let records = batch(Some(producer), 0, true, &[&number.to_string()]);
            let produced = client.produce(12, Some("tx"), partition, records).await;
            assert_eq!(produced.error_code, 0);
        }
        assert_eq!(client.stage_patiently(("tx", producer), GROUP, i64::from(number)).await, 0);
        producer = client.end(5, "tx", producer, commit).await.unwrap();
        let mut answered = shared.lock().unwrap();
        let set = if commit { &mut answered.committed } else { &mut answered.aborted };
        set.insert(number);
    }
}

/// Ends what a crash left open, then: what was answered is so, and each transaction is in all partitions or in none.
pub(crate) async fn check(env: &Env, address: &HostPort, answered: &Answered) {
    let mut client = Client::connect(env, address).await;
    client.init_patiently("tx").await;
    let mut seen: Vec<BTreeSet<u32>> = Vec::new();
    for partition in 0..PARTITIONS {
        let values = client.values(partition, READ_COMMITTED).await;
        let numbers: BTreeSet<u32> = values.iter().map(|value| value.parse().unwrap()).collect();
        assert_eq!(numbers.len(), values.len(), "a record is there twice");
        seen.push(numbers);
    }
    assert_eq!(seen[0], seen[1], "a transaction is in one partition and not in the other");
    let last = seen[0].last().map_or(-1, |number| i64::from(*number));
    assert_eq!(client.offset(GROUP, 0, true).await, Ok(last), "a group is not where its last transaction is");
    let lost: Vec<_> = answered.committed.difference(&seen[0]).collect();
    assert!(lost.is_empty(), "answered commits are lost: {lost:?}");
    assert!(answered.aborted.is_disjoint(&seen[0]), "an answered abort became a commit");
}
