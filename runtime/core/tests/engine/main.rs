//! The engine against a model of the broker: exactly once under crashes, drain, fencing, pipelining.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]
#![allow(unreachable_pub, reason = "fixtures are shared between the files of one test program")]

mod async_map;
mod checkpoint_now;
mod control;
mod event_time;
mod exactly_once;
mod failures;
mod fixtures;
mod graph;
mod list_state;
mod observed;
mod pipelining;
mod planted_bugs;
mod processes;
mod recovery;
mod session;
mod state;
mod state_size;
mod throughput;
