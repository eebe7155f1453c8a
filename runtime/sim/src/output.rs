//! What the command prints: tables for people, one JSON object a line for programs.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use sharestream_base::planted::Bug;
use sharestream_core::commit::AckMode;
use sharestream_sim::check::{Finding, Place};
use sharestream_sim::explore::Explored;
use sharestream_sim::plan::Plan;
use sharestream_sim::planted_table::Row;
use sharestream_sim::timeline::timeline;
use sharestream_sim::world::RunReport;

use crate::args::Args;

/// Seeds between two lines of progress, where nobody watches a terminal.
const SEEDS_PER_LINE: u64 = 2_000;

/// Prints.
pub(crate) struct Output {
    json: bool,
    is_terminal: bool,
    reported: AtomicU64,
}

impl Output {
    /// For people, or for programs.
    pub(crate) fn new(json: bool) -> Self {
        Output { json, is_terminal: std::io::stderr().is_terminal(), reported: AtomicU64::new(0) }
    }

    /// Lines go to standard output; a closed pipe is no reason to panic.
    fn line(&self, text: &str) {
        let _closed = writeln!(std::io::stdout(), "{text}");
    }

    /// How far an exploration is.
    pub(crate) fn progress(&self, explored: &Explored) {
        if self.json {
            return;
        }
        let failed = explored.failures.len();
        if self.is_terminal {
            if explored.seeds.is_multiple_of(20) {
                let hours = explored.virtual_seconds / 3_600.0;
                let seeds = explored.seeds;
                let _closed =
                    write!(std::io::stderr(), "\r{seeds} seeds, {hours:.1} virtual hours, {failed} failed ");
            }
        } else if explored.seeds >= self.reported.load(Ordering::Relaxed) + SEEDS_PER_LINE {
            self.reported.store(explored.seeds, Ordering::Relaxed);
            let _closed = writeln!(std::io::stderr(), "{} seeds, {failed} failed", explored.seeds);
        }
    }

    /// The end of an exploration.
    pub(crate) fn explored(&self, explored: &Explored) {
        if self.json {
            self.line(
                &json!({ "event": "explored", "result": explored, "speed": explored.speed() }).to_string(),
            );
            return;
        }
        if self.is_terminal {
            let _closed = write!(std::io::stderr(), "\r{:60}\r", "");
        }
        let counts = &explored.counts;
        self.line(&format!(
            "{} seeds, {:.1} virtual hours in {:.0} s of one core ({:.0} x real time), {} failed",
            explored.seeds,
            explored.virtual_seconds / 3_600.0,
            explored.real_seconds,
            explored.speed(),
            explored.failures.len()
        ));
        self.line(&format!(
            "{} records, {} outputs, {} dead letters ({} near the delivery limit), {} commits, {} aborts",
            counts.records,
            counts.outputs,
            counts.dead_letters,
            counts.near_limit,
            counts.commits,
            counts.aborts
        ));
        if !explored.known.is_empty() {
            self.line(&format!(
                "in seeds {:?} records ran out of deliveries (a known limit, see CHANGELOG.md)",
                explored.known
            ));
        }
        for (kind, count) in &explored.faults {
            self.line(&format!("  {kind:<18}{count:>10}"));
        }
    }

    /// A seed that failed, with the faults that are needed for it.
    pub(crate) fn failure(&self, plan: &Plan, kept: &[usize], findings: &[Finding], args: &Args) {
        let list: Vec<String> = kept.iter().map(ToString::to_string).collect();
        let option =
            |name: &str, value: Option<&str>| value.map_or(String::new(), |it| format!(" --{name} {it}"));
        let planted = option("bug", args.bug.map(Bug::name)) + &option("plot", args.plot);
        let command =
            format!("sharestream-sim --seed {} --faults '{}'{planted} --timeline", plan.seed, list.join(","));
        if self.json {
            let event = json!({
                "event": "failure", "seed": plan.seed, "faults": kept, "findings": findings, "command": command,
            });
            self.line(&event.to_string());
            return;
        }
        self.line(&format!("\nseed {} failed; to see it again: {command}", plan.seed));
        for index in kept {
            if let Some(fault) = plan.faults.get(*index) {
                self.line(&format!("  fault {index:>2} {fault}"));
            }
        }
        self.findings(findings);
    }

    /// The timeline of the first record that a finding is about.
    pub(crate) fn timeline(&self, report: &RunReport) {
        let findings = report.findings.iter().chain(&report.known);
        let place = findings.into_iter().find_map(|finding| finding.place);
        self.timeline_of(report, place);
    }

    fn timeline_of(&self, report: &RunReport, place: Option<Place>) {
        let lines = timeline(&report.events, place);
        if self.json {
            self.line(&json!({ "event": "timeline", "place": place, "lines": lines }).to_string());
            return;
        }
        match place {
            Some(place) => self.line(&format!("timeline of record {}/{}:", place.partition, place.offset)),
            None => self.line("timeline:"),
        }
        for line in lines {
            self.line(&line);
        }
    }

    /// What a seed means.
    pub(crate) fn plan(&self, whole: &Plan, plan: &Plan) {
        if self.json {
            self.line(&json!({ "event": "plan", "plan": plan }).to_string());
            return;
        }
        self.line(&format!(
            "seed {}: {} nodes, {} workers, {} records over {} partitions in {:.1} s, {}",
            plan.seed,
            plan.nodes,
            plan.workers.len(),
            plan.record_count,
            plan.source_partitions,
            plan.busy_for.as_secs_f64(),
            match plan.mode() {
                AckMode::AtLeastOnce => "at least once",
                AckMode::Ledger => "ledger",
                AckMode::Transactional => "transactional",
            }
        ));
        for (index, fault) in whole.faults.iter().enumerate() {
            let left_out = if plan.faults.contains(fault) { "" } else { "  (left out)" };
            self.line(&format!("  fault {index:>2} {fault}{left_out}"));
        }
    }

    /// The end of a replay.
    pub(crate) fn replayed(&self, seed: u64, report: &RunReport, with_timeline: bool) {
        let hash = format!("{:016x}", report.totals.hash);
        if self.json {
            let event = json!({
                "event": "replayed", "seed": seed, "trace_hash": hash, "findings": report.findings,
                "virtual_seconds": report.virtual_time.as_secs_f64(), "counts": report.counts,
            });
            self.line(&event.to_string());
        } else {
            let counts = &report.counts;
            self.line(&format!(
                "trace hash {hash}, {:.1} virtual s, {} records, {} outputs, {} dead letters, {} commits, {} aborts",
                report.virtual_time.as_secs_f64(),
                counts.records,
                counts.outputs,
                counts.dead_letters,
                counts.commits,
                counts.aborts
            ));
        }
        if with_timeline || !report.known.is_empty() {
            self.timeline(report);
        }
        if !self.json {
            if report.findings.is_empty() {
                let asked = match report.asked {
                    0 => String::new(),
                    count => format!("; the run came to the planted bug {count} times"),
                };
                self.line(&format!("nothing found{asked}"));
            }
            self.findings(&report.findings);
            if !report.known.is_empty() {
                self.line("known limit (CHANGELOG.md), not a failure:");
                self.findings(&report.known);
            }
        }
    }

    /// One planted bug.
    pub(crate) fn planted(&self, row: &Row) {
        if self.json {
            self.line(&json!({ "event": "planted", "row": row }).to_string());
            return;
        }
        let seeds = row.seeds.map_or("not found".to_owned(), |seeds| format!("{seeds} seeds"));
        self.line(&format!("{:<34}{seeds:>12}  {}", row.bug, row.finding.as_deref().unwrap_or_default()));
    }

    /// The bugs that can be planted.
    pub(crate) fn bugs(&self) {
        for bug in Bug::ALL {
            self.line(bug.name());
        }
    }

    fn findings(&self, findings: &[Finding]) {
        for finding in findings {
            self.line(&format!("  {finding}"));
        }
    }
}
