//! `spec.match` and `spec.exempt`: which Events are meant.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]

use kube::KubeSchema;
use kube::core::Rule;
use serde::{Deserialize, Serialize};

use super::texts::{API_GROUP, KIND, NAME, TYPE, WORD};

/// The most entries of `types`, `regarding` and `exempt`.
pub const MOST_SHORT_LIST: usize = 16;

/// The most entries of the other lists of globs.
pub const MOST_LONG_LIST: usize = 32;

/// Which Events are meant: all clauses that are given must hold, and a list holds if one of its entries does.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clauses {
    /// The `type` of the Event, such as Normal or Warning. Globs: `*` stands for any text, `?` for any one
    /// character. At most 16 entries. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SHORT_LIST), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = TYPE.list_rule())]
    pub types: Vec<String>,

    /// The `reason` of the Event, such as BackOff or "Failed*". Globs: `*` stands for any text, `?` for any one
    /// character. At most 32 entries. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_LONG_LIST), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = WORD.list_rule())]
    pub reasons: Vec<String>,

    /// Who reports: the `reportingComponent` of the Event, else its `source.component`, such as kubelet. Any
    /// client can write any name there; `users` cannot be forged. Globs: `*` stands for any text, `?` for any one
    /// character. At most 32 entries. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_LONG_LIST), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = WORD.list_rule())]
    pub reporting_components: Vec<String>,

    /// What the Event is about (`involvedObject`). At most 16 entries; one of them must describe the object.
    /// Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SHORT_LIST))]
    pub regarding: Vec<Regarding>,

    /// The user that writes the Event, as the API server authenticated it, such as
    /// system:serviceaccount:ci:builder. Globs: `*` stands for any text, `?` for any one character. At most 32
    /// entries. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_LONG_LIST), inner(length(min = 1, max = 511)))]
    pub users: Vec<String>,
}

impl Clauses {
    /// No clause is given: every Event is meant.
    pub fn is_empty(&self) -> bool {
        let Self { types, reasons, reporting_components, regarding, users } = self;
        types.is_empty()
            && reasons.is_empty()
            && reporting_components.is_empty()
            && regarding.is_empty()
            && users.is_empty()
    }
}

/// An object that an Event is about: all fields that are given must hold, and at least one must be given.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = regarding_rule())]
pub struct Regarding {
    /// The kind of the object, such as Pod (not pods). Glob: `*` stands for any text, `?` for any one character.
    /// Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    #[x_kube(validation = KIND.rule())]
    pub kind: Option<String>,

    /// The API group of the object, such as apps or batch; "" is the core group (Pod, Node, Service). Glob: `*`
    /// stands for any text, `?` for any one character. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 253))]
    #[x_kube(validation = API_GROUP.rule())]
    pub api_group: Option<String>,

    /// The name of the object. Glob: `*` stands for any text, `?` for any one character. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    #[x_kube(validation = NAME.rule())]
    pub name: Option<String>,
}

/// The sentence that refuses an entry of `exempt` without a clause.
pub const EMPTY_EXEMPT: &str = "an entry of exempt needs at least one clause, such as {types: [Warning]}; an empty one would exempt every Event";

/// The sentence that refuses an entry of `regarding` without a field.
pub const EMPTY_REGARDING: &str =
    "an entry of regarding needs at least one of kind, apiGroup and name, such as {kind: Pod}";

/// An empty clause matches everything; in `exempt` that can only be a mistake.
pub(super) fn exempt_rule() -> Rule {
    let given = ["types", "reasons", "reportingComponents", "regarding", "users"]
        .map(|list| format!("(has(c.{list}) && size(c.{list}) > 0)"))
        .join(" || ");
    Rule::new(format!("self.all(c, {given})")).message(EMPTY_EXEMPT)
}

fn regarding_rule() -> Rule {
    Rule::new("has(self.kind) || has(self.apiGroup) || has(self.name)").message(EMPTY_REGARDING)
}
