//! Ids and offsets as types of their own, so that two of them cannot be swapped unseen.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                $name(value)
            }
        }
    };
}

number_id! {
    /// Position of a record in a partition log. Signed as on the wire; real offsets are at least 0.
    Offset(i64)
}
number_id! {
    /// Number of a partition within its topic, from 0.
    PartitionIndex(i32)
}
number_id! {
    /// Broker node id.
    NodeId(i32)
}
number_id! {
    /// Identity of a producer, given by the transaction coordinator.
    ProducerId(i64)
}
number_id! {
    /// Incarnation of a producer id; a newer one fences the older. -1 means none.
    ProducerEpoch(i16)
}
number_id! {
    /// Incarnation of a share-group member; 0 joins, -1 leaves.
    MemberEpoch(i32)
}
number_id! {
    /// Incarnation of a partition's leadership.
    LeaderEpoch(i32)
}
number_id! {
    /// Incarnation of a share partition's state: a reset of its offsets raises it.
    StateEpoch(i32)
}
number_id! {
    /// Number of a checkpoint within a (job, instance); never used twice.
    CheckpointId(u64)
}
number_id! {
    /// Incarnation of a (job, instance): each start takes the next one and fences the older.
    JobEpoch(u64)
}

impl Offset {
    /// The offset `count` further on.
    pub fn plus(self, count: i64) -> Offset {
        Offset(self.0.saturating_add(count))
    }

    /// The offset right after this one.
    pub fn next(self) -> Offset {
        self.plus(1)
    }

    /// Number of offsets from this one to `last`, both included; `last` is not below this one.
    pub fn count_to(self, last: Offset) -> u64 {
        (last.0 - self.0 + 1).unsigned_abs()
    }
}

impl CheckpointId {
    /// The id right after this one.
    pub fn next(self) -> CheckpointId {
        CheckpointId(self.0 + 1)
    }
}

/// Identity of a topic. A deleted and re-created topic is another topic, under the same name.
///
/// Printed as Kafka prints it: 22 characters of unpadded URL-safe base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TopicId(pub Uuid);

/// The text is not a topic id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a topic id (22 characters of URL-safe base64)")]
pub struct TopicIdError {
    /// What was given.
    pub text: String,
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; 22];
        let mut bits = u128::from_be_bytes(*self.0.as_bytes());
        // 22 characters hold 132 bits: the last one carries the low 2 bits, shifted up by 4.
        text[21] = BASE64[((bits & 0b11) << 4) as usize];
        bits >>= 2;
        for slot in text[..21].iter_mut().rev() {
            *slot = BASE64[(bits & 0b11_1111) as usize];
            bits >>= 6;
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for TopicId {
    type Err = TopicIdError;

    fn from_str(text: &str) -> Result<Self, TopicIdError> {
        let error = || TopicIdError { text: text.to_owned() };
        let bytes: &[u8; 22] = text.as_bytes().try_into().map_err(|_| error())?;
        let mut bits: u128 = 0;
        for (index, byte) in bytes.iter().enumerate() {
            let digit = BASE64.iter().position(|c| c == byte).ok_or_else(error)? as u128;
            bits = if index < 21 {
                (bits << 6) | digit
            } else if digit & 0b1111 == 0 {
                (bits << 2) | (digit >> 4)
            } else {
                return Err(error());
            };
        }
        Ok(TopicId(Uuid::from_bytes(bits.to_be_bytes())))
    }
}

impl Serialize for TopicId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TopicId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_id_reads_what_it_writes() {
        for bits in [0u128, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let id = TopicId(Uuid::from_u128(bits));
            assert_eq!(id.to_string().parse::<TopicId>().unwrap(), id);
        }
        assert!("too-short".parse::<TopicId>().is_err());
        assert!("AAAAAAAAAAAAAAAAAAAAAB".parse::<TopicId>().is_err(), "unused bits must be zero");
    }

    #[test]
    fn topic_id_is_printed_as_kafka_prints_it() {
        // Kafka's Uuid(0L, 1L), the metadata topic id.
        assert_eq!(TopicId(Uuid::from_u128(1)).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
    }
}
