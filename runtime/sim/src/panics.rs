//! Panics anywhere in a run: none is overlooked, whoever joins the task.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static SEEN: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs `work` and remembers panics of this thread meanwhile, in place of printing them.
pub(crate) fn watch<T>(work: impl FnOnce() -> T) -> T {
    HOOK.call_once(|| {
        let ordinary = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let watched = SEEN.with_borrow_mut(|seen| seen.as_mut().map(|seen| seen.push(info.to_string())));
            if watched.is_none() {
                ordinary(info);
            }
        }));
    });
    SEEN.set(Some(Vec::new()));
    let result = work();
    SEEN.set(None);
    result
}

/// Panics since the run began.
pub(crate) fn seen() -> Vec<String> {
    SEEN.with_borrow(|seen| seen.clone().unwrap_or_default())
}
