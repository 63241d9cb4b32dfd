//! From what a user wrote to what the engine needs.
//!
//! Everything is checked again although the CRD checks it: an object may have reached etcd under an older CRD.
//! Nothing after this sees the raw spec.

mod clauses;
mod selector;
mod stages;

use squelch_engine::{Mode, Observation, PolicyId, Rejection, Rules, sanitise};

use crate::api::{self, ClusterEventPolicySpec, EventPolicySpec, Precedence};

use clauses::{Clauses, bounded};
use selector::Selector;

pub use selector::Labels;

/// The most bytes of a message about an invalid policy: it quotes what the tenant wrote.
const MOST_MESSAGE_BYTES: usize = 512;

/// A policy that can be decided by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// What the engine is told.
    pub rules: Rules,
    /// `spec.priority`.
    pub priority: i32,
    /// Of which tier it is.
    pub tier: Tier,
    /// The weight of `spec.match`: the most that this policy adds to the cost of selecting one.
    pub weight: usize,
    matching: Clauses,
    exempt: Box<[Clauses]>,
    namespaces: Selector,
}

/// Tiers of precedence, the one that goes first first.
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
    /// Whether `spec.match` holds for the write.
    pub fn governs(&self, write: &Observation<'_>) -> bool {
        self.matching.hold(write)
    }

    /// Whether `spec.exempt` holds for the write.
    pub fn exempts(&self, write: &Observation<'_>) -> bool {
        self.exempt.iter().any(|clauses| clauses.hold(write))
    }

    /// Whether `spec.namespaceSelector` selects a namespace with these labels.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.namespaces.selects(labels)
    }

    /// Whether it is for every namespace, whatever its labels.
    pub fn selects_all(&self) -> bool {
        self.namespaces.selects_all()
    }

    /// Whether `earlier` policies together surely govern every write that this one matches. At most `comparisons` are
    /// made, and counted down; once none is left the answer is no.
    pub fn is_covered_by(&self, earlier: &[&Self], comparisons: &mut usize) -> bool {
        let earlier: Vec<_> = earlier.iter().map(|policy| &policy.matching).collect();
        self.matching.are_covered_by(&earlier, comparisons)
    }

    /// Whether it governs every write of a namespace, so that it leaves none for others.
    pub fn governs_all(&self) -> bool {
        self.matching.always_hold()
    }
}

/// What is wrong with a policy: which field, and a sentence that says what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {sentence}")]
pub struct Invalid {
    /// The path of the field, such as `spec.series.idleTimeout`.
    pub field: String,
    /// A sentence for the policy's author; at most 512 bytes, without control characters.
    pub sentence: String,
}

impl Invalid {
    /// Cuts the sentence and sanitises it: it may quote what a tenant wrote.
    pub(super) fn new(field: impl Into<String>, sentence: &str) -> Self {
        let cut = &sentence[..sentence.floor_char_boundary(MOST_MESSAGE_BYTES)];
        let sentence = cut.chars().map(sanitise).collect();
        Self { field: field.into(), sentence }
    }
}

/// Compiles the spec of a cluster-scoped policy, or says what is wrong with it.
pub fn compile_cluster(policy: PolicyId, spec: &ClusterEventPolicySpec) -> Result<Compiled, Invalid> {
    let tier = match spec.precedence {
        Precedence::Override => Tier::Override,
        Precedence::Default => Tier::Default,
    };
    let namespaces = Selector::compile(&spec.namespace_selector)?;
    Ok(Compiled { tier, namespaces, ..compile(policy, &spec.policy)? })
}

/// Compiles the spec of a namespaced policy, or says what is wrong with it.
pub fn compile(policy: PolicyId, spec: &EventPolicySpec) -> Result<Compiled, Invalid> {
    let matching = Clauses::compile(&spec.matching, "spec.match")?;
    bounded(&spec.exempt, api::MOST_SHORT_LIST, "spec.exempt")?;
    let exempt = spec.exempt.iter().enumerate().map(|(index, clauses)| {
        if clauses.is_empty() {
            return Err(Invalid::new("spec.exempt", api::EMPTY_EXEMPT));
        }
        Clauses::compile(clauses, &format!("spec.exempt[{index}]"))
    });
    let exempt: Box<[_]> = exempt.collect::<Result<_, _>>()?;
    Ok(Compiled {
        weight: light_enough(matching.weight(), "spec.match")?,
        matching,
        exempt: light_enough(exempt.iter().map(Clauses::weight).sum(), "spec.exempt").map(|_| exempt)?,
        priority: priority(spec.priority)?,
        tier: Tier::Namespace,
        namespaces: Selector::default(),
        rules: Rules {
            policy,
            mode: match spec.mode {
                api::Mode::Enforce => Mode::Enforce,
                api::Mode::Observe => Mode::Observe,
            },
            series: stages::series(&spec.series)?,
            aggregation: stages::aggregation(&spec.aggregation)?,
            spam_filter: stages::spam_filter(&spec.spam_filter)?,
            budget: stages::budget(spec.budget.as_ref())?,
            rejection: match spec.rejection {
                api::Rejection::AlreadyExists => Rejection::AlreadyExists,
                api::Rejection::Forbidden => Rejection::Forbidden,
            },
        },
    })
}

fn light_enough(weight: usize, path: &str) -> Result<usize, Invalid> {
    if weight <= api::MOST_WEIGHT { Ok(weight) } else { Err(Invalid::new(path, api::TOO_HEAVY)) }
}

fn priority(priority: i32) -> Result<i32, Invalid> {
    let most = api::MOST_PRIORITY;
    if (-most..=most).contains(&priority) {
        return Ok(priority);
    }
    Err(Invalid::new("spec.priority", &format!("priority must be between -{most} and {most}")))
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
        assert!(!policy.exempts(&event()));
    }

    #[test]
    fn a_policy_whose_stages_are_all_off_is_one() {
        let off = json!({"disabled": true});
        let policy = compiled(json!({"series": off, "aggregation": off, "spamFilter": off})).unwrap();
        let Rules { series, aggregation, spam_filter, budget, .. } = &policy.rules;
        assert!(series.is_none() && aggregation.is_none() && spam_filter.is_none() && budget.is_none());
        assert!(policy.governs(&event()));
    }

    #[test]
    fn what_an_older_crd_let_through_is_refused_with_the_field_and_a_sentence() {
        assert_eq!(
            invalid(json!({"priority": 100_001})),
            "spec.priority: priority must be between -100000 and 100000"
        );
        assert!(
            invalid(json!({"match": {"types": [""]}})).starts_with("spec.match.types[0]: must not be empty")
        );
        assert!(
            invalid(json!({"exempt": [{"types": ["Normal", "warning"]}]}))
                .starts_with("spec.exempt[0].types[1]: the type")
        );
        assert!(
            invalid(json!({"match": {"regarding": [{"kind": "pods"}]}}))
                .starts_with("spec.match.regarding[0].kind: kind must be")
        );
        assert!(invalid(json!({"exempt": [{"types": ["Normal"]}, {}]})).starts_with("spec.exempt: an entry"));
        assert!(
            invalid(json!({"exempt": [{"regarding": [{"kind": "Pod"}, {}]}]}))
                .starts_with("spec.exempt[0].regarding[1]: an entry of regarding")
        );
        assert!(
            invalid(json!({"match": {"reasons": vec!["x"; 33]}}))
                .starts_with("spec.match.reasons: must have")
        );
        assert!(
            invalid(json!({"match": {"users": ["ci", format!("*{}", "x".repeat(128))]}}))
                .starts_with("spec.match.users[1]: a text with wildcards")
        );
        assert!(
            invalid(json!({"exempt": [{"regarding": [{"name": "*a*b*c*d*e*f*g*h*i"}]}]}))
                .starts_with("spec.exempt[0].regarding[0].name: a text with wildcards")
        );
    }

    #[test]
    fn the_texts_of_match_and_those_of_exempt_weigh_at_most_2048() {
        let of_136 = format!("*{}*", "x".repeat(126));
        let clauses = |heavy: usize, light: usize| {
            let (heavy, light) = (vec![of_136.clone(); heavy], vec!["x"; light]);
            json!({"reasons": heavy, "users": light, "regarding": [{"kind": "Pod", "name": "a?b"}]})
        };
        assert_eq!(compiled(json!({"match": clauses(15, 6)})).unwrap().weight, 2048);
        assert!(invalid(json!({"match": clauses(15, 7)})).starts_with("spec.match: comparing its texts"));
        let halves = |light| json!({"exempt": [clauses(15, light), {"reasons": ["x"]}]});
        assert_eq!(compiled(halves(5)).unwrap().weight, 0);
        assert!(invalid(halves(6)).starts_with("spec.exempt: comparing its texts"));
    }

    #[test]
    fn a_message_is_cut_and_clean() {
        let invalid = Invalid::new("spec", &format!("a\u{1b}[31m\n{}", "ä".repeat(1000)));
        assert!(invalid.sentence.len() <= MOST_MESSAGE_BYTES);
        assert!(invalid.sentence.starts_with("a [31m ä"));
    }

    #[test]
    fn every_clause_that_is_given_must_hold() {
        let holds = |clauses: Value| compiled(json!({"match": clauses})).unwrap().governs(&event());
        // The fixture: Warning BackOff of Pod batch-1, by kubelet as system:node:n1.
        assert!(holds(json!({"types": ["Warning"], "reasons": ["Failed*", "Back*"]})));
        assert!(!holds(json!({"types": ["Normal"], "reasons": ["BackOff"]})));
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
    fn an_absent_api_group_is_any_and_an_empty_one_is_core() {
        let mut write = event();
        write.event.regarding.api_version = "apps/v1".into();
        let holds =
            |clauses: Value| compiled(json!({"match": {"regarding": [clauses]}})).unwrap().governs(&write);
        assert!(holds(json!({"kind": "Pod"})));
        assert!(holds(json!({"apiGroup": "apps"})));
        assert!(holds(json!({"apiGroup": "*"})));
        assert!(!holds(json!({"apiGroup": ""})));
    }

    #[test]
    fn the_source_speaks_where_no_reporting_component_does() {
        let mut write = event();
        write.event.source_component = "old-kubelet".into();
        let by = |component: &str, write: &Observation<'_>| {
            compiled(json!({"match": {"reportingComponents": [component]}})).unwrap().governs(write)
        };
        assert!(!by("old-kubelet", &write));
        write.event.reporting_component = "".into();
        assert!(by("old-kubelet", &write));
    }

    #[test]
    fn exempt_writes_are_governed_all_the_same() {
        let policy = compiled(json!({"exempt": [{"types": ["Warning"]}]})).unwrap();
        assert!(policy.governs(&event()) && policy.exempts(&event()));
        let policy = compiled(json!({"exempt": [{"types": ["Warning"], "reasons": ["Failed"]}]})).unwrap();
        assert!(!policy.exempts(&event()));
    }
}
