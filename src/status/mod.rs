//! The statuses of policies: [`desired`] computes a status, [`Plan`] schedules the writes, and [`StatusWriter`] makes them.
//! Some [`transitions`] of a status are emitted as Events too.

mod desired;
mod dropped;
mod plan;
mod requests;
mod transitions;
mod writer;

pub(crate) use desired::plus_counted;
pub use desired::{Difference, Facts, desired, difference};
pub(crate) use dropped::dropped_by;
pub use dropped::{DroppedIn, top_dropped};
pub use plan::{Due, Plan, WriteLimits};
pub use transitions::{Transition, TransitionKind, transitions};
pub use writer::{Inputs, ReadCounters, StatusWriter};
