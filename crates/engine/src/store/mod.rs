//! Compact containers, so that a million series fit into memory.

pub(crate) mod deferred_drop;
pub(crate) mod packed_series;
pub(crate) mod segments;
pub(crate) mod stamp;
pub(crate) mod strings;
pub(crate) mod table;
pub(crate) mod timers;
