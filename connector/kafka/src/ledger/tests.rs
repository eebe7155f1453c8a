//! Tests of the pure parts, by the rules of `runtime/models`, whose numbers they carry.

mod log;
mod rules;
mod world;
