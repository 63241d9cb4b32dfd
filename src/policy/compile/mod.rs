//! Compiles the spec of a policy to the rules of the engine.
//!
//! It repeats all checks of the CRD, since an object can be stored under an older CRD. No later step uses the spec.

mod clauses;
mod partial;
mod selector;
mod stages;

use std::sync::Arc;

use squelch_engine::{
    Exported, Mask, Mode, Observation, PolicyId, Rejection, Rules, Treatment, WarningPolicy, sanitise,
};

use crate::api::{self, ClusterEventPolicySpec, EventPolicySpec, EventType, Precedence};

use clauses::Clauses;
pub(super) use clauses::condition::ALWAYS;
pub(super) use selector::Requirement;
use selector::Selector;

pub use clauses::known::{Certainty, KnownFields};
pub use partial::PartialMatch;
pub use selector::Labels;

/// Maximum size of a message about an invalid policy in bytes. It quotes text of the tenant.
const MAX_MESSAGE_BYTES: usize = 512;

/// A compiled policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The rules for the engine.
    pub rules: Rules,
    /// `spec.priority`.
    pub priority: i32,
    /// Tier of precedence.
    pub tier: Tier,
    /// Weight of `spec.match` and `spec.exclude`, which bounds the cost of selecting the policy.
    pub weight: usize,
    /// For each entry of `spec.match` a condition in CEL, of which one holds for every write that the policy governs.
    pub(super) conditions: Box<[Arc<str>]>,
    /// Never empty.
    matching: Box<[Clauses]>,
    exclude: Box<[Clauses]>,
    exempt: Box<[Clauses]>,
    mute: Box<[Clauses]>,
    namespaces: Selector,
}

/// Tiers of precedence, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// `ClusterEventPolicies` with `precedence: Override`.
    Override,
    /// The `EventPolicies` of the namespace.
    Namespace,
    /// `ClusterEventPolicies` with `precedence: Default`.
    Default,
}

impl Compiled {
    /// Whether the write matches an entry of `spec.match` and none of `spec.exclude`.
    pub fn governs(&self, write: &Observation<'_>) -> bool {
        one_holds(&self.matching, write) && !one_holds(&self.exclude, write)
    }

    /// Returns what the policy does with a write that it governs.
    pub fn treatment(&self, write: &Observation<'_>) -> Treatment {
        if one_holds(&self.exempt, write) {
            Treatment::Exempt
        } else if one_holds(&self.mute, write) {
            Treatment::Mute
        } else {
            Treatment::Stages
        }
    }

    /// Whether all stages are disabled and nothing is muted.
    pub fn suppresses_nothing(&self) -> bool {
        let Rules {
            policy: _,
            mode: _,
            warning_policy: _,
            normalize: _,
            max_message_bytes: _,
            rejection: _,
            export: _,
            series,
            aggregation,
            spam_filter,
            budget,
        } = &self.rules;
        let has_stage =
            series.is_some() || aggregation.is_some() || spam_filter.is_some() || budget.is_some();
        !has_stage && self.mute.is_empty()
    }

    /// Whether `spec.namespaceSelector` selects a namespace with these labels.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.namespaces.selects(labels)
    }

    /// Whether `spec.namespaceSelector` is empty and selects all namespaces.
    pub fn selects_all(&self) -> bool {
        self.namespaces.selects_all()
    }

    /// Whether `earlier` policies together are known to govern every write that this one matches. Decrements `comparisons`
    /// for each comparison, and returns false when it reaches 0. What a policy with `exclude` governs is not known.
    pub fn is_covered_by(&self, earlier: &[&Self], comparisons: &mut usize) -> bool {
        let earlier = earlier.iter().filter(|policy| policy.exclude.is_empty());
        let earlier: Vec<_> = earlier.flat_map(|policy| &policy.matching).collect();
        self.matching.iter().all(|clauses| clauses.are_covered_by(&earlier, comparisons))
    }

    /// Whether it governs all writes of a namespace.
    pub fn governs_all(&self) -> bool {
        self.exclude.is_empty() && self.matching.iter().any(Clauses::always_hold)
    }
}

/// An invalid field of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Invalid {
    /// Path of the field, such as `spec.series.idleTimeout`.
    pub field: String,
    /// Message for the author of the policy, at most 512 bytes, without control characters.
    pub message: String,
    /// The kind of mistake.
    pub kind: InvalidKind,
}

/// The kinds of invalid fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidKind {
    /// The value breaks a rule.
    Value,
    /// This version does not know the field.
    UnknownField,
    /// This version does not know the value of an enum.
    UnknownValue,
}

impl Invalid {
    /// Truncates and sanitises the message, which can quote text of a tenant.
    pub(super) fn new(field: impl Into<String>, message: &str) -> Self {
        let truncated = &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)];
        let message = truncated.chars().map(sanitise).collect();
        Self { field: field.into(), message, kind: InvalidKind::Value }
    }

    /// An error of deserialization.
    pub(super) fn unparsed(field: impl Into<String>, error: &str) -> Self {
        let is_unknown = error.starts_with("unknown variant");
        let kind = if is_unknown { InvalidKind::UnknownValue } else { InvalidKind::Value };
        Self { kind, ..Self::new(field, &format!("cannot be parsed: {error}")) }
    }

    /// A field that only a newer version knows.
    pub(super) fn unknown_field(field: String) -> Self {
        let message = "this version of squelch does not know the field; upgrade squelch, or remove the field";
        Self { kind: InvalidKind::UnknownField, ..Self::new(field, message) }
    }
}

/// Compiles the spec of a cluster-scoped policy. The error is the first invalid field.
pub fn compile_cluster(policy: PolicyId, spec: &ClusterEventPolicySpec) -> Result<Compiled, Invalid> {
    let tier = match spec.precedence {
        Precedence::Override => Tier::Override,
        Precedence::Default => Tier::Default,
    };
    let namespaces = Selector::compile(&spec.namespace_selector)?;
    Ok(Compiled { tier, namespaces, ..compile(policy, &spec.policy)? })
}

/// Compiles the spec of a namespaced policy. The error is the first invalid field.
pub fn compile(policy: PolicyId, spec: &EventPolicySpec) -> Result<Compiled, Invalid> {
    let list = |list, field: &str| Clauses::compile_list(list, &format!("spec.{field}"));
    let (matching, exclude) = (list(&spec.matching, "match")?, list(&spec.exclude, "exclude")?);
    let (exempt, mute) = (list(&spec.exempt, "exempt")?, list(&spec.mute, "mute")?);
    let weight = |list: &[Clauses]| list.iter().map(Clauses::weight).sum::<usize>();
    for (list, field) in [(&exempt, "spec.exempt"), (&mute, "spec.mute")] {
        check_weight(weight(list), field)?;
    }
    let names_warnings = spec.mute.iter().any(|clauses| clauses.types.contains(&EventType::Warning));
    if names_warnings && spec.warning_policy == api::WarningPolicy::NeverDrop {
        return Err(Invalid::new("spec.mute", api::MUTED_WARNINGS));
    }
    let weight_of_match = check_weight(weight(&matching) + weight(&exclude), "spec.match")?;
    let matching = if matching.is_empty() { [Clauses::of_every_write()].into() } else { matching };
    Ok(Compiled {
        weight: weight_of_match,
        conditions: matching.iter().map(|clauses| clauses.condition().into()).collect(),
        matching,
        exclude,
        exempt,
        mute,
        priority: priority(spec.priority)?,
        tier: Tier::Namespace,
        namespaces: Selector::default(),
        rules: Rules {
            policy,
            mode: match spec.mode {
                api::Mode::Enforce => Mode::Enforce,
                api::Mode::Observe => Mode::Observe,
            },
            warning_policy: match spec.warning_policy {
                api::WarningPolicy::NeverDrop => WarningPolicy::NeverDrop,
                api::WarningPolicy::Limit => WarningPolicy::Limit,
            },
            normalize: spec.normalize.iter().map(mask).collect(),
            max_message_bytes: stages::max_message_bytes(spec.max_message_bytes)?,
            series: stages::series(&spec.series)?,
            aggregation: stages::aggregation(&spec.aggregation)?,
            spam_filter: stages::spam_filter(&spec.spam_filter)?,
            budget: stages::budget(spec.budget.as_ref())?,
            rejection: match spec.rejection {
                api::Rejection::AlreadyExists => Rejection::AlreadyExists,
                api::Rejection::Forbidden => Rejection::Forbidden,
            },
            export: match spec.export.include {
                api::ExportInclude::None => Exported::None,
                api::ExportInclude::Dropped => Exported::Dropped,
                api::ExportInclude::Suppressed => Exported::Suppressed,
                api::ExportInclude::All => Exported::All,
            },
        },
    })
}

fn one_holds(list: &[Clauses], write: &Observation<'_>) -> bool {
    list.iter().any(|clauses| clauses.hold(write))
}

fn mask(mask: &api::Mask) -> Mask {
    match mask {
        api::Mask::Durations => Mask::Durations,
        api::Mask::Numbers => Mask::Numbers,
        api::Mask::Uuids => Mask::Uuids,
        api::Mask::Hashes => Mask::Hashes,
        api::Mask::Ips => Mask::Ips,
        api::Mask::Quantities => Mask::Quantities,
        api::Mask::ObjectNames => Mask::ObjectNames,
    }
}

fn check_weight(weight: usize, path: &str) -> Result<usize, Invalid> {
    if weight <= api::MAX_WEIGHT { Ok(weight) } else { Err(Invalid::new(path, api::TOO_HEAVY)) }
}

fn priority(priority: i32) -> Result<i32, Invalid> {
    let max = api::MAX_PRIORITY;
    if (-max..=max).contains(&priority) {
        return Ok(priority);
    }
    Err(Invalid::new("spec.priority", &format!("priority must be between -{max} and {max}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::fixtures::{self, event};

    fn compiled(spec: Value) -> Result<Compiled, Invalid> {
        compile(fixtures::id("ci", "p"), &serde_json::from_value(spec).unwrap())
    }

    fn invalid(spec: Value) -> String {
        compiled(spec).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_spec_has_every_default() {
        let policy = compiled(json!({})).unwrap();
        assert_eq!(policy.rules.mode, Mode::Enforce);
        assert_eq!(policy.rules.rejection, Rejection::AlreadyExists);
        assert_eq!(policy.priority, 0);
        assert!(policy.governs(&event()) && policy.governs_all());
        assert!(policy.treatment(&event()) == Treatment::Stages);
    }

    #[test]
    fn a_policy_with_all_stages_disabled_governs() {
        let off = json!({ "mode": "Disabled" });
        let policy = compiled(json!({"series": off, "aggregation": off, "spamFilter": off})).unwrap();
        let Rules { series, aggregation, spam_filter, budget, .. } = &policy.rules;
        assert!(series.is_none() && aggregation.is_none() && spam_filter.is_none() && budget.is_none());
        assert!(policy.governs(&event()));
    }

    #[test]
    fn invalid_fields_stored_under_an_older_crd_are_rejected() {
        assert_eq!(
            invalid(json!({"priority": 100_001})),
            "spec.priority: priority must be between -100000 and 100000"
        );
        assert!(
            invalid(json!({"match": [{"users": [""]}]}))
                .starts_with("spec.match[0].users[0]: must not be empty")
        );
        assert!(
            invalid(json!({"exempt": [{"types": ["Normal", "Normal", "Warning"]}]}))
                .starts_with("spec.exempt[0].types: must have at most 2")
        );
        assert!(
            invalid(json!({"match": [{"types": ["Normal"]}, {"regarding": [{"kind": "pods"}]}]}))
                .starts_with("spec.match[1].regarding[0].kind: kind must be")
        );
        assert!(invalid(json!({"exempt": [{"types": ["Normal"]}, {}]})).starts_with("spec.exempt: an entry"));
        assert!(
            invalid(json!({"exempt": [{"regarding": [{"kind": "Pod"}, {}]}]}))
                .starts_with("spec.exempt[0].regarding[1]: an entry of regarding")
        );
        assert!(
            invalid(json!({"exclude": [{"reasons": vec!["x"; 33]}]}))
                .starts_with("spec.exclude[0].reasons: must have")
        );
        assert!(
            invalid(json!({"mute": [{"users": ["ci", format!("*{}", "x".repeat(128))]}]}))
                .starts_with("spec.mute[0].users[1]: a text with wildcards")
        );
        assert!(
            invalid(json!({"exempt": [{"regarding": [{"name": "*a*b*c*d*e*f*g*h*i"}]}]}))
                .starts_with("spec.exempt[0].regarding[0].name: a text with wildcards")
        );
    }

    #[test]
    fn the_weights_of_match_and_exempt_are_limited_to_2048() {
        let of_136 = format!("*{}*", "x".repeat(126));
        let clauses = |heavy: usize, light: usize| {
            let (heavy, light) = (vec![of_136.clone(); heavy], vec!["x"; light]);
            json!({"reasons": heavy, "users": light, "regarding": [{"kind": "Pod", "name": "a?b"}]})
        };
        assert_eq!(compiled(json!({"match": [clauses(15, 6)]})).unwrap().weight, 2048);
        assert!(
            invalid(json!({"match": [clauses(15, 6)], "exclude": [{"messages": ["x"]}]}))
                .starts_with("spec.match: the texts have a total weight")
        );
        let halves = |light| json!({"exempt": [clauses(15, light), {"reasons": ["x"]}]});
        assert_eq!(compiled(halves(5)).unwrap().weight, 0);
        assert!(invalid(halves(6)).starts_with("spec.exempt: the texts have a total weight"));
    }

    #[test]
    fn a_message_is_truncated_and_sanitised() {
        let invalid = Invalid::new("spec", &format!("a\u{1b}[31m\n{}", "ä".repeat(1000)));
        assert!(invalid.message.len() <= MAX_MESSAGE_BYTES);
        assert!(invalid.message.starts_with("a [31m ä"));
    }

    #[test]
    fn a_write_must_match_every_specified_clause() {
        let holds = |clauses: Value| compiled(json!({"match": [clauses]})).unwrap().governs(&event());
        // The fixture: Warning BackOff of Pod batch-1, by kubelet as system:node:n1.
        assert!(holds(json!({"types": ["Warning"], "reasons": ["Failed*", "Back*"]})));
        assert!(!holds(json!({"types": ["Normal"], "reasons": ["BackOff"]})));
        assert!(holds(json!({"types": ["Normal", "Warning"]})));
        assert!(holds(json!({"reportingComponents": ["kubelet"]})));
        assert!(!holds(json!({"reportingComponents": ["scheduler"]})));
        assert!(holds(json!({"users": ["system:node:*"]})));
        assert!(!holds(json!({"users": ["system:serviceaccount:*"]})));
        assert!(holds(json!({"regarding": [{"kind": "Pod", "apiGroup": "", "name": "batch-*"}]})));
        assert!(holds(json!({"regarding": [{"kind": "Node"}, {"name": "batch-?"}]})));
        assert!(!holds(json!({"regarding": [{"kind": "Pod", "apiGroup": "apps"}]})));
        assert!(!holds(json!({"regarding": [{"kind": "Node", "name": "batch-*"}]})));
    }

    #[test]
    fn a_missing_api_group_matches_any_group_and_an_empty_one_core() {
        let mut write = event();
        write.event.regarding.api_version = "apps/v1".into();
        let holds =
            |clauses: Value| compiled(json!({"match": [{"regarding": [clauses]}]})).unwrap().governs(&write);
        assert!(holds(json!({"kind": "Pod"})));
        assert!(holds(json!({"apiGroup": "apps"})));
        assert!(holds(json!({"apiGroup": "*"})));
        assert!(!holds(json!({"apiGroup": ""})));
    }

    #[test]
    fn the_source_component_is_matched_if_the_reporting_component_is_empty() {
        let mut write = event();
        write.event.source_component = "old-kubelet".into();
        let by = |component: &str, write: &Observation<'_>| {
            compiled(json!({"match": [{"reportingComponents": [component]}]})).unwrap().governs(write)
        };
        assert!(!by("old-kubelet", &write));
        write.event.reporting_component = "".into();
        assert!(by("old-kubelet", &write));
    }

    #[test]
    fn a_policy_governs_its_exempt_writes() {
        let policy = compiled(json!({"exempt": [{"types": ["Warning"]}]})).unwrap();
        assert!(policy.governs(&event()) && policy.treatment(&event()) == Treatment::Exempt);
        let policy = compiled(json!({"exempt": [{"types": ["Warning"], "reasons": ["Failed"]}]})).unwrap();
        assert!(policy.treatment(&event()) == Treatment::Stages);
    }
}
