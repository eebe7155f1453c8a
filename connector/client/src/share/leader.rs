//! Unfinished.
