//! What the fuzz targets share: the bound of memory that each of them claims.
//!
//! `docs/fuzzing.md` says how they are run and what came of it.

use peak_alloc::PeakAlloc;

pub mod seeds;

/// Counts what the process holds. The fuzzer's own memory is not in it, as it is not Rust's.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Bytes that a decoded message may hold for each byte of it.
/// `connector/wire/tests/allocation.rs` looks for the densest there is.
pub const MESSAGE_FACTOR: usize = 64;
/// Bytes for the text of an error, and for the shape of a message that is learned at its first one.
pub const MESSAGE_FIXED: usize = 256 * 1024;

/// Runs a decoder on an input of `input_bytes`.
///
/// # Panics
/// When the decoder holds more than `fixed + factor * input_bytes` at any time.
pub fn bounded<T>(input_bytes: usize, factor: usize, fixed: usize, decode: impl FnOnce() -> T) -> T {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let decoded = decode();
    let held = ALLOCATOR.peak_usage().saturating_sub(before);
    let limit = fixed + factor * input_bytes;
    assert!(held <= limit, "{held} bytes held for an input of {input_bytes}, at most {limit} are allowed");
    decoded
}

/// Takes parts off an input.
#[derive(Debug)]
pub struct Parts<'a>(pub &'a [u8]);

impl<'a> Parts<'a> {
    /// The next byte; 0 at the end.
    pub fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    /// The next part, whose length is in the two bytes before it; shorter at the end.
    pub fn part(&mut self) -> &'a [u8] {
        let length = usize::from(u16::from_be_bytes([self.byte(), self.byte()]));
        let (part, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        part
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
