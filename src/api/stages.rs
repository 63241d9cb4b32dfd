//! `spec.series`, `aggregation`, `spamFilter` and `budget`: the stages that can hold a write back.
//!
//! The first three are on unless `disabled`, with the numbers of client-go and of KEP-383; a budget is there only
//! where it is given. The doc comments of the fields are what `kubectl explain` shows.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]

use kube::KubeSchema;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::DurationField;
use super::limits::{Bucket, NumberField};

/// `spec.series.idleTimeout`. 6 minutes is KEP-383's.
pub const IDLE_TIMEOUT: DurationField =
    DurationField { name: "idleTimeout", least: "1s", most: "8760h", default: "6m" };

/// `spec.series.heartbeatInterval`. 30 minutes is KEP-383's.
pub const HEARTBEAT_INTERVAL: DurationField =
    DurationField { name: "heartbeatInterval", least: "1s", most: "8760h", default: "30m" };

/// `spec.aggregation.maxEvents`. 10 is client-go's (tools/record, `defaultAggregateMaxEvents`).
pub const MAX_EVENTS: NumberField = NumberField { name: "maxEvents", least: 1, most: 10_000, default: 10 };

/// `spec.aggregation.interval`. 10 minutes is client-go's (tools/record, `defaultAggregateIntervalInSeconds`).
pub const INTERVAL: DurationField =
    DurationField { name: "interval", least: "1s", most: "720h", default: "10m" };

/// `spec.spamFilter`. 25 and 5 minutes are client-go's (tools/record, `defaultSpamBurst` and `defaultSpamQPS`).
pub const SPAM_FILTER: Bucket = Bucket {
    burst: NumberField { name: "burst", least: 1, most: 1_000_000, default: 25 },
    refill_interval: DurationField { name: "refillInterval", least: "1ms", most: "720h", default: "5m" },
};

/// `spec.budget`, where it is given without numbers of its own.
pub const BUDGET: Bucket = Bucket {
    burst: NumberField { name: "burst", least: 1, most: 1_000_000, default: 500 },
    refill_interval: DurationField { name: "refillInterval", least: "1ms", most: "720h", default: "100ms" },
};

/// Series compaction. A series is all writes that say the same thing: same emitter, object, type, reason,
/// action and message.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// Turns series compaction off; the other fields here are then without effect. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,

    /// A series that was silent for longer than this is closed: its count is written out, and the next such
    /// Event is stored anew. A duration such as 6m or 1h30m (units h, m, s, ms), from 1s to 8760h. Default: 6m.
    #[serde(default = "idle_timeout")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = IDLE_TIMEOUT.form_rule(), validation = IDLE_TIMEOUT.range_rule())]
    pub idle_timeout: String,

    /// How old the stored count of a live series may become before it is brought up to date (it is whenever it
    /// has doubled, too). Keep it shorter than the API server's --event-ttl (1h unless changed), or the Event may
    /// expire under the series. A duration such as 30m (units h, m, s, ms), from 1s to 8760h. Default: 30m.
    #[serde(default = "heartbeat_interval")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = HEARTBEAT_INTERVAL.form_rule(), validation = HEARTBEAT_INTERVAL.range_rule())]
    pub heartbeat_interval: String,
}

/// Aggregation of look-alikes: a group of Events that differ in little but their message ends in one summary.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Aggregation {
    /// Turns aggregation off; the other fields here are then without effect. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,

    /// How many Events a group may have, its summary among them: the first `maxEvents` - 1 different messages are
    /// stored as they come, and each further one is added to the summary, whose message begins with "(combined
    /// from similar events): ". With 1 the first message is stored, and each further one is added to the summary. A number from 1 to 10000. Default: 10.
    #[serde(default = "max_events")]
    #[schemars(range(min = MAX_EVENTS.least, max = MAX_EVENTS.most))]
    pub max_events: i32,

    /// A group that was silent for longer than this starts anew: its next messages are stored as they come again.
    /// A duration such as 10m or 1h30m (units h, m, s, ms), from 1s to 720h. Default: 10m.
    #[serde(default = "interval")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = INTERVAL.form_rule(), validation = INTERVAL.range_rule())]
    pub interval: String,

    /// What makes a group. `Object`: one emitter, one object, one type, one reason. `Kind`: one component whatever
    /// its instance, all objects of one kind, one type, one reason, for what befalls many objects at once; each
    /// object then counts as a message of its own, and the summary says on how many objects it was ("256 or more" is the most). A write that reports more than
    /// 1000 occurrences is not added to a summary of this kind. Default: Object.
    #[serde(default)]
    pub group_by: GroupBy,
}

/// `spec.aggregation.groupBy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GroupBy {
    /// The messages about one object.
    #[default]
    Object,
    /// The messages about all objects of a kind.
    Kind,
}

/// The spam filter: a bucket of tokens for each emitter, object and type.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = SPAM_FILTER.fill_rule())]
pub struct SpamFilter {
    /// Turns the spam filter off; the other fields here are then without effect. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,

    /// How many tokens a full bucket holds, and so how many writes pass at once. A number from 1 to 1000000.
    /// Default: 25.
    #[serde(default = "filter_burst")]
    #[schemars(range(min = SPAM_FILTER.burst.least, max = SPAM_FILTER.burst.most))]
    pub burst: i32,

    /// How long it takes until one token is back in its bucket, and so how many writes pass in the long run: one
    /// in each of these. A duration such as 5m or 500ms (units h, m, s, ms), from 1ms to 720h; `burst` times
    /// `refillInterval` at most 100 years. Default: 5m.
    #[serde(default = "filter_refill")]
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = SPAM_FILTER.refill_interval.form_rule(),
        validation = SPAM_FILTER.refill_interval.range_rule()
    )]
    pub refill_interval: String,

    /// What has a bucket of its own: each combination of the parts named. `Emitter`: who reports (user, component
    /// and instance). `Regarding`: the object. `Type`: Normal or Warning. `Reason`: the reason. At least one, each
    /// at most once. Default: [Emitter, Regarding, Type].
    #[serde(default = "per")]
    #[schemars(length(max = 4))]
    #[x_kube(validation = per_some_rule(), validation = per_once_rule())]
    pub per: Vec<Per>,
}

/// One entry of `spec.spamFilter.per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Per {
    /// Who reports.
    Emitter,
    /// The object that the Event is about, whatever part of it.
    Regarding,
    /// The type of the Event.
    Type,
    /// The reason of the Event.
    Reason,
}

/// The budget: one bucket of tokens for all Events that the policy governs in a namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = BUDGET.fill_rule())]
pub struct Budget {
    /// How many tokens the full bucket holds, and so how many writes pass at once. A number from 1 to 1000000.
    /// Default: 500.
    #[serde(default = "budget_burst")]
    #[schemars(range(min = BUDGET.burst.least, max = BUDGET.burst.most))]
    pub burst: i32,

    /// How long it takes until one token is back, and so how many writes pass in the long run: one in each of
    /// these. A duration such as 100ms or 2s (units h, m, s, ms), from 1ms to 720h; `burst` times `refillInterval`
    /// at most 100 years. Default: 100ms.
    #[serde(default = "budget_refill")]
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = BUDGET.refill_interval.form_rule(),
        validation = BUDGET.refill_interval.range_rule()
    )]
    pub refill_interval: String,
}

impl Default for Series {
    fn default() -> Self {
        Self { disabled: false, idle_timeout: idle_timeout(), heartbeat_interval: heartbeat_interval() }
    }
}

impl Default for Aggregation {
    fn default() -> Self {
        Self { disabled: false, max_events: max_events(), interval: interval(), group_by: GroupBy::default() }
    }
}

impl Default for SpamFilter {
    fn default() -> Self {
        Self { disabled: false, burst: filter_burst(), refill_interval: filter_refill(), per: per() }
    }
}

/// The sentence that refuses an empty `per`.
pub const EMPTY_PER: &str = "per must name at least one of Emitter, Regarding, Type and Reason, such as [Emitter, Regarding, Type]; to turn the spam filter off write {disabled: true}";

/// The sentence that refuses a part that `per` names twice.
pub const DUPLICATE_PER: &str =
    "per must name each of Emitter, Regarding, Type and Reason at most once; take the repeated one out";

fn per_some_rule() -> Rule {
    Rule::new("size(self) > 0").message(EMPTY_PER)
}

// Not `x-kubernetes-list-type: set`: server-side apply would merge what a user applies into the default.
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

fn interval() -> String {
    INTERVAL.default.to_owned()
}

fn filter_burst() -> i32 {
    SPAM_FILTER.burst.default
}

fn filter_refill() -> String {
    SPAM_FILTER.refill_interval.default.to_owned()
}

/// client-go's since Kubernetes 1.32 (tools/record, `getSpamKey`).
fn per() -> Vec<Per> {
    vec![Per::Emitter, Per::Regarding, Per::Type]
}

fn budget_burst() -> i32 {
    BUDGET.burst.default
}

fn budget_refill() -> String {
    BUDGET.refill_interval.default.to_owned()
}

fn is_false(value: &bool) -> bool {
    !*value
}
