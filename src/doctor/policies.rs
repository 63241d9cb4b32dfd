//! The policies, by what squelch has said of them.

use std::time::Duration;

use serde_json::Value;

use super::finding::{Finding, told};
use super::seen::{Look, Seen};
use crate::api::{ConditionType, HEARTBEAT_INTERVAL, Reason, parse_duration};

/// `--event-ttl` of an API server that is not told otherwise.
const USUAL_TTL: Duration = Duration::from_secs(3600);

/// So many policies are named.
const NAMED: usize = 3;

pub(super) fn findings(seen: &Seen) -> Vec<Finding> {
    let mut found =
        vec![said("EventPolicies", &seen.policies), said("ClusterEventPolicies", &seen.cluster_policies)];
    found.extend(event_ttl(seen));
    found
}

/// No policy is one that the webhook would be armed for.
pub(super) fn wants_nothing(seen: &Seen) -> bool {
    let governs = |policy: &Value| {
        let effective = condition(policy, ConditionType::Effective);
        effective["status"] == "True" || effective["reason"] == Reason::WebhookNotArmed.as_str()
    };
    [&seen.policies, &seen.cluster_policies].into_iter().all(|look| match look {
        Ok(policies) => !policies.iter().any(governs),
        Err(_) => false,
    })
}

fn condition(policy: &Value, wanted: ConditionType) -> &Value {
    let conditions = policy["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == wanted.as_str());
    found.unwrap_or(&Value::Null)
}

fn said(kind: &str, policies: &Look<Vec<Value>>) -> Finding {
    let policies = match policies {
        Ok(policies) => policies,
        Err(unseen) => return Finding::unseen("policies", kind, unseen),
    };
    let with = |wanted, status: &str| {
        policies.iter().filter(|policy| condition(policy, wanted)["status"] == status).collect::<Vec<_>>()
    };
    let (accepted, effective) =
        (with(ConditionType::Accepted, "True").len(), with(ConditionType::Effective, "True").len());
    let why = format!("{} {kind}, {accepted} of them Accepted, {effective} Effective", policies.len());
    let (too_many, invalid): (Vec<_>, Vec<_>) =
        with(ConditionType::Accepted, "False").into_iter().partition(|policy| {
            condition(policy, ConditionType::Accepted)["reason"] == Reason::TooManyPolicies.as_str()
        });
    if !invalid.is_empty() {
        let why = format!("{why}; Invalid: {}", named(&invalid));
        return Finding::warning("policies", why, "its status says which field is wrong, and what to write");
    }
    if !too_many.is_empty() {
        let why = format!("{why}; beyond a limit of their namespace (TooManyPolicies): {}", named(&too_many));
        return Finding::warning(
            "policies",
            why,
            "its status says which limit is exhausted, and what to change",
        );
    }
    let generation =
        |policy: &&Value| policy["metadata"]["generation"] != policy["status"]["observedGeneration"];
    let unread: Vec<_> = policies.iter().filter(generation).collect();
    if !unread.is_empty() {
        let why = format!("{why}; squelch has not answered their last change: {}", named(&unread));
        return Finding::warning(
            "policies",
            why,
            "look again in 10 s; then see whether squelch runs (`replicas`)",
        );
    }
    Finding::ok("policies", why)
}

fn named(policies: &[&Value]) -> String {
    let names = policies.iter().take(NAMED).map(|policy| told(&name(policy)));
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

/// Nobody can ask an API server for its `--event-ttl`.
fn event_ttl(seen: &Seen) -> Option<Finding> {
    let all = [&seen.policies, &seen.cluster_policies].map(Look::as_ref);
    let longest = all.into_iter().flatten().flatten().max_by_key(|policy| heartbeat(policy))?;
    let interval = heartbeat(longest);
    let why = format!(
        "the API server does not tell its --event-ttl (1h unless set); the longest heartbeatInterval is {}, of {}",
        told(longest["spec"]["series"]["heartbeatInterval"].as_str().unwrap_or(HEARTBEAT_INTERVAL.default)),
        told(&name(longest))
    );
    if interval < USUAL_TTL {
        return Some(Finding::ok("event-ttl", why));
    }
    let to_do = "keep heartbeatInterval below --event-ttl, or the stored Event of a live series expires";
    Some(Finding::warning("event-ttl", why, to_do))
}

fn heartbeat(policy: &Value) -> Duration {
    let series = &policy["spec"]["series"];
    if series["disabled"] == true {
        return Duration::ZERO;
    }
    let text = series["heartbeatInterval"].as_str().unwrap_or(HEARTBEAT_INTERVAL.default);
    parse_duration(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::testing::{policy, well};
    use super::*;
    use serde_json::json;

    fn of(policies: Vec<Value>) -> Vec<Finding> {
        let mut seen = well();
        (seen.policies, seen.cluster_policies) = (Ok(policies), Ok(Vec::new()));
        findings(&seen)
    }

    #[test]
    fn policies_are_counted_and_the_invalid_ones_named() {
        let found = of(vec![policy("a", true), policy("b", true), policy("c\u{1b}", false)]);
        assert_eq!(found[0].level, Level::Warning);
        assert!(
            found[0].why.starts_with("3 EventPolicies, 2 of them Accepted, 2 Effective"),
            "{}",
            found[0].why
        );
        assert!(found[0].why.ends_with("Invalid: ns/c"), "{}", found[0].why);
        let many: Vec<_> = ["a", "b", "c", "d"].map(|name| policy(name, false)).into();
        assert!(of(many)[0].why.ends_with("ns/a, ns/b, ns/c, ..."));
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
        assert!(found[0].why.ends_with("(TooManyPolicies): ns/b"), "{}", found[0].why);
    }

    #[test]
    fn a_policy_that_nobody_has_read_is_told() {
        let mut unread = policy("a", true);
        unread["metadata"]["generation"] = json!(2);
        assert_eq!(of(vec![unread])[0].level, Level::Warning);
    }

    #[test]
    fn a_heartbeat_longer_than_an_events_life_is_told() {
        let with = |interval: &str| {
            let mut policy = policy("a", true);
            policy["spec"]["series"]["heartbeatInterval"] = json!(interval);
            of(vec![policy]).pop().unwrap()
        };
        assert_eq!((with("59m").level, with("1h").level), (Level::Ok, Level::Warning));
        let mut off = policy("a", true);
        off["spec"]["series"] = json!({ "disabled": true, "heartbeatInterval": "9h" });
        assert_eq!(of(vec![off]).pop().unwrap().level, Level::Ok);
    }

    #[test]
    fn only_what_waits_for_the_webhook_wants_it() {
        let mut seen = well();
        assert!(!wants_nothing(&seen));
        seen.policies = Ok(vec![policy("a", false)]);
        assert!(wants_nothing(&seen));
        let mut waiting = policy("a", true);
        waiting["status"]["conditions"][1] = json!({ "type": "Effective", "reason": "WebhookNotArmed" });
        seen.policies = Ok(vec![waiting]);
        assert!(!wants_nothing(&seen));
    }
}
