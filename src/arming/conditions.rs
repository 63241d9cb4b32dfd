//! CEL expressions of the webhook's match conditions. Pure.

use serde_json::{Value, json};

use super::configuration::find_by_name;
use crate::cel::quoted;
use crate::policy::WebhookScope;

const NOT_SQUELCH_ITSELF: &str = "not-squelch-itself";
const ONLY_SQUELCH_ITSELF: &str = "only-squelch-itself";
const NOT_A_DRY_RUN: &str = "not-a-dry-run";
const MATCHED_BY_A_POLICY: &str = "matched-by-a-policy";

/// The names of all conditions that squelch writes.
pub(super) const NAMES: [&str; 4] =
    [NOT_SQUELCH_ITSELF, ONLY_SQUELCH_ITSELF, NOT_A_DRY_RUN, MATCHED_BY_A_POLICY];

/// Excludes the writes of `own_user`, which is squelch itself, and what has no effect on a decision: dry runs and writes
/// that no policy matches.
pub(super) fn of_event_writes(own_user: &str, scope: &WebhookScope) -> Value {
    let own = format!("request.userInfo.username != {}", quoted(own_user));
    let mut conditions = vec![
        json!({ "name": NOT_SQUELCH_ITSELF, "expression": own }),
        json!({ "name": NOT_A_DRY_RUN, "expression": "!request.dryRun" }),
    ];
    if !scope.is_none()
        && let Some(matched) = scope.writes.expression(&scope.namespaces)
    {
        conditions.push(json!({ "name": MATCHED_BY_A_POLICY, "expression": matched }));
    }
    conditions.into()
}

/// Selects the dry runs of `own_user`, which is squelch itself.
pub(super) fn of_probes(own_user: &str) -> Value {
    json!([{
        "name": ONLY_SQUELCH_ITSELF,
        "expression": format!("request.dryRun && request.userInfo.username == {}", quoted(own_user)),
    }])
}

/// Returns the condition of an entry that selects the writes that a policy can match. `None`: it has none.
pub fn matched_by_a_policy(entry: &Value) -> Option<&str> {
    let condition = find_by_name(&entry["matchConditions"], &MATCHED_BY_A_POLICY.into())?;
    condition["expression"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{MatchedWrites, NamespaceSelection};

    #[test]
    fn the_condition_for_matched_writes_exists_only_if_it_excludes_some() {
        let named = |scope: &WebhookScope| {
            let conditions = of_event_writes("me", scope);
            let names =
                conditions.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned());
            names.collect::<Vec<_>>()
        };
        let everything = [NOT_SQUELCH_ITSELF, NOT_A_DRY_RUN];
        assert_eq!(named(&WebhookScope::none()), everything);
        assert_eq!(named(&WebhookScope::all_in(NamespaceSelection::All)), everything);
        let writes = MatchedWrites::of("object.reason == 'A'", NamespaceSelection::All);
        let scope = WebhookScope { namespaces: NamespaceSelection::All, writes };
        assert_eq!(named(&scope), [NOT_SQUELCH_ITSELF, NOT_A_DRY_RUN, MATCHED_BY_A_POLICY]);
        let entry = json!({ "matchConditions": of_event_writes("me", &scope) });
        assert_eq!(matched_by_a_policy(&entry), Some("object.reason == 'A'"));
        assert_eq!(matched_by_a_policy(&json!({ "matchConditions": of_probes("me") })), None);
        assert_eq!(matched_by_a_policy(&Value::Null), None);
    }
}
