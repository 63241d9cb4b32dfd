//! Checks of the policies, by their statuses.

use std::time::Duration;

use serde_json::Value;

use super::finding::{Finding, printable};
use super::snapshot::{Observed, Snapshot};
use crate::api::{ConditionType, HEARTBEAT_INTERVAL, Reason, parse_duration};

/// The default `--event-ttl` of the API server.
const USUAL_TTL: Duration = Duration::from_secs(3600);

/// Maximum policies in a message.
const NAMED: usize = 3;

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let mut found = vec![
        accepted("EventPolicies", &snapshot.policies),
        accepted("ClusterEventPolicies", &snapshot.cluster_policies),
    ];
    found.extend(event_ttl(snapshot));
    found
}

/// Whether a policy requires the webhook to be armed. `None` if only an unread list can have such a policy.
pub(super) fn want_rules(snapshot: &Snapshot) -> Option<bool> {
    let governs = |policy: &Value| {
        let effective = condition(policy, ConditionType::Effective);
        let waiting = [Reason::WebhookNotArmed, Reason::ExcludedByPlatform].map(Reason::as_str);
        effective["status"] == "True" || waiting.iter().any(|reason| effective["reason"] == *reason)
    };
    let lists = [&snapshot.policies, &snapshot.cluster_policies];
    if lists.into_iter().flatten().flatten().any(governs) {
        return Some(true);
    }
    lists.into_iter().all(Result::is_ok).then_some(false)
}

fn condition(policy: &Value, wanted: ConditionType) -> &Value {
    let conditions = policy["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == wanted.as_str());
    found.unwrap_or(&Value::Null)
}

fn accepted(kind: &str, policies: &Observed<Vec<Value>>) -> Finding {
    let policies = match policies {
        Ok(policies) => policies,
        Err(unreadable) => return Finding::unreadable("policies", kind, unreadable),
    };
    let with = |wanted, status: &str| {
        policies.iter().filter(|policy| condition(policy, wanted)["status"] == status).collect::<Vec<_>>()
    };
    let (accepted, effective) =
        (with(ConditionType::Accepted, "True").len(), with(ConditionType::Effective, "True").len());
    let message = format!("{} {kind}, {accepted} of them Accepted, {effective} Effective", policies.len());
    let (too_many, invalid): (Vec<_>, Vec<_>) =
        with(ConditionType::Accepted, "False").into_iter().partition(|policy| {
            condition(policy, ConditionType::Accepted)["reason"] == Reason::TooManyPolicies.as_str()
        });
    if !invalid.is_empty() {
        let message = format!("{message}; Invalid: {}", named(&invalid));
        return Finding::warning(
            "policies",
            message,
            "see the message of the Accepted condition: it names the invalid field and its valid values",
        );
    }
    if !too_many.is_empty() {
        let message = format!(
            "{message}; not accepted because of a limit of their namespace (TooManyPolicies): {}",
            named(&too_many)
        );
        return Finding::warning(
            "policies",
            message,
            "see the message of the Accepted condition: it names the limit",
        );
    }
    let generation =
        |policy: &&Value| policy["metadata"]["generation"] != policy["status"]["observedGeneration"];
    let unread: Vec<_> = policies.iter().filter(generation).collect();
    if !unread.is_empty() {
        let message = format!("{message}; squelch has not processed the last change of {}", named(&unread));
        return Finding::warning(
            "policies",
            message,
            "run squelch doctor again in 10 s; if the warning stays, see `replicas`",
        );
    }
    Finding::ok("policies", message)
}

fn named(policies: &[&Value]) -> String {
    let names = policies.iter().take(NAMED).map(|policy| printable(&name(policy)));
    let more = if policies.len() > NAMED { ", ..." } else { "" };
    format!("{}{more}", names.collect::<Vec<_>>().join(", "))
}

fn name(policy: &Value) -> String {
    let text = |field: &str| policy["metadata"][field].as_str().unwrap_or_default().to_owned();
    match text("namespace") {
        namespace if namespace.is_empty() => text("name"),
        namespace => format!("{namespace}/{}", text("name")),
    }
}

/// The API server does not publish its `--event-ttl`.
fn event_ttl(snapshot: &Snapshot) -> Option<Finding> {
    let all = [&snapshot.policies, &snapshot.cluster_policies].map(Observed::as_ref);
    let longest = all.into_iter().flatten().flatten().max_by_key(|policy| heartbeat(policy))?;
    let interval = heartbeat(longest);
    let message = format!(
        "the longest heartbeatInterval is {}, of {}; the API server does not publish its --event-ttl (default 1h)",
        printable(
            longest["spec"]["series"]["heartbeatInterval"].as_str().unwrap_or(HEARTBEAT_INTERVAL.default)
        ),
        printable(&name(longest))
    );
    if interval < USUAL_TTL {
        return Some(Finding::ok("event-ttl", message));
    }
    let remedy = "set heartbeatInterval below --event-ttl, or the stored Event of a live series expires";
    Some(Finding::warning("event-ttl", message, remedy))
}

fn heartbeat(policy: &Value) -> Duration {
    let series = &policy["spec"]["series"];
    if series["mode"] == "Disabled" {
        return Duration::ZERO;
    }
    let text = series["heartbeatInterval"].as_str().unwrap_or(HEARTBEAT_INTERVAL.default);
    parse_duration(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::fixtures::{healthy, policy};
    use super::super::snapshot::Unreadable;
    use super::*;
    use serde_json::json;

    fn of(policies: Vec<Value>) -> Vec<Finding> {
        let mut snapshot = healthy();
        (snapshot.policies, snapshot.cluster_policies) = (Ok(policies), Ok(Vec::new()));
        findings(&snapshot)
    }

    #[test]
    fn policies_are_counted_and_invalid_ones_named() {
        let found = of(vec![policy("a", true), policy("b", true), policy("c\u{1b}", false)]);
        assert_eq!(found[0].level, Level::Warning);
        assert!(
            found[0].message.starts_with("3 EventPolicies, 2 of them Accepted, 2 Effective"),
            "{}",
            found[0].message
        );
        assert!(found[0].message.ends_with("Invalid: ns/c"), "{}", found[0].message);
        let many: Vec<_> = ["a", "b", "c", "d"].map(|name| policy(name, false)).into();
        assert!(of(many)[0].message.ends_with("ns/a, ns/b, ns/c, ..."));
        assert_eq!(of(Vec::new()).len(), 2, "without policies nothing can expire");
    }

    #[test]
    fn policies_beyond_a_limit_are_named() {
        let mut beyond = policy("b", false);
        let conditions = beyond["status"]["conditions"].as_array_mut().unwrap();
        let accepted = conditions.iter_mut().find(|condition| condition["type"] == "Accepted").unwrap();
        accepted["reason"] = json!("TooManyPolicies");
        let found = of(vec![policy("a", true), beyond]);
        assert_eq!(found[0].level, Level::Warning);
        assert!(found[0].message.ends_with("(TooManyPolicies): ns/b"), "{}", found[0].message);
    }

    #[test]
    fn an_unprocessed_change_is_a_warning() {
        let mut unread = policy("a", true);
        unread["metadata"]["generation"] = json!(2);
        assert_eq!(of(vec![unread])[0].level, Level::Warning);
    }

    #[test]
    fn a_heartbeat_longer_than_the_event_ttl_is_a_warning() {
        let with = |interval: &str| {
            let mut policy = policy("a", true);
            policy["spec"]["series"]["heartbeatInterval"] = json!(interval);
            of(vec![policy]).pop().unwrap()
        };
        assert_eq!((with("59m").level, with("1h").level), (Level::Ok, Level::Warning));
        let mut off = policy("a", true);
        off["spec"]["series"] = json!({ "mode": "Disabled", "heartbeatInterval": "9h" });
        assert_eq!(of(vec![off]).pop().unwrap().level, Level::Ok);
    }

    #[test]
    fn a_policy_waiting_for_the_webhook_requires_it() {
        let mut snapshot = healthy();
        assert_eq!(want_rules(&snapshot), Some(true));
        snapshot.policies = Ok(vec![policy("a", false)]);
        assert_eq!(want_rules(&snapshot), Some(false));
        let mut waiting = policy("a", true);
        waiting["status"]["conditions"][1] = json!({ "type": "Effective", "reason": "WebhookNotArmed" });
        snapshot.policies = Ok(vec![waiting]);
        snapshot.cluster_policies = Err(Unreadable::Forbidden);
        assert_eq!(want_rules(&snapshot), Some(true), "one list shows it");
        snapshot.policies = Ok(Vec::new());
        assert_eq!(want_rules(&snapshot), None);
    }
}
