//! `sharestream-sim`: replays a seed, or explores many.

mod args;
mod output;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use sharestream_base::planted::Bug;
use sharestream_sim::explore::{Exploration, explore};
use sharestream_sim::plan::Plan;
use sharestream_sim::planted_table;
use sharestream_sim::shrink::{keep, shrink};
use sharestream_sim::world::{RunOptions, run};

use args::Args;
use output::Output;

/// Seeds of an exploration that nobody bounded.
const SEEDS_DEFAULT: u64 = 1_000;

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let output = Output::new(args.json);
    if args.list_bugs {
        output.bugs();
        return Ok(ExitCode::SUCCESS);
    }
    let is_good = if let Some(seed) = args.seed {
        replay(&args, seed, &output)?
    } else if args.planted {
        measure_planted(&args, &output)?
    } else {
        explore_seeds(&args, &output)
    };
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn replay(args: &Args, seed: u64, output: &Output) -> anyhow::Result<bool> {
    let mut plan = Plan::draw_as(seed, args.plot);
    let whole = plan.clone();
    if let Some(list) = &args.faults {
        let numbers: Result<Vec<usize>, _> =
            list.split(',').map(str::trim).filter(|text| !text.is_empty()).map(str::parse).collect();
        let numbers = numbers.context("--faults takes numbers as printed with the plan, for example 0,3")?;
        if let Some(unknown) = numbers.iter().find(|number| **number >= plan.faults.len()) {
            anyhow::bail!("--faults {unknown}: seed {seed} has faults 0 to {} only", plan.faults.len() - 1);
        }
        plan.faults = keep(&whole.faults, &numbers);
    }
    let report = run(&plan, RunOptions { recording: true, bug: args.bug });
    output.plan(&whole, &plan);
    output.replayed(seed, &report, args.timeline || !report.findings.is_empty());
    Ok(report.findings.is_empty() == args.bug.is_none())
}

fn explore_seeds(args: &Args, output: &Output) -> bool {
    let unbounded = args.seconds.is_none() && args.seeds.is_none();
    let exploration = Exploration {
        first_seed: args.first_seed,
        seeds: if unbounded { Some(SEEDS_DEFAULT) } else { args.seeds },
        real_time: args.seconds.map(Duration::from_secs),
        jobs: args.jobs,
        bug: args.bug,
        plot: args.plot,
        twice: args.twice,
        first_failure: args.bug.is_some(),
    };
    let explored = explore(&exploration, &|explored| output.progress(explored));
    output.explored(&explored);
    for failure in &explored.failures {
        let plan = Plan::draw_as(failure.seed, args.plot);
        if args.no_shrink || args.twice {
            output.failure(&plan, &(0..plan.faults.len()).collect::<Vec<_>>(), &failure.findings, args);
            continue;
        }
        let shrunk = shrink(&plan, failure.findings.clone(), args.bug);
        output.failure(&plan, &shrunk.kept, &shrunk.findings, args);
        let report = run(&shrunk.plan, RunOptions { recording: true, bug: args.bug });
        output.timeline(&report);
    }
    explored.failures.is_empty() == args.bug.is_none()
}

fn measure_planted(args: &Args, output: &Output) -> anyhow::Result<bool> {
    let bugs: Vec<Bug> = args.bug.map_or_else(|| Bug::ALL.to_vec(), |bug| vec![bug]);
    let mut rows = Vec::new();
    for bug in bugs {
        let row = planted_table::measure(bug, args.first_seed, args.seeds_max, args.jobs);
        output.planted(&row);
        rows.push(row);
    }
    if let Some(path) = &args.write {
        let document =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let replaced = planted_table::replace(&document, &rows)
            .with_context(|| format!("{} has no line {}", path.display(), planted_table::BEGIN))?;
        std::fs::write(path, replaced).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(rows.iter().all(|row| row.seeds.is_some()))
}
