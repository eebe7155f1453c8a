//! One seed is one run: the same steps at the same virtual times, to the last poll and byte.

use sharestream_sim::plan::Plan;
use sharestream_sim::world::{RunOptions, run};

/// Seeds that are run twice.
const SEEDS: u64 = 50;

#[test]
fn a_seed_gives_the_same_trace_twice_and_recording_changes_nothing() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..SEEDS {
        let plan = Plan::draw(seed);
        let first = run(&plan, RunOptions::default());
        let second = run(&plan, RunOptions { recording: true, bug: None });
        assert_eq!(first.totals, second.totals, "seed {seed}");
        assert_eq!(first.findings, second.findings, "seed {seed}");
        hashes.insert(first.totals.hash);
    }
    assert_eq!(hashes.len() as u64, SEEDS, "two seeds have one trace: is the hash of anything?");
}
