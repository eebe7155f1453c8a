//! Tests of the pure parts, by the rules.
