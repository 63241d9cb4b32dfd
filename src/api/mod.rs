//! What users write and read: the resources of `squelch.dev/v1alpha1`, from which the CRDs are generated.

mod clauses;
mod cluster_event_policy;
mod duration;
mod event_policy;
mod generate;
mod limits;
mod namespaces;
mod stages;
mod status;
mod stored;
mod texts;

pub use clauses::{
    CHARACTERS_OF_WEIGHT_1, Clauses, EMPTY_EXEMPT, EMPTY_REGARDING, MOST_LONG_LIST, MOST_SHORT_LIST,
    MOST_WEIGHT, Regarding, SEVERAL_WILDCARDS, TOO_HEAVY,
};
pub use cluster_event_policy::{ClusterEventPolicy, ClusterEventPolicySpec};
pub use duration::{BadDuration, DurationField, parse_duration};
pub use event_policy::{EventPolicy, EventPolicySpec, MOST_PRIORITY, Mode, Rejection};
pub use generate::{GenerateError, crds, render, run};
pub use limits::{Bucket, NumberField, TOO_SLOW};
pub use namespaces::{
    LABEL_KEY, LABEL_VALUE, LABEL_VALUES, LabelOperator, LabelRequirement, MOST_LABEL, MOST_LABEL_PREFIX,
    NamespaceSelector, Precedence,
};
pub use stages::{
    Aggregation, BUDGET, Budget, DUPLICATE_PER, EMPTY_PER, GroupBy, HEARTBEAT_INTERVAL, IDLE_TIMEOUT,
    INTERVAL, MAX_EVENTS, Per, SPAM_FILTER, Series, SpamFilter,
};
pub use status::{ConditionType, DroppedBy, DroppedOccurrences, EventPolicyStatus, PolicyCounters, Reason};
pub use stored::{PAGE, StoredPolicy};
pub use texts::{
    API_GROUP, KIND, LONG_GLOB, MOST_GLOB_CHARACTERS, MOST_WILDCARDS, NAME, TYPE, TextField, WORD, check_glob,
};
