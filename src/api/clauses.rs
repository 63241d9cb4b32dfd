//! `spec.match` and `spec.exempt`: which Events are meant.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]

use kube::KubeSchema;
use kube::core::Rule;
use serde::{Deserialize, Serialize};

use super::texts::{API_GROUP, KIND, NAME, TYPE, WORD, glob_list_rule, glob_rule};

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
    #[x_kube(validation = TYPE.list_rule(), validation = glob_list_rule())]
    pub types: Vec<String>,

    /// The `reason` of the Event, such as BackOff or "Failed*". Globs: `*` stands for any text, `?` for any one
    /// character. At most 32 entries. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_LONG_LIST), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = WORD.list_rule(), validation = glob_list_rule())]
    pub reasons: Vec<String>,

    /// Who reports: the `reportingComponent` of the Event, else its `source.component`, such as kubelet. Any
    /// client can write any name there; `users` cannot be forged. Globs: `*` stands for any text, `?` for any one
    /// character. At most 32 entries. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_LONG_LIST), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = WORD.list_rule(), validation = glob_list_rule())]
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
    #[x_kube(validation = glob_list_rule())]
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
    #[x_kube(validation = KIND.rule(), validation = glob_rule())]
    pub kind: Option<String>,

    /// The API group of the object, such as apps or batch; "" is the core group (Pod, Node, Service). Glob: `*`
    /// stands for any text, `?` for any one character. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 253))]
    #[x_kube(validation = API_GROUP.rule(), validation = glob_rule())]
    pub api_group: Option<String>,

    /// The name of the object. Glob: `*` stands for any text, `?` for any one character. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    #[x_kube(validation = NAME.rule(), validation = glob_rule())]
    pub name: Option<String>,
}

/// The most weight of the texts of `match`, and of those of all entries of `exempt`. It bounds the time in which a
/// policy is selected for a write: three times this weight takes less than 100 us (BENCHMARKS.md).
pub const MOST_WEIGHT: usize = 2048;

/// The weight of a text with more than one wildcard, apart from the characters from the first to the last of them.
pub const SEVERAL_WILDCARDS: usize = 8;

/// Any other text weighs 1, and 1 more for each of this many characters: long exact texts take time to read from memory.
pub const CHARACTERS_OF_WEIGHT_1: usize = 64;

/// The sentence that refuses a `match` or an `exempt` of more weight.
pub const TOO_HEAVY: &str = "comparing its texts takes too long: each weighs 1 and 1 more for every 64 characters, one with several wildcards 8 and its characters from the first wildcard to the last, and the limit is 2048 in all; write exact texts or a single wildcard in each, such as \"Failed*\"";

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

/// The CEL rule on `match`.
pub(super) fn match_weight_rule() -> Rule {
    Rule::new(format!("{} <= {MOST_WEIGHT}", weight("self"))).message(TOO_HEAVY)
}

/// The CEL rule on all entries of `exempt` together.
pub(super) fn exempt_weight_rule() -> Rule {
    Rule::new(format!("self.map(c, {}).sum() <= {MOST_WEIGHT}", weight("c"))).message(TOO_HEAVY)
}

/// The weight of the texts of clauses, as `Glob::weight` counts it.
fn weight(clauses: &str) -> String {
    let several = r"r'(?s)[*?].*[*?]'";
    let text = |text: &str| {
        format!(
            "({text}.matches({several}) ? {SEVERAL_WILDCARDS} + size({text}.find({several})) : 1 + size({text}) / {CHARACTERS_OF_WEIGHT_1})"
        )
    };
    let list = |list: &str, each: String| {
        format!("(has({clauses}.{list}) ? {clauses}.{list}.map(t, {each}).sum() : 0)")
    };
    let fields = ["kind", "apiGroup", "name"].map(|field| {
        let field = format!("t.{field}");
        format!("(has({field}) ? {} : 0)", text(&field))
    });
    let lists = ["types", "reasons", "reportingComponents", "users"].map(|name| list(name, text("t")));
    format!("{} + {}", lists.join(" + "), list("regarding", fields.join(" + ")))
}

fn regarding_rule() -> Rule {
    Rule::new("has(self.kind) || has(self.apiGroup) || has(self.name)").message(EMPTY_REGARDING)
}
