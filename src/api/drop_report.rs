//! `EventDropReport`: what squelch suppressed in one namespace, for the tenants of that namespace.

#![expect(clippy::duplicated_attributes, reason = "each printer column specifies its type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clauses::EventType;
use super::status::{DroppedBy, PolicyCounters};

/// Name of the report in each namespace.
pub const DROP_REPORT: &str = "squelch";

/// Maximum number of policies in a report.
pub const MAX_REPORTED_POLICIES: u32 = 40;

/// Maximum number of entries of `dropped`.
pub const MAX_REPORTED_DROPS: u32 = 20;

/// The fields of an `EventDropReport`, which has them beside its metadata: it has neither spec nor status, since nobody but
/// squelch writes it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "squelch.dev",
    version = "v1alpha1",
    kind = "EventDropReport",
    plural = "eventdropreports",
    shortname = "edr",
    category = "squelch",
    namespaced,
    doc = "EventDropReport says which Events of its namespace squelch suppressed, under which policies. squelch writes one, named squelch, in each namespace in which it has suppressed something, and overwrites changes of others. Read-only.",
    printcolumn(name = "Suppressed", type_ = "integer", json_path = ".suppressed"),
    printcolumn(name = "Dropped", type_ = "integer", json_path = ".droppedOccurrences"),
    printcolumn(name = "Dropped Warnings", type_ = "integer", json_path = ".droppedWarnings"),
    printcolumn(name = "Updated", type_ = "date", json_path = ".lastUpdated")
)]
#[serde(rename_all = "camelCase", default)]
pub struct DropReport {
    /// Number of occurrences in this namespace that no Event of their own shows: compacted, aggregated, filtered, throttled
    /// and muted ones. The first two are in the count of another Event.
    #[schemars(range(min = 0))]
    pub suppressed: i64,
    /// Number of dropped occurrences: filtered, throttled and muted ones. They are in no Event. In mode Observe, those that
    /// mode Enforce would have dropped.
    #[schemars(range(min = 0))]
    pub dropped_occurrences: i64,
    /// Number of dropped occurrences of Warnings.
    #[schemars(range(min = 0))]
    pub dropped_warnings: i64,
    /// The policies that have suppressed something here, those with the most suppressed occurrences first. At most 40.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 40))]
    pub policies: Vec<ReportedPolicy>,
    /// Counters of the policies that are not listed, together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PolicyCounters")]
    pub other_policies: Option<PolicyCounters>,
    /// The Events with the most dropped occurrences, in descending order. At most 20. squelch counts up to 32 combinations
    /// of type, reason, kind, component and disposition for each policy and evicts the least frequent one beyond that. So
    /// `droppedOccurrences` can be larger than the sum of this list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub dropped: Vec<ReportedDrops>,
    /// The last hour before `lastUpdated`, in windows of 5 minutes, the oldest first. Windows without occurrences are left
    /// out. An occurrence can be counted up to 10 seconds late. At most 12.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 12))]
    pub last_hour: Vec<ReportedWindow>,
    /// The last day before `lastUpdated`, in windows of one hour, the oldest first. At most 24.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 24))]
    pub last_day: Vec<ReportedWindow>,
    /// Time of the last write of the report. It is written at most every 30 seconds, and only after something was
    /// suppressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_updated: Option<Time>,
}

/// What one policy did in this namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedPolicy {
    /// Kind of the policy: `EventPolicy` or `ClusterEventPolicy`.
    pub policy_kind: String,
    /// Name of the policy.
    pub policy_name: String,
    /// UID of the policy. A policy that is created again under the same name starts at 0.
    pub policy_uid: String,
    /// Numbers of occurrences in this namespace by disposition. Over all namespaces they add up to the counters in the
    /// status of the policy.
    pub counters: PolicyCounters,
}

/// Numbers of occurrences that policies governed in this namespace in a period, also those of policies that do not exist any
/// more. received = admitted + merged + dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedWindow {
    /// Start of the period.
    pub start: Time,
    /// Occurrences received.
    #[schemars(range(min = 0))]
    pub received: i64,
    /// Occurrences passed on to be stored as the client wrote them, also those that squelch did not decide on.
    #[schemars(range(min = 0))]
    pub admitted: i64,
    /// Occurrences merged into another Event: compacted and aggregated ones.
    #[schemars(range(min = 0))]
    pub merged: i64,
    /// Dropped occurrences: filtered, throttled and muted ones. In mode Observe, those that mode Enforce would have dropped.
    #[schemars(range(min = 0))]
    pub dropped: i64,
}

/// Dropped occurrences with the same policy, type, reason, kind, component and disposition. Texts are truncated to 64 bytes
/// (the message to 128), and control characters are replaced by spaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedDrops {
    /// Kind of the policy that dropped them: `EventPolicy` or `ClusterEventPolicy`.
    pub policy_kind: String,
    /// Name of that policy.
    pub policy_name: String,
    /// Type of the Events. Any type but Normal counts as Warning.
    #[serde(rename = "type")]
    pub event_type: EventType,
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
    /// Time of the first of these occurrences, as its client wrote it.
    pub first_observed_time: Time,
    /// Time of the last one.
    pub last_observed_time: Time,
    /// Name of the object of one of the Events.
    pub example_object: String,
    /// Message of that Event.
    pub example_message: String,
}

impl ReportedDrops {
    /// Returns its texts, to sanitise them: somebody else could have written the report.
    pub fn texts_mut(&mut self) -> [&mut String; 7] {
        [
            &mut self.policy_kind,
            &mut self.policy_name,
            &mut self.reason,
            &mut self.kind,
            &mut self.component,
            &mut self.example_object,
            &mut self.example_message,
        ]
    }
}
