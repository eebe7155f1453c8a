//! `sharestream dead-letter list`.

use std::collections::BTreeMap;

use serde_json::json;
use sharestream_base::Env;

use super::Place;
use super::letter::{Filter, HEADER, Letter, shortened};
use super::marks::Marks;
use crate::args::dead_letters::ListArgs;
use crate::exit::Exit;
use crate::output;
use crate::verify::scan::{self, Scan};

/// Different errors that are counted apart; what comes later is counted together.
const ERRORS_MAX: usize = 100;
/// Errors that a table shows.
const ERRORS_SHOWN: usize = 20;

/// Lists what is committed.
pub(super) async fn run(env: Env, args: ListArgs) -> anyhow::Result<Exit> {
    let filter = Filter::new(&args.chosen, env.clock.wall_ms());
    let place = Place::find(env, &args.topic).await?;
    let marks = Marks::read(&place.client, &place.topic).await?;
    let mut counts = Counts::default();
    let mut rows = Vec::new();
    scan::topic(&place.client, &place.topic.name, Scan::Committed, |partition, record| {
        let Some(letter) = Letter::of(partition, record) else {
            counts.foreign += 1;
            return Ok(());
        };
        if !filter.takes(&letter) {
            return Ok(());
        }
        counts.add(&letter);
        if counts.letters <= args.limit {
            let is_replayed = marks.has(letter.position);
            if args.json {
                output::line(&letter.as_json(is_replayed).to_string());
            } else {
                rows.push(letter.cells(is_replayed));
            }
        }
        Ok(())
    })
    .await?;
    if args.json {
        output::line(&counts.as_json().to_string());
    } else {
        output::line(&output::table(&HEADER, rows));
        counts.print(args.limit);
    }
    Ok(Exit::Done)
}

/// How many there are.
#[derive(Default)]
struct Counts {
    letters: u64,
    /// By kind and text.
    errors: BTreeMap<(String, String), u64>,
    /// With further texts.
    other_errors: u64,
    /// Records of other programs.
    foreign: u64,
}

impl Counts {
    fn add(&mut self, letter: &Letter<'_>) {
        self.letters += 1;
        let error = (letter.kind(), letter.error());
        if self.errors.len() < ERRORS_MAX || self.errors.contains_key(&error) {
            *self.errors.entry(error).or_default() += 1;
        } else {
            self.other_errors += 1;
        }
    }

    /// The most frequent first.
    fn by_count(&self) -> Vec<(&(String, String), u64)> {
        let mut errors: Vec<_> = self.errors.iter().map(|(error, count)| (error, *count)).collect();
        errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        errors
    }

    fn as_json(&self) -> serde_json::Value {
        let errors = self.by_count().into_iter();
        let errors: Vec<_> = errors
            .map(|((kind, error), count)| json!({ "kind": kind, "error": error, "count": count }))
            .collect();
        json!({
            "dead_letters": self.letters, "errors": errors, "other_errors": self.other_errors, "foreign": self.foreign,
        })
    }

    fn print(&self, limit: u64) {
        let shown = self.letters.min(limit);
        let total = output::thousands(self.letters);
        if shown < self.letters {
            output::line(&format!(
                "{} of {total} dead letters; --limit shows more",
                output::thousands(shown)
            ));
        } else {
            output::line(&format!("{total} dead letters"));
        }
        let errors = self.by_count();
        for ((kind, error), count) in errors.iter().take(ERRORS_SHOWN) {
            output::line(&format!("{:>8}  {kind}: {}", output::thousands(*count), shortened(error)));
        }
        let rest: u64 = errors.iter().skip(ERRORS_SHOWN).map(|(_, count)| count).sum();
        if rest + self.other_errors > 0 {
            output::line(&format!("{:>8}  with other errors", output::thousands(rest + self.other_errors)));
        }
        if self.foreign > 0 {
            output::line(&format!(
                "{:>8}  more records carry no provenance: another program wrote them",
                output::thousands(self.foreign)
            ));
        }
    }
}
