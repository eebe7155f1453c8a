//! One seed is one run: the same steps at the same virtual times, to the last poll and byte. `sharestream-sim --twice --seeds 50` says
//! so of many seeds, in the time that these few take without optimisation.

use std::collections::BTreeSet;

use sharestream_core::commit::AckMode;
use sharestream_sim::plan::Plan;
use sharestream_sim::world::{RunOptions, run};

/// Seeds that are run twice.
const SEEDS: u64 = 12;
/// Threads that share them. A run knows nothing of the others, and this shows it.
const THREADS: u64 = 2;

/// Runs every `THREADS`-th seed twice; the hashes.
fn twice(first_seed: u64) -> BTreeSet<u64> {
    let mut hashes = BTreeSet::new();
    for seed in (first_seed..SEEDS).step_by(usize::try_from(THREADS).expect("a small number")) {
        let plan = Plan::draw(seed);
        let first = run(&plan, RunOptions::default());
        let second = run(&plan, RunOptions { recording: true, bug: None });
        assert_eq!(first.totals, second.totals, "seed {seed}");
        assert_eq!(first.findings, second.findings, "seed {seed}");
        hashes.insert(first.totals.hash);
    }
    hashes
}

#[test]
fn the_seeds_that_are_run_twice_are_of_every_mode() {
    let count = |mode: AckMode| (0..SEEDS).filter(|seed| Plan::draw(*seed).mode() == mode).count();
    assert!(count(AckMode::Ledger) >= 3 && count(AckMode::Transactional) >= 3);
}

#[test]
fn a_seed_gives_the_same_trace_twice_and_recording_changes_nothing() {
    let hashes: BTreeSet<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || twice(first))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no seed differs")).collect()
    });
    assert_eq!(hashes.len() as u64, SEEDS, "two seeds have one trace: is the hash of anything?");
}
