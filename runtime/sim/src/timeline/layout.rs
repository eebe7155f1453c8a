//! Lines of text: aligned, and with repetitions folded.

use std::sync::Arc;

use super::frames::Moment;

/// Longest block of lines whose repetitions are recognised: a request and its answer, at two nodes.
const BLOCK_LINES_MAX: usize = 4;
/// From so many occurrences on a block is folded.
const FOLDED_FROM: usize = 3;
/// What stands in the place of a sender when the harness acts.
const HARNESS: &str = "harness";

/// One line before it is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) moment: Moment,
    pub(super) who: Who,
    pub(super) text: String,
}

/// Whose line it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A fault, a start, a death, a finding.
    Harness,
    /// Something that one host did.
    Host(Arc<str>),
    /// A message.
    Message {
        /// Writer.
        from: Arc<str>,
        /// Addressee.
        to: Arc<str>,
    },
}

impl Who {
    fn columns(&self) -> (&str, &str, &str) {
        match self {
            Who::Harness => (HARNESS, "  ", ""),
            Who::Host(host) => (host, "  ", ""),
            Who::Message { from, to } => (from, "->", to),
        }
    }
}

/// Sorts, folds and aligns.
pub(super) fn lay_out(mut lines: Vec<Line>) -> Vec<String> {
    lines.sort_by_key(|line| line.moment);
    let width = |text: usize, least: usize| text.max(least);
    let from_width = lines.iter().map(|line| line.who.columns().0.len()).fold(0, width);
    let to_width = lines.iter().map(|line| line.who.columns().2.len()).fold(0, width);
    let time = |line: &Line| format!("{:.3}", line.moment.at.as_secs_f64());
    let time_width = lines.iter().map(|line| time(line).len()).fold(0, width);
    let mut out = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        let (block, count) = repeated(&lines[index..]);
        for line in &lines[index..index + block] {
            let (from, arrow, to) = line.who.columns();
            let (time, text) = (time(line), &line.text);
            out.push(format!("{time:>time_width$}  {from:<from_width$} {arrow} {to:<to_width$}  {text}"));
        }
        let after = index + block * count;
        if count > 1 {
            let time = time(&lines[after - 1]);
            out.push(format!("{time:>time_width$}  ... {} more", block * (count - 1)));
        }
        index = after;
    }
    out
}

/// Length of the block that `lines` begin with, and how often it stands there in a row; once when too seldom.
fn repeated(lines: &[Line]) -> (usize, usize) {
    let is_same = |left: &Line, right: &Line| left.who == right.who && left.text == right.text;
    for block in 1..=BLOCK_LINES_MAX.min(lines.len()) {
        let (first, rest) = lines.split_at(block);
        let more = rest
            .chunks_exact(block)
            .take_while(|chunk| chunk.iter().zip(first).all(|(left, right)| is_same(left, right)))
            .count();
        if more + 1 >= FOLDED_FROM {
            return (block, more + 1);
        }
    }
    (1, 1)
}
