//! Snappy as Kafka clients write it: raw blocks, usually in the framing of the xerial Java library.
//!
//! ```text
//! 0x82 "SNAPPY" 0x00 | version i32 | compatible version i32 | (block length i32 | raw snappy block)*
//! ```
//! Clients on librdkafka write one raw block without a frame; both are read, the framing is written.

use crate::WireError;

const MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const VERSION: i32 = 1;
const HEADER_BYTES: usize = 16;

/// Input of one block, as the Java library cuts it.
const BLOCK_BYTES: usize = 32 * 1024;

/// The densest element of the format makes 64 bytes of 3.
const EXPANSION_MAX: usize = 22;

pub(super) fn compress(section: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in section.chunks(BLOCK_BYTES) {
        let at = out.len();
        out.resize(at + 4 + snap::raw::max_compress_len(block.len()), 0);
        let written = encoder
            .compress(block, &mut out[at + 4..])
            .map_err(|error| WireError::invalid("compressing with snappy").with_source(error))?;
        out[at..at + 4].copy_from_slice(&(written as u32).to_be_bytes());
        out.truncate(at + 4 + written);
    }
    Ok(())
}

/// `None`: it is more than `bytes_max`.
pub(super) fn decompress(section: &[u8], bytes_max: usize) -> Result<Option<Vec<u8>>, WireError> {
    let mut out = Vec::new();
    if !section.starts_with(MAGIC) {
        return Ok(append_block(section, &mut out, bytes_max)?.then_some(out));
    }
    let mut rest = section.get(HEADER_BYTES..).ok_or_else(damaged)?;
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| damaged())?;
        let (block, after) = after.split_at_checked(length).ok_or_else(damaged)?;
        if !append_block(block, &mut out, bytes_max)? {
            return Ok(None);
        }
        rest = after;
    }
    Ok(Some(out))
}

/// False, and nothing done, when that would be more than `bytes_max`.
fn append_block(block: &[u8], out: &mut Vec<u8>, bytes_max: usize) -> Result<bool, WireError> {
    let wrap = |error| damaged().with_source(error);
    let bytes = snap::raw::decompress_len(block).map_err(wrap)?;
    if bytes > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(damaged());
    }
    let at = out.len();
    if at + bytes > bytes_max {
        return Ok(false);
    }
    out.resize(at + bytes, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut out[at..]).map_err(wrap)?;
    out.truncate(at + written);
    Ok(true)
}

fn damaged() -> WireError {
    WireError::corrupt("snappy data is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decompress(section: &[u8]) -> Result<Vec<u8>, WireError> {
        super::decompress(section, 8 << 20).map(|bytes| bytes.expect("it is within the bound"))
    }

    #[test]
    fn framed_and_raw_blocks_are_read() {
        let text: Vec<u8> = (0..100_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut framed = Vec::new();
        compress(&text, &mut framed).unwrap();
        assert!(framed.starts_with(MAGIC) && framed.len() < text.len());
        assert_eq!(decompress(&framed).unwrap(), text);
        let raw = snap::raw::Encoder::new().compress_vec(&text).unwrap();
        assert_eq!(decompress(&raw).unwrap(), text);
    }

    #[test]
    fn densest_data_is_within_the_expansion_bound() {
        let zeros = vec![0u8; 1 << 20];
        let raw = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
        assert_eq!(decompress(&raw).unwrap(), zeros);
    }

    #[test]
    fn length_beyond_what_the_block_can_hold_is_refused_before_allocating() {
        // A raw block that claims 4 GiB - 1 in 6 bytes.
        assert!(decompress(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0]).is_err());
        for length in [-1i32, 100] {
            let mut framed = Vec::new();
            compress(b"x", &mut framed).unwrap();
            framed[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&length.to_be_bytes());
            assert!(decompress(&framed).is_err());
        }
        assert!(decompress(&MAGIC[..]).is_err());
    }
}
