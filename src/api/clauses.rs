//! `spec.match`, `exclude`, `exempt` and `mute`: lists of clauses that select Events.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]

use kube::KubeSchema;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::texts::{API_GROUP, KIND, NAME, WORD, glob_list_rule, glob_rule};

/// Maximum number of entries in `types`.
pub const MAX_TYPES: usize = 2;

/// Maximum number of entries in `regarding` and in each list of clauses.
pub const MAX_SHORT_LIST: usize = 16;

/// Maximum number of entries in the other lists of globs.
pub const MAX_LONG_LIST: usize = 32;

/// Maximum number of characters of an entry of `messages`.
pub const MAX_MESSAGE: usize = 256;

/// Clauses that select Events. An Event must match every specified list. It matches a list if it matches one of its
/// entries. At least one list is required.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clauses {
    /// Types of the Event: Normal, Warning or both. An Event of any other type, which core/v1 accepts, counts as a Warning.
    /// At most 2 entries. Default: any type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = MAX_TYPES))]
    pub types: Vec<EventType>,

    /// Reasons of the Event, such as BackOff or "Failed*". Globs: `*` matches any text, `?` matches any one character.
    /// At most 32 entries. Default: any reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = MAX_LONG_LIST), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = WORD.list_rule(), validation = glob_list_rule())]
    pub reasons: Vec<String>,

    /// Messages of the Event (`note` in events.k8s.io/v1), such as "*connection refused*". Globs: `*` matches
    /// any text, `?` matches any one character. A text with wildcards is compared with the first 256 bytes of the message,
    /// so that it does not find what comes later. At most 32 entries. Default: any message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = MAX_LONG_LIST), inner(length(min = 1, max = MAX_MESSAGE)))]
    #[x_kube(validation = glob_list_rule())]
    pub messages: Vec<String>,

    /// Components that report the Event, such as kubelet: its `reportingComponent`, or its `source.component` if that is
    /// empty. A client can write any name in these fields. Use `users` to select an authenticated identity. Globs: `*`
    /// matches any text, `?` matches any one character. At most 32 entries. Default: any component.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = MAX_LONG_LIST), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = WORD.list_rule(), validation = glob_list_rule())]
    pub reporting_components: Vec<String>,

    /// Objects that the Event is about (`involvedObject` in core/v1, `regarding` in events.k8s.io/v1). The object must
    /// match one of the entries. At most 16 entries. Default: any object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = MAX_SHORT_LIST))]
    pub regarding: Vec<Regarding>,

    /// Names of the users that write the Event, as authenticated by the API server, such as
    /// system:serviceaccount:ci:builder. Globs: `*` matches any text, `?` matches any one character. At most 32
    /// entries. Default: any user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = MAX_LONG_LIST), inner(length(min = 1, max = 511)))]
    #[x_kube(validation = glob_list_rule())]
    pub users: Vec<String>,
}

impl Clauses {
    /// Whether no clause is specified, so that every Event matches.
    pub fn is_empty(&self) -> bool {
        let Self { types, reasons, messages, reporting_components, regarding, users } = self;
        types.is_empty()
            && reasons.is_empty()
            && messages.is_empty()
            && reporting_components.is_empty()
            && regarding.is_empty()
            && users.is_empty()
    }
}

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EventType {
    /// The type Normal.
    Normal,
    /// The type Warning, and any other type.
    Warning,
}

/// An object that an Event is about. It must match every specified field. At least one field is required.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = regarding_rule())]
pub struct Regarding {
    /// Kind of the object, such as Pod (not pods). Glob: `*` matches any text, `?` matches any one character. Default:
    /// any kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    #[x_kube(validation = KIND.rule(), validation = glob_rule())]
    pub kind: Option<String>,

    /// API group of the object, such as apps or batch. "" is the core group (Pod, Node, Service). Glob: `*` matches any
    /// text, `?` matches any one character. Default: any group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 253))]
    #[x_kube(validation = API_GROUP.rule(), validation = glob_rule())]
    pub api_group: Option<String>,

    /// Name of the object. Glob: `*` matches any text, `?` matches any one character. Default: any name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    #[x_kube(validation = NAME.rule(), validation = glob_rule())]
    pub name: Option<String>,
}

/// Maximum total weight of the texts in `match` and `exclude`, of those in `exempt`, and of those in `mute`. It bounds the
/// time to select the policy for a write: four times this weight takes less than 100 us (docs/benchmarks/results.md).
pub const MAX_WEIGHT: usize = 2048;

/// Base weight of a text with more than one wildcard. Each character from the first to the last wildcard adds 1.
pub const MULTI_WILDCARD_WEIGHT: usize = 8;

/// Number of characters that add 1 to the base weight 1 of any other text. Long exact texts take time to read from
/// memory.
pub const CHARACTERS_PER_WEIGHT: usize = 64;

/// Message for texts above [`MAX_WEIGHT`].
pub const TOO_HEAVY: &str = "the texts have a total weight above 2048. A text weighs 1, plus 1 for each 64 characters; a text with more than one wildcard weighs 8, plus 1 for each character from the first wildcard to the last. Use exact texts or one wildcard in each, such as \"Failed*\"";

/// Message for an entry without a clause in a list of clauses.
pub const EMPTY_ENTRY: &str =
    "an entry needs at least one clause, such as {types: [Normal]}; an empty entry would select every Event";

/// Message for an entry of `regarding` without a field.
pub const EMPTY_REGARDING: &str =
    "an entry of regarding needs at least one of kind, apiGroup and name, such as {kind: Pod}";

/// Message for a `mute` clause that names Warning in a policy that never drops Warnings.
pub const MUTED_WARNINGS: &str = "mute can name the type Warning only with warningPolicy: Limit; by default squelch drops no Warning. Remove Warning from types, such as {types: [Normal]}, or set warningPolicy: Limit";

/// The CEL rule against empty entries in a list of clauses, which would match every Event.
pub(super) fn entries_rule() -> Rule {
    let given = ["types", "reasons", "messages", "reportingComponents", "regarding", "users"]
        .map(|list| format!("has(c.{list})"))
        .join(" || ");
    Rule::new(format!("self.all(c, {given})")).message(EMPTY_ENTRY)
}

/// The CEL rule on the weight of a list of clauses.
pub(super) fn weight_rule() -> Rule {
    Rule::new(format!("{} <= {MAX_WEIGHT}", total_weight("self"))).message(TOO_HEAVY)
}

/// The CEL rule on the weight of `match` and `exclude` together.
pub(super) fn selection_weight_rule() -> Rule {
    let of_list = |list: &str| format!("(has(self.{list}) ? {} : 0)", total_weight(&format!("self.{list}")));
    Rule::new(format!("{} + {} <= {MAX_WEIGHT}", of_list("match"), of_list("exclude"))).message(TOO_HEAVY)
}

/// The CEL rule against `mute` clauses for Warnings that have no effect.
pub(super) fn muted_warnings_rule() -> Rule {
    let rule = "self.warningPolicy == 'Limit' || !has(self.mute) || \
                !self.mute.exists(c, has(c.types) && c.types.exists(t, t == 'Warning'))";
    Rule::new(rule).message(MUTED_WARNINGS)
}

fn total_weight(list: &str) -> String {
    format!("{list}.map(c, {}).sum()", weight("c"))
}

/// Returns the CEL expression for the weight of clauses, equal to `Glob::weight`.
fn weight(clauses: &str) -> String {
    let several = r"r'(?s)[*?].*[*?]'";
    let text = |text: &str| {
        format!(
            "({text}.matches({several}) ? {MULTI_WILDCARD_WEIGHT} + size({text}.find({several})) : 1 + size({text}) / {CHARACTERS_PER_WEIGHT})"
        )
    };
    let list = |list: &str, each: String| {
        format!("(has({clauses}.{list}) ? {clauses}.{list}.map(t, {each}).sum() : 0)")
    };
    let fields = ["kind", "apiGroup", "name"].map(|field| {
        let field = format!("t.{field}");
        format!("(has({field}) ? {} : 0)", text(&field))
    });
    let lists = ["reasons", "messages", "reportingComponents", "users"].map(|name| list(name, text("t")));
    format!("{} + {}", lists.join(" + "), list("regarding", fields.join(" + ")))
}

fn regarding_rule() -> Rule {
    Rule::new("has(self.kind) || has(self.apiGroup) || has(self.name)").message(EMPTY_REGARDING)
}
