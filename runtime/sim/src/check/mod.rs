//! What must hold in a run and after it, read from the brokers alone.
//!
//! | checker | rule |
//! |---|---|
//! | effects | G1, G2: every visible source record has its effects once, or exactly one dead letter |
//! | state | G1, G2: what operators keep counts every record as often as the output shows it |
//! | outcomes | G2, G4: committed outcomes decide every offset once, each effect in its own transaction |
//! | outcomes | G4: incarnations commit in turn, none after its successor |
//! | ledger | ledger mode: claims have keys of their own, and none commits after the mode or generation has changed |
//! | ledger | whoever meets the open claim of a late owner ends it (where nothing is out) |
//! | ledger | a floor has only committed claims below it, a tombstone a floor that covers it and a newer claim |
//! | archived | G3: the broker gives up no record that the job did not reject (delivery limit) |
//! | status | G5: a job states the mode that it was told to run |
//! | status | counts of a job never go back and never exceed what the logs show |
//! | status | G4: an incarnation that has lost the job to a running one commits no more |
//! | transactions | no torn transaction: all records of one transaction have one verdict |
//! | log | no lost write, no aborted read, offsets without holes, one value for each offset |
//! | reader | what an outside read-committed reader saw during the run is committed, where and as it was |
//! | reader | it saw offsets in order and left out nothing, and its last stable offset never went back |
//! | watch | log ends, leader epochs, producer epochs, share start offsets and state epochs only rise |
//! | watch | last stable offset at most the high watermark; one leader for each epoch |
//! | watch | batches, their fates and the verdicts of transactions stay |
//! | watch | what is done durably is never available again, and ends in one way |
//! | watch | a leader hands out nothing that is done durably (but for unanswered plain acknowledgements) |
//! | watch | a record is acknowledged only by a transaction that was decided to commit |
//! | watch | delivery counts keep to their limit |
//! | liveness | everything is decided and every process ends within a bound; no task is left |
//! | ending | no record is held or pending after the workers; no transaction is open |
//! | ending | no share session, group member or connection of theirs is left |
//! | attempts | in a run without faults no attempt of a job fails |
//! | delivery-limit | G3: a record that ran out of deliveries while no attempt could commit is told (a known limit) |
//! | exit | no process ends with a verdict that needs a human |
//! | panic | nothing panics |
//! | determinism | run a second time, recorded, a seed leaves the same trace (`--twice` only) |
//!
//! The watch looks at each step of a run, the reader reads all through it, the status is looked at in both ways; all
//! other rules are applied at the end.

mod archived;
mod effects;
pub(crate) mod ending;
mod ledger;
mod logs;
mod outcomes;
mod reader;
mod state;
mod status;
mod transactions;
mod turns;
mod watch;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use object_store::ObjectStore;
use serde::Serialize;
use sharestream_client::Client;

use crate::loader::Loaded;
use crate::plan::Plan;
pub use logs::Logs;
pub(crate) use reader::{Reader, Seen};
pub(crate) use status::StatusWatch;
pub(crate) use turns::TurnWatch;
pub(crate) use watch::Watch;

/// Which rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checker {
    /// Effects of source records.
    Effects,
    /// Outcome records.
    Outcomes,
    /// What operators keep.
    State,
    /// Claims, floors and tombstones of ledger mode.
    Ledger,
    /// Records that the broker gave up.
    Archived,
    /// What jobs state.
    Status,
    /// Transactions.
    Transactions,
    /// Logs.
    Log,
    /// A reader during the run.
    Reader,
    /// What moves only forward.
    Watch,
    /// Progress.
    Liveness,
    /// What is left behind.
    Ending,
    /// Records that ran out of deliveries while no attempt could commit.
    DeliveryLimit,
    /// Attempts of jobs.
    Attempts,
    /// Ends of processes.
    Exit,
    /// Panics.
    Panic,
    /// A run that is run twice.
    Determinism,
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Checker::Effects => "effects",
            Checker::Outcomes => "outcomes",
            Checker::State => "state",
            Checker::Ledger => "ledger",
            Checker::Archived => "archived",
            Checker::Status => "status",
            Checker::Transactions => "transactions",
            Checker::Log => "log",
            Checker::Reader => "reader",
            Checker::Watch => "watch",
            Checker::Liveness => "liveness",
            Checker::Ending => "ending",
            Checker::DeliveryLimit => "delivery-limit",
            Checker::Attempts => "attempts",
            Checker::Exit => "exit",
            Checker::Panic => "panic",
            Checker::Determinism => "determinism",
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
    /// Decisions of committed outcomes, gaps not counted.
    pub decided: u64,
}

/// What was collected during a run.
pub(crate) struct Witnesses {
    /// By the loader.
    pub(crate) loaded: Loaded,
    /// By the reader; none when it did not come to its end.
    pub(crate) seen: Option<Seen>,
    /// Of the brokers.
    pub(crate) watch: Watch,
    /// Of the workers.
    pub(crate) statuses: StatusWatch,
    /// Where they keep checkpoints.
    pub(crate) objects: Arc<dyn ObjectStore>,
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
        self.decided += other.decided;
    }
}

/// Takes out what follows from records that ran out of deliveries while the brokers or the store could not be reached: a
/// known limit (`CHANGELOG.md`). Counted and told, and not a failure. Where nothing keeps an attempt from committing it is
/// one.
pub(crate) fn split_known(findings: Vec<Finding>, plan: &Plan) -> (Vec<Finding>, Vec<Finding>) {
    if !plan.has_outages() {
        return (Vec::new(), findings);
    }
    let given_up: BTreeSet<Option<Place>> = findings
        .iter()
        .filter(|finding| finding.checker == Checker::DeliveryLimit)
        .map(|finding| finding.place)
        .collect();
    findings.into_iter().partition(|finding| match finding.checker {
        Checker::DeliveryLimit => true,
        Checker::Effects | Checker::Outcomes | Checker::Ledger => {
            finding.place.is_some() && given_up.contains(&finding.place)
        }
        // In ledger mode a job that finds such a record says so and ends: nothing is lost in silence.
        Checker::Exit => !given_up.is_empty() && finding.text.contains("no job in ledger mode has decided"),
        _ => false,
    })
}

/// Reads everything and applies every rule.
pub(crate) async fn check(client: &Client, plan: &Plan, witnesses: &Witnesses) -> (Vec<Finding>, Counts) {
    let mut counts = Counts::default();
    let (logs, mut findings) = match Logs::read(client, plan.ledger.is_some()).await {
        Ok(read) => read,
        Err(error) => {
            let finding = Finding::new(Checker::Log, format!("the logs cannot be read: {error:#}"));
            return (vec![finding], counts);
        }
    };
    findings.extend(logs::check(&logs, &witnesses.loaded));
    findings.extend(effects::check(&logs, plan, &witnesses.watch, &mut counts));
    findings.extend(transactions::check(&logs));
    match &witnesses.seen {
        Some(seen) => findings.extend(seen.check(&logs)),
        None => findings.push(Finding::new(Checker::Reader, "the reader did not come to its end")),
    }
    match outcomes::check(client, &logs, plan, witnesses, &mut counts).await {
        Ok((found, decided)) => {
            findings.extend(found);
            findings.extend(ledger::check(&logs, plan, &witnesses.watch));
            let topic_id = logs.source_id.unwrap_or_default();
            let last_seen = |place| witnesses.watch.last_seen(topic_id, place);
            findings.extend(archived::check(&logs, plan, &decided, last_seen));
            findings.extend(witnesses.statuses.check(&counts));
        }
        Err(error) => {
            findings.push(Finding::new(Checker::Outcomes, format!("outcomes cannot be read: {error:#}")));
        }
    }
    (findings, counts)
}
