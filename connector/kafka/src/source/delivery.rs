//! Protection from the delivery-count limit: the broker archives a record in silence when it is given back after its last
//! delivery, so it is taken out of the way, with a reason, before a further attempt could be its last (ADR 0019). Pure.

use crate::config::BadRecords;

/// The limit of the group, and how many deliveries are kept in reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryLimit {
    limit: u16,
    reserve: u16,
    /// What becomes of a record that is given up.
    policy: BadRecords,
}

/// What is done with a record because of how often it has been delivered. In the order in which they are handed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Treatment {
    /// Not processed any more: decided by the policy, in an epoch that holds nothing else.
    GiveUp,
    /// Processed in an epoch that holds nothing else.
    Alone,
    /// Processed with all others.
    #[default]
    Usual,
}

impl Treatment {
    /// True for a record that is neither given back nor shares its fate with others.
    pub(crate) fn is_protected(self) -> bool {
        match self {
            Treatment::GiveUp | Treatment::Alone => true,
            Treatment::Usual => false,
        }
    }
}

impl DeliveryLimit {
    /// `limit` is the group's `share.delivery.count.limit`; a `reserve` of 0 switches the protection off.
    pub(crate) fn new(limit: u16, reserve: u16, policy: BadRecords) -> Self {
        // The first delivery is always an ordinary one, however small the limit.
        DeliveryLimit { limit, reserve: reserve.min(limit.saturating_sub(1)), policy }
    }

    /// The group's limit.
    pub(crate) fn limit(self) -> u16 {
        self.limit
    }

    /// What becomes of a record that is given up.
    pub(crate) fn policy(self) -> BadRecords {
        self.policy
    }

    /// True when a record is protected at all before its last delivery, so that nothing is archived whatever dies.
    pub(crate) fn protects(self) -> bool {
        self.reserve > 0
    }

    /// What is done with a record on this delivery, the first being 1.
    #[inline]
    pub(crate) fn treatment(self, delivery_count: i16) -> Treatment {
        // The usual case, one comparison for each record.
        if delivery_count <= 1 || self.reserve == 0 {
            return Treatment::Usual;
        }
        // Deliveries after this one.
        let left = i32::from(self.limit) - i32::from(delivery_count);
        if left > i32::from(self.reserve) {
            return Treatment::Usual;
        }
        // With one delivery left another attempt could be the last; a smaller reserve tries that one, too.
        if left >= i32::from(self.reserve.min(2)) {
            return Treatment::Alone;
        }
        // Ending the job on the last delivery would lose the record: it is tried instead.
        if self.policy == BadRecords::Fail && left <= 0 { Treatment::Alone } else { Treatment::GiveUp }
    }

    /// True when a record may be given back on this delivery: another one is left after it, and it is not protected.
    pub(crate) fn may_be_given_back(self, delivery_count: i16) -> bool {
        !self.treatment(delivery_count).is_protected() && i32::from(delivery_count) < i32::from(self.limit)
    }

    /// Why a record is given up on this delivery.
    pub(crate) fn reason(self, delivery_count: i16) -> String {
        format!(
            "delivery {delivery_count} of at most {}: given up before the broker drops the record",
            self.limit
        )
    }

    /// True when another delivery could be the last one: nobody may acquire the record before somebody has looked.
    pub(crate) fn must_not_be_delivered_again(self, delivery_count: u16) -> bool {
        self.protects() && i32::from(self.limit) - i32::from(delivery_count) <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(limit: u16, reserve: u16, policy: BadRecords) -> String {
        let limits = DeliveryLimit::new(limit, reserve, policy);
        let letters = (1..=limit as i16 + 1).map(|count| match limits.treatment(count) {
            Treatment::Usual => 'u',
            Treatment::Alone => 'a',
            Treatment::GiveUp => 'g',
        });
        letters.collect()
    }

    #[test]
    fn every_delivery_count_has_its_treatment() {
        for (limit, reserve, expected) in [
            (5, 2, "uuaggg"),
            (10, 2, "uuuuuuuaggg"),
            (4, 2, "uaggg"),
            (3, 2, "uggg"),
            (2, 2, "ugg"),
            (1, 2, "uu"),
            (5, 1, "uuuagg"),
            (3, 1, "uagg"),
            (2, 1, "ugg"),
            (5, 3, "uaaggg"),
            (5, 0, "uuuuuu"),
        ] {
            assert_eq!(table(limit, reserve, BadRecords::DeadLetter), expected, "{limit} {reserve}");
            assert_eq!(table(limit, reserve, BadRecords::Reject), expected, "{limit} {reserve}");
        }
    }

    #[test]
    fn what_has_no_delivery_left_or_is_protected_is_not_given_back() {
        for (limit, reserve, expected) in [(5, 2, 2), (10, 2, 7), (2, 1, 1), (1, 0, 0), (1, 2, 0), (5, 0, 4)]
        {
            let limits = DeliveryLimit::new(limit, reserve, BadRecords::DeadLetter);
            let often = (1..=limit as i16 + 1).take_while(|count| limits.may_be_given_back(*count)).count();
            assert_eq!(often, expected, "{limit} {reserve}");
            assert!(!limits.may_be_given_back(limit as i16));
        }
    }

    #[test]
    fn a_job_that_fails_on_such_records_never_fails_on_their_last_delivery() {
        assert_eq!(table(5, 2, BadRecords::Fail), "uuagaa");
        assert_eq!(table(2, 2, BadRecords::Fail), "uaa");
    }

    #[test]
    fn a_record_with_one_delivery_left_is_not_to_be_acquired_by_whoever_starts_next() {
        let limits = DeliveryLimit::new(5, 2, BadRecords::DeadLetter);
        assert_eq!(
            [2, 3, 4, 5].map(|count| limits.must_not_be_delivered_again(count)),
            [false, false, true, true]
        );
        assert!(!DeliveryLimit::new(5, 0, BadRecords::DeadLetter).must_not_be_delivered_again(5));
        assert!(
            !DeliveryLimit::new(10, 2, BadRecords::DeadLetter).must_not_be_delivered_again(4),
            "the limit was raised"
        );
    }
}
