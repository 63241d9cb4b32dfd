//! The CustomResourceDefinitions, by those of this squelch.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::finding::{Finding, told};
use super::seen::{Seen, Unseen};

/// So many fields that differ are named.
const NAMED: usize = 3;

const APPLY: &str = "squelch crds | kubectl apply --server-side --force-conflicts -f -";

pub(super) fn findings(seen: &Seen) -> Vec<Finding> {
    seen.definitions
        .iter()
        .map(|(name, look)| match look {
            Ok(live) => judge(name, live),
            Err(Unseen::Missing) => Finding::error("definitions", format!("{name} is not there"), APPLY),
            Err(unseen) => Finding::unseen("definitions", name, unseen),
        })
        .collect()
}

fn judge(name: &str, live: &CustomResourceDefinition) -> Finding {
    let own = crate::api::crds().into_iter().map(|(_, own)| own);
    let Some(own) = own.into_iter().find(|own| own.metadata.name.as_deref() == Some(name)) else {
        return Finding::ok("definitions", format!("{name} is of another squelch"));
    };
    let conditions = live.status.as_ref().and_then(|status| status.conditions.as_ref());
    let established = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Established" && condition.status == "True");
    if !established {
        let see = format!("kubectl describe crd {name}");
        return Finding::error("definitions", format!("{name} is not established"), see);
    }
    let version = &own.spec.versions[0];
    let Some(found) = live.spec.versions.iter().find(|found| found.name == version.name && found.served)
    else {
        let why = format!("{name} does not serve {}", version.name);
        return Finding::error("definitions", why, APPLY);
    };
    let differing = differing(&flat(&version.schema), &flat(&found.schema));
    if differing.is_empty() {
        return Finding::ok("definitions", format!("{name} is there, as of this squelch"));
    }
    let named: Vec<_> = differing.iter().take(NAMED).map(|path| told(path)).collect();
    let more = if differing.len() > NAMED { ", ..." } else { "" };
    let why = format!("{name} is of another version of squelch: {}{more}", named.join(", "));
    Finding::warning("definitions", why, APPLY)
}

/// The paths at which the two are not alike.
fn differing(own: &BTreeMap<String, String>, live: &BTreeMap<String, String>) -> BTreeSet<String> {
    let paths = own.keys().chain(live.keys());
    paths.filter(|path| own.get(*path) != live.get(*path)).map(|path| plain(path)).collect()
}

/// `spec.budget.burst` of the path of a schema.
fn plain(path: &str) -> String {
    let words = path.split('.').filter(|word| !["openAPIV3Schema", "properties", "items", ""].contains(word));
    words.collect::<Vec<_>>().join(".")
}

/// What a schema says, by path. Wording is nobody's difference.
fn flat(schema: &impl serde::Serialize) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    // What has no JSON form says nothing.
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
            // 1 and 1.0 are alike.
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
    use super::super::testing::{definition, well};
    use super::*;
    use serde_json::json;

    fn judged(change: impl FnOnce(&mut Value)) -> Finding {
        let mut live = serde_json::to_value(definition("eventpolicies.squelch.dev")).unwrap();
        change(&mut live);
        let mut seen = well();
        seen.definitions =
            vec![("eventpolicies.squelch.dev".to_owned(), Ok(serde_json::from_value(live).unwrap()))];
        findings(&seen).remove(0)
    }

    #[test]
    fn what_this_squelch_would_write_is_well() {
        assert_eq!(judged(|_| {}).level, Level::Ok);
        let reworded =
            |v: &mut Value| v["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = json!("x");
        assert_eq!(judged(reworded).level, Level::Ok);
    }

    #[test]
    fn another_versions_fields_are_named() {
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let found = judged(|v| {
            v.pointer_mut(spec).unwrap().as_object_mut().unwrap().remove("rejection");
        });
        assert_eq!(found.level, Level::Warning);
        assert!(found.why.contains("spec.rejection."), "{}", found.why);
        let found = judged(|v| v.pointer_mut(spec).unwrap()["extra"] = json!({ "type": "string" }));
        assert!(found.why.contains("spec.extra.type"), "{}", found.why);
    }

    #[test]
    fn what_is_not_served_is_an_error() {
        for change in
            [(|v: &mut Value| v["spec"]["versions"][0]["served"] = json!(false)) as fn(&mut Value), |v| {
                v["status"]["conditions"][0]["status"] = json!("False");
            }]
        {
            assert_eq!(judged(change).level, Level::Error);
        }
        let mut seen = well();
        seen.definitions[0].1 = Err(Unseen::Missing);
        assert_eq!(findings(&seen)[0].level, Level::Error);
    }
}
