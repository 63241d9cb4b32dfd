//! Pending occurrences: when they are due, and how the flush writer writes them.

pub(crate) mod due;
pub(crate) mod phase;
pub(crate) mod plan;
pub(crate) mod tasks;
pub(crate) mod tick;
