//! The command line.

use std::path::PathBuf;

use clap::Parser;
use sharestream_base::planted::{Bug, UnknownBug};
use sharestream_sim::plan::Plan;

/// Runs whole jobs on simulated time, network, processes and stores: one seed, or as many as fit into a time.
///
/// Exit code 0: nothing was found; 1: something was; 2: the command line is wrong.
#[derive(Debug, Parser)]
#[command(name = "sharestream-sim", version)]
pub(crate) struct Args {
    /// Replays this seed and prints what happened.
    #[arg(long, conflicts_with_all = ["seconds", "seeds", "planted"])]
    pub(crate) seed: Option<u64>,
    /// Keeps only these faults of the seed's plan, by number as printed: 0,3. An empty text keeps none.
    #[arg(long, requires = "seed", value_name = "LIST")]
    pub(crate) faults: Option<String>,
    /// Prints every commit and process of a replay, also when nothing was found.
    #[arg(long, requires = "seed")]
    pub(crate) timeline: bool,
    /// Explores seeds for this long, in seconds of real time.
    #[arg(long, conflicts_with_all = ["seeds", "planted"])]
    pub(crate) seconds: Option<u64>,
    /// Explores this many seeds.
    #[arg(long, conflicts_with = "planted")]
    pub(crate) seeds: Option<u64>,
    /// First seed to explore.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(crate) first_seed: u64,
    /// Seeds that run at the same time, one thread each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: u16,
    /// Plants a bug (see `--list-bugs`): then a finding is what is wanted, and its absence exit code 1.
    #[arg(long, value_name = "NAME", value_parser = bug)]
    pub(crate) bug: Option<Bug>,
    /// Makes every plan one plot: settings and faults that belong together (`docs/simulation.md`). A name that is none
    /// prints them all.
    #[arg(long, value_name = "NAME", value_parser = plot, conflicts_with = "planted")]
    pub(crate) plot: Option<&'static str>,
    /// Runs each seed a second time, recorded; a difference in anything is a failure.
    #[arg(long, conflicts_with_all = ["seed", "planted"])]
    pub(crate) twice: bool,
    /// Plants each bug in turn and counts the seeds until it is found.
    #[arg(long)]
    pub(crate) planted: bool,
    /// Seeds after which a planted bug counts as not found.
    #[arg(long, default_value_t = 2_000, value_name = "COUNT")]
    pub(crate) seeds_max: u64,
    /// Writes the table of planted bugs into this file, between its markers.
    #[arg(long, requires = "planted", value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Lists the bugs that can be planted.
    #[arg(long)]
    pub(crate) list_bugs: bool,
    /// Leaves failures as they are instead of looking for fewer faults that cause them.
    #[arg(long)]
    pub(crate) no_shrink: bool,
    /// Prints JSON, one object for each line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads the name of a planted bug.
fn bug(name: &str) -> Result<Bug, String> {
    name.parse().map_err(|unknown: UnknownBug| format!("{unknown}; --list-bugs prints them all"))
}

/// Reads the name of a plot.
fn plot(name: &str) -> Result<&'static str, String> {
    let plots = Plan::plots();
    let found = plots.iter().copied().find(|plot| *plot == name);
    found.ok_or_else(|| format!("there is no such plot, but {}", plots.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_bug_says_where_the_known_ones_are_listed() {
        let error = Args::try_parse_from(["sharestream-sim", "--bug", "no-such-bug"]).map(drop);
        assert!(error.is_err_and(|error| error.to_string().contains("--list-bugs")));
        assert!(Args::try_parse_from(["sharestream-sim", "--bug", Bug::ALL[0].name()]).is_ok());
    }
}
