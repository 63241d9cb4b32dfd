//! Selects the policy that governs a write.
//!
//! `watch` passes policy objects and namespaces to an [`Index`], which compiles the policies ([`compile`]). A [`Set`]
//! contains the policies that are in force in each namespace, as computed in `order`. The [`Store`] contains the current
//! set.

mod compile;
mod glob;
mod index;
mod matched;
mod namespace;
mod order;
mod ranking;
mod restrictions;
mod selection;
mod set;
mod store;
pub mod watch;

pub use compile::{
    Certainty, Compiled, Invalid, InvalidKind, KnownFields, Labels, PartialMatch, Tier, compile,
    compile_cluster,
};
pub use index::{Index, SetChange, WatchSource};
pub use matched::MatchedWrites;
pub use order::{Limit, MAX_LABELS, MAX_POLICIES, Namespaces};
pub use ranking::{PolicyPlace, RankedPolicy};
pub use restrictions::{Exclusion, Exclusions, Restrictions};
pub use selection::{Armed, MAX_NAMED_NAMESPACES, NamespaceSelection, WebhookScope};
pub use set::{Awaiting, Effect, ExceededLimit, Policy, Set, kind_of};
pub use store::{Revision, Store};

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
