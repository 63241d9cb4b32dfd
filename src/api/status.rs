//! The status of policies, and the closed sets of condition types and reasons.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most recently observed status of the policy. Written by squelch. Read-only.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventPolicyStatus {
    /// The `metadata.generation` of the policy for which this status was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,

    /// Conditions of the policy. `Accepted` is True if the policy is valid and within the limits. Otherwise its reason is
    /// Invalid, `UnsupportedField`, `UnsupportedValue` or `TooManyPolicies`, and its message states the change to make.
    /// `Stalled` is True for the first three of these reasons, for tools that follow kstatus. `Effective` is True if the
    /// policy governs Event writes, with the reason `PartiallyEffective` if not in all its namespaces. Otherwise its reason
    /// is that of `Accepted`, or Overridden (policies of higher precedence govern all its Events), `NoNamespaces` (its
    /// selector selects none), `ExcludedByPlatform` (another writer of the webhook configuration excludes all its
    /// namespaces), or `WebhookNotArmed` (the API server does not call squelch, or not yet for its namespaces). Both are
    /// Unknown, with the reason Pending, until squelch has read the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// Numbers of occurrences that the policy has governed since `since`, in all namespaces together, by disposition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PolicyCounters")]
    pub counters: Option<PolicyCounters>,

    /// The Events with the most dropped occurrences, in descending order. In mode Observe, those that mode Enforce would have
    /// dropped. squelch counts up to 32 combinations of reason, kind, component and disposition in each namespace. Up to
    /// that number the counts are exact. Beyond it, squelch evicts the least frequent combination. If that occurs again,
    /// its count restarts, and lacks at most 1/32 of the occurrences dropped in the namespace. After a restart of squelch,
    /// the listed entries continue from their counts and all others restart at 0. Entries of a deleted namespace are
    /// removed. `counters` includes all dropped occurrences. At most 10 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub top_dropped: Vec<DroppedOccurrences>,

    /// Start time of the counters: the time at which squelch first read this policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub since: Option<Time>,

    /// Time of the last write of this status. squelch does not write an unchanged status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_updated: Option<Time>,
}

/// Numbers of occurrences by disposition. One write of an Event can report several occurrences. received = admitted +
/// compacted + aggregated + filtered + throttled + muted + failedOpen. The counters continue across restarts of squelch, and
/// start at 0 for a new policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyCounters {
    /// Occurrences received: the sum of the counters from admitted to failedOpen.
    #[schemars(range(min = 0))]
    pub received: i64,
    /// Occurrences passed on to be stored as the client wrote them.
    #[schemars(range(min = 0))]
    pub admitted: i64,
    /// Occurrences merged into the stored Event of their series.
    #[schemars(range(min = 0))]
    pub compacted: i64,
    /// Occurrences merged into a summary Event.
    #[schemars(range(min = 0))]
    pub aggregated: i64,
    /// Occurrences dropped by the spam filter.
    #[schemars(range(min = 0))]
    pub filtered: i64,
    /// Occurrences dropped by the budget.
    #[schemars(range(min = 0))]
    pub throttled: i64,
    /// Occurrences dropped because they match `mute`.
    #[schemars(range(min = 0))]
    pub muted: i64,
    /// Occurrences passed on without a decision, because squelch was overloaded or failed.
    #[schemars(range(min = 0))]
    pub failed_open: i64,
    /// Occurrences that a client's absolute count reports again. Not included in received.
    #[schemars(range(min = 0))]
    pub recovered: i64,
    /// Occurrences of Warnings among the filtered, throttled and muted ones. In mode Observe, those that mode Enforce would
    /// have dropped.
    #[schemars(range(min = 0))]
    pub dropped_warnings: i64,
}

impl PolicyCounters {
    /// Returns the number of occurrences that no Event of their own shows.
    pub fn suppressed(&self) -> i64 {
        self.compacted.saturating_add(self.aggregated).saturating_add(self.dropped())
    }

    /// Returns the number of occurrences that are in no Event.
    pub fn dropped(&self) -> i64 {
        self.filtered.saturating_add(self.throttled).saturating_add(self.muted)
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            received: self.received.saturating_add(other.received),
            admitted: self.admitted.saturating_add(other.admitted),
            compacted: self.compacted.saturating_add(other.compacted),
            aggregated: self.aggregated.saturating_add(other.aggregated),
            filtered: self.filtered.saturating_add(other.filtered),
            throttled: self.throttled.saturating_add(other.throttled),
            muted: self.muted.saturating_add(other.muted),
            failed_open: self.failed_open.saturating_add(other.failed_open),
            recovered: self.recovered.saturating_add(other.recovered),
            dropped_warnings: self.dropped_warnings.saturating_add(other.dropped_warnings),
        }
    }
}

/// Dropped occurrences of one namespace with the same reason, kind, component and disposition. Texts are truncated to 64
/// bytes, and control characters are replaced by spaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DroppedOccurrences {
    /// Namespace of the dropped Events.
    pub namespace: String,
    /// Reason of the Events, such as BackOff.
    pub reason: String,
    /// Kind of the objects that the Events are about.
    pub kind: String,
    /// Component that reported the Events.
    pub component: String,
    /// How they were dropped: filtered by the spam filter, throttled by the budget, or muted because they match `mute`.
    pub disposition: DroppedBy,
    /// Number of dropped occurrences.
    #[schemars(range(min = 0))]
    pub count: i64,
}

/// How an occurrence was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DroppedBy {
    /// The spam filter.
    Filtered,
    /// The budget.
    Throttled,
    /// `mute`.
    Muted,
}

/// The types of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionType {
    /// The policy is valid and within the limits.
    Accepted,
    /// The policy governs Event writes.
    Effective,
    /// The policy has to be changed before it can be accepted: a condition of kstatus. Absent otherwise.
    Stalled,
}

impl ConditionType {
    /// All types, in the order of `status.conditions`.
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Effective, Self::Stalled];

    /// The value of `conditions[].type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Effective => "Effective",
            Self::Stalled => "Stalled",
        }
    }
}

/// The reasons of the conditions Accepted and Effective. Each reason implies one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Accepted is True: the policy is valid.
    Accepted,
    /// Accepted and Effective are False: a field is invalid. The message names the field and a valid value. The policy
    /// governs no Event writes.
    Invalid,
    /// Accepted and Effective are False: the spec has a field that this version of squelch does not know. The message names
    /// it. The policy governs no Event writes.
    UnsupportedField,
    /// Accepted and Effective are False: a field has a value that this version of squelch does not know. The message names
    /// both. The policy governs no Event writes.
    UnsupportedValue,
    /// Accepted and Effective are False: the policies that precede it exhaust a limit of the namespace, or, for a
    /// `ClusterEventPolicy`, of each namespace that it selects. The policy governs no Event writes.
    TooManyPolicies,
    /// Effective is True: the policy governs the Event writes that it matches.
    Effective,
    /// Effective is True: the policy governs Event writes, but not in all its namespaces. The message names one of the
    /// others, and why.
    PartiallyEffective,
    /// Effective is False: policies of higher precedence govern every Event that this one matches, for a
    /// `ClusterEventPolicy` in each selected namespace. squelch detects this by comparing the entries of their `match`.
    /// It can miss cases with a few hundred entries or with more than one wildcard in a text.
    Overridden,
    /// Effective is False: the `namespaceSelector` of a `ClusterEventPolicy` selects no namespace.
    NoNamespaces,
    /// Effective is False: another writer has added a requirement to the `namespaceSelector` of squelch's webhook
    /// configuration that excludes every namespace which the policy governs. Managed Kubernetes services do that for
    /// their own namespaces. The API server does not call squelch for these namespaces. The message names the
    /// requirement.
    ExcludedByPlatform,
    /// Effective is False: the webhook is not armed (at start, after a failure, or by an administrator), or the API
    /// server has not acknowledged rules with the namespaces of the policy yet. It does not call squelch for them.
    WebhookNotArmed,
    /// Accepted and Effective are Unknown: squelch has not read the policy yet. The default of the CRD.
    Pending,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 12] = [
        Self::Accepted,
        Self::Invalid,
        Self::UnsupportedField,
        Self::UnsupportedValue,
        Self::TooManyPolicies,
        Self::Effective,
        Self::PartiallyEffective,
        Self::Overridden,
        Self::NoNamespaces,
        Self::ExcludedByPlatform,
        Self::WebhookNotArmed,
        Self::Pending,
    ];

    /// The value of `conditions[].reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Invalid => "Invalid",
            Self::UnsupportedField => "UnsupportedField",
            Self::UnsupportedValue => "UnsupportedValue",
            Self::TooManyPolicies => "TooManyPolicies",
            Self::Effective => "Effective",
            Self::PartiallyEffective => "PartiallyEffective",
            Self::Overridden => "Overridden",
            Self::NoNamespaces => "NoNamespaces",
            Self::ExcludedByPlatform => "ExcludedByPlatform",
            Self::WebhookNotArmed => "WebhookNotArmed",
            Self::Pending => "Pending",
        }
    }

    /// The value of `conditions[].status` for this reason.
    pub fn status(self) -> &'static str {
        match self {
            Self::Accepted | Self::Effective | Self::PartiallyEffective => "True",
            Self::Invalid
            | Self::UnsupportedField
            | Self::UnsupportedValue
            | Self::TooManyPolicies
            | Self::Overridden
            | Self::NoNamespaces
            | Self::ExcludedByPlatform
            | Self::WebhookNotArmed => "False",
            Self::Pending => "Unknown",
        }
    }
}
