//! One job in several processes that share its group. In each round something happens to one of them: it is killed, told
//! to stop, or made to stand still for longer than its locks last. Then it, or another in its place, goes on.

use std::time::Duration;

use anyhow::ensure;
use sharestream_base::Rng;

use super::line::{Line, PIECE_PAUSE};
use crate::process::{Process, Signal};

/// Replicas that run at once.
const REPLICAS: u64 = 3;
/// How long a replica holds records without a word: short, so that a pause outlasts it. Less leaves no time to renew, and
/// the job refuses to start.
pub(super) const LOCK: Duration = Duration::from_millis(1_500);
/// How long a replica stands still.
const PAUSE: Duration = Duration::from_millis(2_000);
/// Between two rounds.
const QUIET: Duration = Duration::from_millis(150);

/// What happens to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// SIGKILL; another takes its place.
    Kill,
    /// SIGTERM: a last checkpoint, and its records are given back; another takes its place.
    Drain,
    /// SIGSTOP, and SIGCONT when its locks are gone.
    Pause,
}

const ACTS: [Act; 3] = [Act::Kill, Act::Drain, Act::Pause];

/// Does it `count` times.
pub(super) async fn rounds(line: &mut Line<'_>, count: u32, seed: u64) -> anyhow::Result<()> {
    let rng = Rng::seeded(seed).fork("replicas");
    let mut replicas = Vec::new();
    for number in 0..REPLICAS {
        replicas.push(start(line, number)?);
    }
    for replica in &mut replicas {
        replica.wait_for("started").await?;
    }
    for round in 0..count {
        let act = ACTS[round as usize % ACTS.len()];
        let number = rng.below(REPLICAS);
        let index = usize::try_from(number)?;
        // At any moment of an epoch.
        feed(line, QUIET + Duration::from_millis(rng.below(40))).await?;
        match act {
            Act::Kill => {
                replicas.remove(index).kill().await?;
                replicas.insert(index, start(line, number)?);
            }
            Act::Drain => {
                let ended = replicas.remove(index).drain().await?;
                ensure!(ended.success(), "a replica that was told to stop ended with {ended}");
                replicas.insert(index, start(line, number)?);
            }
            Act::Pause => {
                replicas[index].signal(Signal::Stop).await?;
                feed(line, PAUSE).await?;
                replicas[index].signal(Signal::Continue).await?;
            }
        }
        for replica in &mut replicas {
            ensure!(replica.is_running()?, "round {round}, {act:?}, seed {seed}: a replica is gone");
        }
        line.count(&format!("{act:?}").to_lowercase());
    }
    for mut replica in replicas {
        // One that has just been started may not have got so far as to listen to signals.
        if replica.samples().is_empty() {
            replica.wait_for("started").await?;
        }
        let ended = replica.drain().await?;
        ensure!(ended.success(), "seed {seed}: at the end a replica ended with {ended}");
    }
    Ok(())
}

fn start(line: &Line<'_>, number: u64) -> anyhow::Result<Process> {
    let mut spec = line.spec.clone();
    spec.instance = format!("replica-{number}");
    spec.store = None;
    Process::start(&line.place.env, &format!("replica {number}"), &spec.arguments()?)
}

/// Sends records for so long.
async fn feed(line: &mut Line<'_>, time: Duration) -> anyhow::Result<()> {
    let clock = line.place.env.clock.clone();
    let end = clock.now() + time;
    while clock.now() < end {
        line.send_piece().await?;
        clock.sleep(PIECE_PAUSE).await;
    }
    Ok(())
}
