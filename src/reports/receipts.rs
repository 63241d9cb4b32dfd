//! Receipts: Events that say what a policy dropped in a namespace. Pure.
//!
//! A namespace has one receipt for each policy, which is updated in place. It is about the report, so that it is in the
//! namespace of the tenant.

use std::cmp::Reverse;

use jiff::Timestamp;
use kube::Resource as _;
use serde_json::{Value, json};
use squelch_engine::Dropped;

use super::content::PolicyRef;
use crate::api::{DROP_REPORT, EventDropReport};
use crate::{FIELD_MANAGER, REPORTING_CONTROLLER};

/// The reason of receipts.
pub const RECEIPT_REASON: &str = "EventsDropped";

/// Maximum number of combinations that the message of a receipt names.
const MAX_NAMED: usize = 3;

/// Maximum length of the message in bytes. The API server accepts 1,024 in events.k8s.io.
const MAX_MESSAGE: usize = 1024;

/// What a policy dropped in mode Enforce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnforcedDrops {
    /// Number of occurrences.
    pub occurrences: u64,
    /// Number of occurrences of Warnings among them.
    pub warnings: u64,
    /// The tracked combinations.
    pub entries: Vec<Dropped>,
}

impl EnforcedDrops {
    /// Returns what was dropped after `earlier`, the most frequent combinations first.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut entries = self.entries.clone();
        for entry in &mut entries {
            let is_same = |before: &&Dropped| before.is_of(entry) && before.is_warning == entry.is_warning;
            let before = earlier.entries.iter().find(is_same).map_or(0, |before| before.count);
            // A lower count: the combination was evicted, and has started again.
            entry.count = entry.count.checked_sub(before).unwrap_or(entry.count);
        }
        entries.retain(|entry| entry.count > 0);
        entries.sort_by_key(|entry| Reverse(entry.count));
        Self {
            occurrences: self.occurrences.saturating_sub(earlier.occurrences),
            warnings: self.warnings.saturating_sub(earlier.warnings),
            entries,
        }
    }
}

/// The fields of a receipt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receipt<'a> {
    /// Namespace of the receipt.
    pub(super) namespace: &'a str,
    /// Uid of the report in it.
    pub(super) report_uid: &'a str,
    /// The policy.
    pub(super) policy: &'a PolicyRef,
    /// Its uid.
    pub(super) policy_uid: &'a str,
    /// Number of occurrences that the policy has dropped there, as the report says.
    pub(super) total: i64,
    /// What was dropped since the receipt before.
    pub(super) new: &'a EnforcedDrops,
}

impl Receipt<'_> {
    /// Returns the name of the Event.
    pub(super) fn name(&self) -> String {
        format!("{DROP_REPORT}.{}", self.policy_uid)
    }

    /// Returns the fields that each receipt replaces. Somebody else may have created an Event of its name: with an
    /// `eventTime` the API server would refuse the other fields, and kubectl would show the count of a `series`.
    pub(super) fn patch(&self, now: Timestamp) -> Value {
        let policy_namespace = (self.policy.kind == "EventPolicy").then_some(self.namespace);
        let api_version = EventDropReport::api_version(&());
        json!({
            "involvedObject": {
                "apiVersion": api_version, "kind": EventDropReport::kind(&()), "namespace": self.namespace, "name": DROP_REPORT,
                "uid": self.report_uid,
            },
            "related": {
                "apiVersion": api_version, "kind": self.policy.kind, "namespace": policy_namespace,
                "name": &*self.policy.name, "uid": self.policy_uid,
            },
            "type": if self.new.warnings > 0 { "Warning" } else { "Normal" },
            "reason": RECEIPT_REASON,
            "action": "Drop",
            "message": self.message(),
            "count": i32::try_from(self.total).unwrap_or(i32::MAX),
            "lastTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "source": { "component": FIELD_MANAGER },
            "reportingComponent": REPORTING_CONTROLLER,
            "reportingInstance": "",
            "eventTime": null,
            "series": null,
        })
    }

    /// Returns the receipt to be created.
    pub(super) fn event(&self, now: Timestamp) -> Value {
        let mut event = self.patch(now);
        event["apiVersion"] = "v1".into();
        event["kind"] = "Event".into();
        event["metadata"] = json!({ "namespace": self.namespace, "name": self.name() });
        event["firstTimestamp"] = event["lastTimestamp"].clone();
        event
    }

    fn message(&self) -> String {
        let named = self.new.entries.iter().take(MAX_NAMED).map(|entry| {
            let disposition = entry.disposition.as_str();
            format!("{} {} of {} ({disposition})", entry.count, entry.reason(), entry.kind())
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let listed: u64 = self.new.entries.iter().take(MAX_NAMED).map(|entry| entry.count).sum();
        let others = match self.new.occurrences.saturating_sub(listed) {
            0 => String::new(),
            others => format!(", {others} others"),
        };
        let warnings = match self.new.warnings {
            0 => String::new(),
            warnings => format!(" {warnings} of them were Warnings."),
        };
        let mut message = format!(
            "{} {} dropped {} occurrences of Events: {named}{others}.{warnings} Details: kubectl get edr {DROP_REPORT} \
             -n {} -o yaml",
            self.policy.kind, self.policy.name, self.new.occurrences, self.namespace,
        );
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message
    }
}

#[cfg(test)]
mod tests {
    use squelch_engine::Disposition;

    use super::*;

    fn dropped(reason: &str, count: u64) -> Dropped {
        Dropped::new([reason, "Pod", "kubelet"], Disposition::Throttled, count)
    }

    fn drops(entries: Vec<Dropped>, others: u64) -> EnforcedDrops {
        let occurrences = others + entries.iter().map(|entry| entry.count).sum::<u64>();
        EnforcedDrops { occurrences, warnings: 0, entries }
    }

    fn message(new: &EnforcedDrops, policy: &str) -> String {
        let policy = PolicyRef { kind: "EventPolicy", name: policy.into() };
        let receipt =
            Receipt { namespace: "ci", report_uid: "r", policy: &policy, policy_uid: "p", total: 70, new };
        receipt.message()
    }

    #[test]
    fn a_receipt_names_the_most_frequent_drops_since_the_one_before() {
        let before = drops(vec![dropped("Pulled", 50), dropped("Created", 3)], 0);
        let now = drops(
            vec![dropped("Pulled", 52), dropped("Created", 10), dropped("Killing", 4), dropped("Started", 1)],
            3,
        );
        let new = now.since(&before);
        assert_eq!(
            message(&new, "quiet"),
            "EventPolicy quiet dropped 17 occurrences of Events: 7 Created of Pod (throttled), 4 Killing of Pod \
             (throttled), 2 Pulled of Pod (throttled), 4 others. Details: kubectl get edr squelch -n ci -o yaml"
        );
        assert_eq!(now.since(&now), EnforcedDrops::default());
    }

    #[test]
    fn an_evicted_combination_counts_from_its_new_start() {
        let new = drops(vec![dropped("Pulled", 2)], 98).since(&drops(vec![dropped("Pulled", 50)], 0));
        assert_eq!((new.occurrences, new.entries[0].count), (50, 2));
    }

    #[test]
    fn the_longest_texts_fit_with_the_command() {
        let entries = (0..3).map(|_| dropped(&"é".repeat(100), u64::MAX / 4)).collect();
        let text = message(&drops(entries, 9), &"p".repeat(253));
        assert!(text.len() <= MAX_MESSAGE && text.ends_with("-n ci -o yaml"), "{text}");
    }

    /// Calls `act` with the receipt of a cluster-scoped policy that has dropped Warnings.
    fn of_warnings(total: i64, act: impl Fn(&Receipt<'_>) -> Value) -> Value {
        let policy = &PolicyRef { kind: "ClusterEventPolicy", name: "all".into() };
        let new = &EnforcedDrops { occurrences: 5, warnings: 2, entries: vec![dropped("BackOff", 5)] };
        act(&Receipt { namespace: "ci", report_uid: "r", policy, policy_uid: "p", total, new })
    }

    #[test]
    fn warnings_make_a_warning() {
        let event = of_warnings(i64::MAX, |receipt| receipt.event(Timestamp::UNIX_EPOCH));
        assert_eq!((&event["type"], &event["count"]), (&json!("Warning"), &json!(i32::MAX)));
        assert_eq!(event["metadata"]["name"], "squelch.p");
        assert!(event["message"].as_str().unwrap().contains(" 2 of them were Warnings."));
        assert_eq!(event["firstTimestamp"], "1970-01-01T00:00:00Z");
        assert_eq!(
            (&event["related"]["namespace"], &event["involvedObject"]["uid"]),
            (&Value::Null, &json!("r"))
        );
    }

    /// A user who may create Events can create one of this name first.
    #[test]
    fn a_receipt_removes_the_fields_of_a_foreign_event_of_its_name() {
        let patch = of_warnings(5, |receipt| receipt.patch(Timestamp::UNIX_EPOCH));
        for field in ["eventTime", "series"] {
            assert_eq!(patch.get(field), Some(&Value::Null), "{field}");
        }
    }
}
