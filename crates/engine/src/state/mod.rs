//! What is remembered.

pub(crate) mod buckets;
pub(crate) mod capacity;
pub(crate) mod eviction;
mod fingerprints;
pub(crate) mod groups;
pub(crate) mod live_series;
pub(crate) mod names;
pub(crate) mod namespace;
pub(crate) mod namespace_list;
pub(crate) mod policy_changes;
pub(crate) mod retained_counters;
pub(crate) mod scope;
pub(crate) mod series;
pub(crate) mod shared_rules;
pub(crate) mod top_dropped;
