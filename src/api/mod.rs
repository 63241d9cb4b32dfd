//! What users write and read: the resources of `squelch.dev/v1alpha1`, from which the CRDs are generated.

mod duration;
mod event_policy;
mod generate;
mod status;

pub use duration::{BadDuration, DurationField, parse_duration};
pub use event_policy::{
    Clauses, EMPTY_EXEMPT, EMPTY_REGARDING, EventPolicy, EventPolicySpec, HEARTBEAT_INTERVAL, IDLE_TIMEOUT,
    MOST_LONG_LIST, MOST_PRIORITY, MOST_SHORT_LIST, Mode, Regarding, Rejection, Series,
};
pub use generate::{GenerateError, crds, render, run};
pub use status::{ConditionType, DroppedBy, DroppedOccurrences, EventPolicyStatus, PolicyCounters, Reason};
