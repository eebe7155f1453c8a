//! A 64-bit name for a state, so that a search may forget the state itself.
//!
//! Two states with one fingerprint would be taken for one. Among `n` states the chance of that is about
//! `n * n / 2^65`: one in 400 for a quarter of a billion states, one in 80,000 for twenty million.

use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Odd constants with evenly spread bits; any such pair would do.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

/// The fingerprint of a state. The same on every run and every machine of one word order.
pub fn fingerprint<S: Hash>(state: &S) -> u64 {
    let mut hasher = Folding(SEED);
    state.hash(&mut hasher);
    hasher.finish()
}

/// Mixes every word by a full multiplication, whose two halves are folded onto each other.
struct Folding(u64);

impl Folding {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word).wrapping_mul(u128::from(FACTOR));
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ word.rotate_left(32).wrapping_mul(SEED);
    }
}

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.mix(value as u64);
    }

    fn finish(&self) -> u64 {
        let product = u128::from(self.0 ^ SEED).wrapping_mul(u128::from(FACTOR));
        (product as u64) ^ ((product >> 64) as u64)
    }
}

/// For maps whose keys are fingerprints already.
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
