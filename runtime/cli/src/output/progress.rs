//! How a running job is shown: a bar on a terminal, plain lines elsewhere, one JSON object per line for programs.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sharestream_base::{Clock, HostPort, Instant};
use sharestream_core::commit::AckMode;
use sharestream_core::{BoundBy, JobReport, JobStatus, RecordInWork};

use super::{line, thousands};
use crate::failure::Failure;

/// How to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// A line that renews itself.
    Terminal,
    /// A line now and then.
    Plain,
    /// Newline-delimited JSON on standard output.
    Json,
}

impl Style {
    /// JSON when asked for, else what standard error is.
    pub(crate) fn choose(json: bool) -> Style {
        match (json, std::io::stderr().is_terminal()) {
            (true, _) => Style::Json,
            (false, true) => Style::Terminal,
            (false, false) => Style::Plain,
        }
    }

    /// Time between two reports.
    pub(crate) fn interval(self) -> Duration {
        match self {
            Style::Terminal => Duration::from_millis(100),
            Style::Plain => Duration::from_secs(2),
            Style::Json => Duration::from_millis(200),
        }
    }
}

/// Shows one run.
pub(crate) struct Reporter {
    style: Style,
    clock: Clock,
    bar: ProgressBar,
    /// Records to process until caught up.
    total: Option<u64>,
    last: (Instant, u64),
    last_text: String,
}

impl Reporter {
    /// A reporter that has shown nothing yet.
    pub(crate) fn new(style: Style, clock: Clock) -> Self {
        let bar = match style {
            Style::Terminal => ProgressBar::new_spinner(),
            Style::Plain | Style::Json => ProgressBar::hidden(),
        };
        let last = (clock.now(), 0);
        Reporter { style, clock, bar, total: None, last, last_text: String::new() }
    }

    /// Sets the number of records until caught up.
    pub(crate) fn expect(&mut self, total: u64) {
        self.total = Some(total);
        if self.style == Style::Terminal && total > 0 {
            self.bar.set_length(total);
            let template = "{bar:30} {percent:>3}%  {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style.progress_chars("=> "));
            }
        }
    }

    /// Something to know, in words; JSON readers get it as an event.
    pub(crate) fn note(&self, text: &str) {
        match self.style {
            Style::Json => self.event("note", json!({ "text": text })),
            Style::Terminal => self.bar.println(text),
            Style::Plain => line(text),
        }
    }

    /// Metrics are served here.
    pub(crate) fn serves_metrics(&self, address: &HostPort) {
        tracing::info!(%address, "serving metrics");
        match self.style {
            Style::Json => self.event("metrics", json!({ "address": address.to_string() })),
            Style::Terminal | Style::Plain => self.note(&format!("metrics on http://{address}/metrics")),
        }
    }

    /// The processes that run the tasks are waited for here.
    pub(crate) fn waits_for_workers(&self, address: &HostPort) {
        match self.style {
            Style::Json => self.event("coordinator", json!({ "address": address.to_string() })),
            Style::Terminal | Style::Plain => {
                self.note(&format!("coordinator on {address}, for one worker of each role"));
            }
        }
    }

    /// The job is about to run with this guarantee (G5: stated, never implied).
    pub(crate) fn started(&self, job: &str, mode: AckMode) {
        let guarantee = guarantee(mode);
        match self.style {
            Style::Json => {
                self.event("started", json!({ "job": job, "mode": mode, "guarantee": guarantee }));
            }
            Style::Terminal | Style::Plain => self.note(&format!("job {job}: {guarantee}")),
        }
    }

    /// The status now.
    pub(crate) fn progress(&mut self, status: &JobStatus) {
        match self.style {
            Style::Json => self.event("progress", json!(status)),
            Style::Terminal => {
                self.bar.set_position(status.records_in);
                let text = self.text(status);
                self.bar.set_message(text);
                self.bar.tick();
            }
            Style::Plain => {
                let text = self.text(status);
                // The rate is all that changes on an idle job: say nothing then.
                let facts = text.split(", ").skip(1).collect::<Vec<_>>().join(", ");
                if facts != self.last_text {
                    line(&text);
                    self.last_text = facts;
                }
            }
        }
    }

    /// Everything that the topics held at the start is processed.
    pub(crate) fn caught_up(&self, status: &JobStatus) {
        match self.style {
            Style::Json => self.event("caught_up", json!(status)),
            Style::Terminal | Style::Plain => self.note("caught up"),
        }
    }

    /// The job has ended without an error.
    pub(crate) fn ended(&self, report: &JobReport) {
        self.bar.finish_and_clear();
        let status = &report.status;
        match self.style {
            Style::Json => self.event("ended", json!(report)),
            Style::Terminal | Style::Plain => {
                line(&format!(
                    "{} in, {} out, {} filtered, {} dead letters{}",
                    thousands(status.records_in),
                    thousands(status.rows_out),
                    thousands(status.filtered),
                    thousands(status.dead_letters),
                    parked(status),
                ));
                if status.commits > 0 {
                    line(&format!(
                        "{} commits, {:.1} ms p50, {:.1} ms p99; visible {:.1} ms p50, {:.1} ms p99",
                        thousands(status.commits),
                        status.commit_ms.p50,
                        status.commit_ms.p99,
                        status.visible_ms.p50,
                        status.visible_ms.p99,
                    ));
                }
                if let Some(checkpoint) = report.unresolved {
                    line(&format!("checkpoint {checkpoint} was being committed: the next start finds out"));
                }
            }
        }
    }

    /// The job has ended with an error; JSON readers get it as an event.
    pub(crate) fn failed(&self, failure: &Failure) {
        self.bar.finish_and_clear();
        if self.style == Style::Json {
            let kind = failure.kind.map(|kind| kind.to_string());
            self.event("failed", json!({ "error": failure.message, "kind": kind, "hint": failure.hint }));
        }
    }

    fn text(&mut self, status: &JobStatus) -> String {
        let now = self.clock.now();
        let seconds = now.duration_since(self.last.0).as_secs_f64();
        let grown = status.records_in.saturating_sub(self.last.1);
        let rate = if seconds > 0.0 { (grown as f64 / seconds) as u64 } else { 0 };
        self.last = (now, status.records_in);
        let total = self.total.map_or(String::new(), |total| format!(" of {}", thousands(total)));
        let calls = calls(status);
        format!(
            "{}/s, {}{total} in, {} out, {} filtered, {} dead letters{}, checkpoint {}, commit {:.1} ms{calls}",
            thousands(rate),
            thousands(status.records_in),
            thousands(status.rows_out),
            thousands(status.filtered),
            thousands(status.dead_letters),
            parked(status),
            status.checkpoint.map_or_else(|| "-".to_owned(), |checkpoint| checkpoint.to_string()),
            status.commit_ms.p50,
        )
    }

    fn event(&self, name: &str, body: Value) {
        let mut event = json!({ "event": name });
        if let (Value::Object(event), Value::Object(body)) = (&mut event, body) {
            event.extend(body);
        }
        line(&event.to_string());
    }
}

/// A record that is worked on for so long is named.
const SLOW_MS: u64 = 1_000;

/// Nothing for jobs that park nothing.
fn parked(status: &JobStatus) -> String {
    if status.parked == 0 { String::new() } else { format!(", {} parked", thousands(status.parked)) }
}

/// What calls run, what they wait for, and which record holds back its partition.
fn calls(status: &JobStatus) -> String {
    let mut text = String::new();
    for call in &status.calls {
        text += &format!(", {} running {}", call.name, thousands(call.running));
        if call.waiting > 0 {
            text += &format!(" (waiting {})", thousands(call.waiting));
        }
        if call.retries > 0 {
            text += &format!(" (repeated {})", thousands(call.retries));
        }
        if let Some(oldest) = call.oldest.as_ref().filter(|oldest| oldest.for_ms >= SLOW_MS) {
            let RecordInWork { topic, partition, offset, for_ms, .. } = oldest;
            text += &format!(", {topic}[{partition}]@{offset} for {:.1} s", *for_ms as f64 / 1e3);
        }
    }
    match status.bound_by.filter(|_| !status.calls.is_empty()) {
        None => {}
        Some(BoundBy::Source) => text += ", as fast as its input",
        Some(BoundBy::Concurrency) => text += ", bound by concurrency",
        Some(BoundBy::LockWindow) => text += ", bound by the lock window",
        Some(BoundBy::Circuit) => text += ", calls are held: all of them fail",
        Some(_) => {}
    }
    text
}

/// The promise of a mode, in words.
pub(crate) fn guarantee(mode: AckMode) -> &'static str {
    match mode {
        AckMode::Transactional => "exactly once, writes and acknowledgements in one transaction",
        AckMode::Ledger => "exactly once, through a ledger",
        AckMode::AtLeastOnce => "at least once, a crash may double records",
    }
}

#[cfg(test)]
mod tests {
    use sharestream_core::CallStatus;

    use super::*;

    fn status(for_ms: u64) -> JobStatus {
        let mut call = CallStatus::default();
        "rates".clone_into(&mut call.name);
        (call.running, call.waiting) = (64, 1_200);
        call.oldest = Some(RecordInWork { topic: "flights".to_owned(), partition: 3, offset: 99, for_ms });
        let mut status = JobStatus::default();
        status.calls.push(call);
        status.bound_by = Some(BoundBy::Concurrency);
        status
    }

    #[test]
    fn calls_are_shown_with_the_record_that_holds_back_its_partition() {
        let text = ", rates running 64 (waiting 1,200), flights[3]@99 for 2.5 s, bound by concurrency";
        assert_eq!(calls(&status(2_500)), text);
        assert_eq!(calls(&status(20)), ", rates running 64 (waiting 1,200), bound by concurrency");
    }

    #[test]
    fn a_job_without_calls_says_nothing_of_them() {
        let mut status = status(0);
        status.calls.clear();
        assert_eq!(calls(&status), "");
    }
}
