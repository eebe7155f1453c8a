//! A value that many may watch: who waits is told of changes, and may miss all but the last.
//!
//! The API is the part of `tokio::sync::watch` that we use. Tokio's own wakes its waiters in an order that it draws
//! from a generator nobody can seed, so that one seed would not replay one run. This one wakes them in the order in
//! which they began to wait.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::Notify;

/// The sender is gone: the value will not change any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sender of a watched value is gone")]
pub struct Closed;

struct State<T> {
    value: T,
    /// Raised by each change.
    version: u64,
    is_closed: bool,
}

struct Shared<T> {
    state: RwLock<State<T>>,
    changed: Notify,
}

impl<T> Shared<T> {
    fn read(&self) -> RwLockReadGuard<'_, State<T>> {
        // A panic in a change leaves a value that its owner made; watchers see it as it is.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state; watchers are told when `change` says so.
    fn write(&self, change: impl FnOnce(&mut State<T>) -> bool) {
        let is_changed = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            let is_changed = change(&mut state);
            state.version += u64::from(is_changed);
            is_changed
        };
        if is_changed {
            self.changed.notify_waiters();
        }
    }

    /// Waits for another version than `seen`, which is `seen` then.
    async fn changed(&self, seen: &mut u64) -> Result<(), Closed> {
        loop {
            // Made before the look, so that a change right after it is noticed.
            let notified = self.changed.notified();
            {
                let state = self.read();
                if state.version != *seen {
                    *seen = state.version;
                    return Ok(());
                }
                if state.is_closed {
                    return Err(Closed);
                }
            }
            notified.await;
        }
    }
}

/// A look at the value. Changes wait as long as it lives, so it must be short and never be held across an await.
pub struct Ref<'a, T>(RwLockReadGuard<'a, State<T>>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The one who changes the value.
pub struct Sender<T>(Arc<Shared<T>>);

/// One who watches it. A clone has seen what the original has.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// A watched value and a first watcher, who has seen it.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    /// A value that nobody watches yet.
    pub fn new(value: T) -> Self {
        let state = RwLock::new(State { value, version: 0, is_closed: false });
        Sender(Arc::new(Shared { state, changed: Notify::new() }))
    }

    /// A new watcher, who has seen the value as it is.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = self.0.read().version;
        Receiver { shared: Arc::clone(&self.0), seen }
    }

    /// The value.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.0.read())
    }

    /// Changes the value and tells the watchers.
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.0.write(|state| {
            modify(&mut state.value);
            true
        });
    }

    /// Changes the value; the watchers are told when `modify` returns true, which is given back.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let mut is_changed = false;
        self.0.write(|state| {
            is_changed = modify(&mut state.value);
            is_changed
        });
        is_changed
    }

    /// Sets the value, tells the watchers, gives the one before.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|current| std::mem::swap(current, &mut value));
        value
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.write().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.0.changed.notify_waiters();
    }
}

impl<T> Receiver<T> {
    /// The value; whether it counts as seen does not change.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// The value, which counts as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let state = self.shared.read();
        self.seen = state.version;
        Ref(state)
    }

    /// The value as it is counts as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.read().version;
    }

    /// Waits until the value has changed since it was seen; then it counts as seen. Cancel safe.
    ///
    /// # Errors
    /// [`Closed`] when there is nothing new and the sender is gone.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        self.shared.changed(&mut self.seen).await
    }

    /// Waits until the value, as it is or after a change, fulfils `condition`; it counts as seen. Cancel safe.
    ///
    /// # Errors
    /// [`Closed`] when it does not and the sender is gone.
    pub async fn wait_for(&mut self, mut condition: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, Closed> {
        loop {
            {
                let state = self.shared.read();
                self.seen = state.version;
                if condition(&state.value) {
                    return Ok(Ref(state));
                }
            }
            self.shared.changed(&mut self.seen).await?;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Receiver { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Sender::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.borrow()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.borrow()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{CancellationToken, Spawner, TaskKind, TaskSet};

    #[tokio::test]
    async fn a_change_is_seen_once_and_the_last_one_counts() {
        let (sender, mut receiver) = channel(0);
        assert_eq!(*receiver.borrow(), 0);
        sender.send_replace(1);
        assert_eq!(sender.send_replace(2), 1);
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow_and_update(), 2);
        assert!(!sender.send_if_modified(|_| false));
        sender.send_modify(|value| *value += 1);
        receiver.mark_unchanged();
        drop(sender);
        assert_eq!(receiver.changed().await, Err(Closed), "nothing new, and nothing will be");
        assert_eq!(*receiver.borrow(), 3, "the value stays");
    }

    #[tokio::test]
    async fn a_change_before_the_sender_is_gone_is_not_missed() {
        let (sender, mut receiver) = channel(0);
        sender.send_replace(7);
        drop(sender);
        assert_eq!(receiver.wait_for(|value| *value == 7).await.map(|value| *value), Ok(7));
        assert_eq!(receiver.wait_for(|value| *value == 8).await.map(|value| *value), Err(Closed));
    }

    #[tokio::test]
    async fn waiters_are_woken_in_the_order_in_which_they_began_to_wait() {
        let sender = Arc::new(Sender::new(false));
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = TaskSet::new(&Spawner::system(), CancellationToken::new());
        for index in 0..40 {
            let (mut receiver, woken) = (sender.subscribe(), Arc::clone(&woken));
            tasks.spawn(format!("waiter-{index}"), TaskKind::Job, async move {
                receiver.wait_for(|go| *go).await.unwrap();
                woken.lock().unwrap().push(index);
            });
        }
        tokio::task::yield_now().await;
        sender.send_replace(true);
        while tasks.join_next().await.is_some() {}
        assert_eq!(*woken.lock().unwrap(), (0..40).collect::<Vec<_>>());
    }
}
