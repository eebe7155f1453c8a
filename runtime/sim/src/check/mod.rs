//! What must hold after a run, read from the brokers alone.
//!
//! | checker | rule |
//! |---|---|
//! | effects | G1, G2: every visible source record has its effects exactly once, or exactly one dead letter |
//! | outcomes | G2, G4: committed outcomes decide every offset once; incarnations commit in turn, none after its successor |
//! | transactions | no torn transaction: all records of one transaction have one verdict; effects lie in decided ranges |
//! | log | no lost write, no aborted read, offsets without holes, one value for each offset |
//! | liveness | everything is decided and ended within a bound; no transaction open, no task left |
//! | exit | no process ends with a verdict that needs a human |
//! | panic | nothing panics |

mod effects;
mod logs;
mod outcomes;
mod transactions;

use std::fmt;

use serde::Serialize;
use sharestream_client::Client;

use crate::loader::Loaded;
use crate::plan::Plan;
pub use logs::Logs;

/// Which rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checker {
    /// Effects of source records.
    Effects,
    /// Outcome records.
    Outcomes,
    /// Transactions.
    Transactions,
    /// Logs.
    Log,
    /// Progress.
    Liveness,
    /// Ends of processes.
    Exit,
    /// Panics.
    Panic,
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Checker::Effects => "effects",
            Checker::Outcomes => "outcomes",
            Checker::Transactions => "transactions",
            Checker::Log => "log",
            Checker::Liveness => "liveness",
            Checker::Exit => "exit",
            Checker::Panic => "panic",
        })
    }
}

/// A source record that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Source partition.
    pub partition: i32,
    /// Source offset.
    pub offset: i64,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Who found it.
    pub checker: Checker,
    /// What it is, in words.
    pub text: String,
    /// The record concerned, if it is about one.
    pub place: Option<Place>,
}

impl Finding {
    /// A finding about no single record.
    pub fn new(checker: Checker, text: impl Into<String>) -> Self {
        Finding { checker, text: text.into(), place: None }
    }

    /// A finding about one source record.
    pub fn about(checker: Checker, place: Place, text: impl Into<String>) -> Self {
        Finding { checker, text: text.into(), place: Some(place) }
    }

    pub(crate) fn panic(message: String) -> Self {
        Finding::new(Checker::Panic, message)
    }

    pub(crate) fn exit(host: &str, error: &str) -> Self {
        Finding::new(Checker::Exit, format!("{host} ended with: {error}"))
    }

    pub(crate) fn leaked_tasks(host: &str, tasks: &[String]) -> Self {
        Finding::new(Checker::Liveness, format!("{host} has ended and left tasks: {}", tasks.join(", ")))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.checker)?;
        if let Some(Place { partition, offset }) = self.place {
            write!(f, "record {partition}/{offset}: ")?;
        }
        f.write_str(&self.text)
    }
}

/// How much a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Source records that the group must have seen.
    pub records: u64,
    /// Committed output records.
    pub outputs: u64,
    /// Committed dead letters.
    pub dead_letters: u64,
    /// Dead letters of good records that were near their delivery limit.
    pub near_limit: u64,
    /// Outputs beyond the first; only an at-least-once job may have any.
    pub doubled: u64,
    /// Committed outcomes.
    pub commits: u64,
    /// Aborted outcomes.
    pub aborts: u64,
}

impl Counts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Counts) {
        self.records += other.records;
        self.outputs += other.outputs;
        self.dead_letters += other.dead_letters;
        self.near_limit += other.near_limit;
        self.doubled += other.doubled;
        self.commits += other.commits;
        self.aborts += other.aborts;
    }
}

/// Reads everything and applies every rule.
pub(crate) async fn check(client: &Client, plan: &Plan, loaded: &Loaded) -> (Vec<Finding>, Counts) {
    let mut counts = Counts::default();
    let (logs, mut findings) = match Logs::read(client).await {
        Ok(read) => read,
        Err(error) => {
            let finding = Finding::new(Checker::Log, format!("the logs cannot be read: {error:#}"));
            return (vec![finding], counts);
        }
    };
    findings.extend(logs::check(&logs, loaded));
    findings.extend(effects::check(&logs, plan, &mut counts));
    findings.extend(transactions::check(&logs, plan));
    match outcomes::check(client, &logs, plan, &mut counts).await {
        Ok(found) => findings.extend(found),
        Err(error) => {
            findings.push(Finding::new(Checker::Outcomes, format!("outcomes cannot be read: {error:#}")));
        }
    }
    (findings, counts)
}
