//! The rows of the views, read from objects of the API server. Texts are sanitised here, once. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::DynamicObject;
use serde::{Deserialize as _, Serialize};

use crate::api::{
    ConditionType, DropReport, EventPolicyStatus, PolicyCounters, ReportedDrops, ReportedPolicy,
};
use crate::replay::text::clean;

/// Maximum characters of a text. Those of a report are shorter.
const LONGEST: usize = 300;

/// The time for which a rate is shown: some intervals of `--report-interval` (30 s by default).
const RATE_IS_CURRENT: Duration = Duration::from_secs(120);

/// The report of one namespace.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NamespaceLine {
    /// Its name.
    pub(super) namespace: String,
    /// The fields of the report.
    pub(super) suppressed: i64,
    pub(super) dropped_occurrences: i64,
    pub(super) dropped_warnings: i64,
    pub(super) policies: Vec<ReportedPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) other_policies: Option<PolicyCounters>,
    pub(super) last_updated: Option<Time>,
    /// JSON has these as offenders.
    #[serde(skip)]
    pub(super) dropped: Vec<ReportedDrops>,
    /// The uid of the report: a namespace that is created again has another one.
    #[serde(skip)]
    uid: Option<String>,
    #[serde(skip)]
    rate: Option<SuppressionRate>,
}

/// Suppressed occurrences per second between two reports.
#[derive(Clone, Copy, Debug)]
struct SuppressionRate {
    per_second: f64,
    /// When this process read the second report. Clocks of other machines may differ.
    read_at: Timestamp,
}

impl NamespaceLine {
    /// Reads an `EventDropReport`; `None` if it has another structure.
    pub(super) fn of(object: &DynamicObject) -> Option<Self> {
        let DropReport {
            suppressed,
            dropped_occurrences,
            dropped_warnings,
            mut policies,
            other_policies,
            mut dropped,
            last_hour: _,
            last_day: _,
            last_updated,
        } = DropReport::deserialize(&object.data).ok()?;
        for policy in &mut policies {
            sanitise_all([&mut policy.policy_kind, &mut policy.policy_name, &mut policy.policy_uid]);
        }
        for entry in &mut dropped {
            sanitise_all(entry.texts_mut());
        }
        Some(Self {
            namespace: shown(object.metadata.namespace.as_deref().unwrap_or_default()),
            suppressed,
            dropped_occurrences,
            dropped_warnings,
            policies,
            other_policies,
            last_updated,
            dropped,
            uid: object.metadata.uid.clone(),
            rate: None,
        })
    }

    /// Computes the rate since the former version of the same report.
    pub(super) fn follow(&mut self, former: &Self, now: Timestamp) {
        let (Some(Time(before)), Some(Time(after))) = (&former.last_updated, &self.last_updated) else {
            return;
        };
        if former.uid != self.uid || self.suppressed < former.suppressed {
            return;
        }
        if before == after {
            self.rate = former.rate;
            return;
        }
        let seconds = after.duration_since(*before).as_secs_f64();
        if seconds > 0.0 {
            let per_second = (self.suppressed - former.suppressed) as f64 / seconds;
            self.rate = Some(SuppressionRate { per_second, read_at: now });
        }
    }

    /// Suppressed occurrences per second between the last two reports, if this process has read both, and the last one
    /// lately.
    pub(super) fn rate(&self, now: Timestamp) -> Option<f64> {
        let rate = self.rate?;
        let age = now.duration_since(rate.read_at);
        (age <= SignedDuration::try_from(RATE_IS_CURRENT).ok()?).then_some(rate.per_second)
    }

    /// The policy that suppressed most.
    pub(super) fn top_policy(&self) -> &str {
        self.policies.first().map_or("-", |policy| &policy.policy_name)
    }
}

/// A policy of either kind.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyLine {
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) mode: String,
    /// The statuses of the two conditions: True, False or Unknown.
    pub(super) accepted: String,
    pub(super) effective: String,
    /// The reason and the message of Effective.
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) counters: PolicyCounters,
    pub(super) since: Option<Time>,
    pub(super) last_updated: Option<Time>,
}

impl PolicyLine {
    /// Reads a policy of this kind; `None` if its status has another structure.
    pub(super) fn of(kind: &'static str, object: &DynamicObject) -> Option<Self> {
        let status = match object.data.get("status") {
            Some(status) if !status.is_null() => EventPolicyStatus::deserialize(status).ok()?,
            _ => EventPolicyStatus::default(),
        };
        let condition =
            |of: ConditionType| status.conditions.iter().find(|condition| condition.type_ == of.as_str());
        let status_of = |of| shown(condition(of).map_or("Unknown", |condition| &condition.status));
        let effective = condition(ConditionType::Effective);
        let mode = object.data.pointer("/spec/mode").and_then(serde_json::Value::as_str);
        Some(Self {
            kind,
            namespace: object.metadata.namespace.as_deref().map(shown),
            name: shown(object.metadata.name.as_deref().unwrap_or_default()),
            mode: shown(mode.unwrap_or("Enforce")),
            accepted: status_of(ConditionType::Accepted),
            effective: status_of(ConditionType::Effective),
            reason: shown(effective.map_or("Pending", |condition| &condition.reason)),
            message: shown(effective.map_or("", |condition| &condition.message)),
            counters: status.counters.unwrap_or_default(),
            since: status.since,
            last_updated: status.last_updated,
        })
    }

    /// Its name, with its namespace before a slash. A `ClusterEventPolicy` has no slash.
    pub(super) fn full_name(&self) -> String {
        full_name(self.namespace.as_deref(), &self.name)
    }
}

/// Returns the key of a policy: no name of an object contains a slash.
pub(super) fn full_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// Returns a text of the cluster without characters that move a cursor or change the text direction, and not too long.
pub(super) fn shown(text: &str) -> String {
    clean(text, LONGEST)
}

fn sanitise_all<const N: usize>(texts: [&mut String; N]) {
    for text in texts {
        *text = shown(text);
    }
}
