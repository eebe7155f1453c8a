//! Compression of the records section.

use std::fmt;

use bytes::Bytes;

use crate::WireError;

/// Most bytes that one batch may decompress to: 100 MiB. A peer could otherwise make us hold any amount.
pub const DECOMPRESSED_BYTES_MAX: usize = 100 * 1024 * 1024;

/// Codec of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not compressed.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// Snappy, in the xerial framing that the Java client writes.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// All codecs.
    pub const ALL: [Compression; 5] =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    /// The number in a batch's attributes.
    pub fn id(self) -> i16 {
        match self {
            Compression::None => 0,
            Compression::Gzip => 1,
            Compression::Snappy => 2,
            Compression::Lz4 => 3,
            Compression::Zstd => 4,
        }
    }

    /// The codec of a number.
    pub fn from_id(id: i16) -> Option<Compression> {
        Compression::ALL.into_iter().find(|codec| codec.id() == id)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        })
    }
}

impl std::str::FromStr for Compression {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        Compression::ALL.into_iter().find(|codec| codec.to_string() == text).ok_or_else(|| {
            WireError::invalid(format!("'{text}' is not a compression (none, gzip, snappy, lz4, zstd)"))
        })
    }
}

pub(super) fn decompress(compression: Compression, section: Bytes) -> Result<Bytes, WireError> {
    match compression {
        Compression::None => Ok(section),
        Compression::Gzip | Compression::Snappy | Compression::Lz4 | Compression::Zstd => {
            Err(WireError::invalid(format!("compression {compression} is not supported")))
        }
    }
}

/// Appends the compressed section to `out`.
pub(super) fn compress(compression: Compression, section: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
    match compression {
        Compression::None => {
            out.extend_from_slice(section);
            Ok(())
        }
        Compression::Gzip | Compression::Snappy | Compression::Lz4 | Compression::Zstd => {
            Err(WireError::invalid(format!("compression {compression} is not supported")))
        }
    }
}
