//! The shape of a message: where its lengths and counts are. Every message from outside is held against its shape
//! before it is decoded, so that no count makes a decoder reserve more than the bytes that are there can fill.
//!
//! `kafka_protocol` reserves room for as many elements as an array claims before it has read the first: four bytes
//! can ask for a hundred gigabytes, and the process ends. Its schemas are not in the crate, but its decoders read
//! from any buffer. `learn` asks a decoder once for each version what it reads, with a buffer of our own that
//! answers with small numbers, and keeps what it learned. [`Shape::check`] then walks over the bytes of a message
//! without allocating, in time proportional to their number. ADR 0017 has the reasons and the measurements.
//!
//! ```text
//! first message of a type and version:  decoder --asks--> learn::Probe        => Shape, kept
//! every message:                        bytes --Shape::check--> bytes --decoder--> message
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use kafka_protocol::protocol::Decodable;

use crate::WireError;

mod learn;
mod sample;

/// Most array elements and tagged fields that one message may hold. A frame at the limit of 100 MiB could hold fifty
/// million of two bytes each, which take 36 and more in memory. The largest answer that clusters give, the metadata of
/// 200,000 partitions with three replicas, has 1,400,000.
pub const ELEMENTS_MAX: usize = 2 * 1024 * 1024;

/// A part of a message, as its decoder reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// As many bytes, whatever they say.
    Fixed(usize),
    /// A length of two bytes and as many bytes; -1 is null.
    Text,
    /// A length of four bytes and as many bytes; -1 is null.
    Blob,
    /// A varint that is one more than a length, and as many bytes; 0 is null.
    Compact,
    /// A count of four bytes and as many elements; -1 is null.
    Array(Vec<Part>),
    /// A varint that is one more than a count, and as many elements; 0 is null.
    CompactArray(Vec<Part>),
    /// A byte, and a structure if it is 1.
    Optional(Vec<Part>),
    /// A varint that counts tagged fields, then of each its number, its length and its content. The fields that the
    /// decoder knows are here; it reads their content without looking at the length. Of others it takes the length.
    Tagged(BTreeMap<u32, Vec<Part>>),
}

/// The parts of a message in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    parts: Vec<Part>,
}

/// Shapes by name of the type and version. They are facts about types of this process, never forgotten.
static LEARNED: RwLock<BTreeMap<(&'static str, i16), Arc<Shape>>> = RwLock::new(BTreeMap::new());

impl Shape {
    /// The shape of a message. Errors: those of the decoder for a version that it does not have; `Bug` when it reads
    /// in a way that is not understood here.
    pub fn of<M: Decodable>(version: i16) -> Result<Arc<Shape>, WireError> {
        let key = (std::any::type_name::<M>(), version);
        if let Some(known) = LEARNED.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(known));
        }
        let shape = Arc::new(Shape { parts: learn::parts::<M>(version)? });
        LEARNED.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&shape));
        Ok(shape)
    }

    /// The parts in the order of the wire.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The bytes that a message at the front of `bytes` takes. Allocates nothing. Errors: `Corrupt` (bytes are missing
    /// for a length or a count, or it holds more than [`ELEMENTS_MAX`] elements).
    pub fn check(&self, bytes: &[u8]) -> Result<usize, WireError> {
        let mut walk = Walk { rest: bytes, elements: 0 };
        walk.parts(&self.parts)?;
        Ok(bytes.len() - walk.rest.len())
    }

    /// Bytes of some message of this shape, without nulls, for tests. `below(n)` gives a number from 0 to `n - 1`.
    pub fn sample(&self, mut below: impl FnMut(usize) -> usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        sample::parts(&self.parts, &mut below, &mut bytes);
        bytes
    }
}

/// Decodes a message from the front of `buf`, once it is known to be all there. What is behind it stays.
/// Errors: `Corrupt`, and those of [`Shape::of`].
pub(crate) fn decode<M: Decodable>(buf: &mut Bytes, version: i16) -> anyhow::Result<M> {
    let taken = Shape::of::<M>(version)?.check(buf)?;
    let expected = buf.len() - taken;
    let message = M::decode(buf, version)?;
    debug_assert_eq!(buf.len(), expected, "the decoder took what its shape says");
    Ok(message)
}

/// Fewest bytes that the parts take.
fn bytes_min(parts: &[Part]) -> usize {
    parts
        .iter()
        .map(|part| match part {
            Part::Fixed(bytes) => *bytes,
            Part::Text => 2,
            Part::Blob | Part::Array(_) => 4,
            Part::Compact | Part::CompactArray(_) | Part::Optional(_) | Part::Tagged(_) => 1,
        })
        .sum()
}

/// Where a check is.
struct Walk<'a> {
    rest: &'a [u8],
    elements: usize,
}

impl Walk<'_> {
    fn parts(&mut self, parts: &[Part]) -> Result<(), WireError> {
        parts.iter().try_for_each(|part| self.part(part))
    }

    fn part(&mut self, part: &Part) -> Result<(), WireError> {
        match part {
            Part::Fixed(bytes) => self.skip(*bytes),
            Part::Text => match i16::from_be_bytes(self.take()?) {
                -1 => Ok(()),
                length => self.skip(not_negative(length.into())?),
            },
            Part::Blob => match i32::from_be_bytes(self.take()?) {
                -1 => Ok(()),
                length => self.skip(not_negative(length)?),
            },
            Part::Compact => match self.varint()?.checked_sub(1) {
                None => Ok(()),
                Some(length) => self.skip(length as usize),
            },
            Part::Array(element) => match i32::from_be_bytes(self.take()?) {
                -1 => Ok(()),
                count => self.elements(not_negative(count)?, element),
            },
            Part::CompactArray(element) => match self.varint()?.checked_sub(1) {
                None => Ok(()),
                Some(count) => self.elements(count as usize, element),
            },
            Part::Optional(parts) => match self.take()? {
                [1] => self.parts(parts),
                [_] => Ok(()),
            },
            Part::Tagged(known) => {
                let count = self.varint()? as usize;
                self.count(count, 2)?;
                (0..count).try_for_each(|_| self.tagged(known))
            }
        }
    }

    fn elements(&mut self, count: usize, element: &[Part]) -> Result<(), WireError> {
        self.count(count, bytes_min(element))?;
        match element {
            // Cannot overflow: so many bytes are there.
            [Part::Fixed(bytes)] => self.skip(count * bytes),
            _ => (0..count).try_for_each(|_| self.parts(element)),
        }
    }

    fn tagged(&mut self, known: &BTreeMap<u32, Vec<Part>>) -> Result<(), WireError> {
        let tag = self.varint()?;
        let length = self.varint()? as usize;
        match known.get(&tag) {
            Some(parts) => self.parts(parts),
            None => self.skip(length),
        }
    }

    /// Accounts for elements before they are read.
    fn count(&mut self, count: usize, bytes_min: usize) -> Result<(), WireError> {
        // No element is empty, `learn` sees to it.
        if count > self.rest.len() / bytes_min.max(1) {
            let left = self.rest.len();
            return Err(WireError::corrupt(format!(
                "{count} elements are claimed where {left} bytes are left"
            )));
        }
        self.elements += count;
        if self.elements > ELEMENTS_MAX {
            return Err(WireError::corrupt(format!(
                "message of more than {ELEMENTS_MAX} elements: ask for less at a time"
            )));
        }
        Ok(())
    }

    fn skip(&mut self, length: usize) -> Result<(), WireError> {
        match self.rest.get(length..) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => {
                let left = self.rest.len();
                Err(WireError::corrupt(format!("{length} bytes are claimed where {left} are left")))
            }
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or_else(|| WireError::corrupt("message ends within a length or a count"))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn varint(&mut self) -> Result<u32, WireError> {
        crate::codec::get_unsigned_varint(&mut self.rest)
    }
}

fn not_negative(number: i32) -> Result<usize, WireError> {
    usize::try_from(number).map_err(|_| WireError::corrupt(format!("length or count of {number}")))
}
