//! What each policy shows in its status: [`desired`] says what, [`Plan`] when, [`Writer`] writes it.

mod desired;
mod plan;
mod writer;

pub use desired::{Difference, Facts, desired, difference};
pub use plan::{Due, Limits, Plan};
pub use writer::{Accounts, Writer};
