//! What each policy shows in its status: [`desired`] says what, [`Plan`] when, [`Writer`] writes it. What of it is
//! [`news`] is told in an Event too.

mod desired;
mod dropped;
mod news;
mod plan;
mod writer;

pub use desired::{Difference, Facts, desired, difference};
pub use dropped::{DroppedIn, top_dropped};
pub use news::{News, Verdict, news};
pub use plan::{Due, Limits, Plan};
pub use writer::{Accounts, State, Writer};
