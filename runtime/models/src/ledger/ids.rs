//! Small numbers with names: records, claims, replicas, transactional ids.

use std::fmt;

/// Most replicas of a configuration.
pub const REPLICAS_MAX: usize = 3;
/// Most records.
pub const RECORDS_MAX: usize = 3;
/// Most claims, over all replicas and attempts.
pub const CLAIMS_MAX: usize = 5;
/// Most transactional ids: one for each replica, and one more for those that may come back under a new one.
pub const IDS_MAX: usize = 4;

/// A set of source records of one share partition. Record `r` is the one at offset `r`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Records(u8);

impl Records {
    /// No record.
    pub const NONE: Records = Records(0);

    /// The records at offsets below `end`: what a floor of `end` covers.
    pub fn below(end: u8) -> Records {
        Records((1 << end) - 1)
    }

    /// The set of one record.
    pub fn one(record: u8) -> Records {
        Records(1 << record)
    }

    /// Every set but the empty one of records below `end`.
    pub fn sets_below(end: u8) -> impl Iterator<Item = Records> {
        (1..1_u8 << end).map(Records)
    }

    /// The records, in order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..RECORDS_MAX as u8).filter(move |record| self.contains(*record))
    }

    /// Whether `record` is in the set.
    pub fn contains(self, record: u8) -> bool {
        self.0 & (1 << record) != 0
    }

    /// Whether the sets share a record.
    pub fn overlaps(self, other: Records) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether every record is in `other`, too.
    pub fn is_within(self, other: Records) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many records.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Records of either set.
    pub fn and(self, other: Records) -> Records {
        Records(self.0 | other.0)
    }

    /// Records of this set that are not in `other`.
    pub fn minus(self, other: Records) -> Records {
        Records(self.0 & !other.0)
    }

    /// Length of the longest prefix of offsets, from 0 and below `end`, that are all in the set.
    pub fn prefix(self, end: u8) -> u8 {
        (0..end).find(|record| !self.contains(*record)).unwrap_or(end)
    }

    /// One past the highest record below `end` in the set; 0 for none.
    pub fn highest_end(self, end: u8) -> u8 {
        (0..end).rev().find(|record| self.contains(*record)).map_or(0, |record| record + 1)
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records: Vec<_> = self.iter().map(|record| record.to_string()).collect();
        write!(f, "{{{}}}", records.join(","))
    }
}

/// A claim, numbered in the order of the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(pub u8);

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim {}", self.0)
    }
}

/// A replica of the job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicaId(pub u8);

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", char::from(b'A' + self.0))
    }
}

/// A transactional id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionalId(pub u8);

impl fmt::Debug for TransactionalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id {}", self.0)
    }
}
