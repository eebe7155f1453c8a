//! Assertions on our own state, kept in release builds.

/// Panics when a contradiction in our own state is found. `$id` names a line of `docs/invariants.md`.
///
/// Peer, disk and user data never come here: they give errors.
#[macro_export]
macro_rules! invariant {
    ($id:literal, $condition:expr, $($message:tt)+) => {
        if !$condition {
            panic!("invariant {} broken: {}", $id, format_args!($($message)+));
        }
    };
}
