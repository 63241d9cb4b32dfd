//! The `squelch` binary.
fn main() {}
