//! The simulation finds what is planted, and the documentation says how fast.
#![allow(clippy::unwrap_used, reason = "a test may")]

use sharestream_base::planted::Bug;
use sharestream_sim::planted_table::{BEGIN, END, measure};

const DOCUMENT: &str = include_str!("../../../docs/simulation.md");

/// Rows of the generated table: name and the seeds it took.
fn rows() -> Vec<(String, Option<u64>)> {
    let (_, rest) = DOCUMENT.split_once(BEGIN).unwrap();
    let (table, _) = rest.split_once(END).unwrap();
    let cells = |line: &str| -> Vec<String> {
        line.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
    };
    let rows = table.lines().filter(|line| line.starts_with("| `")).map(cells);
    rows.map(|cells| (cells[1].clone(), cells[2].parse().ok())).collect()
}

#[test]
fn the_table_lists_every_planted_bug() {
    let names: Vec<String> = rows().into_iter().map(|(name, _)| name).collect();
    let bugs: Vec<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
    assert_eq!(
        names, bugs,
        "run: cargo run --release -p sharestream-sim -- --planted --write docs/simulation.md"
    );
}

#[test]
fn bugs_that_the_table_calls_quickly_found_are_found_as_quickly() {
    // The slow ones are measured by hand: these take seconds. More seeds than it took, since schedules change with the
    // code.
    let quick = |(name, seeds): (String, Option<u64>)| seeds.filter(|seeds| *seeds <= 2).map(|_| name);
    for name in rows().into_iter().filter_map(quick) {
        let bug: Bug = name.parse().unwrap();
        assert!(measure(bug, 0, 20, 2).seeds.is_some(), "{name} is not found any more");
    }
}
