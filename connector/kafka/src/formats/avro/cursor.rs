//! Reads the primitives of Avro's binary form. Nothing is believed: every length is held against the bytes that are there.

/// Why bytes are no value of the schema.
pub(super) type Fault = std::borrow::Cow<'static, str>;

/// The bytes of one value that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
}

const CUT_OFF: Fault = Fault::Borrowed("it ends too early");

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(CUT_OFF)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(CUT_OFF)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Fault> {
        match self.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("a boolean that is neither 0 nor 1".into()),
        }
    }

    #[inline]
    pub(super) fn long(&mut self) -> Result<i64, Fault> {
        /// Groups of 7 bits that hold 64.
        const BYTES_MAX: usize = 10;
        let mut value: u64 = 0;
        for (index, byte) in self.bytes.iter().copied().take(BYTES_MAX).enumerate() {
            let group = u64::from(byte & 0x7f);
            if index == BYTES_MAX - 1 && group > 1 {
                break;
            }
            value |= group << (7 * index);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[index + 1..];
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(if self.bytes.len() < BYTES_MAX { CUT_OFF } else { "a number of more than 64 bits".into() })
    }

    #[inline]
    pub(super) fn int(&mut self) -> Result<i32, Fault> {
        i32::try_from(self.long()?).map_err(|_| "an int of more than 32 bits".into())
    }

    pub(super) fn float(&mut self) -> Result<f32, Fault> {
        Ok(f32::from_le_bytes(self.array()?))
    }

    pub(super) fn double(&mut self) -> Result<f64, Fault> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    /// Bytes behind their length.
    #[inline]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let length = usize::try_from(self.long()?).map_err(|_| Fault::from("a length below zero"))?;
        self.take(length)
    }

    #[inline]
    pub(super) fn text(&mut self) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "text that is not UTF-8".into())
    }

    /// An index below `count`.
    pub(super) fn index(&mut self, count: usize) -> Result<usize, Fault> {
        let index = usize::try_from(self.long()?).ok().filter(|index| *index < count);
        index.ok_or_else(|| format!("an index that is not below {count}").into())
    }

    /// The items of the next block of an array or a map; `None` behind the last one. The size in bytes that a block may have
    /// says nothing that the items do not say.
    pub(super) fn block(&mut self) -> Result<Option<u64>, Fault> {
        let count = self.long()?;
        if count < 0 {
            let size =
                usize::try_from(self.long()?).map_err(|_| Fault::from("a block of less than no bytes"))?;
            if size > self.left() {
                return Err(CUT_OFF);
            }
        }
        Ok((count != 0).then_some(count.unsigned_abs()))
    }
}

/// What a value may cost beyond its own bytes: items that take no byte, and defaults. A value of ten bytes could otherwise ask
/// for more memory than there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget(usize);

impl Budget {
    const FREE: usize = 64 << 10;
    const PER_BYTE: usize = 8;

    pub(super) fn of(value: &[u8]) -> Self {
        Budget(Self::FREE + Self::PER_BYTE * value.len())
    }

    #[inline]
    pub(super) fn spend(&mut self, cost: usize) -> Result<(), Fault> {
        self.0 = self.0.checked_sub(cost).ok_or(Fault::Borrowed("it stands for far more than its bytes"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::encode::write_long;
    use super::*;

    proptest! {
        #[test]
        fn longs_are_read_as_they_are_written(value in any::<i64>()) {
            let mut bytes = Vec::new();
            write_long(value, &mut bytes);
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.long().unwrap(), value);
            prop_assert_eq!(cursor.left(), 0);
            for cut in 0..bytes.len() {
                prop_assert_eq!(Cursor::new(&bytes[..cut]).long().unwrap_err(), CUT_OFF);
            }
        }
    }

    #[test]
    fn a_long_of_more_than_64_bits_is_refused() {
        let mut bytes = [0xff; 10];
        bytes[9] = 0x01;
        assert_eq!(Cursor::new(&bytes).long().unwrap(), i64::MIN);
        bytes[9] = 0x02;
        assert!(Cursor::new(&bytes).long().unwrap_err().contains("64 bits"));
        assert!(Cursor::new(&[0xff; 11]).long().unwrap_err().contains("64 bits"));
    }
}
