//! `spec.namespaceSelector` and `spec.precedence`: the fields that only cluster-scoped policies have.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]

use std::collections::BTreeMap;

use kube::KubeSchema;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::clauses::{MAX_LONG_LIST, MAX_SHORT_LIST};

/// Maximum length in bytes of a label's value, and of its key after the prefix (apimachinery, `util/validation`).
pub const MAX_LABEL_LENGTH: usize = 63;

/// Maximum length in bytes of the prefix of a label's key.
pub const MAX_LABEL_PREFIX_LENGTH: usize = 253;

/// A label selector for namespaces. A namespace must match `matchLabels` and `matchExpressions`. An empty selector selects
/// all namespaces.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// Labels that the namespace must have, such as {team: shop}. Kubernetes sets the label kubernetes.io/metadata.name of
    /// each namespace to its name. At most 16 labels. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_SHORT_LIST, "additionalProperties" = label_value()))]
    #[x_kube(validation = Rule::new(format!("self.all(key, {})", label_key("key"))).message(LABEL_KEY))]
    pub match_labels: BTreeMap<String, String>,

    /// Requirements on the labels of the namespace. The namespace must meet all of them. To leave out a namespace, use key
    /// kubernetes.io/metadata.name, operator NotIn and its name in values. At most 16 entries. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_SHORT_LIST))]
    pub match_expressions: Vec<LabelRequirement>,
}

impl NamespaceSelector {
    /// Whether the selector has no requirements, so that it selects all namespaces.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

/// A requirement on the labels of a namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = values_rule())]
pub struct LabelRequirement {
    /// Key of the label, such as team or example.com/team.
    #[schemars(length(max = MAX_LABEL_PREFIX_LENGTH + 1 + MAX_LABEL_LENGTH))]
    #[x_kube(validation = Rule::new(label_key("self")).message(LABEL_KEY))]
    pub key: String,

    /// Relation of the label to `values`. `In`: the value of the label is one of them. `NotIn`: its value is none of
    /// them, or the namespace does not have the label. `Exists`: the namespace has the label. `DoesNotExist`: the namespace
    /// does not have the label.
    pub operator: LabelOperator,

    /// Values for the operators `In` and `NotIn`: 1 to 32 entries. Must be empty for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_LONG_LIST), extend("items" = label_value()))]
    pub values: Vec<String>,
}

/// `spec.namespaceSelector.matchExpressions[].operator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// The value of the label is one of `values`.
    In,
    /// The value of the label is none of `values`, or the label is missing.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is missing.
    DoesNotExist,
}

/// `spec.precedence`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Precedence {
    /// After the EventPolicies of the namespace.
    #[default]
    Default,
    /// Before the EventPolicies of the namespace.
    Override,
}

/// Message for an invalid label key.
pub const LABEL_KEY: &str = "key must be a label key, such as team or example.com/team: an optional DNS subdomain and slash, then at most 63 letters, digits, -, _ and ., with a letter or digit at both ends";

/// Message for an invalid label value.
pub const LABEL_VALUE: &str = "a label value must be empty or have at most 63 letters, digits, -, _ and ., with a letter or digit at both ends, such as team-a";

/// Message for a requirement whose values do not fit its operator.
pub const LABEL_VALUES: &str = "operators In and NotIn need at least one entry in values, such as {key: team, operator: In, values: [shop]}; Exists and DoesNotExist need an empty list";

/// RE2 pattern of a label key: an optional DNS subdomain with a slash, then a nonempty label value.
const KEY_PATTERN: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

const VALUE_PATTERN: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";

fn values_rule() -> Rule {
    Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)")
        .message(LABEL_VALUES)
}

/// Returns the CEL expression that tests whether a text is a label key.
fn label_key(text: &str) -> String {
    format!("{text}.matches('{KEY_PATTERN}') && {text}.indexOf('/') <= {MAX_LABEL_PREFIX_LENGTH}")
}

/// The schema of a label value.
fn label_value() -> Value {
    json!({
        "type": "string",
        "maxLength": MAX_LABEL_LENGTH,
        "x-kubernetes-validations": [
            { "rule": format!("self.matches('{VALUE_PATTERN}')"), "message": LABEL_VALUE },
        ],
    })
}
