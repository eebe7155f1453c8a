//! No torn transaction: what one transaction wrote has one verdict, wherever it was written.

use std::collections::BTreeMap;

use super::logs::{Fate, Logs, Writer};
use super::{Checker, Finding};
use crate::workload::{DEAD_LETTERS, OUTCOMES, OUTPUT, SOURCE};

pub(super) fn check(logs: &Logs) -> Vec<Finding> {
    // Transaction version 2 gives each transaction an epoch of its own.
    let mut verdicts: BTreeMap<Writer, BTreeMap<&'static str, Vec<String>>> = BTreeMap::new();
    for topic in [SOURCE, OUTPUT, DEAD_LETTERS, OUTCOMES] {
        for record in logs.of(topic) {
            let verdict = match record.fate {
                Fate::Plain => continue,
                Fate::Committed => "committed",
                Fate::Aborted => "aborted",
                Fate::Open => "open",
            };
            let place = format!("{topic}/{}/{}", record.partition, record.offset);
            verdicts.entry(record.writer).or_default().entry(verdict).or_default().push(place);
        }
    }
    let mut found = Vec::new();
    for (writer, verdicts) in verdicts.into_iter().filter(|(_, verdicts)| verdicts.len() > 1) {
        let parts: Vec<String> =
            verdicts.iter().map(|(verdict, places)| format!("{verdict}: {}", places.join(" "))).collect();
        let text = format!(
            "the transaction of producer {} epoch {} is torn: {}",
            writer.producer_id,
            writer.producer_epoch,
            parts.join("; ")
        );
        found.push(Finding::new(Checker::Transactions, text));
    }
    found
}
