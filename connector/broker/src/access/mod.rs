//! Access control: who a connection is, what an API asks of it, and which acls allow that (KIP-11, KIP-290,
//! KIP-1289).
//!
//! The rules are those of Apache Kafka 4.4's `StandardAuthorizer`, without hosts: every acl is for all hosts.
//! Without [`crate::BrokerBuilder::allow`] and its like access control is off and everything is allowed, as
//! in Kafka without an authorizer. Without [`crate::BrokerBuilder::users`] every connection is
//! [`Principal::anonymous`].
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use sharestream_broker::Broker;
//! use sharestream_broker::access::{Operation, Principal, ResourcePattern};
//!
//! let broker = Broker::builder(sharestream_base::Env::system())
//!     .users([("admin", "admin-secret"), ("job", "job-secret")])
//!     .super_user(Principal::user("admin"))
//!     .allow(Principal::user("job"), Operation::Read, ResourcePattern::topic("flights"))
//!     .allow(Principal::user("job"), Operation::Read, ResourcePattern::group("late"))
//!     .allow(Principal::user("job"), Operation::Write, ResourcePattern::transactional_id("job.").prefixed())
//!     .start()
//!     .await?;
//! broker.shutdown().await;
//! # Ok::<_, sharestream_broker::Error>(()) }).unwrap();
//! ```
//!
//! `acl` has the words, `rules` decides, `requirements` is the one list of what each API asks, `checks` is
//! what handlers use of it, `users` and `authentication` say who a connection is (ADR 0016).

mod acl;
mod authentication;
mod checks;
mod control;
mod filter;
pub(crate) mod requirements;
mod rules;
mod users;

pub use acl::{Acl, Operation, Permission, Principal, Resource, ResourcePattern, ResourceType};
pub(crate) use authentication::{Admission, Authentication, NODE_MECHANISM, PLAIN};
pub(crate) use checks::Checks;
pub use control::{AccessControl, AccessSettings};
pub(crate) use filter::{EVERY_HOST, Filter, WireAcl, pattern_type_of};
