//! Inputs and outputs of the engine.

pub(crate) mod content;
pub(crate) mod counters;
pub(crate) mod dropped;
pub(crate) mod gauges;
pub(crate) mod observation;
pub(crate) mod rules;
pub(crate) mod verdict;
