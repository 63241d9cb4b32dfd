//! Tests of the engine as a whole.

mod limits;
mod model;
mod policy_changes;
mod properties;
mod regressions;
mod scenarios;
pub(crate) mod support;
mod vectors;
mod world;

use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    AGGREGATE_PREFIX, Account, AggregationRules, Answer, Api, BucketRules, Content, Counters, Denial,
    Disposition, Engine, EventView, Footing, Found, Gauges, Governing, GroupBy, Mode, Moment, NamespaceUids,
    ObjectReference, Observation, Operation, Order, Per, Plan, PolicyId, Rejection, Rules, SeriesRules,
    Settings, SpamFilterRules, Stage, Standing, Verdict,
};
