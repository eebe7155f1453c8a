//! SQL transforms, planned once by DataFusion and evaluated per batch. The only crate that knows DataFusion.
