//! What a replay did, or would do.

use serde_json::json;

use crate::args::dead_letters::{Position, ReplayArgs};
use crate::exit::Exit;
use crate::output;

/// Positions that are told one by one; more are counted.
const TOLD_MAX: usize = 1_000;

/// Counts, and the positions behind them.
pub(super) struct Report {
    topic: String,
    is_json: bool,
    is_dry: bool,
    /// Put back.
    pub(super) replayed: u64,
    /// Left out: put back by an earlier replay.
    pub(super) already: u64,
    /// Left out: records of other programs.
    pub(super) foreign: u64,
    refused: u64,
    /// The first of them, and why.
    told: Vec<(Position, String)>,
    /// The first of those that go back, and where.
    planned: Vec<(Position, String)>,
    /// The answer to the commit was lost; the marks are there.
    pub(super) was_unknown: bool,
    /// Somebody may read uncommitted records of the source.
    pub(super) uncommitted_readers: bool,
}

impl Report {
    pub(super) fn new(topic: &str, args: &ReplayArgs) -> Report {
        Report {
            topic: topic.to_owned(),
            is_json: args.json,
            is_dry: args.dry_run,
            replayed: 0,
            already: 0,
            foreign: 0,
            refused: 0,
            told: Vec::new(),
            planned: Vec::new(),
            was_unknown: false,
            uncommitted_readers: false,
        }
    }

    pub(super) fn put_back(&mut self, position: Position, to: &str) {
        self.replayed += 1;
        if self.is_dry && self.planned.len() < TOLD_MAX {
            self.planned.push((position, to.to_owned()));
        }
    }

    pub(super) fn refuse(&mut self, position: Position, why: String) {
        self.refused += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push((position, why));
        }
    }

    /// Prints it. A replay that had to leave something out that was asked for has failed.
    pub(super) fn print(&self) -> Exit {
        if self.is_json {
            let with = |name: &str, list: &[(Position, String)]| -> Vec<_> {
                list.iter()
                    .map(|(at, text)| json!({ "partition": at.partition.0, "offset": at.offset.0, name: text }))
                    .collect()
            };
            let report = json!({
                "topic": self.topic,
                "dry_run": self.is_dry,
                "replayed": self.replayed,
                "already_replayed": self.already,
                "refused": self.refused,
                "foreign": self.foreign,
                "commit_was_unknown": self.was_unknown,
                "uncommitted_readers": self.uncommitted_readers,
                "refusals": with("why", &self.told),
                "plan": with("to", &self.planned),
            });
            output::line(&report.to_string());
        } else {
            self.print_text();
        }
        if self.refused > 0 { Exit::Failed } else { Exit::Done }
    }

    fn print_text(&self) {
        for (position, to) in &self.planned {
            output::line(&format!("{position} -> {to}"));
        }
        for (position, why) in &self.told {
            output::line(&format!("{position} is left out: {why}"));
        }
        let verb = if self.is_dry { "would be replayed" } else { "replayed" };
        let number = output::thousands;
        output::line(&format!(
            "{} {verb}, {} were replayed before, {} left out",
            number(self.replayed),
            number(self.already),
            number(self.refused)
        ));
        if self.foreign > 0 {
            output::line(&format!(
                "{} records carry no provenance: another program wrote them",
                number(self.foreign)
            ));
        }
        if self.was_unknown {
            output::line(
                "the answer to the commit was lost; the marks of the replay are there, so it was committed",
            );
        }
        if self.uncommitted_readers {
            output::line("note: groups that read uncommitted records get those of a replay that fails, too");
        }
    }
}
