//! The status that every policy shows, and the closed vocabulary of its conditions.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What squelch says of the policy. Written by squelch alone.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventPolicyStatus {
    /// The `metadata.generation` of the policy that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,

    /// Accepted: the policy was understood and can be in force (otherwise the reason is Invalid or `TooManyPolicies`,
    /// and the message says what to change). Effective: Event writes are decided by it (otherwise the reason is that of
    /// Accepted, Overridden by one policy of higher precedence, `NoNamespaces` selected, or `WebhookNotArmed`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// What became of the occurrences that this policy governed, since `since`, in all namespaces together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PolicyCounters")]
    pub counters: Option<PolicyCounters>,

    /// What was filtered or throttled most, the most first; at most 10 entries. (What was compacted or aggregated is
    /// told by the stored Events.) In mode Observe: what would have been. Nothing in it is estimated: each count is
    /// that of occurrences seen. In each namespace up to 32 combinations of reason, kind, component and disposition
    /// are counted apart; while there are no more, the counts are exact since `since`. Beyond that the rarest go, and
    /// one that comes back begins anew: its count then misses at most a 32nd of what was dropped in that namespace.
    /// Over restarts of squelch the entries listed count on, others begin anew; those of a namespace that was deleted
    /// go. Everything that was dropped, listed or not, is in `counters`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub top_dropped: Vec<DroppedOccurrences>,

    /// Since when the counters count: when squelch first saw this policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub since: Option<Time>,

    /// When this status was last written. It is not written while nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_updated: Option<Time>,
}

/// What became of the occurrences that a policy governed. An occurrence is one thing that happened; one write
/// of an Event may tell of several. received = admitted + compacted + aggregated + filtered + throttled +
/// failedOpen. The counters go on over restarts of squelch and begin anew only with a new policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyCounters {
    /// Occurrences received: the sum of admitted to failedOpen.
    #[schemars(range(min = 0))]
    pub received: i64,
    /// Occurrences that went on to be stored as the client wrote them.
    #[schemars(range(min = 0))]
    pub admitted: i64,
    /// Occurrences folded into the stored Event of their series.
    #[schemars(range(min = 0))]
    pub compacted: i64,
    /// Occurrences folded into a summary Event.
    #[schemars(range(min = 0))]
    pub aggregated: i64,
    /// Occurrences dropped by the spam filter.
    #[schemars(range(min = 0))]
    pub filtered: i64,
    /// Occurrences dropped by the budget.
    #[schemars(range(min = 0))]
    pub throttled: i64,
    /// Occurrences let through undecided, because squelch was overloaded or failed.
    #[schemars(range(min = 0))]
    pub failed_open: i64,
    /// Occurrences that a client's absolute count told a second time; not part of received.
    #[schemars(range(min = 0))]
    pub recovered: i64,
}

/// Occurrences dropped in one namespace that have reason, kind, component and disposition in common. Texts are cut to
/// 64 bytes and have blanks for control characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DroppedOccurrences {
    /// The namespace of the Events that were dropped.
    pub namespace: String,
    /// Their reason, such as BackOff.
    pub reason: String,
    /// The kind of the objects that they are about.
    pub kind: String,
    /// The component that reported them.
    pub component: String,
    /// filtered: by the spam filter; throttled: by the budget.
    pub disposition: DroppedBy,
    /// How many occurrences of them were dropped.
    #[schemars(range(min = 0))]
    pub count: i64,
}

/// What dropped an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DroppedBy {
    /// The spam filter.
    Filtered,
    /// The budget.
    Throttled,
}

/// The types of the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionType {
    /// The policy was understood and can be in force.
    Accepted,
    /// Event writes are decided by it.
    Effective,
}

impl ConditionType {
    /// Every type, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Accepted, Self::Effective];

    /// The word in `conditions[].type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Effective => "Effective",
        }
    }
}

/// The reasons of the conditions. Each goes with one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Accepted is True: the policy was understood and compiled.
    Accepted,
    /// Accepted and Effective are False: a field is wrong, and the message says which and what to write. The
    /// policy enforces nothing.
    Invalid,
    /// Accepted and Effective are False: the policies that precede it exhaust a limit of the namespace (of a
    /// `ClusterEventPolicy`: in each namespace in which it could be in force). The policy enforces nothing.
    TooManyPolicies,
    /// Effective is True: Event writes that match are decided by this policy.
    Effective,
    /// Effective is False: policies of higher precedence govern every Event that this one matches (of a
    /// `ClusterEventPolicy`: in each namespace that is selected). squelch compares the entries of their `match` with each
    /// other; of a few hundred of them, or of texts with several wildcards, it may not notice.
    Overridden,
    /// Effective is False: no namespace has the labels that the `namespaceSelector` of a `ClusterEventPolicy` asks for.
    NoNamespaces,
    /// Effective is Unknown: the webhook is not armed (at start, after a failure, or by a person), and Events
    /// pass unseen.
    WebhookNotArmed,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Accepted,
        Self::Invalid,
        Self::TooManyPolicies,
        Self::Effective,
        Self::Overridden,
        Self::NoNamespaces,
        Self::WebhookNotArmed,
    ];

    /// The word in `conditions[].reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Invalid => "Invalid",
            Self::TooManyPolicies => "TooManyPolicies",
            Self::Effective => "Effective",
            Self::Overridden => "Overridden",
            Self::NoNamespaces => "NoNamespaces",
            Self::WebhookNotArmed => "WebhookNotArmed",
        }
    }

    /// `conditions[].status` wherever this is the reason.
    pub fn status(self) -> &'static str {
        match self {
            Self::Accepted | Self::Effective => "True",
            Self::Invalid | Self::TooManyPolicies | Self::Overridden | Self::NoNamespaces => "False",
            Self::WebhookNotArmed => "Unknown",
        }
    }
}
