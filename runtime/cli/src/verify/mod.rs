//! `sharestream verify`: is every record's fate what was promised? Trusts the topics and the share state only.

mod check;
mod facts;
mod report;
#[cfg(test)]
mod tests;

pub(crate) use check::check;
pub(crate) use facts::{Claim, Effect, Expected, Facts, OpenTransaction, PartitionFacts, Place, digest};
pub(crate) use report::{Fault, Report, Violation};
