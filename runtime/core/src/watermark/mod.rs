//! Event time: how far a job has come in the time that its records tell of.
//!
//! ```text
//! partition 0  [decided, in offset order .......]  hole  [decided]      watermark: from what is before the hole
//! partition 1  [decided ............................]                   job: the lower of the two
//! ```
//!
//! A partition's watermark advances only over its contiguous prefix of decided offsets, in offset order, and is part of
//! each checkpoint (DESIGN section 6). A record that comes again, in whatever order, is in front of no decided prefix; so
//! redelivery never makes it late. Operators that keep state are told the watermark of the last *committed* checkpoint,
//! with the next barrier.

mod machine;
mod partition;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_base::ids::Offset;

use crate::decision::SourcePartition;

pub(crate) use machine::{SealedTimes, Watermarks};
pub use read::times_of;
pub(crate) use read::{EventTimeReader, EventTimesOfEpoch};

/// A point in event time, Unix milliseconds: no record at or before it is waited for any more. A window that ends (exclusively)
/// at `e` is complete once the watermark is at least `e - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watermark(pub i64);

/// Where event time comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventTime {
    /// Column of every source that holds it: a timestamp, or `Int64` as Unix milliseconds. A null is no event time. Default
    /// `_timestamp`, the record's timestamp. Since 0.1.
    pub column: String,
    /// How much earlier than a record in front of it, in its partition, a record may be without being late. Default zero.
    /// Since 0.1.
    pub max_out_of_orderness: Duration,
    /// A partition in which nothing is left to decide, and of which nothing has come for so long, does not hold the
    /// watermark. `None`: it always does. Default 30 s; above zero. Since 0.1.
    pub idle_timeout: Option<Duration>,
}

impl Default for EventTime {
    fn default() -> Self {
        EventTime {
            column: crate::coordinates::TIMESTAMP.to_owned(),
            max_out_of_orderness: Duration::ZERO,
            idle_timeout: Some(Duration::from_secs(30)),
        }
    }
}

/// Longest bound of out-of-orderness: more is a mistyped unit.
const OUT_OF_ORDERNESS_MAX: Duration = Duration::from_secs(366 * 86_400);

impl EventTime {
    /// Event time in this column of every source.
    pub fn in_column(column: impl Into<String>) -> Self {
        EventTime { column: column.into(), ..EventTime::default() }
    }

    /// Sets [`EventTime::max_out_of_orderness`].
    #[must_use]
    pub fn with_max_out_of_orderness(mut self, bound: Duration) -> Self {
        self.max_out_of_orderness = bound;
        self
    }

    /// Sets [`EventTime::idle_timeout`].
    #[must_use]
    pub fn with_idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Every fault, in words that name the setting, its value and its bound.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.idle_timeout == Some(Duration::ZERO) {
            faults.push("event_time.idle_timeout is zero, it must be above zero, or none".to_owned());
        }
        if self.max_out_of_orderness > OUT_OF_ORDERNESS_MAX {
            faults.push(format!(
                "event_time.max_out_of_orderness is {:?}, it must be at most {OUT_OF_ORDERNESS_MAX:?}",
                self.max_out_of_orderness
            ));
        }
        faults
    }
}

/// Event times of records that a source has handed on, by partition: `(offset, time)` says that once all offsets up to
/// `offset` are decided, records as late as `time` (Unix milliseconds) are among them.
pub type EventTimes = BTreeMap<SourcePartition, Vec<(Offset, i64)>>;

/// Where the group is in a partition, as a source last saw it. What it says may be old, never ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Share-partition start offset: everything below is decided for good, or gone.
    pub start_offset: Offset,
    /// End of the partition: the offset that the next record gets. `None`: not known.
    pub end_offset: Option<Offset>,
}
