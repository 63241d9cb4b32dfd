//! `ClusterEventPolicy`, the cluster-scoped policy.
//!
//! `kubectl explain` shows the doc comments of the fields.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]
#![expect(clippy::duplicated_attributes, reason = "each printer column specifies its type")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::event_policy::EventPolicySpec;
use super::namespaces::{NamespaceSelector, Precedence};
use super::status::EventPolicyStatus;

/// ClusterEventPolicySpec defines how squelch handles the Events of the selected namespaces. Every field has a default.
/// With `spec: {}`, squelch compacts repeated Events, aggregates similar Events and drops bursts of Normal Events, with the
/// limits of client-go, in every namespace, for all Events that no policy of higher precedence governs. Each namespace has
/// its own series, groups and token buckets. At most one policy governs a write: the first whose `match` selects the Event
/// and whose `exclude` does not.
/// ClusterEventPolicies with precedence Override come first, then the EventPolicies of the namespace, then
/// ClusterEventPolicies with precedence Default. Within each of these the highest `priority` comes first, then the oldest
/// policy, then the first by name.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "squelch.dev",
    version = "v1alpha1",
    kind = "ClusterEventPolicy",
    plural = "clustereventpolicies",
    shortname = "cevp",
    category = "squelch",
    status = "EventPolicyStatus",
    derive = "PartialEq",
    doc = "ClusterEventPolicy defines how squelch handles the Events of all namespaces, or of those that its namespaceSelector selects: which repeated Events are compacted into one, which similar Events are aggregated into a summary, which bursts are dropped, and which Events are exempt. The status counts the occurrences by disposition.",
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
    printcolumn(name = "Precedence", type_ = "string", json_path = ".spec.precedence", priority = 1),
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
pub struct ClusterEventPolicySpec {
    /// Selects the namespaces of the policy by their labels. A changed label takes effect within a second. In a new
    /// namespace, no policy is in force until squelch has read it; its Event writes pass uncounted. Default: all
    /// namespaces.
    #[serde(default, skip_serializing_if = "NamespaceSelector::is_empty")]
    pub namespace_selector: NamespaceSelector,

    /// Precedence of the policy over the EventPolicies of a namespace. With `Default`, the EventPolicies of the namespace
    /// come first. With `Override`, this policy comes first. Default: Default.
    #[serde(default)]
    pub precedence: Precedence,

    /// The fields that `EventPolicy` has too.
    #[serde(flatten)]
    pub policy: EventPolicySpec,
}
