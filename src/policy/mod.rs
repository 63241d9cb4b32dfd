//! From policy objects to the one policy that governs a write.
//!
//! `watch` feeds objects into an [`Index`], which compiles each ([`compile`]); the [`Set`] orders them; the
//! [`Store`] holds the current set for whoever decides.

mod compile;
mod glob;
mod index;
mod set;
mod store;
pub mod watch;

pub use compile::{Compiled, Invalid, compile};
pub use index::{Change, Index};
pub use set::{Policy, Set};
pub use store::{Revision, Store};

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod precedence;
