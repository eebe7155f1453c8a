//! The commands, one file each.

pub(crate) mod broker;
mod caught_up;
pub(crate) mod check;
pub(crate) mod checkpoint;
pub(crate) mod dead_letter;
pub(crate) mod group;
pub(crate) mod processes;
pub(crate) mod produce;
pub(crate) mod read;
pub(crate) mod run;
pub(crate) mod savepoint;
pub(crate) mod topic;
pub(crate) mod transactions;
pub(crate) mod verify;
