//! `sharestream-sim`: replays a seed, or explores many.

use std::process::ExitCode;

use sharestream_sim::plan::Plan;
use sharestream_sim::world::{RunOptions, run};

fn main() -> ExitCode {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (first, count) = (args.first().copied().unwrap_or(0), args.get(1).copied().unwrap_or(1));
    let mut bad = 0;
    for seed in first..first + count {
        let plan = Plan::draw(seed);
        #[allow(clippy::disallowed_methods, reason = "real time is what is measured")]
        let at = std::time::Instant::now();
        let recording = count == 1;
        let report = run(&plan, RunOptions { recording, bug: None });
        let real = at.elapsed().as_secs_f64();
        println!(
            "seed {seed} hash {:016x} polls {} chunks {} virtual {:.1} s real {:.3} s x{:.0} {:?} {:?}",
            report.totals.hash, report.totals.polls, report.totals.chunks, report.virtual_time.as_secs_f64(), real,
            report.virtual_time.as_secs_f64() / real, report.counts, report.faults
        );
        if count == 1 {
            for event in &report.events {
                match &event.what {
                    sharestream_sim::trace::What::Note(text) | sharestream_sim::trace::What::Log(text) => {
                        println!("{:9.3} {text}", event.at.as_secs_f64());
                    }
                    _ => {}
                }
            }
            for fault in &plan.faults { println!("{fault}"); }
        }
        for finding in report.findings.iter().take(10) {
            println!("   {finding}");
        }
        bad += u64::from(!report.findings.is_empty());
    }
    println!("{bad} bad of {count}");
    ExitCode::SUCCESS
}
