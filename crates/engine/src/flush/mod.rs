//! What is owed, and when it is paid.

pub(crate) mod due;
pub(crate) mod phase;
pub(crate) mod plan;
pub(crate) mod tasks;
pub(crate) mod tick;
