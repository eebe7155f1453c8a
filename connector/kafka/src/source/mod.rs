//! The share source: acquires records of a share group, decodes them, and decides on every offset it acquired.
//!
//! KIP-932 (share groups, explicit acknowledgement).

mod rows;

pub use crate::metadata_columns::{RecordBytes, RecordCoordinates, TopicNames};
pub use rows::{FinishedRows, RowsBuilder};
