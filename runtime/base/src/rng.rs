//! Chance: one seeded generator, forked by name so that a new consumer does not shift the others.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use uuid::Uuid;

/// A cheap handle to a random generator. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    seed: u64,
    state: Arc<Mutex<SmallRng>>,
}

impl Rng {
    /// Seeded by the operating system.
    pub fn from_entropy() -> Self {
        Self::seeded(SmallRng::from_os_rng().next_u64())
    }

    /// The same seed gives the same numbers.
    pub fn seeded(seed: u64) -> Self {
        Rng { seed, state: Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))) }
    }

    /// A generator of its own for `label`: depends on the seed and the label only, not on what was drawn before.
    pub fn fork(&self, label: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (self.seed, label).hash(&mut hasher);
        Self::seeded(hasher.finish())
    }

    /// The next 64 random bits.
    pub fn next_u64(&self) -> u64 {
        // A panic while the lock was held leaves a valid generator, so poison is no reason to stop.
        self.state.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `duration` changed by at most `fraction` of itself, either way.
    pub fn jitter(&self, duration: Duration, fraction: f64) -> Duration {
        duration.mul_f64((1.0 + fraction * (2.0 * self.unit() - 1.0)).max(0.0))
    }

    /// A random (version 4) UUID.
    pub fn uuid(&self) -> Uuid {
        let mut bytes = [0u8; 16];
        bytes[..8].copy_from_slice(&self.next_u64().to_le_bytes());
        bytes[8..].copy_from_slice(&self.next_u64().to_le_bytes());
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_depend_on_seed_and_label_only() {
        let (a, b) = (Rng::seeded(7), Rng::seeded(7));
        a.next_u64();
        assert_eq!(a.fork("client").next_u64(), b.fork("client").next_u64());
        assert_ne!(a.fork("client").next_u64(), a.fork("broker").next_u64());
    }

    #[test]
    fn jitter_stays_within_its_fraction() {
        let rng = Rng::seeded(1);
        for _ in 0..1_000 {
            let jittered = rng.jitter(Duration::from_millis(100), 0.2).as_secs_f64();
            assert!((0.08..=0.12).contains(&jittered));
        }
    }
}
