//! `spec.namespaceSelector`, compiled.

use std::collections::BTreeMap;

use crate::api::{self, LabelOperator};

use super::Invalid;
use super::clauses::bounded;

/// The labels of a namespace.
pub type Labels = BTreeMap<String, String>;

/// A selector of namespaces by their labels. A namespace must meet every requirement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    requirements: Box<[Requirement]>,
}

/// A requirement on the labels of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Requirement {
    key: Box<str>,
    operator: LabelOperator,
    values: Box<[Box<str>]>,
}

impl Selector {
    pub(super) fn compile(selector: &api::NamespaceSelector) -> Result<Self, Invalid> {
        let api::NamespaceSelector { match_labels, match_expressions } = selector;
        let path = "spec.namespaceSelector.matchLabels";
        if match_labels.len() > api::MAX_SHORT_LIST {
            let max = api::MAX_SHORT_LIST;
            return Err(Invalid::new(path, &format!("must have at most {max} labels")));
        }
        let labels = match_labels.iter().map(|(key, value)| Requirement::label(key, value, path));
        let path = "spec.namespaceSelector.matchExpressions";
        bounded(match_expressions, api::MAX_SHORT_LIST, path)?;
        let entries = match_expressions.iter().enumerate();
        let expressions = entries.map(|(at, entry)| Requirement::expression(entry, &format!("{path}[{at}]")));
        Ok(Self { requirements: labels.chain(expressions).collect::<Result<_, _>>()? })
    }

    pub(super) fn selects(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(labels))
    }

    /// Whether it selects all namespaces.
    pub(super) fn selects_all(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    fn label(key: &str, value: &str, path: &str) -> Result<Self, Invalid> {
        check_key(key, path)?;
        check_value(value, &format!("{path}.{key}"))?;
        Ok(Self { key: key.into(), operator: LabelOperator::In, values: [value.into()].into() })
    }

    fn expression(entry: &api::LabelRequirement, path: &str) -> Result<Self, Invalid> {
        let api::LabelRequirement { key, operator, values } = entry;
        check_key(key, &format!("{path}.key"))?;
        let of_values = matches!(operator, LabelOperator::In | LabelOperator::NotIn);
        if of_values == values.is_empty() {
            return Err(Invalid::new(path, api::LABEL_VALUES));
        }
        let path = format!("{path}.values");
        bounded(values, api::MAX_LONG_LIST, &path)?;
        for (at, value) in values.iter().enumerate() {
            check_value(value, &format!("{path}[{at}]"))?;
        }
        Ok(Self::from(entry))
    }

    /// Whether labels meet it. As in other selectors of Kubernetes, `NotIn` holds if the label is missing.
    pub(in crate::policy) fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&*self.key);
        let listed = || value.is_some_and(|value| self.values.iter().any(|listed| **listed == **value));
        match self.operator {
            LabelOperator::In => listed(),
            LabelOperator::NotIn => !listed(),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
        }
    }
}

/// Without the limits of policies: the API server has validated it.
impl From<&api::LabelRequirement> for Requirement {
    fn from(entry: &api::LabelRequirement) -> Self {
        let values = entry.values.iter().map(|value| value.as_str().into()).collect();
        Self { key: entry.key.as_str().into(), operator: entry.operator, values }
    }
}

fn check_key(key: &str, path: &str) -> Result<(), Invalid> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_is_valid = prefix.is_none_or(|prefix| {
        let part = |part: &str| {
            let legal = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            bounded_by(part, legal) && part.bytes().all(|byte| legal(&byte) || byte == b'-')
        };
        prefix.len() <= api::MAX_LABEL_PREFIX_LENGTH && prefix.split('.').all(part)
    });
    if prefix_is_valid && !name.is_empty() && is_value(name) {
        return Ok(());
    }
    Err(Invalid::new(path, api::LABEL_KEY))
}

fn check_value(value: &str, path: &str) -> Result<(), Invalid> {
    if is_value(value) { Ok(()) } else { Err(Invalid::new(path, api::LABEL_VALUE)) }
}

fn is_value(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.is_empty()
        || text.len() <= api::MAX_LABEL_LENGTH
            && bounded_by(text, u8::is_ascii_alphanumeric)
            && text.bytes().all(inside)
}

/// Whether the text is not empty, and its first and last bytes are legal.
fn bounded_by(text: &str, legal: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(&legal) && bytes.last().is_some_and(&legal)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selector(selector: Value) -> Result<Selector, String> {
        Selector::compile(&serde_json::from_value(selector).unwrap()).map_err(|invalid| invalid.to_string())
    }

    fn selects(requirement: &Value, labels: &Labels) -> bool {
        selector(json!({"matchExpressions": [requirement]})).unwrap().selects(labels)
    }

    fn labels(labels: &[(&str, &str)]) -> Labels {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_empty_selector_selects_all_namespaces() {
        let selector = selector(json!({})).unwrap();
        assert!(selector.selects_all() && selector.selects(&labels(&[])));
    }

    #[test]
    fn operators_have_the_semantics_of_kubernetes() {
        let without = labels(&[]);
        let shop = labels(&[("team", "shop")]);
        let other = labels(&[("team", "other")]);
        for (operator, values, on_without, on_shop, on_other) in [
            ("In", json!(["shop", "bank"]), false, true, false),
            ("NotIn", json!(["shop", "bank"]), true, false, true),
            ("Exists", json!([]), false, true, true),
            ("DoesNotExist", json!([]), true, false, false),
            ("In", json!([""]), false, false, false),
        ] {
            let requirement = json!({"key": "team", "operator": operator, "values": values});
            for (labels, expected) in [(&without, on_without), (&shop, on_shop), (&other, on_other)] {
                assert_eq!(selects(&requirement, labels), expected, "{requirement} on {labels:?}");
            }
        }
    }

    #[test]
    fn a_namespace_must_meet_every_requirement() {
        let both = selector(json!({
            "matchLabels": {"team": "shop", "stage": "test"},
            "matchExpressions": [{"key": "legacy", "operator": "DoesNotExist"}],
        }))
        .unwrap();
        let mut all = labels(&[("team", "shop"), ("stage", "test")]);
        assert!(both.selects(&all) && !both.selects_all());
        all.insert("legacy".to_owned(), String::new());
        assert!(!both.selects(&all));
        assert!(!both.selects(&labels(&[("team", "shop")])));
    }

    #[test]
    fn invalid_label_keys_and_values_are_rejected() {
        let key = |key: &str| selector(json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}));
        let long = |length| "x".repeat(length);
        for good in ["a", "A-b_c.D", "example.com/team", "a-1.b2/x", &long(63)] {
            assert!(key(good).is_ok(), "{good}");
        }
        let slash = format!("{}/x", long(254));
        for bad in ["", "-a", "a.", "a b", "ä", "/x", "x/", "a/b/c", "A.com/x", "a..b/x", &slash, &long(64)]
        {
            let error = key(bad).unwrap_err();
            assert!(error.starts_with("spec.namespaceSelector.matchExpressions[0].key: key must"), "{bad}");
        }
        assert!(selector(json!({"matchLabels": {"team": ""}})).is_ok());
        let error = selector(json!({"matchLabels": {"team": "my shop"}})).unwrap_err();
        assert!(error.starts_with("spec.namespaceSelector.matchLabels.team: a label value"), "{error}");
        let error = selector(json!({"matchLabels": {"my team": "shop"}})).unwrap_err();
        assert!(error.starts_with("spec.namespaceSelector.matchLabels: key must"), "{error}");
    }

    #[test]
    fn the_lengths_of_lists_are_limited() {
        let many: Labels = (0..17).map(|at| (format!("k{at}"), String::new())).collect();
        assert!(selector(json!({"matchLabels": many})).unwrap_err().contains("at most 16"));
        let requirement = json!({"key": "team", "operator": "Exists"});
        let error = selector(json!({"matchExpressions": vec![requirement; 17]})).unwrap_err();
        assert!(error.contains("matchExpressions: must have at most 16"), "{error}");
        let values = vec!["x"; 33];
        let requirement = json!({"key": "team", "operator": "In", "values": values});
        let error = selector(json!({"matchExpressions": [requirement]})).unwrap_err();
        assert!(error.contains("matchExpressions[0].values: must have at most 32"), "{error}");
    }
}
