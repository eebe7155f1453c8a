//! A 64-bit name for a state, so that a search may forget the state itself.
//!
//! Two states with one fingerprint would be taken for one. Among `n` states the chance of that is about
//! `n * n / 2^65`: one in 400 for three hundred million states, one in 80,000 for twenty million.

use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Odd constants with evenly spread bits; any such pair would do.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

/// The fingerprint of a state. The same on every run.
pub fn fingerprint<S: Hash>(state: &S) -> u64 {
    let mut hasher = Folding { mixed: SEED, word: 0, filled_bits: 0 };
    state.hash(&mut hasher);
    hasher.finish()
}

/// Collects bytes into words and mixes every word by a full multiplication, whose two halves are folded onto
/// each other. States are mostly small numbers and fieldless enums, so one multiplication serves eight of
/// them.
struct Folding {
    mixed: u64,
    word: u64,
    filled_bits: u32,
}

impl Folding {
    fn mix(mixed: u64, word: u64) -> u64 {
        let product = u128::from(mixed ^ word).wrapping_mul(u128::from(FACTOR));
        (product as u64) ^ ((product >> 64) as u64) ^ word.rotate_left(32).wrapping_mul(SEED)
    }

    fn push(&mut self, byte: u8) {
        self.word |= u64::from(byte) << self.filled_bits;
        self.filled_bits += 8;
        if self.filled_bits == 64 {
            self.mixed = Self::mix(self.mixed, self.word);
            self.word = 0;
            self.filled_bits = 0;
        }
    }

    /// One byte for what is below 255, as lengths and the numbers of enum variants are; else an escape and
    /// all bytes.
    fn push_short(&mut self, value: u64) {
        match u8::try_from(value) {
            Ok(byte) if byte < u8::MAX => self.push(byte),
            _ => {
                self.push(u8::MAX);
                self.write(&value.to_le_bytes());
            }
        }
    }
}

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.push(*byte);
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.push_short(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.push_short(value as u64);
    }

    fn finish(&self) -> u64 {
        let last = Self::mix(self.mixed, self.word);
        Self::mix(last, u64::from(self.filled_bits))
    }
}

/// For maps whose keys are fingerprints already.
#[allow(clippy::disallowed_types, reason = "never iterated, and its hasher has no random key")]
pub(crate) type FingerprintMap<V> = std::collections::HashMap<u64, V, BuildHasherDefault<AsIs>>;

/// Passes a fingerprint through.
#[derive(Default)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are hashed as one word");
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
