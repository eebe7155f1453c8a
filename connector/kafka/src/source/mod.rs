//! The share source: acquires records of a share group, decodes them, and decides on every offset it acquired.
//!
//! KIP-932 (share groups, explicit acknowledgement). A decision is a range; nothing is kept for a single record.

mod delivery;
mod epoch;
mod factory;
mod handed;
mod holding;
mod ledger;
mod locks;
mod near_limit;
mod offsets;
mod reader;
mod rewind;
mod rows;
mod share_source;
mod unread;
mod window;

pub use crate::metadata_columns::{RecordBytes, RecordCoordinates, TopicNames};
pub(crate) use delivery::DeliveryLimit;
pub(crate) use factory::ShareSourceFactory;
pub use rows::{FinishedRows, RowsBuilder};
pub(crate) use share_source::acknowledge_type;
