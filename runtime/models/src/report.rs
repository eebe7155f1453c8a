//! What a check found, and how it is printed: aligned tables for people, Markdown for the documentation, JSON
//! for tools.

use std::fmt::Write as _;
use std::time::Duration;

/// One line of a report: one property of one configuration, with all rules or with one left out.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which model: `transactional`, `ledger`, `rollout`, `waits`.
    pub model: &'static str,
    /// What was checked, in words: replicas, records, claims, faults.
    pub configuration: String,
    /// Name of the rule that was left out, if one was.
    pub removed: Option<&'static str>,
    /// The property that was asked for; of several, the one that was found broken.
    pub property: String,
    /// What should come out.
    pub expected: Expected,
    /// What came out.
    pub verdict: Verdict,
    /// Distinct states found.
    pub states: usize,
    /// Length of the longest of all shortest paths, in steps.
    pub depth: u32,
    /// How long the check took.
    pub duration: Duration,
}

/// What a check should find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Every property holds within the bounds.
    Holds,
    /// The property with this name is violated.
    Broken(&'static str),
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every property holds in every reachable state.
    Holds,
    /// The row's property is violated.
    Broken {
        /// The steps of a shortest counterexample, one line each.
        steps: Vec<String>,
        /// What the last state shows, in words; may be empty.
        end: String,
    },
    /// The model has more states than the limit: nothing is known.
    Unfinished,
}

impl Row {
    /// Whether the verdict is the expected one. An unfinished check never is.
    pub fn is_as_expected(&self) -> bool {
        match (&self.expected, &self.verdict) {
            (Expected::Holds, Verdict::Holds) => true,
            (Expected::Broken(property), Verdict::Broken { .. }) => *property == self.property,
            (Expected::Holds | Expected::Broken(_), _) => false,
        }
    }

    /// Steps of the counterexample, if there is one.
    pub fn step_count(&self) -> Option<usize> {
        match &self.verdict {
            Verdict::Broken { steps, .. } => Some(steps.len()),
            Verdict::Holds | Verdict::Unfinished => None,
        }
    }

    /// One line, for the output of a test.
    pub fn summary(&self) -> String {
        let subject = match self.removed {
            Some(rule) => format!("without {rule}"),
            None => "all rules".to_owned(),
        };
        let found = match self.step_count() {
            Some(steps) => format!("\"{}\" is {} after {steps} steps", self.property, self.verdict_word()),
            None => format!("\"{}\" {}", self.property, self.verdict_word()),
        };
        let (model, configuration, seconds) = (self.model, &self.configuration, self.duration.as_secs_f32());
        format!("{model}: {subject}, {configuration}: {found} ({} states, {seconds:.1} s)", self.states)
    }

    /// The counterexample as a numbered list, one step a line; empty without one.
    pub fn counterexample(&self) -> String {
        let Verdict::Broken { steps, end } = &self.verdict else { return String::new() };
        let mut text = String::new();
        for (index, step) in steps.iter().enumerate() {
            let _ = writeln!(text, "{:>4}. {step}", index + 1);
        }
        if !end.is_empty() {
            let _ = writeln!(text, "      => {end}");
        }
        text
    }

    /// One JSON object, without line breaks.
    pub fn to_json(&self) -> String {
        let mut fields = vec![
            format!("\"model\":{}", quoted(self.model)),
            format!("\"configuration\":{}", quoted(&self.configuration)),
            format!("\"removed\":{}", self.removed.map_or("null".to_owned(), quoted)),
            format!("\"property\":{}", quoted(&self.property)),
            format!("\"verdict\":{}", quoted(self.verdict_word())),
            format!("\"as_expected\":{}", self.is_as_expected()),
            format!("\"states\":{}", self.states),
            format!("\"depth\":{}", self.depth),
            format!("\"seconds\":{:.3}", self.duration.as_secs_f64()),
        ];
        if let Verdict::Broken { steps, .. } = &self.verdict {
            let steps: Vec<_> = steps.iter().map(|step| quoted(step)).collect();
            fields.push(format!("\"steps\":[{}]", steps.join(",")));
        }
        format!("{{{}}}", fields.join(","))
    }

    /// `holds`, `broken` or `unfinished`.
    pub fn verdict_word(&self) -> &'static str {
        match self.verdict {
            Verdict::Holds => "holds",
            Verdict::Broken { .. } => "broken",
            Verdict::Unfinished => "unfinished",
        }
    }

    fn cells(&self, with_seconds: bool) -> Vec<String> {
        let mut cells = vec![self.model.to_owned()];
        if let Some(rule) = self.removed {
            cells.push(rule.to_owned());
        }
        cells.push(self.configuration.clone());
        if self.removed.is_some() {
            cells.push(self.property.clone());
            cells.push(self.step_count().map_or("none".to_owned(), |steps| steps.to_string()));
        }
        let remark = if self.is_as_expected() { "" } else { ", NOT AS EXPECTED" };
        cells.push(format!("{}{remark}", self.verdict_word()));
        cells.push(grouped(self.states));
        if self.removed.is_none() {
            cells.push(self.depth.to_string());
        }
        if with_seconds {
            cells.push(format!("{:.1}", self.duration.as_secs_f32()));
        }
        cells
    }
}

/// Titles of the columns and those of them that hold numbers, for configurations or for removed rules.
fn titles(of_rules: bool, with_seconds: bool) -> Vec<&'static str> {
    let mut titles = if of_rules {
        vec!["model", "left out", "configuration", "property", "steps", "verdict", "states"]
    } else {
        vec!["model", "configuration", "verdict", "states", "depth"]
    };
    if with_seconds {
        titles.push("seconds");
    }
    titles
}

const NUMERIC: [&str; 4] = ["steps", "states", "depth", "seconds"];

/// An aligned table of rows that are all of one sort: all with a removed rule, or all without.
pub fn table(rows: &[Row]) -> String {
    let titles = titles(rows.iter().any(|row| row.removed.is_some()), true);
    let mut lines = vec![titles.iter().map(|title| (*title).to_owned()).collect::<Vec<_>>()];
    lines.extend(rows.iter().map(|row| row.cells(true)));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..titles.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if NUMERIC.contains(&titles[column]) {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

/// The same table in Markdown, without times: they differ from run to run.
pub fn markdown_table(rows: &[Row]) -> String {
    let titles = titles(rows.iter().any(|row| row.removed.is_some()), false);
    let rule = |title: &&str| if NUMERIC.contains(title) { "--:" } else { "---" };
    let mut text = format!("| {} |\n", titles.join(" | "));
    let _ = writeln!(text, "|{}|", titles.iter().map(rule).collect::<Vec<_>>().join("|"));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.cells(false).join(" | "));
    }
    text
}

/// A JSON array of all rows, one row a line.
pub fn json(rows: &[Row]) -> String {
    let rows: Vec<_> = rows.iter().map(Row::to_json).collect();
    format!("[\n{}\n]\n", rows.join(",\n"))
}

/// A number with its digits in groups of three.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
