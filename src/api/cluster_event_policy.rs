//! `ClusterEventPolicy`: what those who run a cluster write, for many namespaces at once.
//!
//! The doc comments of the fields are what `kubectl explain` shows: they are written for its readers.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]
#![expect(clippy::duplicated_attributes, reason = "printer columns of one type say so one by one")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::event_policy::EventPolicySpec;
use super::namespaces::{NamespaceSelector, Precedence};
use super::status::EventPolicyStatus;

/// What squelch is to do with the Events of the namespaces selected. Every field has a default; `spec: {}` folds
/// repeats, merges look-alikes and drops bursts, with the numbers that client-go has, in every namespace whose own
/// policies leave something for it. Buckets, groups and series are kept for each namespace apart. Which policy governs
/// a write in a namespace: the first whose `match` holds of its ClusterEventPolicies with precedence Override, then its
/// EventPolicies, then its ClusterEventPolicies with precedence Default; among those the one with the highest
/// `priority`, then the oldest, then the first by name.
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
    doc = "A ClusterEventPolicy says what squelch does with the Events of all namespaces, or of those that its namespaceSelector selects: which repeats are folded into one Event, which look-alikes are merged, which bursts are dropped, and which Events are left alone. What was held back is counted in its status.",
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
    printcolumn(name = "Precedence", type_ = "string", json_path = ".spec.precedence", priority = 1),
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
pub struct ClusterEventPolicySpec {
    /// Which namespaces the policy is for, by their labels; a label that changes takes effect within a second. In a
    /// namespace that was made a moment ago, whose labels squelch has not seen yet, only policies without a selector
    /// govern. Default: every namespace.
    #[serde(default, skip_serializing_if = "NamespaceSelector::is_empty")]
    pub namespace_selector: NamespaceSelector,

    /// Whether the policy goes before or after the EventPolicies of a namespace. `Default`: after them, so that a
    /// namespace can have it otherwise. `Override`: before them, whatever they say. Default: Default.
    #[serde(default)]
    pub precedence: Precedence,

    /// What an `EventPolicy` says too.
    #[serde(flatten)]
    pub policy: EventPolicySpec,
}
