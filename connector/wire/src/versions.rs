//! Version ranges and their negotiation (KIP-35).

use std::fmt;

/// Versions of an API from `min` to `max`, both included. Empty when `min` is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VersionRange {
    /// Lowest version.
    pub min: i16,
    /// Highest version.
    pub max: i16,
}

impl VersionRange {
    /// The range of both bounds.
    pub const fn new(min: i16, max: i16) -> Self {
        VersionRange { min, max }
    }

    /// Whether the range holds the version.
    pub fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }

    /// The versions that both ranges hold.
    #[must_use]
    pub fn intersect(self, other: VersionRange) -> VersionRange {
        VersionRange { min: self.min.max(other.min), max: self.max.min(other.max) }
    }
}

impl From<kafka_protocol::protocol::VersionRange> for VersionRange {
    fn from(range: kafka_protocol::protocol::VersionRange) -> Self {
        VersionRange { min: range.min, max: range.max }
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

/// The highest version that both sides speak.
pub fn negotiate(ours: VersionRange, theirs: VersionRange) -> Option<i16> {
    let common = ours.intersect(theirs);
    (common.min <= common.max).then_some(common.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_common_version_wins() {
        let cases = [
            ((1, 2), (1, 2), Some(2)),
            ((1, 2), (0, 1), Some(1)),
            ((1, 2), (2, 9), Some(2)),
            ((1, 2), (3, 9), None),
            ((5, 7), (0, 4), None),
            ((0, 0), (0, 0), Some(0)),
            ((3, 2), (0, 9), None),
        ];
        for (ours, theirs, expected) in cases {
            let (ours, theirs) = (VersionRange::new(ours.0, ours.1), VersionRange::new(theirs.0, theirs.1));
            assert_eq!(negotiate(ours, theirs), expected, "{ours} with {theirs}");
            assert_eq!(negotiate(theirs, ours), expected, "symmetric");
        }
    }
}
