//! Compression of the records section.

use std::fmt;
use std::io::{self, Read, Write};

use bytes::Bytes;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use sharestream_base::ErrorKind;

use super::snappy;
use crate::WireError;

/// Most bytes that one batch may decompress to: 100 MiB. A peer could otherwise make us hold any amount.
pub const DECOMPRESSED_BYTES_MAX: usize = 100 * 1024 * 1024;

/// Largest zstd window: 64 MiB. Only the levels above 19 ask for more than 8 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 26;

/// How an LZ4 frame begins. The older frames that begin otherwise are nobody's in Kafka, and the decoder reserves 16 MiB
/// for one before it has seen any data.
const LZ4_MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();

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
        f.pad(match self {
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

/// The decompressed section; the section itself when it is not compressed. `None`: it is more than `bytes_max`, of which no more
/// than that was held. Errors: `Corrupt`.
pub(super) fn decompress(
    compression: Compression,
    section: Bytes,
    bytes_max: usize,
) -> Result<Option<Bytes>, WireError> {
    let decompressed = match compression {
        Compression::None => return Ok(Some(section)),
        Compression::Gzip => read_bounded(flate2::read::MultiGzDecoder::new(&section[..]), bytes_max),
        Compression::Snappy => return Ok(snappy::decompress(&section, bytes_max)?.map(Bytes::from)),
        Compression::Lz4 if !section.is_empty() && !section.starts_with(&LZ4_MAGIC) => {
            return Err(WireError::corrupt("lz4 data does not begin as a frame"));
        }
        Compression::Lz4 => read_bounded(lz4_flex::frame::FrameDecoder::new(&section[..]), bytes_max),
        Compression::Zstd => zstd_decoder(&section).and_then(|decoder| read_bounded(decoder, bytes_max)),
    };
    match decompressed {
        Ok(bytes) if bytes.len() > bytes_max => Ok(None),
        Ok(bytes) => Ok(Some(Bytes::from(bytes))),
        Err(error) => Err(WireError::corrupt(format!("{compression} data is damaged")).with_source(error)),
    }
}

/// Appends the compressed section to `out`. Errors: `Bug`; compressing into memory does not fail.
pub(super) fn compress(compression: Compression, section: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
    let done = match compression {
        Compression::None => {
            out.extend_from_slice(section);
            Ok(())
        }
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            encoder.write_all(section).and_then(|()| encoder.finish()).map(|_| ())
        }
        Compression::Snappy => return snappy::compress(section, out),
        Compression::Lz4 => {
            // The Java client reads no blocks that depend on one another.
            let frame = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
            let mut encoder = FrameEncoder::with_frame_info(frame, out);
            encoder.write_all(section).and_then(|()| encoder.finish().map_err(io::Error::from)).map(|_| ())
        }
        Compression::Zstd => zstd::stream::copy_encode(section, out, zstd::DEFAULT_COMPRESSION_LEVEL),
    };
    done.map_err(|error| {
        WireError::new(ErrorKind::Bug, format!("compressing with {compression}")).with_source(error)
    })
}

/// All that the decoder yields, or one byte more than is allowed.
fn read_bounded(decoder: impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    decoder.take((bytes_max as u64).saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn zstd_decoder(section: &[u8]) -> io::Result<zstd::stream::read::Decoder<'static, &[u8]>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(section)?;
    // The decoder allocates the window that a frame asks for before it has seen the data.
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}
