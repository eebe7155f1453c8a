//! A finding: what was looked at, what it weighs, what is, and what to do.

use std::fmt;

use sharestream_client::KafkaError;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Area {
    /// The job file: its SQL, its calls.
    Job,
    /// The brokers: who they are, what they can do.
    Brokers,
    /// The acknowledgement mode.
    Mode,
    /// Times that must fit together ([`crate::fit`]).
    Times,
    /// The share group: its settings, and where it stands.
    Group,
    /// Who else is in the group.
    Members,
    /// Source, output, dead letters, parked records.
    Topics,
    /// The topic of the outcome records.
    Outcomes,
    /// What the job's user may do.
    Rights,
    /// The job's transactional ids.
    Transactions,
    /// The checkpoint store.
    Store,
    /// Clocks of this machine and others.
    Clock,
}

impl Area {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Area::Job => "job",
            Area::Brokers => "brokers",
            Area::Mode => "mode",
            Area::Times => "times",
            Area::Group => "group",
            Area::Members => "members",
            Area::Topics => "topics",
            Area::Outcomes => "outcomes",
            Area::Rights => "rights",
            Area::Transactions => "transactions",
            Area::Store => "store",
            Area::Clock => "clock",
        }
    }
}

/// How much a finding weighs, the heaviest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Weight {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Hint,
    /// Could not be looked at; the finding says why.
    NotChecked,
    /// The job runs, with a risk or a cost that is named.
    Warning,
    /// The job does not start with it, or cannot keep its promise.
    Refused,
}

impl Weight {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Weight::Ok => "ok",
            Weight::Hint => "hint",
            Weight::NotChecked => "not-checked",
            Weight::Warning => "warning",
            Weight::Refused => "refused",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What it is about.
    pub area: Area,
    /// Which check of the area it comes from: a stable name for programs.
    pub name: &'static str,
    /// How much it weighs.
    pub weight: Weight,
    /// What is, with its numbers.
    pub message: String,
    /// What to set or do; empty where there is nothing to be done.
    pub fix: String,
}

impl Finding {
    /// One more, from somebody who looks at what this crate does not know. `name` is stable; `fix` may be empty.
    pub fn new(
        area: Area,
        name: &'static str,
        weight: Weight,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Finding { area, name, weight, message: message.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { message, fix, .. } = self;
        if fix.is_empty() { f.write_str(message) } else { write!(f, "{message}: {fix}") }
    }
}

/// An answer, or why there is none.
pub(crate) type Asked<T> = Result<T, NoAnswer>;

/// Why something could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoAnswer {
    /// In words, with what to do about it where that is known.
    pub(crate) why: String,
    /// The brokers' ACLs are in the way.
    pub(crate) is_refusal: bool,
}

impl NoAnswer {
    /// For a reason of our own.
    pub(crate) fn because(why: impl Into<String>) -> Self {
        NoAnswer { why: why.into(), is_refusal: false }
    }
}

impl From<sharestream_client::Error> for NoAnswer {
    fn from(error: sharestream_client::Error) -> Self {
        let refusals = [
            KafkaError::TOPIC_AUTHORIZATION_FAILED,
            KafkaError::GROUP_AUTHORIZATION_FAILED,
            KafkaError::CLUSTER_AUTHORIZATION_FAILED,
            KafkaError::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ];
        let is_refusal = error.code().is_some_and(|code| refusals.contains(&code));
        NoAnswer { why: error.to_string(), is_refusal }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Collects the findings of one area.
#[derive(Debug)]
pub(crate) struct Found {
    area: Area,
    pub(crate) list: Vec<Finding>,
}

impl Found {
    pub(crate) fn of(area: Area) -> Self {
        Found { area, list: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        name: &'static str,
        weight: Weight,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.list.push(Finding::new(self.area, name, weight, message, fix));
    }

    pub(crate) fn ok(&mut self, name: &'static str, message: impl Into<String>) {
        self.add(name, Weight::Ok, message, "");
    }

    pub(crate) fn hint(&mut self, name: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        self.add(name, Weight::Hint, message, fix);
    }

    pub(crate) fn warning(&mut self, name: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        self.add(name, Weight::Warning, message, fix);
    }

    pub(crate) fn refused(&mut self, name: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        self.add(name, Weight::Refused, message, fix);
    }

    /// `what` was to be looked at, and `why` it could not be.
    pub(crate) fn not_checked(&mut self, name: &'static str, what: &str, why: impl fmt::Display) {
        self.add(name, Weight::NotChecked, format!("{what}: {why}"), "");
    }
}
