//! Zigzag varints on slices: the inner loop of reading and writing records.

use crate::WireError;

/// Reads records front to back; every step is bounded by what remains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, WireError> {
        let (first, rest) = self.rest.split_first().ok_or_else(short)?;
        self.rest = rest;
        Ok(*first)
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A zigzag varint that must fit 32 bits.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<i32, WireError> {
        i32::try_from(self.varlong()?).map_err(|_| WireError::corrupt("varint does not fit 32 bits"))
    }

    /// A zigzag varint of 64 bits.
    #[inline]
    pub(super) fn varlong(&mut self) -> Result<i64, WireError> {
        // Most are one byte.
        if let Some((&first, rest)) = self.rest.split_first()
            && first < 0x80
        {
            self.rest = rest;
            return Ok(unzigzag(u64::from(first)));
        }
        self.varlong_of_several_bytes()
    }

    #[inline]
    fn varlong_of_several_bytes(&mut self) -> Result<i64, WireError> {
        let mut value: u64 = 0;
        for (index, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                if index == 9 && byte > 1 {
                    return Err(WireError::corrupt("varint does not fit 64 bits"));
                }
                self.rest = &self.rest[index + 1..];
                return Ok(unzigzag(value));
            }
        }
        Err(if self.rest.len() < 10 { short() } else { WireError::corrupt("varint longer than ten bytes") })
    }

    /// Bytes behind their length; -1 is null.
    #[inline]
    pub(super) fn nullable(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        match self.varint()? {
            -1 => Ok(None),
            length => {
                let length =
                    usize::try_from(length).map_err(|_| WireError::corrupt("negative length in a record"))?;
                self.take(length).map(Some)
            }
        }
    }
}

#[cold]
fn short() -> WireError {
    WireError::corrupt("record batch ends within a record")
}

fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Bytes of a zigzag varint: 1 to 10.
#[inline]
pub(super) fn varint_bytes(value: i64) -> usize {
    (70 - (zigzag(value) | 1).leading_zeros() as usize) / 7
}

/// Appends a zigzag varint; 32-bit values have the same bytes.
#[inline]
pub(super) fn put_varint(buf: &mut Vec<u8>, value: i64) {
    let mut value = zigzag(value);
    if value < 0x80 {
        buf.push(value as u8);
        return;
    }
    let mut bytes = [0u8; 10];
    let mut count = 0;
    while value >= 0x80 {
        bytes[count] = (value as u8) | 0x80;
        value >>= 7;
        count += 1;
    }
    bytes[count] = value as u8;
    buf.extend_from_slice(&bytes[..=count]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn varint_reads_what_it_writes(value in any::<i64>(), shift in 0..64u32) {
            let value = value >> shift;
            let mut buf = Vec::new();
            put_varint(&mut buf, value);
            prop_assert_eq!(buf.len(), varint_bytes(value));
            let mut reader = Reader::new(&buf);
            prop_assert_eq!(reader.varlong().unwrap(), value);
            prop_assert!(reader.is_empty());
        }
    }

    #[test]
    fn varint_beyond_its_width_is_corrupt() {
        assert!(Reader::new(&[0xff; 11]).varlong().is_err());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varlong().is_err());
        assert!(Reader::new(&[0x80, 0x80]).varlong().is_err());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint().is_err());
    }
}
