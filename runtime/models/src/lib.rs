//! Explicit-state models of the protocols that make a job exactly once.
//!
//! Each model is a world in which everything may go wrong that the protocol claims to survive, small enough
//! to be looked at whole. With all rules of the protocol it must hold; without any single one a shortest
//! counterexample is told, step by step.
//!
//! ```text
//!  transactional   one transaction commits outputs and acknowledgements   (KIP-1289, stateful jobs)
//!  ledger          claims in one log decide who may commit                (Kafka without KIP-1289)
//!  rollout         ledger and transactional replicas in one group         (the ledger model with a mode
//! record)
//!  waits           do replicas wait for each other for ever?              (nothing but the waiting)
//!       │
//!       ▼ states, steps                       rules ── each can be left out
//!  explore ── breadth first, shortest paths
//!       ├── check ── is a bad state reachable?                safety
//!       └── progress ── is a good state always reachable?     AG EF goal
//!                 │
//!                 ▼
//!  report ── rows, tables, counterexamples      catalog ── every configuration and every removal
//! ```
//!
//! What holds here holds within the bounds of the configuration, and of the model: `docs/models.md` says what
//! is abstracted and why. What breaks here breaks in the protocol.
//!
//! ```
//! use sharestream_models::{ledger::{Ledger, Scope}, progress::ProgressVerdict, rules::Rules};
//! let model = Ledger { scope: Scope { claims: 2, records: 1, ..Scope::SMALL }, rules: Rules::ALL };
//! assert_eq!(model.decidable().run().verdict, ProgressVerdict::Holds);
//! ```

pub mod catalog;
pub mod check;
pub mod explore;
pub mod fingerprint;
pub mod ledger;
pub mod progress;
pub mod report;
pub mod rules;
pub mod transactional;
pub mod waits;
