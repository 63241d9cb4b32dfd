//! The content of a report. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use squelch_engine::{Counters, Dropped};

use super::receipts::EnforcedDrops;
use super::windows::Windows;
use crate::api::{
    DropReport, EventType, MAX_REPORTED_DROPS, MAX_REPORTED_POLICIES, PolicyCounters, ReportedDrops,
    ReportedPolicy,
};
use crate::status::{dropped_by, plus_counted};

/// Maximum size of a report as JSON.
pub const MAX_REPORT_BYTES: usize = 16 * 1024;

/// A policy as a report names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRef {
    /// `EventPolicy` or `ClusterEventPolicy`.
    pub kind: &'static str,
    /// Its name.
    pub name: Arc<str>,
}

/// What the engine has counted in one namespace under one policy since the start of the process.
#[derive(Clone, Debug, Default)]
pub struct Suppressed {
    /// The counters.
    pub counters: Counters,
    /// The tracked combinations of dropped Events. One can occur twice, if the policy has changed its mode.
    pub dropped: Vec<Dropped>,
    /// What was dropped in mode Enforce.
    pub enforced: EnforcedDrops,
}

/// The uid of a policy.
pub type PolicyUid = Arc<str>;

/// Returns the report: that in the cluster when this process first wrote one, plus what the engine has counted since.
/// Policies that do not exist any more are left out.
pub fn report(
    base: &DropReport,
    counted: &BTreeMap<PolicyUid, Suppressed>,
    windows: &Windows,
    policies: &BTreeMap<PolicyUid, PolicyRef>,
    now: Timestamp,
) -> DropReport {
    let mut all = reported_policies(base, counted, policies);
    let listed = all.len().min(MAX_REPORTED_POLICIES as usize);
    let others = all.split_off(listed);
    let others = { others.iter().map(|policy| &policy.counters) }.chain(&base.other_policies);
    let others = others.fold(PolicyCounters::default(), |sum, counters| sum.plus(counters));
    let mut report = DropReport {
        policies: all,
        other_policies: (others != PolicyCounters::default()).then_some(others),
        dropped: reported_drops(base, counted, policies),
        last_hour: windows.last_hour(&base.last_hour, now),
        last_day: windows.last_day(&base.last_day, now),
        last_updated: Some(Time(whole_second(now))),
        ..DropReport::default()
    };
    let counters = report.policies.iter().map(|policy| &policy.counters).chain(&report.other_policies);
    let sum = counters.fold(PolicyCounters::default(), |sum, counters| sum.plus(counters));
    (report.suppressed, report.dropped_occurrences) = (sum.suppressed(), sum.dropped());
    report.dropped_warnings = sum.dropped_warnings;
    limit(&mut report);
    report
}

/// Returns the policies with suppressed occurrences, those with the most first.
fn reported_policies(
    base: &DropReport,
    counted: &BTreeMap<PolicyUid, Suppressed>,
    policies: &BTreeMap<PolicyUid, PolicyRef>,
) -> Vec<ReportedPolicy> {
    let reported = policies.iter().filter_map(|(uid, policy)| {
        let counters = counters_of(uid, base, counted.get(uid));
        (counters.suppressed() > 0).then(|| ReportedPolicy {
            policy_kind: policy.kind.to_owned(),
            policy_name: policy.name.to_string(),
            policy_uid: uid.to_string(),
            counters,
        })
    });
    let mut reported: Vec<_> = reported.collect();
    reported.sort_by(|one, other| {
        let order = |policy: &ReportedPolicy| Reverse(policy.counters.suppressed());
        (order(one), &one.policy_uid).cmp(&(order(other), &other.policy_uid))
    });
    reported
}

/// Returns the counters of a policy: those of the report in the cluster, plus what the engine has counted since.
pub(super) fn counters_of(uid: &str, base: &DropReport, counted: Option<&Suppressed>) -> PolicyCounters {
    let before = base.policies.iter().find(|policy| policy.policy_uid == uid);
    let before = before.map(|before| before.counters).unwrap_or_default();
    counted.map_or(before, |counted| plus_counted(before, &counted.counters))
}

/// Returns the entries with the most dropped occurrences, in descending order.
fn reported_drops(
    base: &DropReport,
    counted: &BTreeMap<PolicyUid, Suppressed>,
    policies: &BTreeMap<PolicyUid, PolicyRef>,
) -> Vec<ReportedDrops> {
    let still_exists = |policy: &&ReportedPolicy| policies.contains_key(&*policy.policy_uid);
    let of = |entry: &ReportedDrops, policy: &ReportedPolicy| {
        (&policy.policy_kind, &policy.policy_name) == (&entry.policy_kind, &entry.policy_name)
    };
    let is_kept =
        |entry: &&ReportedDrops| base.policies.iter().filter(still_exists).any(|policy| of(entry, policy));
    let mut entries: Vec<ReportedDrops> = base.dropped.iter().filter(is_kept).cloned().collect();
    for (uid, suppressed) in counted {
        let Some(policy) = policies.get(uid) else { continue };
        for dropped in &suppressed.dropped {
            let entry = reported_drop(policy, dropped);
            // A linear search: a policy has at most 32 combinations, twice if it has changed its mode.
            match entries.iter_mut().find(|listed| is_same(listed, &entry)) {
                Some(listed) => {
                    listed.count = listed.count.saturating_add(entry.count);
                    listed.first_observed_time =
                        listed.first_observed_time.clone().min(entry.first_observed_time);
                    listed.last_observed_time =
                        listed.last_observed_time.clone().max(entry.last_observed_time);
                }
                None => entries.push(entry),
            }
        }
    }
    // A stable sort of entries in a fixed order, so that equal counts give the same list.
    entries.sort_by_key(|entry| Reverse(entry.count));
    entries.truncate(MAX_REPORTED_DROPS as usize);
    entries
}

fn reported_drop(policy: &PolicyRef, dropped: &Dropped) -> ReportedDrops {
    ReportedDrops {
        policy_kind: policy.kind.to_owned(),
        policy_name: policy.name.to_string(),
        event_type: if dropped.is_warning { EventType::Warning } else { EventType::Normal },
        reason: dropped.reason().to_owned(),
        kind: dropped.kind().to_owned(),
        component: dropped.component().to_owned(),
        disposition: dropped_by(dropped.disposition),
        count: i64::try_from(dropped.count).unwrap_or(i64::MAX),
        first_observed_time: Time(whole_second(dropped.first_at)),
        last_observed_time: Time(whole_second(dropped.last_at)),
        example_object: dropped.example_object().to_owned(),
        example_message: dropped.example_message().to_owned(),
    }
}

fn is_same(one: &ReportedDrops, other: &ReportedDrops) -> bool {
    let identity = |it: &ReportedDrops| (it.disposition, it.event_type == EventType::Warning);
    identity(one) == identity(other)
        && [&one.reason, &one.kind, &one.component] == [&other.reason, &other.kind, &other.component]
        && [&one.policy_kind, &one.policy_name] == [&other.policy_kind, &other.policy_name]
}

/// Removes the rarest drops, and then the policies that suppressed least, until the report is within its size.
fn limit(report: &mut DropReport) {
    while size(report) > MAX_REPORT_BYTES {
        if report.dropped.pop().is_some() {
            continue;
        }
        let Some(policy) = report.policies.pop() else { return };
        let others = report.other_policies.get_or_insert_default();
        *others = others.plus(&policy.counters);
    }
}

fn size(report: &DropReport) -> usize {
    serde_json::to_vec(report).map_or(usize::MAX, |json| json.len())
}

fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
