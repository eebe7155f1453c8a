//! Protection against the delivery-count limit: the broker archives a record at its limit without a word, so it is
//! taken out of the way, with a reason, before a further attempt could be its last.

/// The limit of the group, and how many deliveries are kept in reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeliveryLimit {
    limit: u16,
    reserve: u16,
}

impl DeliveryLimit {
    /// `limit` is the group's `share.delivery.count.limit`; a `reserve` of 0 switches the protection off.
    pub(super) fn new(limit: u16, reserve: u16) -> Self {
        // The first delivery is always tried, however small the limit.
        DeliveryLimit { limit, reserve: reserve.min(limit.saturating_sub(1)) }
    }

    /// Whether a record may be processed on this delivery; the reason if not.
    #[inline]
    pub(super) fn check(self, delivery_count: i16) -> Result<(), String> {
        let left = i32::from(self.limit) - i32::from(delivery_count) + 1;
        if self.reserve == 0 || left > i32::from(self.reserve) {
            return Ok(());
        }
        Err(format!(
            "delivery {delivery_count} of at most {}: given up before the broker drops the record",
            self.limit
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_given_up_while_deliveries_are_left() {
        let tried = |limit, reserve| -> Vec<i16> {
            (1..=limit as i16 + 1)
                .filter(|count| DeliveryLimit::new(limit, reserve).check(*count).is_ok())
                .collect()
        };
        assert_eq!(tried(5, 2), [1, 2, 3]);
        assert_eq!(tried(5, 1), [1, 2, 3, 4]);
        assert_eq!(tried(2, 2), [1], "the first delivery is always tried");
        assert_eq!(tried(1, 2), [1, 2], "nothing can be kept in reserve");
        assert_eq!(tried(5, 0), [1, 2, 3, 4, 5, 6]);
    }
}
