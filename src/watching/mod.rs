//! Lists and watches that never hang, and that are retried with exponential backoff.

mod backoff;
mod deadlines;

pub(crate) use backoff::WatchBackoff;
pub(crate) use deadlines::with_deadlines;
