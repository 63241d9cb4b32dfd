//! What the report of the namespace says about the object. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use squelch_engine::{Disposition, Dropped};

use super::facts::{WhyFacts, printable};
use crate::api::{DropReport, DroppedBy, EventPolicyStatus, PolicyCounters, ReportedDrops, ReportedPolicy};

/// What the report says. Without a report all numbers are 0.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReportedSuppression {
    /// Whether the namespace has a report.
    pub exists: bool,
    /// Time of its last write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Start of the counters of the listed policies: nothing was suppressed since then if there is no report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_since: Option<Time>,
    /// Sum of the counts of `dropped`.
    pub occurrences: i64,
    /// Time of the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_observed_time: Option<Time>,
    /// Time of the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_observed_time: Option<Time>,
    /// The entries about Events of this kind that the assumptions allow. Those with the object as example come first, then
    /// the most frequent.
    pub dropped: Vec<DroppedLike>,
    /// Dropped occurrences of the namespace that no entry of the report lists.
    pub unlisted: i64,
    /// The counters of each policy in this namespace.
    pub policies: Vec<ReportedPolicy>,
    /// The counters of the policies that the report does not list, together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_policies: Option<PolicyCounters>,
}

/// An entry of the report.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DroppedLike {
    /// Whether its example is about the object.
    pub is_about_object: bool,
    /// The entry.
    #[serde(flatten)]
    pub entry: ReportedDrops,
}

/// Returns what the report says about the object. `None` if it could not be read.
pub(super) fn suppression(facts: &WhyFacts) -> Option<ReportedSuppression> {
    let report = facts.report.as_ref().ok()?;
    let counted_since = since(facts);
    let Some(report) = report else {
        return Some(ReportedSuppression { counted_since, ..ReportedSuppression::default() });
    };
    let dropped = dropped(facts, report);
    let times = |time: fn(&ReportedDrops) -> &Time| dropped.iter().map(move |it| time(&it.entry).clone());
    let listed: i64 = report.dropped.iter().map(|entry| entry.count).fold(0, i64::saturating_add);
    Some(ReportedSuppression {
        exists: true,
        last_updated: report.last_updated.clone(),
        counted_since,
        occurrences: dropped.iter().map(|it| it.entry.count).fold(0, i64::saturating_add),
        first_observed_time: times(|entry| &entry.first_observed_time).min(),
        last_observed_time: times(|entry| &entry.last_observed_time).max(),
        unlisted: report.dropped_occurrences.saturating_sub(listed).max(0),
        policies: report.policies.iter().map(printable_policy).collect(),
        other_policies: report.other_policies,
        dropped,
    })
}

fn dropped(facts: &WhyFacts, report: &DropReport) -> Vec<DroppedLike> {
    let assumed = &facts.assumed;
    let text = |text: &Option<String>| text.as_deref().map(as_reported);
    let (reason, component) = (text(&assumed.reason), text(&assumed.component));
    let name = as_reported(&facts.object.name);
    let is_chosen = |entry: &&ReportedDrops| {
        facts.object.is_of(&entry.kind)
            && reason.as_ref().is_none_or(|reason| *reason == entry.reason)
            && component.as_ref().is_none_or(|component| *component == entry.component)
            && assumed.event_type.is_none_or(|event_type| event_type == entry.event_type)
    };
    let chosen = report.dropped.iter().filter(is_chosen);
    let mut chosen: Vec<_> = chosen
        .map(|entry| DroppedLike {
            is_about_object: entry.example_object == name,
            entry: printable_entry(entry),
        })
        .collect();
    chosen.sort_by_key(|it| (!it.is_about_object, Reverse(it.entry.count)));
    chosen
}

/// Returns a text as the report has it: truncated and sanitised.
fn as_reported(text: &str) -> String {
    Dropped::new([text, "", ""], Disposition::Filtered, 0).reason().to_owned()
}

fn printable_entry(entry: &ReportedDrops) -> ReportedDrops {
    let mut entry = entry.clone();
    for text in entry.texts_mut() {
        *text = printable(text);
    }
    entry
}

fn printable_policy(policy: &ReportedPolicy) -> ReportedPolicy {
    ReportedPolicy {
        policy_kind: printable(&policy.policy_kind),
        policy_name: printable(&policy.policy_name),
        policy_uid: printable(&policy.policy_uid),
        counters: policy.counters,
    }
}

/// The first start of the counters of a policy.
fn since(facts: &WhyFacts) -> Option<Time> {
    let lists = [facts.event_policies.as_ref().ok(), facts.cluster_policies.as_ref().ok()];
    let policies = lists.into_iter().flatten().flat_map(|list| &list.items);
    let status = |policy: &DynamicObject| EventPolicyStatus::deserialize(policy.data.get("status")?).ok();
    policies.filter_map(|policy| status(policy)?.since).min()
}

/// The word of a disposition.
pub(super) fn word(disposition: DroppedBy) -> &'static str {
    match disposition {
        DroppedBy::Filtered => "filtered",
        DroppedBy::Throttled => "throttled",
        DroppedBy::Muted => "muted",
    }
}

/// Returns the numbers by policy and disposition, such as "312 throttled by EventPolicy default".
pub(super) fn by_policy(suppression: &ReportedSuppression) -> Vec<String> {
    let mut sums: BTreeMap<(String, DroppedBy), i64> = BTreeMap::new();
    for DroppedLike { entry, .. } in &suppression.dropped {
        let policy = format!("{} {}", entry.policy_kind, entry.policy_name);
        let sum = sums.entry((policy, entry.disposition)).or_default();
        *sum = sum.saturating_add(entry.count);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse(*sum));
    sums.into_iter().map(|((policy, by), sum)| format!("{sum} {} by {policy}", word(by))).collect()
}
