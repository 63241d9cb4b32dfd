//! From what a user wrote to what the engine needs.
//!
//! Everything is checked again although the CRD checks it: an object may have reached etcd under an older CRD.
//! Nothing after this sees the raw spec.

use crate::api::{self, DurationField, EventPolicySpec};
use crate::engine::{Mode, Observation, PolicyId, Rejection, Rules, SeriesRules};

use super::glob::{Glob, MOST_CHARACTERS};

/// The most bytes of a message about an invalid policy: it quotes what the tenant wrote.
const MOST_MESSAGE_BYTES: usize = 512;

/// A policy that can be decided by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// What the engine is told.
    pub rules: Rules,
    /// `spec.priority`.
    pub priority: i32,
    matching: Clauses,
    exempt: Box<[Clauses]>,
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

    /// Whether it governs every write of its namespace, so that it leaves none for others.
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
    /// Cuts the sentence and strips it of control characters: it may quote what a tenant wrote.
    pub(super) fn new(field: impl Into<String>, sentence: &str) -> Self {
        let cut = &sentence[..sentence.floor_char_boundary(MOST_MESSAGE_BYTES)];
        let sentence = cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self { field: field.into(), sentence }
    }
}

/// Compiles a spec, or says what is wrong with it.
pub fn compile(policy: PolicyId, spec: &EventPolicySpec) -> Result<Compiled, Invalid> {
    let matching = Clauses::compile(&spec.matching, "spec.match")?;
    bounded(&spec.exempt, api::MOST_SHORT_LIST, "spec.exempt")?;
    let exempt = spec.exempt.iter().enumerate().map(|(index, clauses)| {
        if clauses.is_empty() {
            return Err(Invalid::new("spec.exempt", api::EMPTY_EXEMPT));
        }
        Clauses::compile(clauses, &format!("spec.exempt[{index}]"))
    });
    Ok(Compiled {
        matching,
        exempt: exempt.collect::<Result<_, _>>()?,
        priority: priority(spec.priority)?,
        rules: Rules {
            policy,
            mode: match spec.mode {
                api::Mode::Enforce => Mode::Enforce,
                api::Mode::Observe => Mode::Observe,
            },
            series: series(&spec.series)?,
            rejection: match spec.rejection {
                api::Rejection::AlreadyExists => Rejection::AlreadyExists,
                api::Rejection::Forbidden => Rejection::Forbidden,
            },
        },
    })
}

fn priority(priority: i32) -> Result<i32, Invalid> {
    let most = api::MOST_PRIORITY;
    if (-most..=most).contains(&priority) {
        return Ok(priority);
    }
    Err(Invalid::new("spec.priority", &format!("priority must be between -{most} and {most}")))
}

fn series(series: &api::Series) -> Result<Option<SeriesRules>, Invalid> {
    let duration = |field: DurationField, text: &str| {
        let path = format!("spec.series.{}", field.name);
        field.parse(text).map_err(|sentence| Invalid::new(path, &sentence))
    };
    let idle_timeout = duration(api::IDLE_TIMEOUT, &series.idle_timeout)?;
    let heartbeat_interval = duration(api::HEARTBEAT_INTERVAL, &series.heartbeat_interval)?;
    Ok((!series.disabled).then_some(SeriesRules { idle_timeout, heartbeat_interval }))
}

/// Lists are bounded because each entry costs time in every decision.
fn bounded<T>(list: &[T], most: usize, path: &str) -> Result<(), Invalid> {
    if list.len() > most {
        return Err(Invalid::new(path, &format!("must have at most {most} items")));
    }
    Ok(())
}

/// Which Events are meant: all lists that are not empty must hold, and a list holds if one entry does.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Clauses {
    types: Box<[Glob]>,
    reasons: Box<[Glob]>,
    reporting_components: Box<[Glob]>,
    regarding: Box<[Regarding]>,
    users: Box<[Glob]>,
}

/// An object that an Event is about: all fields that are given must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Regarding {
    kind: Option<Glob>,
    api_group: Option<Glob>,
    name: Option<Glob>,
}

impl Clauses {
    fn compile(clauses: &api::Clauses, path: &str) -> Result<Self, Invalid> {
        let short = |name: &str, list| globs(list, api::MOST_SHORT_LIST, &format!("{path}.{name}"));
        let long = |name: &str, list| globs(list, api::MOST_LONG_LIST, &format!("{path}.{name}"));
        Ok(Self {
            types: short("types", &clauses.types)?,
            reasons: long("reasons", &clauses.reasons)?,
            reporting_components: long("reportingComponents", &clauses.reporting_components)?,
            regarding: regarding(&clauses.regarding, &format!("{path}.regarding"))?,
            users: long("users", &clauses.users)?,
        })
    }

    fn hold(&self, write: &Observation<'_>) -> bool {
        let event = &write.event;
        one_holds(&self.types, |glob| glob.matches(&event.event_type))
            && one_holds(&self.reasons, |glob| glob.matches(&event.reason))
            && one_holds(&self.reporting_components, |glob| glob.matches(event.reporter().0))
            && one_holds(&self.regarding, |regarding| regarding.holds(write))
            && one_holds(&self.users, |glob| glob.matches(write.user))
    }

    fn always_hold(&self) -> bool {
        let all = |globs: &[Glob]| globs.is_empty() || globs.contains(&Glob::Any);
        all(&self.types)
            && all(&self.reasons)
            && all(&self.reporting_components)
            && self.regarding.is_empty()
            && all(&self.users)
    }
}

impl Regarding {
    fn compile(regarding: &api::Regarding, path: &str) -> Result<Self, Invalid> {
        let api::Regarding { kind, api_group, name } = regarding;
        if kind.is_none() && api_group.is_none() && name.is_none() {
            return Err(Invalid::new(path, api::EMPTY_REGARDING));
        }
        let field = |field: &str, text: &Option<String>| {
            text.as_deref().map(|text| glob(text, &format!("{path}.{field}"))).transpose()
        };
        Ok(Self {
            kind: field("kind", kind)?,
            api_group: field("apiGroup", api_group)?,
            name: field("name", name)?,
        })
    }

    fn holds(&self, write: &Observation<'_>) -> bool {
        let object = &write.event.regarding;
        let holds = |glob: &Option<Glob>, text: &str| glob.as_ref().is_none_or(|glob| glob.matches(text));
        holds(&self.kind, &object.kind)
            && holds(&self.api_group, object.api_group())
            && holds(&self.name, &object.name)
    }
}

fn one_holds<T>(list: &[T], holds: impl Fn(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(holds)
}

fn regarding(list: &[api::Regarding], path: &str) -> Result<Box<[Regarding]>, Invalid> {
    bounded(list, api::MOST_SHORT_LIST, path)?;
    let entries = list.iter().enumerate();
    entries.map(|(index, entry)| Regarding::compile(entry, &format!("{path}[{index}]"))).collect()
}

fn globs(texts: &[String], most: usize, path: &str) -> Result<Box<[Glob]>, Invalid> {
    bounded(texts, most, path)?;
    let globs = texts.iter().enumerate().map(|(index, text)| {
        let path = format!("{path}[{index}]");
        if text.is_empty() {
            return Err(Invalid::new(path, "must not be empty; * stands for any text"));
        }
        glob(text, &path)
    });
    globs.collect()
}

fn glob(text: &str, path: &str) -> Result<Glob, Invalid> {
    Glob::compile(text).ok_or_else(|| {
        Invalid::new(path, &format!("a glob with * or ? must have at most {MOST_CHARACTERS} characters"))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        assert_eq!(
            policy.rules.series,
            Some(SeriesRules {
                idle_timeout: Duration::from_secs(6 * 60),
                heartbeat_interval: Duration::from_secs(30 * 60)
            })
        );
        assert_eq!(policy.priority, 0);
        assert!(policy.governs(&event()) && policy.governs_all());
        assert!(!policy.exempts(&event()));
    }

    #[test]
    fn series_are_off_when_disabled() {
        assert_eq!(compiled(json!({"series": {"disabled": true}})).unwrap().rules.series, None);
    }

    #[test]
    fn what_an_older_crd_let_through_is_refused_with_the_field_and_a_sentence() {
        assert_eq!(
            invalid(json!({"series": {"idleTimeout": "500ms"}})),
            "spec.series.idleTimeout: idleTimeout must be between 1s and 8760h, such as 6m"
        );
        assert_eq!(
            invalid(json!({"series": {"heartbeatInterval": "soon", "disabled": true}})),
            "spec.series.heartbeatInterval: heartbeatInterval must be whole numbers of h, m, s or ms (each of \
             at most 5 digits), such as 6m or 1h30m"
        );
        assert_eq!(
            invalid(json!({"priority": 100_001})),
            "spec.priority: priority must be between -100000 and 100000"
        );
        assert!(
            invalid(json!({"match": {"types": [""]}})).starts_with("spec.match.types[0]: must not be empty")
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
            invalid(json!({"match": {"users": ["ci", format!("*{}", "x".repeat(512))]}}))
                .starts_with("spec.match.users[1]: a glob")
        );
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
