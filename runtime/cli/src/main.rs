//! The sharestream command.
fn main() {}
