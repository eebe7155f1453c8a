//! Measurements, run by hand: `cargo test --release -p sharestream-broker --test share_groups -- --ignored --nocapture
//! --test-threads 1`.

use std::time::Duration;

use crate::fixtures::{Ack, Cluster, acquired_of};

const PARTITIONS: i32 = 8;
const LONG: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn records_a_second_through_share_fetch_and_staged_commit() {
    const BATCHES: i64 = 150;
    const BATCH_RECORDS: usize = 1_000;
    let mut cluster = Cluster::start(PARTITIONS, &[("share.partition.max.record.locks", "4000")]).await;
    for partition in 0..PARTITIONS {
        for _ in 0..BATCHES {
            cluster.produce(partition, BATCH_RECORDS).await;
        }
    }
    let mut member = cluster.member("alice").await;
    let mut transaction = cluster.transaction("job-0", LONG).await;
    let (mut done, total) = (0, i64::from(PARTITIONS) * BATCHES * BATCH_RECORDS as i64);
    let clock = cluster.env.clock.clone();
    let (mut staging, mut ending) = (Vec::new(), Vec::new());
    let begun = clock.now();
    while done < total {
        let mut acks: Vec<Ack> = Vec::new();
        while acks.len() < PARTITIONS as usize {
            let response = member.fetch_full(&[], LONG).await;
            for partition in 0..PARTITIONS {
                for (first, last, _) in acquired_of(&response, partition) {
                    acks.push((partition, first, last, 1));
                    done += last - first + 1;
                }
            }
            if done == total {
                break;
            }
        }
        acks.sort_unstable();
        acks.dedup_by(|right, left| {
            let joins = left.0 == right.0 && left.2 + 1 == right.1;
            if joins {
                left.2 = right.2;
            }
            joins
        });
        let before = clock.now();
        assert_eq!(transaction.stage(&member, &acks).await, 0);
        let staged = clock.now();
        transaction.end(true).await;
        staging.push(staged - before);
        ending.push(clock.now() - staged);
    }
    let spent = clock.now() - begun;
    staging.sort_unstable();
    ending.sort_unstable();
    println!(
        "{:.0} records/s, {} commits, staging p50 {:?} p99 {:?}, EndTxn p50 {:?}",
        done as f64 / spent.as_secs_f64(),
        staging.len(),
        staging[staging.len() / 2],
        staging[staging.len() * 99 / 100],
        ending[ending.len() / 2],
    );
    cluster.broker.shutdown().await;
}
