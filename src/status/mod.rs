//! What each policy shows in its status: [`desired`] says what, [`Plan`] when, [`Writer`] writes it.

mod desired;
mod dropped;
mod plan;
mod writer;

pub use desired::{Difference, Facts, desired, difference};
pub use dropped::{DroppedIn, top_dropped};
pub use plan::{Due, Limits, Plan};
pub use writer::{Accounts, Writer};
