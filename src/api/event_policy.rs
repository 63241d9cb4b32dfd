//! `EventPolicy`: what users write.
//!
//! The doc comments of the fields are what `kubectl explain` shows: they are written for its readers.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]
#![expect(clippy::duplicated_attributes, reason = "printer columns of one type say so one by one")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::DurationField;
use super::status::EventPolicyStatus;

/// `spec.series.idleTimeout`. 6 minutes is KEP-383's.
pub const IDLE_TIMEOUT: DurationField =
    DurationField { name: "idleTimeout", least: "1s", most: "8760h", default: "6m" };

/// `spec.series.heartbeatInterval`. 30 minutes is KEP-383's.
pub const HEARTBEAT_INTERVAL: DurationField =
    DurationField { name: "heartbeatInterval", least: "1s", most: "8760h", default: "30m" };

/// The most entries of `types`, `regarding` and `exempt`.
pub const MOST_SHORT_LIST: usize = 16;

/// The most entries of the other lists of globs.
pub const MOST_LONG_LIST: usize = 32;

/// How far `priority` may be from 0.
pub const MOST_PRIORITY: i32 = 100_000;

/// What squelch is to do with the Events of one namespace. Every field has a default; `spec: {}` folds repeats.
/// Of several policies in a namespace the one with the highest `priority` whose `match` holds governs a write.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "squelch.dev",
    version = "v1alpha1",
    kind = "EventPolicy",
    plural = "eventpolicies",
    shortname = "evp",
    category = "squelch",
    namespaced,
    status = "EventPolicyStatus",
    derive = "PartialEq",
    doc = "An EventPolicy says what squelch does with the Events of its namespace: which repeats are folded into one Event, and which Events are left alone. What was held back is counted in its status.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Accepted")].status"#
    ),
    printcolumn(
        name = "Effective",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Effective")].reason"#,
        priority = 1
    ),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority", priority = 1),
    printcolumn(name = "Received", type_ = "integer", json_path = ".status.counters.received"),
    printcolumn(name = "Admitted", type_ = "integer", json_path = ".status.counters.admitted"),
    printcolumn(name = "Compacted", type_ = "integer", json_path = ".status.counters.compacted"),
    printcolumn(name = "Aggregated", type_ = "integer", json_path = ".status.counters.aggregated"),
    printcolumn(name = "Filtered", type_ = "integer", json_path = ".status.counters.filtered"),
    printcolumn(name = "Throttled", type_ = "integer", json_path = ".status.counters.throttled"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EventPolicySpec {
    /// Whether writes are held back. `Enforce`: they are. `Observe`: the same decisions are made and counted,
    /// but every write goes through unchanged; use it to see what a policy would do. Default: Enforce.
    #[serde(default)]
    pub mode: Mode,

    /// Which policy governs a write that several match: the highest priority wins, among equals the oldest, then
    /// the first by name. From -100000 to 100000. Default: 0.
    #[serde(default)]
    #[schemars(range(min = -MOST_PRIORITY, max = MOST_PRIORITY))]
    pub priority: i32,

    /// Which Events the policy governs: all clauses that are given must hold, and a list holds if one of its
    /// entries does. Default: every Event of the namespace.
    #[serde(default, rename = "match", skip_serializing_if = "Clauses::is_empty")]
    pub matching: Clauses,

    /// Events that are governed and counted, but always go through: those that one entry of this list describes.
    /// At most 16 entries; an entry has the fields of `match`, at least one of them. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SHORT_LIST))]
    #[x_kube(validation = exempt_rule())]
    pub exempt: Vec<Clauses>,

    /// Series compaction: Events that say the same thing about the same object are stored once, with a count
    /// that is kept up to date. On unless `disabled`.
    #[serde(default)]
    pub series: Series,

    /// How a write that was held back is refused where the client takes a refusal well. `AlreadyExists`: 409,
    /// which client-go takes without a word. `Forbidden`: 403, which clients log. Default: `AlreadyExists`.
    #[serde(default)]
    pub rejection: Rejection,
}

/// `spec.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Writes are held back.
    #[default]
    Enforce,
    /// Decisions are counted, nothing is held back.
    Observe,
}

/// `spec.rejection`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Rejection {
    /// 409.
    #[default]
    AlreadyExists,
    /// 403.
    Forbidden,
}

/// Which Events are meant: all clauses that are given must hold, and a list holds if one of its entries does.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clauses {
    /// The `type` of the Event, such as Normal or Warning. Globs: `*` stands for any text, `?` for any one
    /// character. At most 16 entries. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SHORT_LIST), inner(length(min = 1, max = 253)))]
    pub types: Vec<String>,

    /// The `reason` of the Event, such as BackOff or "Failed*". Globs: `*` stands for any text, `?` for any one
    /// character. At most 32 entries. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_LONG_LIST), inner(length(min = 1, max = 253)))]
    pub reasons: Vec<String>,

    /// Who reports: the `reportingComponent` of the Event, else its `source.component`, such as kubelet. Any
    /// client can write any name there; `users` cannot be forged. Globs: `*` stands for any text, `?` for any one
    /// character. At most 32 entries. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_LONG_LIST), inner(length(min = 1, max = 253)))]
    pub reporting_components: Vec<String>,

    /// What the Event is about (`involvedObject`). At most 16 entries; one of them must describe the object.
    /// Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SHORT_LIST))]
    pub regarding: Vec<Regarding>,

    /// The user that writes the Event, as the API server authenticated it, such as
    /// system:serviceaccount:ci:builder. Globs: `*` stands for any text, `?` for any one character. At most 32
    /// entries. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_LONG_LIST), inner(length(min = 1, max = 511)))]
    pub users: Vec<String>,
}

impl Clauses {
    /// No clause is given: every Event is meant.
    pub fn is_empty(&self) -> bool {
        let Self { types, reasons, reporting_components, regarding, users } = self;
        types.is_empty()
            && reasons.is_empty()
            && reporting_components.is_empty()
            && regarding.is_empty()
            && users.is_empty()
    }
}

/// An object that an Event is about: all fields that are given must hold, and at least one must be given.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = regarding_rule())]
pub struct Regarding {
    /// The kind of the object, such as Pod (not pods). Glob: `*` stands for any text, `?` for any one character.
    /// Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub kind: Option<String>,

    /// The API group of the object, such as apps or batch; "" is the core group (Pod, Node, Service). Glob: `*`
    /// stands for any text, `?` for any one character. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 253))]
    pub api_group: Option<String>,

    /// The name of the object. Glob: `*` stands for any text, `?` for any one character. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub name: Option<String>,
}

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

impl Default for Series {
    fn default() -> Self {
        Self { disabled: false, idle_timeout: idle_timeout(), heartbeat_interval: heartbeat_interval() }
    }
}

/// The sentence that refuses an entry of `exempt` without a clause.
pub const EMPTY_EXEMPT: &str = "an entry of exempt needs at least one clause, such as {types: [Warning]}; an empty one would exempt every Event";

/// The sentence that refuses an entry of `regarding` without a field.
pub const EMPTY_REGARDING: &str =
    "an entry of regarding needs at least one of kind, apiGroup and name, such as {kind: Pod}";

/// An empty clause matches everything; in `exempt` that can only be a mistake.
fn exempt_rule() -> kube::core::Rule {
    let given = ["types", "reasons", "reportingComponents", "regarding", "users"]
        .map(|list| format!("(has(c.{list}) && size(c.{list}) > 0)"))
        .join(" || ");
    kube::core::Rule::new(format!("self.all(c, {given})")).message(EMPTY_EXEMPT)
}

fn regarding_rule() -> kube::core::Rule {
    kube::core::Rule::new("has(self.kind) || has(self.apiGroup) || has(self.name)").message(EMPTY_REGARDING)
}

fn idle_timeout() -> String {
    IDLE_TIMEOUT.default.to_owned()
}

fn heartbeat_interval() -> String {
    HEARTBEAT_INTERVAL.default.to_owned()
}

fn is_false(value: &bool) -> bool {
    !*value
}
