//! Share groups over TCP, from the outside: KIP-932 and the KIP-1289 flow of staged acknowledgements.

mod delivery;
mod fixtures;
mod speed;
mod transactions;
