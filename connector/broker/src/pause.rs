//! A node that stands still and does not know it: what SIGSTOP does to a process, for the tasks of one node.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Decides whether the tasks of one node run. What a paused task holds (locks of the protocol, leaderships,
/// connections) stays held; its timers pass unheard.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    paused: AtomicBool,
    tasks: AtomicU64,
    /// Tasks that wanted to run meanwhile: at most one waker for each task of the node.
    held: Mutex<BTreeMap<u64, Waker>>,
}

impl Pause {
    /// No task runs from now on; one that is being polled on another thread finishes that poll.
    pub(crate) fn pause(&self) {
        self.paused.store(true, Ordering::Release);
    }

    /// Every task may run again; those that wanted to are woken in the order in which they were spawned.
    pub(crate) fn resume(&self) {
        let held = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            // Under the lock: a task that saw the pause has left its waker, or will see this.
            self.paused.store(false, Ordering::Release);
            std::mem::take(&mut *held)
        };
        held.into_values().for_each(Waker::wake);
    }

    /// True between [`Pause::pause`] and [`Pause::resume`].
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// The task, which runs only while the node is not paused.
    pub(crate) async fn admit(self: Arc<Self>, task: impl Future<Output = ()> + Send) {
        let number = self.tasks.fetch_add(1, Ordering::Relaxed);
        let mut task = std::pin::pin!(task);
        std::future::poll_fn(|cx| {
            if self.holds(number, cx.waker()) { Poll::Pending } else { task.as_mut().poll(cx) }
        })
        .await;
    }

    fn holds(&self, number: u64, waker: &Waker) -> bool {
        if !self.paused.load(Ordering::Acquire) {
            return false;
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let paused = self.paused.load(Ordering::Acquire);
        if paused {
            held.insert(number, waker.clone());
        }
        paused
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sharestream_base::{Clock, Spawner, TaskKind};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paused_task_goes_on_where_it_stood() {
        let (clock, pause) = (Clock::simulated(0), Arc::new(Pause::default()));
        let steps = Arc::new(AtomicU64::new(0));
        let (own_clock, own_steps) = (clock.clone(), Arc::clone(&steps));
        let work = Arc::clone(&pause).admit(async move {
            loop {
                own_clock.sleep(Duration::from_millis(10)).await;
                own_steps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _task = sharestream_base::OwnedTask::spawn(&Spawner::system(), "steps", TaskKind::Service, work);
        clock.sleep(Duration::from_millis(35)).await;
        assert_eq!(steps.load(Ordering::Relaxed), 3);
        pause.pause();
        clock.sleep(Duration::from_millis(500)).await;
        assert_eq!(steps.load(Ordering::Relaxed), 3);
        pause.resume();
        clock.sleep(Duration::from_millis(35)).await;
        assert!((6..=7).contains(&steps.load(Ordering::Relaxed)));
    }
}
