//! Values as bytes: big endian, every length in front of what it counts and held against what is there.

use std::fmt;

use crate::ErrorKind;
use crate::error::Error;

/// Bytes that are not what they should be: cut short, damaged, or not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl Malformed {
    /// Says what is wrong.
    pub fn new(what: impl Into<String>) -> Self {
        Malformed(what.into())
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed message: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// What came over a connection cannot be trusted any more, nor what follows: the attempt ends.
impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Error::new(ErrorKind::Abort, malformed.to_string())
    }
}

/// Writes values one behind the other.
#[derive(Debug, Default)]
pub struct ByteWriter {
    bytes: Vec<u8>,
}

impl ByteWriter {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    /// A flag: 0 or 1.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Four bytes.
    pub fn i32(&mut self, value: i32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Eight bytes.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A number of things, as four bytes. What does not fit is written as the highest number, which no reader accepts.
    pub fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.count(value.len());
        self.bytes.extend_from_slice(value);
        self
    }

    /// Text behind its length in bytes.
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    /// A flag, and what `write` writes where there is a value.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
        self
    }
}

/// Reads what [`ByteWriter`] wrote. Nothing is allocated that the bytes do not hold.
#[derive(Clone, Debug)]
pub struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    /// Reads from the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        ByteReader { rest: bytes }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            let left = self.rest.len();
            return Err(Malformed::new(format!("{count} more bytes are needed, {left} are left")));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// A flag. Errors: it is neither 0 nor 1.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed::new(format!("{other} is no flag"))),
        }
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A number of things that take at least `size_min` bytes each (at least 1). Errors: so many cannot follow.
    pub fn count(&mut self, size_min: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        let most = self.rest.len() / size_min.max(1);
        if count > most {
            return Err(Malformed::new(format!("{count} things cannot follow in {} bytes", self.rest.len())));
        }
        Ok(count)
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.count(1)?;
        self.take(count)
    }

    /// Text behind its length. Errors: it is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::new("a text is not UTF-8"))
    }

    /// A value behind its flag.
    pub fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.bool()? { Ok(Some(read(self)?)) } else { Ok(None) }
    }

    /// Errors: something is left that nobody has read.
    pub fn end(self) -> Result<(), Malformed> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(Malformed::new(format!("{left} bytes are left over"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_held_against_what_is_there() {
        let mut writer = ByteWriter::new();
        writer.text("abc").u64(7).bool(true);
        let bytes = writer.into_bytes();
        for cut in 0..bytes.len() {
            let mut reader = ByteReader::new(&bytes[..cut]);
            let read = (|| Ok::<_, Malformed>((reader.text()?, reader.u64()?, reader.bool()?)))();
            assert!(read.is_err(), "{cut}");
        }
        let mut huge = ByteReader::new(&[0xff, 0xff, 0xff, 0xff, 1]);
        assert!(huge.clone().bytes().is_err());
        assert!(huge.count(17).is_err());
        assert!(ByteReader::new(&[2]).bool().is_err());
        assert!(ByteReader::new(&[0, 0, 0, 1, 0xff]).text().is_err());
        assert!(ByteReader::new(&[0]).end().is_err());
    }
}
