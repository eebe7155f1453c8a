//! Many seeds, on several threads; each runs in one thread and knows nothing of the others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use sharestream_base::Clock;
use sharestream_base::planted::Bug;

use crate::check::{Checker, Counts, Finding};
use crate::plan::Plan;
use crate::world::{RunOptions, run};

/// Failures after which an exploration stops: more of them say the same.
const FAILURES_MAX: usize = 8;

/// How long and where to explore.
#[derive(Clone, Copy, Debug)]
pub struct Exploration {
    /// First seed.
    pub first_seed: u64,
    /// Number of seeds, if bounded.
    pub seeds: Option<u64>,
    /// Real time, if bounded.
    pub real_time: Option<Duration>,
    /// Threads.
    pub jobs: u16,
    /// A planted bug.
    pub bug: Option<Bug>,
    /// Makes every plan this plot.
    pub plot: Option<&'static str>,
    /// Runs each seed a second time, recorded: a run that differs is a failure.
    pub twice: bool,
    /// Stops at the first failure.
    pub first_failure: bool,
}

/// A seed that failed.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// What an exploration came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Explored {
    /// Seeds that ran.
    pub seeds: u64,
    /// Virtual seconds, over all seeds.
    pub virtual_seconds: f64,
    /// Real seconds of all threads together.
    pub real_seconds: f64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What the jobs did, over all seeds.
    pub counts: Counts,
    /// Seeds in which records ran out of deliveries, a known limit.
    pub known: Vec<u64>,
    /// Failures, by seed.
    pub failures: Vec<Failure>,
}

impl Explored {
    /// Virtual seconds for each real second of one thread.
    pub fn speed(&self) -> f64 {
        if self.real_seconds > 0.0 { self.virtual_seconds / self.real_seconds } else { 0.0 }
    }
}

/// Runs seeds until the exploration is over.
pub fn explore(exploration: &Exploration, progress: &(dyn Fn(&Explored) + Sync)) -> Explored {
    let clock = Clock::system();
    let deadline = exploration.real_time.map(|limit| clock.now() + limit);
    let next = AtomicU64::new(0);
    let explored = Mutex::new(Explored::default());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let is_over = exploration.seeds.is_some_and(|count| index >= count)
                || deadline.is_some_and(|deadline| clock.now() >= deadline);
            let failures = explored.lock().unwrap_or_else(PoisonError::into_inner).failures.len();
            let has_failed = failures >= if exploration.first_failure { 1 } else { FAILURES_MAX };
            if is_over || has_failed {
                return;
            }
            let seed = exploration.first_seed.wrapping_add(index);
            let plan = Plan::draw_as(seed, exploration.plot);
            let started_at = clock.now();
            let mut report = run(&plan, RunOptions { recording: false, bug: exploration.bug });
            if exploration.twice {
                let again = run(&plan, RunOptions { recording: true, bug: exploration.bug });
                if (&again.totals, &again.findings) != (&report.totals, &report.findings) {
                    let text = format!("run twice it differs: {:?} and {:?}", report.totals, again.totals);
                    report.findings.push(Finding::new(Checker::Determinism, text));
                }
            }
            let real = clock.now().duration_since(started_at);
            let mut explored = explored.lock().unwrap_or_else(PoisonError::into_inner);
            explored.seeds += 1;
            explored.virtual_seconds += report.virtual_time.as_secs_f64();
            explored.real_seconds += real.as_secs_f64();
            for (kind, count) in &report.faults {
                *explored.faults.entry(kind).or_default() += count;
            }
            explored.counts.add(&report.counts);
            if !report.known.is_empty() {
                explored.known.push(seed);
            }
            if !report.findings.is_empty() {
                explored.failures.push(Failure { seed, findings: report.findings });
            }
            progress(&explored);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..exploration.jobs {
            scope.spawn(work);
        }
        work();
    });
    let mut explored = explored.into_inner().unwrap_or_else(PoisonError::into_inner);
    explored.failures.sort_by_key(|failure| failure.seed);
    explored
}
