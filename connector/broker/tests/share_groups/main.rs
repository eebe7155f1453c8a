//! Share groups over TCP, from the outside: KIP-932 and the KIP-1289 flow of staged acknowledgements.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod chaos;
mod dead_letters;
mod delivery;
#[allow(dead_code, reason = "the tests of several nodes use it too")]
mod fixtures;
mod levels;
mod speed;
mod transactions;
