//! The flights job on a real cluster of three nodes whose parts fail: killed, stopped for longer than their
//! time-outs, or behind a network that drops, delays, cuts and swallows. Afterwards `sharestream verify` must find
//! nothing lost, doubled or torn, and no transaction may have been open for longer than its time-out.
//!
//! | variable | means | default |
//! |---|---|---|
//! | `SHARESTREAM_CLUSTER_LAUNCHER` | script that starts Apache Kafka; without it these tests say so and pass | |
//! | `SHARESTREAM_CLUSTER_VERSION` | version of Apache Kafka | 4.4.0 |
//! | `SHARESTREAM_CLUSTER_PORT` | first of 30 ports | 29192 |
//! | `SHARESTREAM_CLUSTER_MODE` | acknowledgement mode of the job | ledger |
//! | `SHARESTREAM_CLUSTER_LONG` | set: 100,000 records, 750 a transaction, three bounces of every kind | |

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod job;
mod nodes;
mod proxy;
mod worker;

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::job::{GivenUp, JobRun, Size, TRANSACTION_TIMEOUT};
use crate::nodes::{BROKER_SESSION, Cluster, Part};

/// A stopped node is silent for longer than its session, the locks and the share of a commit's patience.
const NODE_PAUSE: Duration = Duration::from_secs(12);
/// Longer than any answer is waited for (30 s), in the long run.
const NODE_PAUSE_LONG: Duration = Duration::from_secs(35);
/// How long the network misbehaves.
const NETWORK_FAULT: Duration = Duration::from_secs(6);

fn setting(name: &str) -> Option<String> {
    std::env::var(format!("SHARESTREAM_CLUSTER_{name}")).ok().filter(|value| !value.is_empty())
}

fn is_long() -> bool {
    setting("LONG").is_some()
}

fn size() -> Size {
    match is_long() {
        true => Size { records: 100_000, records_per_transaction: 750, bounces: 3 },
        false => Size { records: 12_000, records_per_transaction: 750, bounces: 1 },
    }
}

/// One cluster for all tests, one test at a time; `None` where there is no Kafka to be had.
fn with_cluster(name: &str, test: impl AsyncFnOnce(&Cluster, JobRun<'_>)) {
    static CLUSTER: OnceLock<(Runtime, Mutex<Option<Cluster>>)> = OnceLock::new();
    let Some(launcher) = setting("LAUNCHER") else {
        println!("skipped: needs Apache Kafka (SHARESTREAM_CLUSTER_LAUNCHER=script)");
        return;
    };
    let (runtime, cluster) = CLUSTER.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        (runtime.unwrap(), Mutex::new(None))
    });
    // A test that failed leaves the cluster as it was: it is healed below.
    let mut cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
    runtime.block_on(async {
        if cluster.is_none() {
            let version = setting("VERSION").unwrap_or_else(|| "4.4.0".to_owned());
            let port = setting("PORT").map_or(29_192, |port| port.parse().unwrap());
            *cluster = Some(Cluster::start(&PathBuf::from(launcher), &version, port).await);
        }
        let cluster = cluster.as_ref().expect("it was just started");
        cluster.heal().await;
        let mode = setting("MODE").unwrap_or_else(|| "ledger".to_owned());
        println!("{name}, {mode}, {:?}", size());
        let mut job = JobRun::start(cluster, name, &mode, size()).await;
        job.progress().await;
        test(cluster, job).await;
    });
}

/// Kills the node that plays `part`, again and again, each time when the cluster is whole.
fn kill_nodes(name: &str, part: Part) {
    with_cluster(name, async |cluster, mut job| {
        for _ in 0..size().bounces {
            let node = job.node_of(part).await;
            cluster.kill(node).await;
            cluster.env.clock.sleep(BROKER_SESSION * 2).await;
            cluster.restart(node).await;
            cluster.whole().await;
            job.progress_or_done().await;
        }
        job.finish(Duration::ZERO, GivenUp::None).await;
    });
}

/// Stops the node that plays `part` for longer than its time-outs.
fn pause_nodes(name: &str, part: Part) {
    let pause = if is_long() { NODE_PAUSE_LONG } else { NODE_PAUSE };
    with_cluster(name, async |cluster, mut job| {
        for _ in 0..size().bounces {
            let node = job.node_of(part).await;
            cluster.pause(node).await;
            cluster.env.clock.sleep(pause).await;
            cluster.resume(node).await;
            cluster.whole().await;
            job.progress_or_done().await;
        }
        job.finish(pause, GivenUp::None).await;
    });
}

#[test]
fn a_killed_partition_leader_loses_doubles_and_tears_nothing() {
    kill_nodes("kill-leader", Part::PartitionLeader);
}

#[test]
fn a_killed_transaction_coordinator_loses_doubles_and_tears_nothing() {
    kill_nodes("kill-transactions", Part::TransactionCoordinator);
}

#[test]
fn a_killed_share_coordinator_loses_doubles_and_tears_nothing() {
    kill_nodes("kill-share", Part::ShareCoordinator);
}

#[test]
fn a_stopped_partition_leader_loses_doubles_and_tears_nothing() {
    pause_nodes("pause-leader", Part::PartitionLeader);
}

#[test]
fn a_stopped_transaction_coordinator_loses_doubles_and_tears_nothing() {
    pause_nodes("pause-transactions", Part::TransactionCoordinator);
}

#[test]
fn a_stopped_share_coordinator_loses_doubles_and_tears_nothing() {
    pause_nodes("pause-share", Part::ShareCoordinator);
}

#[test]
fn a_killed_worker_loses_doubles_and_tears_nothing() {
    with_cluster("kill-worker", async |_, mut job| {
        for _ in 0..size().bounces {
            job.replace_killed_worker().await;
            job.progress_or_done().await;
        }
        job.finish(Duration::ZERO, GivenUp::None).await;
    });
}

#[test]
fn of_a_worker_that_stopped_and_the_one_that_took_over_one_is_fenced() {
    with_cluster("pause-worker", async |cluster, mut job| {
        for bounce in 0..size().bounces {
            job.worker.pause().await;
            // Longer than its locks, its membership and its transactions last.
            cluster.env.clock.sleep(TRANSACTION_TIMEOUT + Duration::from_secs(4)).await;
            let next = job.another_worker();
            let stopped = std::mem::replace(&mut job.worker, next);
            // The first ones wait until the other has taken over; the last wakes while it does.
            let waits = bounce % 2 == 0;
            if waits {
                job.progress_or_done().await;
            }
            stopped.resume().await;
            job.load_until_one_is_fenced(stopped, waits).await;
            job.progress_or_done().await;
        }
        job.finish(Duration::ZERO, GivenUp::None).await;
    });
}

#[test]
fn a_network_that_drops_connections_loses_doubles_and_tears_nothing() {
    network_fault("net-drop", GivenUp::NearTheLimit, async |cluster| {
        let until = cluster.env.clock.now() + NETWORK_FAULT;
        while cluster.env.clock.now() < until {
            cluster.proxies.iter().for_each(|proxy| proxy.drop_connections());
            cluster.env.clock.sleep(Duration::from_millis(700)).await;
        }
        // And for a while nobody can connect at all.
        cluster.proxies.iter().for_each(|proxy| proxy.refuse());
        cluster.env.clock.sleep(NETWORK_FAULT).await;
    });
}

#[test]
fn a_slow_network_loses_doubles_and_tears_nothing() {
    network_fault("net-delay", GivenUp::None, async |cluster| {
        cluster.proxies.iter().for_each(|proxy| proxy.delay(Duration::from_millis(400)));
        cluster.env.clock.sleep(NETWORK_FAULT * 2).await;
    });
}

#[test]
fn responses_that_are_cut_in_the_middle_lose_double_and_tear_nothing() {
    network_fault("net-cut", GivenUp::NearTheLimit, async |cluster| {
        let until = cluster.env.clock.now() + NETWORK_FAULT;
        while cluster.env.clock.now() < until {
            cluster.proxies.iter().for_each(|proxy| proxy.cut_responses());
            cluster.env.clock.sleep(Duration::from_millis(50)).await;
            // Long enough to get as far as a commit now and then.
            cluster.proxies.iter().for_each(|proxy| proxy.forward());
            cluster.env.clock.sleep(Duration::from_millis(300)).await;
        }
    });
}

#[test]
fn a_network_that_swallows_everything_loses_doubles_and_tears_nothing() {
    network_fault("net-black-hole", GivenUp::None, async |cluster| {
        cluster.proxies.iter().for_each(|proxy| proxy.black_hole());
        cluster.env.clock.sleep(NETWORK_FAULT).await;
    });
}

/// A fault of the network between the worker and all brokers. `given_up`: each connection that ends may cost what was
/// acquired over it a delivery.
fn network_fault(name: &str, given_up: GivenUp, fault: impl AsyncFn(&Cluster)) {
    with_cluster(name, async |cluster, mut job| {
        for _ in 0..size().bounces {
            fault(cluster).await;
            cluster.proxies.iter().for_each(|proxy| proxy.forward());
            job.progress_or_done().await;
        }
        job.finish(Duration::ZERO, given_up).await;
    });
}
