//! CEL expressions of the webhook's match conditions. Pure.

use serde_json::{Value, json};

use super::configuration::{EVENTS_ENTRY, PROBE_ENTRY, find_by_name};
use crate::cel::quoted;
use crate::policy::WebhookScope;

const NOT_SQUELCH_ITSELF: &str = "not-squelch-itself";
const ONLY_SQUELCH_ITSELF: &str = "only-squelch-itself";
const NOT_A_DRY_RUN: &str = "not-a-dry-run";
const MATCHED_BY_A_POLICY: &str = "matched-by-a-policy";

/// Returns the names of the conditions that squelch writes in an entry.
pub(super) fn names(entry: &str) -> &'static [&'static str] {
    match entry {
        EVENTS_ENTRY => &[NOT_SQUELCH_ITSELF, NOT_A_DRY_RUN, MATCHED_BY_A_POLICY],
        PROBE_ENTRY => &[ONLY_SQUELCH_ITSELF],
        _ => &[],
    }
}

/// Excludes the writes of `own_user`, which is squelch itself, and what has no effect on a decision: dry runs and writes
/// that no policy matches. Each condition is always written, because squelch could not remove one with its name that
/// another writer owns.
pub(super) fn of_event_writes(own_user: &str, scope: &WebhookScope) -> Value {
    let own = format!("request.userInfo.username != {}", quoted(own_user));
    let matched = scope.writes.expression(&scope.namespaces).filter(|_| !scope.is_none());
    json!([
        { "name": NOT_SQUELCH_ITSELF, "expression": own },
        { "name": NOT_A_DRY_RUN, "expression": "!request.dryRun" },
        { "name": MATCHED_BY_A_POLICY, "expression": matched.as_deref().unwrap_or(WebhookScope::EVERY_WRITE) },
    ])
}

/// Selects the dry runs of `own_user`, which is squelch itself.
pub(super) fn of_probes(own_user: &str) -> Value {
    json!([{
        "name": ONLY_SQUELCH_ITSELF,
        "expression": format!("request.dryRun && request.userInfo.username == {}", quoted(own_user)),
    }])
}

/// Returns the condition of an entry that selects the writes that a policy can match. `None`: it selects every write.
pub fn matched_by_a_policy(entry: &Value) -> Option<&str> {
    let condition = find_by_name(&entry["matchConditions"], &MATCHED_BY_A_POLICY.into())?;
    condition["expression"].as_str().filter(|expression| *expression != WebhookScope::EVERY_WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{MatchedWrites, NamespaceSelection};

    #[test]
    fn the_condition_for_matched_writes_is_always_written() {
        let writes = MatchedWrites::of("object.reason == 'A'", NamespaceSelection::All);
        for (scope, expected) in [
            (WebhookScope::none(), None),
            (WebhookScope::all_in(NamespaceSelection::All), None),
            (WebhookScope { namespaces: NamespaceSelection::All, writes }, Some("object.reason == 'A'")),
        ] {
            let entry = json!({ "name": EVENTS_ENTRY, "matchConditions": of_event_writes("me", &scope) });
            let conditions = entry["matchConditions"].as_array().unwrap();
            let written: Vec<_> = conditions.iter().map(|it| it["name"].as_str().unwrap()).collect();
            assert_eq!(written, names(EVENTS_ENTRY));
            assert_eq!(matched_by_a_policy(&entry), expected);
        }
        assert_eq!(matched_by_a_policy(&json!({ "matchConditions": of_probes("me") })), None);
        assert_eq!(matched_by_a_policy(&Value::Null), None);
    }
}
