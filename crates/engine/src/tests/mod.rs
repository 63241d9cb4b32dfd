//! Tests of the engine as a whole.

mod limits;
pub(crate) mod model;
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
    AGGREGATE_PREFIX, AggregationRules, Answer, Api, Applicability, BucketRules, Content, Counters, Denial,
    Disposition, Engine, EventView, FlushPlan, FlushTask, Gauges, Governing, GroupBy, KnownPolicy, Mask,
    Masks, Mode, Moment, NamespaceUids, ObjectReference, Observation, Operation, Per, PolicyId, Rejection,
    Rules, ScopeCounters, SeriesRules, Settings, Shown, SpamFilterRules, Stage, StoredEvent, Treatment,
    Verdict, WarningPolicy,
};
