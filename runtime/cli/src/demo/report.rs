//! The demo's last word: one table, or one JSON object.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::output::{self, thousands};
use crate::verify;

/// Middle and tail of the times that a worker measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latencies {
    /// Last barrier acknowledgement to the known commit.
    pub(crate) commit: (f64, f64),
    /// Last barrier acknowledgement to visibility everywhere.
    pub(crate) visible: (f64, f64),
}

impl Latencies {
    /// From a worker's event; `None` while it has measured nothing.
    pub(crate) fn of(event: &Value) -> Option<Latencies> {
        let pair = |name: &str| {
            let quantiles = event.get(name)?;
            (quantiles.get("count")?.as_u64()? > 0)
                .then(|| Some((quantiles.get("p50")?.as_f64()?, quantiles.get("p99")?.as_f64()?)))?
        };
        let commit = pair("commit_ms")?;
        Some(Latencies { commit, visible: pair("visible_ms").unwrap_or_default() })
    }
}

/// What a demo found. The names of the first sixteen fields are the keys of `--json` and stay.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DemoReport {
    /// Guarantee that it ran with.
    pub(crate) mode: &'static str,
    /// Input records with a fate.
    pub(crate) records_in: u64,
    /// Output records.
    pub(crate) records_out: u64,
    /// Records that the SQL filtered.
    pub(crate) filtered: u64,
    /// Dead letters.
    pub(crate) dead_lettered: u64,
    /// Effects missing.
    pub(crate) lost: u64,
    /// Effects too many.
    pub(crate) doubled: u64,
    /// Records whose effects and acknowledgement disagree.
    pub(crate) torn: u64,
    /// Transactions still open.
    pub(crate) open_transactions: u64,
    /// Kills survived.
    pub(crate) crashes: u64,
    /// From the start of the first worker until everything was processed.
    pub(crate) seconds: f64,
    /// Records a second over that time, crashes and restarts included.
    pub(crate) records_per_second: f64,
    /// Half of the commits were not longer.
    pub(crate) commit_ms_p50: f64,
    /// 99 of 100 commits were not longer.
    pub(crate) commit_ms_p99: f64,
    /// Half of the sampled epochs were visible by then.
    pub(crate) visible_ms_p50: f64,
    /// 99 of 100 of them.
    pub(crate) visible_ms_p99: f64,
    /// Seed of the plan.
    pub(crate) seed: u64,
    /// Records that should have been processed and were not.
    pub(crate) remaining: u64,
    /// Outputs that differ from the recomputed transform.
    pub(crate) wrong: u64,
    /// Offsets that two committed outcomes claim.
    pub(crate) decided_twice: u64,
    /// Most memory that a worker had resident, in MB; 0 where the system does not tell.
    pub(crate) worker_peak_mb: u64,
    /// Kills by the step at which they came; `random` for random moments.
    pub(crate) crashes_by_step: BTreeMap<String, u64>,
    /// The first violations, in words.
    pub(crate) violations: Vec<String>,
}

impl DemoReport {
    /// Takes over what the check found.
    pub(crate) fn checked(mode: &'static str, seed: u64, found: &verify::Report) -> Self {
        DemoReport {
            mode,
            records_in: found.records_in,
            records_out: found.records_out,
            filtered: found.filtered,
            dead_lettered: found.dead_lettered,
            lost: found.lost,
            doubled: found.doubled,
            torn: found.torn,
            open_transactions: found.open_transactions,
            crashes: 0,
            seconds: 0.0,
            records_per_second: 0.0,
            commit_ms_p50: 0.0,
            commit_ms_p99: 0.0,
            visible_ms_p50: 0.0,
            visible_ms_p99: 0.0,
            seed,
            remaining: found.remaining,
            wrong: found.wrong,
            decided_twice: found.decided_twice,
            worker_peak_mb: 0,
            crashes_by_step: BTreeMap::new(),
            violations: found.violations.iter().take(20).map(ToString::to_string).collect(),
        }
    }

    /// Sets the times.
    pub(crate) fn timed(&mut self, seconds: f64, latencies: Latencies) {
        let round = |number: f64| (number * 1_000.0).round() / 1_000.0;
        self.seconds = round(seconds);
        self.records_per_second =
            if seconds > 0.0 { (self.records_in as f64 / seconds).round() } else { 0.0 };
        (self.commit_ms_p50, self.commit_ms_p99) = (round(latencies.commit.0), round(latencies.commit.1));
        (self.visible_ms_p50, self.visible_ms_p99) = (round(latencies.visible.0), round(latencies.visible.1));
    }

    /// True when nothing was lost, doubled or torn and nothing is left open.
    pub(crate) fn is_right(&self) -> bool {
        [self.lost, self.doubled, self.torn, self.open_transactions, self.remaining, self.wrong]
            .iter()
            .all(|n| *n == 0)
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        output::table(
            &[],
            vec![
                row("mode", self.mode.to_owned()),
                row("records in", thousands(self.records_in)),
                row("records out", thousands(self.records_out)),
                row("filtered", thousands(self.filtered)),
                row("dead-lettered", thousands(self.dead_lettered)),
                row("lost", thousands(self.lost)),
                row("doubled", thousands(self.doubled)),
                row("torn", thousands(self.torn)),
                row("open transactions", thousands(self.open_transactions)),
                row("crashes survived", thousands(self.crashes)),
                row("seconds", format!("{:.1}", self.seconds)),
                row("records a second", thousands(self.records_per_second as i64)),
                row("commit ms p50, p99", format!("{:.1}, {:.1}", self.commit_ms_p50, self.commit_ms_p99)),
                row("visible ms p50, p99", format!("{:.1}, {:.1}", self.visible_ms_p50, self.visible_ms_p99)),
                row("worker memory, MB", thousands(self.worker_peak_mb)),
            ],
        )
    }

    /// One sentence about the result.
    pub(crate) fn verdict(&self) -> String {
        if self.is_right() {
            return "right: nothing was lost, doubled or torn".to_owned();
        }
        let is_only_doubled = self.doubled > 0
            && [self.lost, self.torn, self.open_transactions, self.remaining, self.wrong]
                .iter()
                .all(|n| *n == 0);
        if is_only_doubled && self.mode == "at-least-once" {
            return format!(
                "{} records doubled and none lost: what at-least-once promises. --mode transactional doubles none",
                thousands(self.doubled)
            );
        }
        "VIOLATED: see the counts above".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_object_has_the_promised_keys() {
        let report = DemoReport::checked("transactional", 1, &verify::Report::default());
        let json = serde_json::to_value(report).unwrap();
        for key in [
            "mode",
            "records_in",
            "records_out",
            "filtered",
            "dead_lettered",
            "lost",
            "doubled",
            "torn",
            "open_transactions",
            "crashes",
            "seconds",
            "records_per_second",
            "commit_ms_p50",
            "commit_ms_p99",
            "visible_ms_p50",
            "visible_ms_p99",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
    }

    #[test]
    fn only_doubles_of_at_least_once_are_called_expected_and_still_are_not_right() {
        let found = verify::Report { doubled: 3, ..verify::Report::default() };
        let at_least_once = DemoReport::checked("at-least-once", 1, &found);
        assert!(!at_least_once.is_right() && at_least_once.verdict().contains("promises"));
        assert!(DemoReport::checked("transactional", 1, &found).verdict().contains("VIOLATED"));
    }
}
