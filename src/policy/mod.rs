//! From policy objects to the one policy that governs a write.
//!
//! `watch` feeds objects into an [`Index`], which compiles each ([`compile`]); the [`Set`] knows which of them are in
//! force in which namespace (`order` says so); the [`Store`] holds the current set for whoever decides.

mod compile;
mod deadlines;
mod glob;
mod index;
mod namespace;
mod order;
mod set;
mod store;
pub mod watch;

pub use compile::{Compiled, Invalid, Labels, Tier, compile, compile_cluster};
pub use index::{Change, Index, Source};
pub use order::{Limit, MOST_LABELS, MOST_POLICIES, Namespaces};
pub use set::{Beyond, Effect, Policy, Set};
pub use store::{Revision, Store};

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod precedence;
