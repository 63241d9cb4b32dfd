//! `EventPolicy`, the namespaced policy.
//!
//! `kubectl explain` shows the doc comments of the fields.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]
#![expect(clippy::duplicated_attributes, reason = "each printer column specifies its type")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clauses::{
    Clauses, MAX_SHORT_LIST, entries_rule, muted_warnings_rule, selection_weight_rule, weight_rule,
};
use super::export::Export;
use super::limits::NumberField;
use super::stages::{Aggregation, Budget, SeriesCompaction, SpamFilter};
use super::status::EventPolicyStatus;

/// `spec.maxMessageBytes`. The minimum is the number of bytes of a message that a glob reads.
pub const MAX_MESSAGE_BYTES: NumberField =
    NumberField { name: "maxMessageBytes", min: 256, max: 65_536, default: 1024 };

/// Maximum of `priority`, and of its negative.
pub const MAX_PRIORITY: i32 = 100_000;

/// EventPolicySpec defines how squelch handles the Events of one namespace. Every field has a default. With `spec: {}`,
/// squelch compacts repeated Events, aggregates similar Events and drops bursts of Normal Events, with the limits of
/// client-go. It drops no Warning unless `warningPolicy` says so. A write that is neither exempt nor muted passes the
/// stages in the order series, aggregation, spamFilter, budget, until one of them suppresses it. If all stages are
/// disabled, the policy counts the writes that it governs and suppresses none, and policies of lower precedence do not
/// govern them. If several EventPolicies of the namespace match a write, the one with the highest `priority` governs it.
/// ClusterEventPolicies with precedence Override come before all EventPolicies, the others after them. An Event that no
/// policy governs is stored as it is written.
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
    doc = "EventPolicy defines how squelch handles the Events of its namespace: which repeated Events are compacted into one, which similar Events are aggregated into a summary, which bursts are dropped, and which Events are exempt. The status counts the occurrences by disposition.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Accepted")].status"#
    ),
    printcolumn(
        name = "Effective",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Effective")].status"#
    ),
    printcolumn(
        name = "Reason",
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
    printcolumn(name = "Muted", type_ = "integer", json_path = ".status.counters.muted"),
    printcolumn(
        name = "Dropped Warnings",
        type_ = "integer",
        json_path = ".status.counters.droppedWarnings"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = selection_weight_rule(), validation = muted_warnings_rule())]
pub struct EventPolicySpec {
    /// Mode of the policy. With `Enforce`, the stages suppress writes. With `Observe`, squelch makes and counts the
    /// same decisions, and every write is stored unchanged. Use it to see the effect of a policy first. Policies of
    /// lower precedence do not govern what it observes. `status.counters` and the EventDropReport show the result.
    /// Default: Enforce.
    #[serde(default)]
    pub mode: Mode,

    /// Priority among the policies of the same kind and precedence. If several match a write, the one with the highest
    /// priority governs it, then the oldest, then the first by name. From -100000 to 100000. Default: 0.
    #[serde(default)]
    #[schemars(range(min = -MAX_PRIORITY, max = MAX_PRIORITY))]
    pub priority: i32,

    /// Whether squelch may drop Warnings. `NeverDrop`: spamFilter, budget and `mute` drop Normal Events only, and a Warning
    /// takes no token of them. Warnings are still compacted and aggregated, with exact counts. `Limit`: Warnings are limited
    /// and muted like Normal Events. An Event of any other type, which core/v1 accepts, counts as a Warning. Default:
    /// NeverDrop.
    #[serde(default)]
    pub warning_policy: WarningPolicy,

    /// Events that the policy governs: those that match one of the entries and none of `exclude`. Texts are compared with
    /// the whole field, and case counts. For an update, the fields of the stored Event are compared, and the user who
    /// writes it. The total weight of the texts in `match` and `exclude` is at most 2048. A text weighs 1, plus 1 for
    /// each 64 characters. A text with more than one wildcard weighs 8, plus 1 for each character from the first wildcard
    /// to the last. A text with wildcards has at most 8 wildcards and 128 characters, and is compared with the first 256
    /// bytes of a field. At most 16 entries, each with at least one list. Default: all Events of the namespace.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = MAX_SHORT_LIST))]
    #[x_kube(validation = entries_rule())]
    pub matching: Vec<Clauses>,

    /// Events that the policy does not govern although they match `match`: those that match one of the entries. The next
    /// policy in the order of precedence that matches them governs them; without one they are stored as they are written.
    /// To govern and count Events without suppressing them, use `exempt`. At most 16 entries, each with at least one
    /// list. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = MAX_SHORT_LIST))]
    #[x_kube(validation = entries_rule())]
    pub exclude: Vec<Clauses>,

    /// Events that the policy governs, counts as admitted and never suppresses: those that match one of the entries.
    /// They are not compacted or aggregated, and take no token. To compact Events and never drop them, give them a
    /// policy of their own. To leave Events to the next policy, use `exclude`. The total weight of the texts in all
    /// entries is at most 2048, counted as in `match`. At most 16 entries, each with at least one list. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = MAX_SHORT_LIST))]
    #[x_kube(validation = entries_rule(), validation = weight_rule())]
    pub exempt: Vec<Clauses>,

    /// Normal Events that are not stored: those that match one of the entries and none of `exempt`. They are refused as
    /// `rejection` says and counted as muted. If `warningPolicy` is Limit, Warnings are muted too; otherwise an entry
    /// must not name them. Events that match no entry pass the stages; to leave them as they are, select only the muted
    /// ones in `match`, too. To mute some Warnings and keep the others, give those a policy of their own. An update is
    /// refused too, so that the count of an Event that is already stored does not change. The total weight of the texts
    /// in all entries is at most 2048, counted as in `match`. At most 16 entries, each with at least one list. Default:
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = MAX_SHORT_LIST))]
    #[x_kube(validation = entries_rule(), validation = weight_rule())]
    pub mute: Vec<Clauses>,

    /// Parts of messages that do not distinguish Events, so that messages that differ only there are repeats of one series,
    /// and one message of a group. `Durations`: such as 1.24s or 1h30m, with the units ns to d. `Numbers`: digits
    /// that are no part of a word, with or without a fraction. `UUIDs`. `Hashes`: hexadecimal ones, and
    /// the generated parts of names. `IPs`: IP addresses, with their ports. `Quantities`: such as 512Mi. `ObjectNames`: the
    /// name of the object that the Event is about, with generated suffixes. squelch writes the newest message
    /// with each update of the count. Counts stay exact. Only parts that begin in the first 1024 bytes are compared this
    /// way. At most 7 entries. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 7))]
    pub normalize: Vec<Mask>,

    /// Maximum length of a stored message in bytes. squelch cuts longer messages of writes that the stages admit, at a
    /// character boundary and without a mark, and compares messages as they are stored. The client reads the shorter
    /// message. Not cut are exempt Events, writes through events.k8s.io (which have at most 1024 bytes and cannot be
    /// changed later), and UPDATEs that keep the message, change nothing but the message, or change fields other than
    /// count, time and message.
    /// The `messages` of an entry read the whole message of a CREATE, and the stored one of an UPDATE. From 256 to 65536.
    /// Default: no maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32", range(min = MAX_MESSAGE_BYTES.min, max = MAX_MESSAGE_BYTES.max))]
    pub max_message_bytes: Option<i32>,

    /// Series compaction: identical Events are stored as one Event with a count, which squelch keeps up to date. Identical
    /// are Events of one emitter (user, component and instance) with the same object, type, reason, action and message
    /// (after `normalize`). The containers of a Pod are different objects (`fieldPath`). Enabled by default.
    #[serde(default)]
    pub series: SeriesCompaction,

    /// Aggregation of similar Events: of the Events of one emitter about one object that have the same type and reason
    /// and different messages, the first few are stored. squelch aggregates the others into a summary: an Event with the
    /// latest message and the count of all of them. Enabled by default.
    #[serde(default)]
    pub aggregation: Aggregation,

    /// Spam filter: a token bucket for each combination of the fields in `per`, by default for each emitter, object and
    /// type. A write that would be stored takes one token. If the bucket is empty, the write is dropped and counted as
    /// filtered. Only if `warningPolicy` is Limit, Warnings take tokens and are dropped. Writes that are compacted or
    /// aggregated take no token. Enabled by default.
    #[serde(default)]
    pub spam_filter: SpamFilter,

    /// Budget: one token bucket for each namespace, for all its Events that the policy governs. A write that would be
    /// stored, also according to the spam filter, takes one token. If the bucket is empty, the write is dropped and
    /// counted as throttled. Only if `warningPolicy` is Limit, Warnings take tokens and are dropped. Writes that are
    /// compacted or aggregated take no token. `{}` is a budget with the default limits. Default: no budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Budget")]
    pub budget: Option<Budget>,

    /// Response to a CREATE that is suppressed. `AlreadyExists` is status code 409, which client-go ignores. `Forbidden` is
    /// status code 403, which clients log. A CREATE with a series above 1 always gets 403. The response to an UPDATE or PATCH
    /// that is suppressed does not depend on this field. Through v1 it is 409, or the stored Event for a client that reads
    /// the count and adds one. Through events.k8s.io it is the stored Event, with two exceptions: it is 409 for a
    /// series that begins at 1, and 403 for a refresh that reports several occurrences or comes after the end of its
    /// series. Default: AlreadyExists.
    #[serde(default)]
    pub rejection: Rejection,

    /// Export of Event writes, so that the full stream can be kept outside of the cluster while the API server stores few
    /// Events. Each exported write has the Event as its client wrote it, with what squelch did with it. Where it goes is a
    /// setting of squelch (`--export-file`, `--export-otlp`); without one nothing is exported. Default: no export.
    #[serde(default)]
    pub export: Export,
}

/// `spec.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// The stages suppress writes.
    #[default]
    Enforce,
    /// Decisions are counted, and every write is stored unchanged.
    Observe,
}

/// `spec.warningPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WarningPolicy {
    /// Warnings are never dropped.
    #[default]
    NeverDrop,
    /// Warnings are limited and muted like Normal Events.
    Limit,
}

/// An entry of `spec.normalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mask {
    /// Durations as Go writes them, and days.
    Durations,
    /// Decimal numbers.
    Numbers,
    /// UUIDs.
    #[serde(rename = "UUIDs")]
    Uuids,
    /// Hexadecimal hashes, and the generated parts of names.
    Hashes,
    /// IP addresses with or without a port.
    #[serde(rename = "IPs")]
    Ips,
    /// Quantities of Kubernetes.
    Quantities,
    /// The name of the object, with generated suffixes.
    ObjectNames,
}

/// `spec.rejection`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Rejection {
    /// Status code 409.
    #[default]
    AlreadyExists,
    /// Status code 403.
    Forbidden,
}
