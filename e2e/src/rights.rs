//! Permissions that squelch uses, by the API server's audit log, and permissions that its roles grant.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

/// A permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The API group; empty for the core API.
    pub group: String,
    /// The resource with its subresource.
    pub resource: String,
    /// The verb.
    pub verb: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{} {}{dot}{}", self.verb, self.resource, self.group)
    }
}

/// The permissions that rules grant.
pub fn allowed(rules: &[PolicyRule]) -> BTreeSet<Right> {
    let none = Vec::new();
    let mut rights = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.as_ref().unwrap_or(&none) {
            for resource in rule.resources.as_ref().unwrap_or(&none) {
                for verb in &rule.verbs {
                    let (group, resource, verb) = (group.clone(), resource.clone(), verb.clone());
                    rights.insert(Right { group, resource, verb });
                }
            }
        }
    }
    rights
}

/// The requests of a ServiceAccount in the audit log.
#[derive(Debug, Default)]
pub struct ObservedRights {
    /// Permissions that it used.
    pub used: BTreeSet<Right>,
    /// Permissions that it lacked.
    pub refused: BTreeSet<Right>,
}

/// The requests of a user in the audit log.
///
/// # Errors
/// If the log is missing or has an invalid line.
pub fn asked(log: &Path, user: &str) -> Result<ObservedRights> {
    let text = std::fs::read_to_string(log).with_context(|| log.display().to_string())?;
    let mut asked = ObservedRights::default();
    for line in text.lines() {
        let entry: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        if entry["user"]["username"] == user {
            note(&entry, &mut asked);
        }
    }
    Ok(asked)
}

fn note(entry: &Value, asked: &mut ObservedRights) {
    let object = &entry["objectRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if object["resource"].is_null() {
        // Not about a resource: version, discovery.
        return;
    }
    let mut resource = text(&object["resource"]);
    if let Some(subresource) = object["subresource"].as_str() {
        resource = format!("{resource}/{subresource}");
    }
    let right = Right { group: text(&object["apiGroup"]), resource, verb: text(&entry["verb"]) };
    let code = entry["responseStatus"]["code"].as_i64().unwrap_or(0);
    // Server-side apply creates missing objects, which also needs the permission to create.
    if right.verb == "patch" && code == 201 {
        asked.used.insert(Right { verb: "create".to_owned(), ..right.clone() });
    }
    // The API server creates nothing in a namespace that is being deleted, whatever the permissions are.
    let is_terminating = text(&entry["responseStatus"]["message"]).contains("being terminated");
    if code == 403 && !is_terminating {
        asked.refused.insert(right);
    } else {
        asked.used.insert(right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(verb: &str, code: u16) -> Value {
        json!({
            "user": { "username": "u" }, "verb": verb, "responseStatus": { "code": code },
            "objectRef": { "resource": "deployments", "apiGroup": "apps", "subresource": "scale" },
        })
    }

    #[test]
    fn an_apply_that_creates_an_object_uses_two_rights() {
        let mut asked = ObservedRights::default();
        note(&entry("patch", 201), &mut asked);
        let used: Vec<_> = asked.used.iter().map(ToString::to_string).collect();
        assert_eq!(used, ["create deployments/scale.apps", "patch deployments/scale.apps"]);
    }

    #[test]
    fn a_refused_request_uses_no_right() {
        let mut asked = ObservedRights::default();
        note(&entry("get", 403), &mut asked);
        assert!(asked.used.is_empty());
        assert_eq!(asked.refused.len(), 1);
    }

    #[test]
    fn a_rule_of_two_by_two_by_two_is_eight_rights() {
        let two = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        let rule = PolicyRule {
            api_groups: Some(two("a", "b")),
            resources: Some(two("c", "d")),
            verbs: two("e", "f"),
            ..PolicyRule::default()
        };
        assert_eq!(allowed(&[rule]).len(), 8);
    }
}
