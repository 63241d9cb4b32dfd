//! `spec.namespaceSelector` and `spec.precedence`: what a cluster-scoped policy says beyond a namespaced one.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]

use std::collections::BTreeMap;

use kube::KubeSchema;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::clauses::{MOST_LONG_LIST, MOST_SHORT_LIST};

/// The most bytes of a label's value, and of its key behind the prefix (apimachinery, `util/validation`).
pub const MOST_LABEL: usize = 63;

/// The most bytes of the prefix of a label's key.
pub const MOST_LABEL_PREFIX: usize = 253;

/// Which namespaces a cluster-scoped policy is for: by their labels, as selectors do everywhere in Kubernetes. All that
/// is given must hold.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// Labels that the namespace must have, key and value, such as {team: shop}. At most 16. Each namespace has the
    /// label kubernetes.io/metadata.name with its name. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MOST_SHORT_LIST, "additionalProperties" = label_value()))]
    #[x_kube(validation = Rule::new(format!("self.all(key, {})", label_key("key"))).message(LABEL_KEY))]
    pub match_labels: BTreeMap<String, String>,

    /// Requirements on the labels of the namespace, each of which must hold. At most 16. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SHORT_LIST))]
    pub match_expressions: Vec<LabelRequirement>,
}

impl NamespaceSelector {
    /// Nothing is asked of a namespace: every one is meant.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

/// One requirement on the labels of a namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = values_rule())]
pub struct LabelRequirement {
    /// The key of the label, such as team or example.com/team.
    #[schemars(length(max = MOST_LABEL_PREFIX + 1 + MOST_LABEL))]
    #[x_kube(validation = Rule::new(label_key("self")).message(LABEL_KEY))]
    pub key: String,

    /// `In`: the label has one of `values`. `NotIn`: it has none of them, or is not there. `Exists`: it is there.
    /// `DoesNotExist`: it is not.
    pub operator: LabelOperator,

    /// The values that `In` and `NotIn` are about, from 1 to 32 of them; none with `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_LONG_LIST), extend("items" = label_value()))]
    pub values: Vec<String>,
}

/// `spec.namespaceSelector.matchExpressions[].operator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is not there.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

/// `spec.precedence`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Precedence {
    /// After the namespace's own policies.
    #[default]
    Default,
    /// Before the namespace's own policies.
    Override,
}

/// The sentence that refuses what cannot be the key of a label.
pub const LABEL_KEY: &str = "key must be the key of a label, such as team or example.com/team: at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit, behind an optional DNS name and a slash";

/// The sentence that refuses what cannot be the value of a label.
pub const LABEL_VALUE: &str = "the value of a label has at most 63 letters, digits, -, _ and ., and begins and ends with a letter or digit, such as team-a";

/// The sentence that refuses a requirement whose values do not go with its operator.
pub const LABEL_VALUES: &str = "operators In and NotIn need at least one of values, such as {key: team, operator: In, values: [shop]}; Exists and DoesNotExist take none";

/// An optional DNS subdomain and a slash; then what a value may be, but not empty. (RE2.)
const KEY_PATTERN: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

const VALUE_PATTERN: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";

fn values_rule() -> Rule {
    Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)")
        .message(LABEL_VALUES)
}

/// Whether a text is the key of a label, in CEL.
fn label_key(text: &str) -> String {
    format!("{text}.matches('{KEY_PATTERN}') && {text}.indexOf('/') <= {MOST_LABEL_PREFIX}")
}

/// The schema of a label's value.
fn label_value() -> Value {
    json!({
        "type": "string",
        "maxLength": MOST_LABEL,
        "x-kubernetes-validations": [
            { "rule": format!("self.matches('{VALUE_PATTERN}')"), "message": LABEL_VALUE },
        ],
    })
}
