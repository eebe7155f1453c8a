//! Time: a monotonic clock for deadlines and a wall clock for timestamps.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A point of monotonic time. Paused runtimes of tokio pause it too.
pub use tokio::time::Instant;

/// The deadline passed before the future was ready.
pub use tokio::time::error::Elapsed;

/// A cheap handle to the clocks of one process (or of one simulated node).
#[derive(Clone, Debug)]
pub struct Clock {
    wall: Arc<Wall>,
}

#[derive(Debug)]
enum Wall {
    System,
    /// Wall time that starts at `start_ms` and moves with the monotonic clock: each simulated node has its own
    /// start, which is its skew.
    Simulated {
        start_ms: AtomicI64,
        started_at: Instant,
    },
}

#[allow(clippy::disallowed_methods, reason = "this is the door to time")]
impl Clock {
    /// The clocks of the operating system.
    pub fn system() -> Self {
        Clock { wall: Arc::new(Wall::System) }
    }

    /// A wall clock that reads `start_ms` (Unix milliseconds) now and moves with tokio's monotonic clock, paused
    /// or not. Must be called inside a runtime.
    pub fn simulated(start_ms: i64) -> Self {
        Clock {
            wall: Arc::new(Wall::Simulated {
                start_ms: AtomicI64::new(start_ms),
                started_at: Instant::now(),
            }),
        }
    }

    /// Moves a simulated wall clock by `by_ms` (either way), as an operator or a time server does to a real one; nothing
    /// on the system's clock.
    pub fn step_wall(&self, by_ms: i64) {
        if let Wall::Simulated { start_ms, .. } = &*self.wall {
            start_ms.fetch_add(by_ms, Ordering::Relaxed);
        }
    }

    /// Monotonic time, for deadlines and durations.
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Wall time in Unix milliseconds, for record timestamps and deadlines that other processes read. May jump.
    pub fn wall_ms(&self) -> i64 {
        match &*self.wall {
            Wall::System => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
            Wall::Simulated { start_ms, started_at } => {
                let elapsed_ms = Instant::now().duration_since(*started_at).as_millis();
                start_ms.load(Ordering::Relaxed).saturating_add(i64::try_from(elapsed_ms).unwrap_or(i64::MAX))
            }
        }
    }

    /// True for the operating system's clock.
    pub(crate) fn is_system(&self) -> bool {
        matches!(*self.wall, Wall::System)
    }

    /// Waits for `duration`. Cancel safe.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Waits until `deadline`. Cancel safe.
    pub async fn sleep_until(&self, deadline: Instant) {
        tokio::time::sleep_until(deadline).await;
    }

    /// Waits until `deadline`; for ever when there is none. Cancel safe.
    pub async fn sleep_until_any(&self, deadline: Option<Instant>) {
        match deadline {
            Some(deadline) => self.sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    /// Runs `future` for at most `limit`; it is dropped when the time is up. As cancel safe as the future.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, Elapsed> {
        tokio::time::timeout(limit, future).await
    }

    /// Runs `future` until `deadline`; it is dropped when the time is up. As cancel safe as the future.
    pub async fn timeout_at<F: Future>(&self, deadline: Instant, future: F) -> Result<F::Output, Elapsed> {
        tokio::time::timeout_at(deadline, future).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn simulated_wall_time_moves_with_the_paused_clock() {
        let clock = Clock::simulated(1_000);
        clock.sleep(Duration::from_millis(250)).await;
        assert_eq!(clock.wall_ms(), 1_250);
    }
}
