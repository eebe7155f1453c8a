//! Pauses between attempts: exponential, jittered, and never past a deadline.

use std::time::Duration;

use sharestream_base::{Env, Instant};

use crate::config::RetryConfig;
use crate::{Error, Result};

/// The pauses of one call. Pure but for [`Backoff::wait`].
#[derive(Debug)]
pub(crate) struct Backoff {
    env: Env,
    next: Duration,
    max: Duration,
    multiplier: f64,
    jitter: f64,
    deadline: Instant,
}

impl Backoff {
    /// Pauses as `config` says, until `deadline`.
    pub(crate) fn new(env: &Env, config: &RetryConfig, deadline: Instant) -> Self {
        Backoff {
            env: env.clone(),
            next: config.initial,
            max: config.max,
            multiplier: config.multiplier,
            jitter: config.jitter,
            deadline,
        }
    }

    /// Starts with `initial` instead: for conditions that clear within a round trip, such as the markers of the
    /// transaction before.
    #[must_use]
    pub(crate) fn starting_with(mut self, initial: Duration) -> Self {
        self.next = initial.min(self.max);
        self
    }

    /// The next pause; `None` when the deadline would pass.
    pub(crate) fn next_pause(&mut self) -> Option<Duration> {
        let pause = self.env.rng.jitter(self.next, self.jitter);
        self.next = self.next.mul_f64(self.multiplier).min(self.max);
        let left = self.deadline.saturating_duration_since(self.env.clock.now());
        (pause < left).then_some(pause)
    }

    /// Pauses before the next attempt; gives `error` back when there is no time for one. Cancel safe.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<()> {
        match self.next_pause() {
            Some(pause) => {
                tracing::debug!(%error, ?pause, "attempt failed, trying again");
                self.env.clock.sleep(pause).await;
                Ok(())
            }
            None => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_the_maximum_and_end_at_the_deadline() {
        let env = Env::seeded(3);
        let config = RetryConfig { jitter: 0.0, ..RetryConfig::default() };
        let mut backoff = Backoff::new(&env, &config, env.clock.now() + Duration::from_secs(10));
        let pauses: Vec<u128> =
            (0..8).map(|_| backoff.next_pause().expect("time is left").as_millis()).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_000, 1_000]);
        env.clock.sleep(Duration::from_millis(9_500)).await;
        assert_eq!(backoff.next_pause(), None);
    }
}
