//! The resources of `squelch.dev/v1alpha1`, from which the CRDs are generated.

mod clauses;
mod cluster_event_policy;
mod drop_report;
mod duration;
mod event_policy;
mod export;
mod generate;
mod limits;
mod namespaces;
mod schema_check;
mod stages;
mod status;
mod stored;
mod texts;

pub use clauses::{
    CHARACTERS_PER_WEIGHT, Clauses, EMPTY_ENTRY, EMPTY_REGARDING, EventType, MAX_LONG_LIST, MAX_SHORT_LIST,
    MAX_TYPES, MAX_WEIGHT, MULTI_WILDCARD_WEIGHT, MUTED_WARNINGS, Regarding, TOO_HEAVY,
};
pub use cluster_event_policy::{ClusterEventPolicy, ClusterEventPolicySpec};
pub use drop_report::{
    DROP_REPORT, DropReport, EventDropReport, MAX_REPORTED_DROPS, MAX_REPORTED_POLICIES, ReportedDrops,
    ReportedPolicy, ReportedWindow,
};
pub use duration::{BadDuration, DurationField, parse_duration};
pub use event_policy::{
    EventPolicy, EventPolicySpec, MAX_MESSAGE_BYTES, MAX_PRIORITY, Mask, Mode, Rejection, WarningPolicy,
};
pub use export::{Export, ExportInclude};
pub use generate::{GenerateError, crds, render, run};
pub use limits::{BucketFields, NumberField, TOO_SLOW};
pub use namespaces::{
    LABEL_KEY, LABEL_VALUE, LABEL_VALUES, LabelOperator, LabelRequirement, MAX_LABEL_LENGTH,
    MAX_LABEL_PREFIX_LENGTH, NamespaceSelector, Precedence,
};
pub use schema_check::{SchemaViolation, schema_violation, without_nulls};
pub use stages::{
    Aggregation, BUDGET, Budget, DUPLICATE_PER, EMPTY_PER, GROUP_IDLE_TIMEOUT, GroupBy, HEARTBEAT_INTERVAL,
    IDLE_TIMEOUT, MAX_EVENTS, Per, SPAM_FILTER, SeriesCompaction, SpamFilter, StageMode,
};
pub use status::{ConditionType, DroppedBy, DroppedOccurrences, EventPolicyStatus, PolicyCounters, Reason};
pub use stored::{PAGE, StoredPolicy};
pub use texts::{
    API_GROUP, KIND, LONG_GLOB, MAX_GLOB_CHARACTERS, MAX_WILDCARDS, NAME, TextField, WORD, check_glob,
};
