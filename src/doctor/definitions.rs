//! Compares the CustomResourceDefinitions of the cluster with those of this version of squelch.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::finding::{Finding, printable};
use super::snapshot::{Snapshot, Unreadable};

/// Maximum differing fields in a message.
const NAMED: usize = 3;

const APPLY: &str = "squelch crds | kubectl apply --server-side --force-conflicts -f -";

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    snapshot
        .definitions
        .iter()
        .map(|(name, observed)| match observed {
            Ok(live) => compare(name, live),
            Err(Unreadable::Missing) => Finding::error(
                "definitions",
                format!("the CustomResourceDefinition {name} does not exist"),
                APPLY,
            ),
            Err(unreadable) => Finding::unreadable("definitions", name, unreadable),
        })
        .collect()
}

fn compare(name: &str, live: &CustomResourceDefinition) -> Finding {
    let own = crate::api::crds().into_iter().map(|(_, own)| own);
    let Some(own) = own.into_iter().find(|own| own.metadata.name.as_deref() == Some(name)) else {
        return Finding::ok("definitions", format!("{name} is not known to this version of squelch"));
    };
    let conditions = live.status.as_ref().and_then(|status| status.conditions.as_ref());
    let established = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Established" && condition.status == "True");
    if !established {
        let see = format!("kubectl describe crd {name}");
        return Finding::error(
            "definitions",
            format!("the CustomResourceDefinition {name} is not established"),
            see,
        );
    }
    let version = &own.spec.versions[0];
    let Some(found) = live.spec.versions.iter().find(|found| found.name == version.name && found.served)
    else {
        let message = format!("the CustomResourceDefinition {name} does not serve {}", version.name);
        return Finding::error("definitions", message, APPLY);
    };
    let differing = differing(&flat(&version.schema), &flat(&found.schema));
    if differing.is_empty() {
        return Finding::ok(
            "definitions",
            format!("the CustomResourceDefinition {name} matches this version of squelch"),
        );
    }
    let named: Vec<_> = differing.iter().take(NAMED).map(|path| printable(path)).collect();
    let more = if differing.len() > NAMED { ", ..." } else { "" };
    let message = format!(
        "the CustomResourceDefinition {name} differs from this version of squelch in {}{more}",
        named.join(", ")
    );
    Finding::warning("definitions", message, APPLY)
}

/// Returns the paths of the differing fields.
fn differing(own: &BTreeMap<String, String>, live: &BTreeMap<String, String>) -> BTreeSet<String> {
    let paths = own.keys().chain(live.keys());
    paths.filter(|path| own.get(*path) != live.get(*path)).map(|path| plain(path)).collect()
}

/// Shortens the path of a schema to `spec.budget.burst`.
fn plain(path: &str) -> String {
    let words = path.split('.').filter(|word| !["openAPIV3Schema", "properties", "items", ""].contains(word));
    words.collect::<Vec<_>>().join(".")
}

/// Returns the values of a schema by path, without descriptions.
fn flat(schema: &impl serde::Serialize) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    // A schema without a JSON form is empty.
    let value = serde_json::to_value(schema).unwrap_or_default();
    flatten("", &value, &mut found);
    found
}

fn flatten(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                if !(name == "description" && value.is_string()) {
                    flatten(&format!("{path}.{name}"), value, found);
                }
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                flatten(&format!("{path}.{at}"), value, found);
            }
        }
        Value::Number(number) => {
            // 1 and 1.0 are equal.
            found.insert(path.to_owned(), number.as_f64().map_or(number.to_string(), |it| it.to_string()));
        }
        other => {
            found.insert(path.to_owned(), other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::fixtures::{definition, healthy};
    use super::*;
    use serde_json::json;

    fn finding_after(change: impl FnOnce(&mut Value)) -> Finding {
        let mut live = serde_json::to_value(definition("eventpolicies.squelch.dev")).unwrap();
        change(&mut live);
        let mut snapshot = healthy();
        snapshot.definitions =
            vec![("eventpolicies.squelch.dev".to_owned(), Ok(serde_json::from_value(live).unwrap()))];
        findings(&snapshot).remove(0)
    }

    #[test]
    fn the_definition_of_this_version_passes() {
        assert_eq!(finding_after(|_| {}).level, Level::Ok);
        let reworded =
            |v: &mut Value| v["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = json!("x");
        assert_eq!(finding_after(reworded).level, Level::Ok);
    }

    #[test]
    fn differing_fields_are_named() {
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let found = finding_after(|v| {
            v.pointer_mut(spec).unwrap().as_object_mut().unwrap().remove("rejection");
        });
        assert_eq!(found.level, Level::Warning);
        assert!(found.message.contains("spec.rejection."), "{}", found.message);
        let found = finding_after(|v| v.pointer_mut(spec).unwrap()["extra"] = json!({ "type": "string" }));
        assert!(found.message.contains("spec.extra.type"), "{}", found.message);
    }

    #[test]
    fn a_definition_that_is_not_served_is_an_error() {
        for change in
            [(|v: &mut Value| v["spec"]["versions"][0]["served"] = json!(false)) as fn(&mut Value), |v| {
                v["status"]["conditions"][0]["status"] = json!("False");
            }]
        {
            assert_eq!(finding_after(change).level, Level::Error);
        }
        let mut snapshot = healthy();
        snapshot.definitions[0].1 = Err(Unreadable::Missing);
        assert_eq!(findings(&snapshot)[0].level, Level::Error);
    }
}
