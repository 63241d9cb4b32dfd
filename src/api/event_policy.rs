//! `EventPolicy`: what users write.
//!
//! The doc comments of the fields are what `kubectl explain` shows: they are written for its readers.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]
#![expect(clippy::duplicated_attributes, reason = "printer columns of one type say so one by one")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clauses::{Clauses, MOST_SHORT_LIST, exempt_rule, exempt_weight_rule, match_weight_rule};
use super::stages::{Aggregation, Budget, Series, SpamFilter};
use super::status::EventPolicyStatus;

/// How far `priority` may be from 0.
pub const MOST_PRIORITY: i32 = 100_000;

/// What squelch is to do with the Events of one namespace. Every field has a default; `spec: {}` folds repeats,
/// merges look-alikes and drops bursts, with the numbers that client-go has. A write goes through the stages in the
/// order series, aggregation, spamFilter, budget; the first that holds it back ends it. A policy whose stages are all
/// off holds nothing back: it counts, and keeps what it governs from the policies below it. Of several policies in
/// a namespace the one with the highest `priority` whose `match` holds governs a write; ClusterEventPolicies come after
/// them all, or with precedence Override before them.
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
    doc = "An EventPolicy says what squelch does with the Events of its namespace: which repeats are folded into one Event, which look-alikes are merged, which bursts are dropped, and which Events are left alone. What was held back is counted in its status.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Accepted")].status"#
    ),
    printcolumn(
        name = "Effective",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Effective")].reason"#
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

    /// Which policy governs a write that several of the same kind and precedence match: the highest priority wins,
    /// among equals the oldest, then the first by name. From -100000 to 100000. Default: 0.
    #[serde(default)]
    #[schemars(range(min = -MOST_PRIORITY, max = MOST_PRIORITY))]
    pub priority: i32,

    /// Which Events the policy governs: all clauses that are given must hold, and a list holds if one of its
    /// entries does. A text with wildcards has at most 8 of them and 128 characters, and is compared with the first
    /// 256 bytes. Each text weighs 1 and 1 more for every 64 characters, one with several wildcards 8 and its characters
    /// from the first wildcard to the last: at most 2048 in all. Default: every Event of a namespace.
    #[serde(default, rename = "match", skip_serializing_if = "Clauses::is_empty")]
    #[x_kube(validation = match_weight_rule())]
    pub matching: Clauses,

    /// Events that are governed and counted, but always go through: those that one entry of this list describes.
    /// At most 16 entries; an entry has the fields of `match`, at least one of them. The texts of all entries weigh at
    /// most 2048, as those of `match`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SHORT_LIST))]
    #[x_kube(validation = exempt_rule(), validation = exempt_weight_rule())]
    pub exempt: Vec<Clauses>,

    /// Series compaction: Events that say the same thing about the same object are stored once, with a count
    /// that is kept up to date. On unless `disabled`.
    #[serde(default)]
    pub series: Series,

    /// Aggregation: what one emitter says of one object in ever new words (same type, same reason) is stored a few
    /// times and then told in one summary: an Event of squelch's own with the newest message and a count of all
    /// that it stands for. On unless `disabled`.
    #[serde(default)]
    pub aggregation: Aggregation,

    /// The spam filter: a bucket of tokens for each emitter, object and type. A write that would be stored takes
    /// one token; one that finds its bucket empty is dropped, Warnings too, and counted as filtered. What series or
    /// aggregation fold takes none. On unless `disabled`.
    #[serde(default)]
    pub spam_filter: SpamFilter,

    /// The budget: one bucket of tokens for all Events of a namespace that the policy governs. A write that would be
    /// stored takes one token; one that finds none is dropped, Warnings too, and counted as throttled. What series or
    /// aggregation fold takes none. `{}` is a budget with the defaults. Default: no budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Budget")]
    pub budget: Option<Budget>,

    /// How a CREATE that was held back is refused. `AlreadyExists`: 409, which client-go takes without a word.
    /// `Forbidden`: 403, which clients log. An UPDATE is not concerned: through v1 it is answered with 409;
    /// through events.k8s.io with what is stored, a series that begins at 1 with 409, and a refresh that carries several
    /// occurrences or comes after the series ended with 403. Default: `AlreadyExists`.
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
