//! The four doors in one handle.

use std::sync::Arc;

use crate::{Clock, MemoryNetwork, Network, Rng, Spawner, TcpNetwork};

/// Time, chance, sockets and tasks of one process (or of one simulated node). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Env {
    /// Monotonic and wall time.
    pub clock: Clock,
    /// Chance.
    pub rng: Rng,
    /// Sockets.
    pub network: Arc<dyn Network>,
    /// Tasks.
    pub spawner: Spawner,
}

impl Env {
    /// The operating system's clock and sockets, and a random seed.
    pub fn system() -> Self {
        Env {
            clock: Clock::system(),
            rng: Rng::from_entropy(),
            network: Arc::new(TcpNetwork),
            spawner: Spawner::system(),
        }
    }

    /// What people know this process by. The same in every run of a simulation.
    #[allow(clippy::disallowed_methods, reason = "this is the door to what names a process")]
    pub fn process_name(&self) -> String {
        if self.clock.is_system() {
            format!("process {}", std::process::id())
        } else {
            "a simulated process".to_owned()
        }
    }

    /// A seeded environment without sockets, for tests. Must be called inside a runtime.
    pub fn seeded(seed: u64) -> Self {
        /// 2026-01-01T00:00:00Z: any fixed day does.
        const START_MS: i64 = 1_767_225_600_000;
        Env {
            clock: Clock::simulated(START_MS),
            rng: Rng::seeded(seed),
            network: Arc::new(MemoryNetwork::default()),
            spawner: Spawner::system(),
        }
    }
}
