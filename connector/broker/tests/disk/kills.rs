//! The broker in a process of its own, killed (SIGKILL) in the middle of work, over and over on one folder.

use std::process::Stdio;
use std::time::Duration;

use sharestream_base::{Env, HostPort, OwnedTask, TaskKind};
use sharestream_broker::{Broker, BrokerConfig};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::raw::Client;
use crate::workload::{self, PARTITIONS, Shared};

const FOLDER: &str = "SHARESTREAM_TEST_DATA";
const FSYNC: &str = "SHARESTREAM_TEST_FSYNC";

#[tokio::test]
#[ignore = "the broker that the test below starts and kills"]
async fn serve_until_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let fsync = std::env::var(FSYNC).unwrap().parse().unwrap();
    let config = BrokerConfig { data: Some(folder.into()), fsync, ..BrokerConfig::default() };
    let broker = Broker::builder(Env::system()).config(config).nodes(1).start().await.unwrap();
    println!("\nlistening on {}", broker.bootstrap());
    std::future::pending::<()>().await;
}

async fn serve(folder: &std::path::Path, fsync: &str) -> (Child, HostPort) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::serve_until_killed", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(FSYNC, fsync)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some(address) = line.strip_prefix("listening on ") {
            return (child, address.parse().unwrap());
        }
    }
    panic!("the broker did not start");
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_it_answered_whatever_the_policy() {
    const ROUNDS: u64 = 5;
    /// Transactions that a round ends before its kill.
    const ENDED_BEFORE_KILL: usize = 5;
    const PATIENCE: Duration = Duration::from_secs(60);
    for fsync in ["always", "interval:50", "never"] {
        let (env, folder) = (Env::system(), tempfile::tempdir().unwrap());
        let shared = Shared::default();
        for round in 0..ROUNDS {
            let (mut child, address) = serve(folder.path(), fsync).await;
            if round == 0 {
                let mut client = Client::connect(&env, &address).await;
                assert_eq!(client.create_topic("t", PARTITIONS).await, 0);
            } else {
                let answered = shared.lock().unwrap().clone();
                workload::check(&env, &address, &answered).await;
            }
            let work = workload::run(env.clone(), address, shared.clone());
            let mut work = OwnedTask::spawn(&env.spawner, "work", TaskKind::Job, work);
            // Killed amid work, however fast this machine is: after some answers, at any moment.
            let ended = || {
                let answered = shared.lock().unwrap();
                answered.committed.len() + answered.aborted.len()
            };
            let enough = ended() + ENDED_BEFORE_KILL;
            let waited = async {
                while ended() < enough {
                    env.clock.sleep(Duration::from_millis(5)).await;
                }
            };
            env.clock.timeout(PATIENCE, waited).await.expect("the broker answers");
            env.clock.sleep(Duration::from_millis(env.rng.below(150))).await;
            child.kill().await.unwrap();
            work.join().await.expect_err("the work ends with its broker");
        }
        let (_child, address) = serve(folder.path(), fsync).await;
        let answered = shared.lock().unwrap().clone();
        assert!(answered.committed.len() >= 15 && !answered.aborted.is_empty(), "{answered:?}");
        workload::check(&env, &address, &answered).await;
    }
}
