//! The demo as it is seen while it runs.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::output::{Style, thousands};

/// Shows loading, crashes and counts on standard error; standard output is for the result.
pub(crate) struct Display {
    style: Style,
    bar: ProgressBar,
    total: u64,
    /// Counts of workers that are dead.
    base: Counts,
    /// Counts of the worker that runs.
    current: Counts,
}

/// Committed counts, as workers report them.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    records_in: u64,
    rows_out: u64,
    dead_letters: u64,
}

impl Display {
    /// A display for `total` flights.
    pub(crate) fn new(style: Style, total: u64) -> Self {
        let bar = match style {
            Style::Terminal => ProgressBar::new(total),
            Style::Plain | Style::Json => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Display { style, bar, total, base: Counts::default(), current: Counts::default() }
    }

    /// A line of its own.
    pub(crate) fn say(&self, text: &str) {
        match self.style {
            Style::Terminal => self.bar.println(text),
            Style::Plain => eprintln!("{text}"),
            Style::Json => {}
        }
    }

    /// A worker's progress event.
    pub(crate) fn progress(&mut self, event: &Value) {
        let count = |name: &str| event.get(name).and_then(Value::as_u64).unwrap_or(0);
        self.current = Counts {
            records_in: count("records_in"),
            rows_out: count("rows_out"),
            dead_letters: count("dead_letters"),
        };
        let records_in = self.base.records_in + self.current.records_in;
        self.bar.set_position(records_in.min(self.total));
        self.bar.set_message(format!(
            "{} in, {} out, {} dead letters",
            thousands(records_in),
            thousands(self.base.rows_out + self.current.rows_out),
            thousands(self.base.dead_letters + self.current.dead_letters),
        ));
    }

    /// The worker is dead: what it last reported is kept.
    pub(crate) fn worker_gone(&mut self) {
        self.base.records_in += self.current.records_in;
        self.base.rows_out += self.current.rows_out;
        self.base.dead_letters += self.current.dead_letters;
        self.current = Counts::default();
    }

    /// Clears the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
