//! Plots: settings and faults that belong together. Some mistakes show only when several things are as they rarely are by
//! chance: who stands still must be out of its group and hold its locks, or who is dead must stay so while the log is
//! compacted.

mod ledger;
mod processes;
mod transactional;

use std::time::Duration;

use super::draw::{Dice, millis};
use super::{Fault, Moment, Plan, TimedFault, WorkerPlan};

pub(super) use ledger::make_plot;

/// Of so many seeds one is a plot.
const SEEDS_PER_PLOT: u64 = 4;

/// Settings and faults that belong together.
struct Plot {
    name: &'static str,
    /// How often it has its turn: what shows less often needs more.
    turns: usize,
    /// Gives them to a plan.
    make: fn(&Dice, &mut Plan),
}

const fn plot(name: &'static str, turns: usize, make: fn(&Dice, &mut Plan)) -> Plot {
    Plot { name, turns, make }
}

const PLOTS: &[Plot] = &[
    plot("stage-is-lost", 1, transactional::stage_is_lost),
    plot("locks-are-lost-within-an-epoch", 1, transactional::locks_are_lost_within_an_epoch),
    plot("calls-outlast-locks", 1, transactional::calls_outlast_locks),
    plot("fails-before-it-stages", 2, transactional::fails_before_it_stages),
    plot("dies-before-its-end", 1, transactional::dies_before_its_end),
    plot("stops-near-the-limit", 1, transactional::stops_near_the_limit),
    plot("overtaken-at-its-start", 1, transactional::overtaken_at_its_start),
    plot("stage-outlives-its-transaction", 3, transactional::stage_outlives_its_transaction),
    plot("markers-outlast-the-time-out", 1, transactional::markers_outlast_the_time_out),
    plot("rows-are-late", 2, processes::rows_are_late),
    plot("claims-at-once", 2, ledger::claims_at_once),
    plot("commits-while-it-is-ended", 2, ledger::commits_while_it_is_ended),
    plot("end-is-lost", 1, ledger::end_is_lost),
    plot("claims-below-the-floor", 1, ledger::claims_below_the_floor),
    plot("dies-for-long", 1, ledger::dies_for_long),
    plot("floors-are-late", 1, ledger::floors_are_late),
    plot("ghosts-of-claims", 2, ledger::ghosts_of_claims),
    plot("away-while-the-group-is-reset", 1, ledger::is_away_while_the_group_is_reset),
];

/// Makes some plans plots, with dice of their own: all other plans stay what they are.
pub(super) fn draw_plot(plan: &mut Plan) {
    if let Some(plot) = in_turn(plan.seed) {
        make(plot, &Dice::of(plan.seed, "plots"), plan);
    }
}

/// The plot of a seed. In turn and not by chance, so that every exploration of some length comes to all of them.
fn in_turn(seed: u64) -> Option<&'static Plot> {
    if seed % SEEDS_PER_PLOT != SEEDS_PER_PLOT - 1 {
        return None;
    }
    let turns_max = PLOTS.iter().map(|plot| plot.turns).max().unwrap_or(0);
    let turns = || (0..turns_max).flat_map(|turn| PLOTS.iter().filter(move |plot| plot.turns > turn));
    let count = u64::try_from(turns().count()).unwrap_or(1);
    turns().nth(usize::try_from(seed / SEEDS_PER_PLOT % count).unwrap_or(0))
}

/// Names of the plots.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PLOTS.iter().map(|plot| plot.name)
}

/// Makes a plan the plot of that name, if there is one.
pub(super) fn make_named(plan: &mut Plan, name: &str) {
    if let Some(plot) = PLOTS.iter().find(|plot| plot.name == name) {
        make(plot, &Dice::of(plan.seed, name), plan);
        plan.faults.sort_by_key(|fault| fault.at);
    }
}

fn make(plot: &Plot, dice: &Dice, plan: &mut Plan) {
    plan.faults.clear();
    (plan.at_least_once, plan.slow_write) = (false, None);
    plan.group.delivery_limit = 10;
    for worker in &mut plan.workers {
        worker.in_three_processes = false;
        worker.starts_at = worker.starts_at.min(Duration::from_millis(1_500));
    }
    (plot.make)(dice, plan);
}

fn now(fault: Fault) -> TimedFault {
    TimedFault { at: Duration::ZERO, fault }
}

/// At once when the moment has come; nobody stands still.
fn at_once(moment: Moment, then: Vec<TimedFault>) -> Fault {
    Fault::When { moment, hold: Duration::ZERO, then }
}

/// Some time in the first three quarters of the busy time.
fn some_time(dice: &Dice, plan: &Plan) -> Duration {
    dice.ms(500, millis(plan.busy_for) * 3 / 4)
}

/// `count` times, so far apart that each has ended before the next begins.
fn spread(dice: &Dice, plan: &Plan, count: u32) -> Vec<Duration> {
    let slot = millis(plan.busy_for / count.max(1));
    (0..count)
        .map(|index| Duration::from_millis(slot * u64::from(index)) + dice.ms(500, 500 + slot / 2))
        .collect()
}

fn two_workers(dice: &Dice, plan: &mut Plan) {
    plan.workers.truncate(2);
    while let (Some(first), true) = (plan.workers.first(), plan.workers.len() < 2) {
        let other = WorkerPlan { starts_at: dice.ms(0, 1_500), ..first.clone() };
        plan.workers.push(other);
    }
}

/// Records come all the time, and epochs are short.
fn busy(dice: &Dice, plan: &mut Plan) {
    plan.busy_for = dice.ms(14_000, 24_000);
    plan.record_count = dice.between(500, 900);
    for worker in &mut plan.workers {
        worker.checkpoint_interval = dice.ms(20, 300);
        worker.poll_records = dice.pick(&[1, 10, 10]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_plot_has_its_turn_within_a_hundred_seeds() {
        let turns = PLOTS.iter().map(|plot| plot.turns).sum::<usize>();
        for first in [0, 777] {
            let plots: Vec<&str> = (first..first + 100).filter_map(in_turn).map(|plot| plot.name).collect();
            assert_eq!(plots.len(), 25);
            assert!(turns <= plots.len(), "{turns} turns");
            assert_eq!(plots.into_iter().collect::<BTreeSet<_>>(), names().collect::<BTreeSet<_>>());
        }
        assert_eq!(names().collect::<BTreeSet<_>>().len(), PLOTS.len(), "a name twice");
    }

    #[test]
    fn a_plot_makes_anything_its_own() {
        for name in names() {
            for seed in 0..50 {
                let plan = Plan::draw_as(seed, Some(name));
                assert_eq!(plan, Plan::draw_as(seed, Some(name)), "{name} seed {seed}");
                assert_eq!(plan.faults.is_empty(), name == "calls-outlast-locks", "{name} seed {seed}");
                assert!(!plan.at_least_once, "{name} seed {seed}");
                let parallelism = plan.workers.iter().map(|worker| worker.parallelism).max();
                let outputs = usize::try_from(plan.output_partitions).ok();
                assert!(
                    parallelism <= outputs,
                    "{name} seed {seed}: {parallelism:?} sinks, {outputs:?} partitions"
                );
            }
        }
    }
}
