//! Several members with transactions that commit, abort, vanish or let go: every record is decided exactly once.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use futures::future::join_all;
use sharestream_base::Rng;

use crate::fixtures::{Ack, Cluster, acquired_of};

const PARTITIONS: i32 = 3;
const BATCHES: i64 = 40;
const BATCH_RECORDS: i64 = 25;
const MEMBERS: u64 = 3;
/// Far more than it takes.
const INCARNATIONS_MAX: u32 = 200;
const WAIT: Duration = Duration::from_millis(50);

/// How often each offset was decided by a commit or an ordinary acknowledgement.
type Decided = Rc<Mutex<BTreeMap<(i32, i64), u32>>>;

fn decide(decided: &Decided, acks: &[Ack]) {
    let mut decided = decided.lock().unwrap();
    for (partition, first, last, _) in acks {
        for offset in *first..=*last {
            *decided.entry((*partition, offset)).or_default() += 1;
        }
    }
}

/// Works until everything is decided.
async fn work(cluster: Rc<Cluster>, number: u64, rng: Rng, decided: Decided) {
    let all = usize::try_from(i64::from(PARTITIONS) * BATCHES * BATCH_RECORDS).unwrap();
    for incarnation in 0..INCARNATIONS_MAX {
        if decided.lock().unwrap().len() == all {
            return;
        }
        let mut member = cluster.member(&format!("member-{number}-{incarnation}")).await;
        let mut transaction = cluster.transaction(&format!("job-{number}"), Duration::from_secs(10)).await;
        for _ in 0..6 {
            // Others join and leave all the time: the epoch has to be the current one.
            assert_eq!(member.heartbeat().await, 0);
            let response = member.fetch_full(&[], WAIT).await;
            let ranges = (0..PARTITIONS).flat_map(|partition| {
                let acquired = acquired_of(&response, partition).into_iter();
                acquired.map(move |(first, last, _)| (partition, first, last, 1))
            });
            let mut acks: Vec<Ack> = ranges.collect();
            if acks.is_empty() {
                continue;
            }
            // A request names each partition once.
            acks.dedup_by_key(|ack| ack.0);
            match rng.below(8) {
                0 => break,
                1 => {
                    assert_eq!(member.acknowledge(&acks).await, 0);
                    decide(&decided, &acks);
                }
                2 => {
                    let released: Vec<Ack> = acks.iter().map(|ack| (ack.0, ack.1, ack.2, 2)).collect();
                    assert_eq!(member.acknowledge(&released).await, 0);
                }
                3 => {
                    assert_eq!(transaction.stage(&member, &acks).await, 0);
                    transaction.end(false).await;
                }
                // The staged transaction is left to whoever initialises the id next.
                4 => {
                    assert_eq!(transaction.stage(&member, &acks).await, 0);
                    break;
                }
                _ => {
                    assert_eq!(transaction.stage(&member, &acks).await, 0);
                    assert_eq!(transaction.stage(&member, &acks).await, 0);
                    transaction.end(true).await;
                    decide(&decided, &acks);
                }
            }
        }
    }
    let missing = all - decided.lock().unwrap().len();
    panic!("{missing} records were never decided");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_record_is_decided_exactly_once() {
    let rng = Rng::from_entropy();
    println!("{rng:?}");
    let mut cluster = Cluster::start(PARTITIONS, &[("share.delivery.count.limit", "100")]).await;
    for partition in 0..PARTITIONS {
        for _ in 0..BATCHES {
            cluster.produce(partition, usize::try_from(BATCH_RECORDS).unwrap()).await;
        }
    }
    let cluster = Rc::new(cluster);
    let decided = Decided::default();
    let workers = (0..MEMBERS)
        .map(|number| work(Rc::clone(&cluster), number, rng.fork(&format!("{number}")), Rc::clone(&decided)));
    join_all(workers).await;
    let doubled = decided.lock().unwrap().values().filter(|count| **count != 1).count();
    assert_eq!(doubled, 0);
    let mut cluster = Rc::into_inner(cluster).expect("the workers have ended");
    for partition in 0..PARTITIONS {
        for _ in 0..200 {
            if cluster.start_offset(partition).await == BATCHES * BATCH_RECORDS {
                break;
            }
            cluster.env.clock.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(cluster.start_offset(partition).await, BATCHES * BATCH_RECORDS);
    }
    cluster.broker.shutdown().await;
}
