//! What other writers have added to squelch's entries of the webhook configuration. Pure.
//!
//! Platforms restrict every webhook: AKS and GKE keep webhooks away from their own namespaces. Additions that only
//! restrict stay. The list of label requirements is atomic for server-side apply, so each write of squelch carries what
//! others have added to it. Match conditions, labels and annotations are merged by the API server.

use serde_json::{Map, Value, json};

use super::conditions;
use super::configuration::{EVENTS_ENTRY, PROBE_ENTRY, find_by_name};
use crate::api::LabelRequirement;
use crate::policy::Restrictions;

/// The label with the name of a namespace.
pub(super) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// What other writers have added to each entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Additions {
    entries: Vec<EntryAdditions>,
}

/// What other writers have added to an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct EntryAdditions {
    entry: String,
    /// `namespaceSelector.matchExpressions`.
    expressions: Vec<Value>,
    /// The list of names that another writer has put in place of squelch's own. It is evaluated, and not carried.
    replacement: Option<Value>,
    /// `namespaceSelector.matchLabels`.
    labels: Map<String, Value>,
    /// Additions that cannot be evaluated: names of match conditions, and `objectSelector`.
    unevaluated: Vec<String>,
}

impl Additions {
    /// Returns the additions in `live`. `own` is what squelch has written there. Without it, the first list of names in
    /// an entry is taken for squelch's own, which another replica has written.
    pub(super) fn found(live: &Value, own: Option<&Value>, wanted: &Value) -> Self {
        let entries = live["webhooks"].as_array().into_iter().flatten().filter_map(|live| {
            let wanted = find_by_name(&wanted["webhooks"], &live["name"])?;
            let own = own.and_then(|own| find_by_name(&own["webhooks"], &live["name"]));
            Some(EntryAdditions::found(live, own, wanted))
        });
        Self { entries: entries.collect() }
    }

    /// Removes lists of names that `before` lacks. While squelch selects no namespaces, a standby, a backup or a late write of
    /// its own may bring back a former list of its own, which must not stay.
    pub(super) fn without_new_lists(mut self, before: &Self) -> Self {
        for added in &mut self.entries {
            let known = before.entries.iter().find(|known| known.entry == added.entry);
            let is_known = |list: &Value| known.is_some_and(|known| has(&known.expressions, list));
            added.expressions.retain(|requirement| !is_name_list(requirement) || is_known(requirement));
        }
        self
    }

    /// Adds them to an object that squelch is about to write.
    pub(super) fn carry(&self, object: &mut Value) {
        for entry in object["webhooks"].as_array_mut().into_iter().flatten() {
            let Some(added) = self.entries.iter().find(|added| entry["name"] == *added.entry) else {
                continue;
            };
            let selector = &mut entry["namespaceSelector"];
            if !added.labels.is_empty() {
                selector["matchLabels"] = json!(added.labels);
            }
            let own = requirements(selector);
            if !added.expressions.is_empty() {
                let all = own.iter().chain(added.expressions.iter().filter(|it| !has(&own, it)));
                selector["matchExpressions"] = all.cloned().collect();
            }
        }
    }

    /// Returns what they exclude of the Event writes.
    pub(super) fn restrictions(&self) -> Restrictions {
        let Some(added) = self.entries.iter().find(|added| added.entry == EVENTS_ENTRY) else {
            return Restrictions::default();
        };
        let mut unevaluated = added.unevaluated.clone();
        let labels =
            added.labels.iter().map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
        let mut known: Vec<LabelRequirement> = Vec::new();
        let expressions = added.expressions.iter().chain(&added.replacement).cloned();
        for requirement in expressions.chain(labels) {
            match serde_json::from_value(requirement.clone()) {
                Ok(requirement) => known.push(requirement),
                Err(_) => unevaluated.push(requirement.to_string()),
            }
        }
        Restrictions::new(known, &unevaluated)
    }

    /// Returns the additions to an entry in words. `None` if there are none.
    pub(super) fn described(&self, entry: &str) -> Option<String> {
        let added = self.entries.iter().find(|added| added.entry == entry)?;
        let expressions = added.expressions.iter().map(|it| {
            let values = it["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let values = values.collect::<Vec<_>>().join(", ");
            format!("{} {} {values}", text(&it["key"]), text(&it["operator"])).trim_end().to_owned()
        });
        let labels =
            added.labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
        let all: Vec<_> = expressions.chain(labels).chain(added.unevaluated.iter().cloned()).collect();
        if all.is_empty() { None } else { Some(all.join(", ")) }
    }
}

impl EntryAdditions {
    fn found(live: &Value, own: Option<&Value>, wanted: &Value) -> Self {
        let selector = &live["namespaceSelector"];
        let own_requirements = requirements(&own.unwrap_or(wanted)["namespaceSelector"]);
        let mut expressions: Vec<Value> = Vec::new();
        for requirement in requirements(selector) {
            if !has(&own_requirements, &requirement) && !has(&expressions, &requirement) {
                expressions.push(requirement);
            }
        }
        let mut replacement = None;
        if !restricts(selector, &own.unwrap_or(wanted)["namespaceSelector"])
            || own.is_none() && own_requirements.is_empty()
        {
            let at = expressions.iter().position(is_name_list);
            // Without `own` these are the namespaces of another replica's policies.
            replacement = at.map(|at| expressions.remove(at)).filter(|_| own.is_some());
        }
        let conditions = live["matchConditions"].as_array().into_iter().flatten();
        let names = conditions.filter_map(|condition| condition["name"].as_str());
        let entry = live["name"].as_str().unwrap_or_default();
        let foreign = names.filter(|name| !conditions::names(entry).contains(name));
        let mut unevaluated: Vec<_> = foreign.map(str::to_owned).collect();
        if live["objectSelector"].as_object().is_some_and(|selector| !selector.is_empty()) {
            unevaluated.push("objectSelector".to_owned());
        }
        Self {
            entry: entry.to_owned(),
            expressions,
            replacement,
            labels: selector["matchLabels"].as_object().cloned().unwrap_or_default(),
            unevaluated,
        }
    }
}

/// Returns what other writers have added to an entry of `configuration`, in words. `None` if they have added nothing.
pub fn additions_to(configuration: &Value, entry: &str) -> Option<String> {
    let wanted = json!({ "webhooks": [{ "name": EVENTS_ENTRY }, { "name": PROBE_ENTRY }] });
    Additions::found(configuration, None, &wanted).described(entry)
}

/// Whether `live` has every requirement of `wanted`.
pub(super) fn restricts(live: &Value, wanted: &Value) -> bool {
    let requirements_of_live = requirements(live);
    requirements(wanted).iter().all(|wanted| has(&requirements_of_live, wanted))
}

/// Whether an entry of a configuration selects namespaces by their names.
pub(super) fn selects_names(configuration: &Value, entry: &str) -> bool {
    let entry = find_by_name(&configuration["webhooks"], &json!(entry));
    entry.is_some_and(|entry| requirements(&entry["namespaceSelector"]).iter().any(is_name_list))
}

fn is_name_list(requirement: &Value) -> bool {
    requirement["key"] == NAME_LABEL && requirement["operator"] == "In"
}

fn requirements(selector: &Value) -> Vec<Value> {
    selector["matchExpressions"].as_array().cloned().unwrap_or_default()
}

/// Whether a list has a requirement. The order of values has no meaning.
fn has(list: &[Value], wanted: &Value) -> bool {
    let values = |requirement: &Value| {
        let values = requirement["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        values.map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    list.iter().any(|it| {
        it["key"] == wanted["key"] && it["operator"] == wanted["operator"] && values(it) == values(wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Value {
        json!({"key": NAME_LABEL, "operator": "In", "values": names})
    }

    fn aks() -> Value {
        json!({"key": "control-plane", "operator": "DoesNotExist"})
    }

    fn object(expressions: &[Value]) -> Value {
        json!({ "webhooks": [{ "name": EVENTS_ENTRY, "namespaceSelector": { "matchExpressions": expressions } }] })
    }

    /// What the next write of `wanted` has after `live` was found.
    fn carried(live: &[Value], own: Option<&[Value]>, wanted: &[Value]) -> Value {
        let (live, mut wanted) = (object(live), object(wanted));
        Additions::found(&live, own.map(object).as_ref(), &wanted).carry(&mut wanted);
        wanted["webhooks"][0]["namespaceSelector"]["matchExpressions"].clone()
    }

    #[test]
    fn a_write_carries_what_others_have_added_and_nothing_of_squelch() {
        let (a, b) = (named(&["a"]), named(&["a", "b"]));
        let theirs = named(&["x", "y"]);
        for (live, own, wanted, expected) in [
            (vec![a.clone(), aks()], Some(vec![a.clone()]), vec![b.clone()], json!([b, aks()])),
            // Twice, and in another order.
            (vec![aks(), a.clone(), aks()], Some(vec![a.clone()]), vec![a.clone()], json!([a, aks()])),
            // Of another replica, also one whose policies select all namespaces.
            (vec![a.clone(), aks()], None, vec![b.clone()], json!([b, aks()])),
            (vec![a.clone(), aks()], None, vec![], json!([aks()])),
            // A list of names that another writer has added, or put in place of squelch's.
            (vec![a.clone(), theirs.clone()], Some(vec![a.clone()]), vec![b.clone()], json!([b, theirs])),
            (vec![theirs.clone()], Some(vec![]), vec![], json!([theirs])),
            (vec![theirs.clone(), aks()], Some(vec![a.clone()]), vec![a.clone()], json!([a, aks()])),
            (vec![a.clone()], Some(vec![a.clone()]), vec![b.clone()], json!([b])),
            // The order of the names has no meaning.
            (vec![named(&["b", "a"]), aks()], Some(vec![b.clone()]), vec![b.clone()], json!([b, aks()])),
        ] {
            assert_eq!(carried(&live, own.as_deref(), &wanted), expected, "{live:?} {own:?}");
        }
    }

    #[test]
    fn labels_are_carried_and_described() {
        let mut live = object(&[named(&["a"]), aks()]);
        live["webhooks"][0]["namespaceSelector"]["matchLabels"] = json!({"team": "x"});
        live["webhooks"][0]["matchConditions"] =
            json!(["not-squelch-itself", "only-squelch-itself", "theirs"].map(|name| json!({"name": name})));
        live["webhooks"][0]["objectSelector"] = json!({"matchLabels": {"a": "b"}});
        let mut wanted = object(&[named(&["a"])]);
        Additions::found(&live, None, &wanted).carry(&mut wanted);
        assert_eq!(wanted["webhooks"][0]["namespaceSelector"]["matchLabels"], json!({"team": "x"}));
        let words = "control-plane DoesNotExist, team=x, only-squelch-itself, theirs, objectSelector";
        assert_eq!(additions_to(&live, EVENTS_ENTRY).unwrap(), words);
        assert_eq!(additions_to(&object(&[named(&["a"])]), EVENTS_ENTRY), None);
        assert_eq!(additions_to(&live, PROBE_ENTRY), None);
    }

    #[test]
    fn a_list_in_place_of_the_own_one_is_evaluated() {
        let (own, live) = (object(&[named(&["a", "b"])]), object(&[named(&["a"])]));
        let requirement: LabelRequirement = serde_json::from_value(named(&["a"])).unwrap();
        let found = Additions::found(&live, Some(&own), &own).restrictions();
        assert_eq!(found, Restrictions::new([requirement], &[]));
        assert_eq!(Additions::found(&live, None, &own).restrictions(), Restrictions::default());
        // An operator of a later version.
        let later = json!({"key": "a", "operator": "Gt", "values": ["1"]});
        let found =
            Additions::found(&object(&[named(&["a", "b"]), later.clone()]), Some(&own), &own).restrictions();
        assert_eq!(found, Restrictions::new([], &[later.to_string()]));
    }
}
