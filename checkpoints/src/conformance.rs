//! The suite that an `ObjectStore` must pass to hold checkpoints.
