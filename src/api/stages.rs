//! `spec.series`, `aggregation`, `spamFilter` and `budget`: the stages that can suppress a write.
//!
//! The first three are enabled by default, with the limits of client-go and KEP-383. A budget must be specified.
//! `kubectl explain` shows the doc comments of the fields.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]

use kube::KubeSchema;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::DurationField;
use super::limits::{BucketFields, NumberField};

/// `spec.series.idleTimeout`. The default is that of KEP-383.
pub const IDLE_TIMEOUT: DurationField =
    DurationField { name: "idleTimeout", min: "1s", max: "8760h", default: "6m" };

/// `spec.series.heartbeatInterval`. The default is that of KEP-383.
pub const HEARTBEAT_INTERVAL: DurationField =
    DurationField { name: "heartbeatInterval", min: "1s", max: "8760h", default: "30m" };

/// `spec.aggregation.maxEvents`. The default is that of client-go (tools/record, `defaultAggregateMaxEvents`).
pub const MAX_EVENTS: NumberField = NumberField { name: "maxEvents", min: 1, max: 10_000, default: 10 };

/// `spec.aggregation.idleTimeout`. The default is that of client-go (tools/record, `defaultAggregateIntervalInSeconds`).
pub const GROUP_IDLE_TIMEOUT: DurationField =
    DurationField { name: "idleTimeout", min: "1s", max: "720h", default: "10m" };

const TOKENS_PER_REFILL: NumberField =
    NumberField { name: "tokensPerRefill", min: 1, max: 1_000_000, default: 1 };

/// `spec.spamFilter`. The defaults are those of client-go (tools/record, `defaultSpamBurst` and `defaultSpamQPS`).
pub const SPAM_FILTER: BucketFields = BucketFields {
    burst: NumberField { name: "burst", min: 1, max: 1_000_000, default: 25 },
    refill_interval: DurationField { name: "refillInterval", min: "1ms", max: "720h", default: "5m" },
    tokens_per_refill: TOKENS_PER_REFILL,
};

/// `spec.budget`. The defaults apply to `budget: {}`.
pub const BUDGET: BucketFields = BucketFields {
    burst: NumberField { name: "burst", min: 1, max: 1_000_000, default: 500 },
    refill_interval: DurationField { name: "refillInterval", min: "1ms", max: "720h", default: "100ms" },
    tokens_per_refill: TOKENS_PER_REFILL,
};

/// The mode of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StageMode {
    /// The stage acts as the mode of the policy says.
    #[default]
    Enforce,
    /// Writes pass the stage. Its other fields have no effect.
    Disabled,
}

/// Series compaction. A series is all writes with the same emitter, object, type, reason, action and message.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeriesCompaction {
    /// `Enforce`: series compaction acts as the mode of the policy says. `Disabled`: it does nothing, and the other fields of
    /// `series` have no effect. Default: Enforce.
    #[serde(default)]
    pub mode: StageMode,

    /// Time without an occurrence after which a series ends. squelch then writes its final count, and the next such Event
    /// is stored as a new one. It must be longer than the interval at which an Event recurs: one that recurs every 10m
    /// would otherwise be stored as a new Event each time. A duration such as 6m or 1h30m (units h, m, s, ms), from 1s to
    /// 8760h. Default: 6m.
    #[serde(default = "idle_timeout")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = IDLE_TIMEOUT.form_rule(), validation = IDLE_TIMEOUT.range_rule())]
    pub idle_timeout: String,

    /// Maximum time for which an occurrence is missing in the stored count of a live series. squelch updates a changed
    /// count after this time, and whenever it has doubled. Set it below the API server's --event-ttl (1h by default).
    /// Otherwise the stored Event can expire while its series is live. A duration such as 30m (units h, m, s, ms), from
    /// 1s to 8760h. Default: 30m.
    #[serde(default = "heartbeat_interval")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = HEARTBEAT_INTERVAL.form_rule(), validation = HEARTBEAT_INTERVAL.range_rule())]
    pub heartbeat_interval: String,
}

/// Aggregation of similar Events: the Events of a group, which differ mainly in their messages, share one summary.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Aggregation {
    /// `Enforce`: aggregation acts as the mode of the policy says. `Disabled`: it does nothing, and the other fields of
    /// `aggregation` have no effect. Default: Enforce.
    #[serde(default)]
    pub mode: StageMode,

    /// Maximum number of stored Events of a group, including its summary. The first `maxEvents` - 1 different messages are
    /// stored as they are written. Each further one is added to the summary, whose message begins with "(combined from
    /// similar events): ". With 1, the first Event is stored, and every later one with another message is added to the
    /// summary; if `series` is disabled, also with the same message. From 1 to 10000. Default: 10.
    #[serde(default = "max_events")]
    #[schemars(range(min = MAX_EVENTS.min, max = MAX_EVENTS.max))]
    pub max_events: i32,

    /// Time without an Event after which a group starts again, so that its next messages are stored as they are written. A
    /// duration such as 10m or 1h30m (units h, m, s, ms), from 1s to 720h. Default: 10m.
    #[serde(default = "group_idle_timeout")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = GROUP_IDLE_TIMEOUT.form_rule(), validation = GROUP_IDLE_TIMEOUT.range_rule())]
    pub idle_timeout: String,

    /// Scope of a group. `Object`: the Events of one emitter about one object, with the same type and reason. `Kind`: the
    /// Events of one component, from all its instances, about all objects of one kind, with the same type and reason. Each
    /// object then counts as a different message, and the summary reports the number of objects, up to "256 or more". With
    /// `Kind`, a write that reports more than 1000 occurrences goes on to the spam filter instead. Default: Object.
    #[serde(default)]
    pub group_by: GroupBy,
}

/// `spec.aggregation.groupBy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GroupBy {
    /// The Events about one object.
    #[default]
    Object,
    /// The Events about all objects of a kind.
    Kind,
}

/// The spam filter: a token bucket for each emitter, object and type.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = SPAM_FILTER.refill_rule())]
pub struct SpamFilter {
    /// `Enforce`: the spam filter acts as the mode of the policy says. `Disabled`: it does nothing, and the other fields of
    /// `spamFilter` have no effect. Default: Enforce.
    #[serde(default)]
    pub mode: StageMode,

    /// Number of tokens in a full bucket: the maximum number of writes that can be stored in a burst. From 1 to 1000000.
    /// Default: 25.
    #[serde(default = "filter_burst")]
    #[schemars(range(min = SPAM_FILTER.burst.min, max = SPAM_FILTER.burst.max))]
    pub burst: i32,

    /// Time in which `tokensPerRefill` tokens are added to the bucket, evenly. The time to refill an empty bucket is at most
    /// 100 years. A duration such as 5m or 500ms (units h, m, s, ms), from 1ms to 720h. Default: 5m.
    #[serde(default = "filter_refill")]
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = SPAM_FILTER.refill_interval.form_rule(),
        validation = SPAM_FILTER.refill_interval.range_rule()
    )]
    pub refill_interval: String,

    /// Number of tokens that are added in each `refillInterval`: with `refillInterval`, the rate of the writes that are
    /// stored in the long run. From 1 to 1000000. Default: 1.
    #[serde(default = "tokens_per_refill")]
    #[schemars(range(min = TOKENS_PER_REFILL.min, max = TOKENS_PER_REFILL.max))]
    pub tokens_per_refill: i32,

    /// Fields of an Event by which the buckets are separated: each combination of their values has its own bucket. With
    /// [Object], all emitters, types and reasons of an object share one.
    /// `Emitter`: the user, the reporting component and its instance. `Object`: the object. `Type`: the type, such as
    /// Normal or Warning. `Reason`: the reason. At least one entry, each at most once. Default: [Emitter, Object, Type].
    #[serde(default = "per")]
    #[schemars(length(max = 4))]
    #[x_kube(validation = per_some_rule(), validation = per_once_rule())]
    pub per: Vec<Per>,
}

/// One entry of `spec.spamFilter.per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Per {
    /// The user, the reporting component and its instance.
    Emitter,
    /// The object that the Event is about, regardless of its `fieldPath`.
    Object,
    /// The type of the Event.
    Type,
    /// The reason of the Event.
    Reason,
}

/// The budget: one token bucket for all Events of a namespace that the policy governs.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = BUDGET.refill_rule())]
pub struct Budget {
    /// `Enforce`: the budget acts as the mode of the policy says. `Disabled`: it does nothing, and the other fields of
    /// `budget` have no effect. Default: Enforce.
    #[serde(default)]
    pub mode: StageMode,

    /// Number of tokens in a full bucket: the maximum number of writes that can be stored in a burst. From 1 to 1000000.
    /// Default: 500.
    #[serde(default = "budget_burst")]
    #[schemars(range(min = BUDGET.burst.min, max = BUDGET.burst.max))]
    pub burst: i32,

    /// Time in which `tokensPerRefill` tokens are added to the bucket, evenly. The time to refill an empty bucket is at most
    /// 100 years. A duration such as 100ms or 2s (units h, m, s, ms), from 1ms to 720h. Default: 100ms.
    #[serde(default = "budget_refill")]
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = BUDGET.refill_interval.form_rule(),
        validation = BUDGET.refill_interval.range_rule()
    )]
    pub refill_interval: String,

    /// Number of tokens that are added in each `refillInterval`: with `refillInterval`, the rate of the writes that are
    /// stored in the long run. From 1 to 1000000. Default: 1.
    #[serde(default = "tokens_per_refill")]
    #[schemars(range(min = TOKENS_PER_REFILL.min, max = TOKENS_PER_REFILL.max))]
    pub tokens_per_refill: i32,
}

impl Default for SeriesCompaction {
    fn default() -> Self {
        Self {
            mode: StageMode::default(),
            idle_timeout: idle_timeout(),
            heartbeat_interval: heartbeat_interval(),
        }
    }
}

impl Default for Aggregation {
    fn default() -> Self {
        Self {
            mode: StageMode::default(),
            max_events: max_events(),
            idle_timeout: group_idle_timeout(),
            group_by: GroupBy::default(),
        }
    }
}

impl Default for SpamFilter {
    fn default() -> Self {
        Self {
            mode: StageMode::default(),
            burst: filter_burst(),
            refill_interval: filter_refill(),
            tokens_per_refill: tokens_per_refill(),
            per: per(),
        }
    }
}

/// Message for an empty `per`.
pub const EMPTY_PER: &str = "per needs at least one of Emitter, Object, Type and Reason, such as [Emitter, Object, Type]; to disable the spam filter, set {mode: Disabled}";

/// Message for a repeated entry of `per`.
pub const DUPLICATE_PER: &str =
    "per must contain each of Emitter, Object, Type and Reason at most once; remove the repeated entry";

fn per_some_rule() -> Rule {
    Rule::new("size(self) > 0").message(EMPTY_PER)
}

// Not `x-kubernetes-list-type: set`: server-side apply would merge the entries of a user into the default.
fn per_once_rule() -> Rule {
    Rule::new("self.all(part, self.exists_one(same, same == part))").message(DUPLICATE_PER)
}

fn idle_timeout() -> String {
    IDLE_TIMEOUT.default.to_owned()
}

fn heartbeat_interval() -> String {
    HEARTBEAT_INTERVAL.default.to_owned()
}

fn max_events() -> i32 {
    MAX_EVENTS.default
}

fn group_idle_timeout() -> String {
    GROUP_IDLE_TIMEOUT.default.to_owned()
}

fn filter_burst() -> i32 {
    SPAM_FILTER.burst.default
}

fn filter_refill() -> String {
    SPAM_FILTER.refill_interval.default.to_owned()
}

/// The default of client-go since Kubernetes 1.32 (tools/record, `getSpamKey`).
fn per() -> Vec<Per> {
    vec![Per::Emitter, Per::Object, Per::Type]
}

fn budget_burst() -> i32 {
    BUDGET.burst.default
}

fn budget_refill() -> String {
    BUDGET.refill_interval.default.to_owned()
}

fn tokens_per_refill() -> i32 {
    TOKENS_PER_REFILL.default
}
