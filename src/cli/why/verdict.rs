//! Which policy governs writes about the object, and why each other one does not. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use squelch_engine::{Mode, WarningPolicy};

use super::facts::{WhyFacts, printable};
use super::stages::{StageEffect, clauses_text, effects};
use crate::api::{ConditionType, EventPolicyStatus, EventType, MAX_WEIGHT, Reason, ReportedDrops};
use crate::policy::{
    Certainty, Compiled, Index, KnownFields, Limit, MAX_LABELS, MAX_POLICIES, PartialMatch, Policy,
    PolicyPlace, RankedPolicy, Tier,
};

/// A policy, and whether it governs the writes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhyPolicy {
    /// `EventPolicy` or `ClusterEventPolicy`.
    pub kind: &'static str,
    /// Name.
    pub name: String,
    /// `Override`, `Namespace` or `Default`, in this order. `None` if it is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precedence: Option<&'static str>,
    /// Priority. `None` if it is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Mode. `None` if it is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
    /// `Always`: each such write. `Sometimes`: that depends on other fields of the write. `Never`: no such write.
    pub governs: &'static str,
    /// Why.
    pub because: String,
    /// The clauses that the answer depends on or, if it governs no such write, those that do not match.
    pub clauses: Vec<String>,
    /// Its condition Effective, if squelch has written one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<EffectiveCondition>,
    /// What its stages do, unless it governs no such write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageEffect>,
    /// [`Self::governs`].
    #[serde(skip)]
    pub certainty: Certainty,
    /// What happens to each such write that it governs.
    #[serde(skip)]
    pub fate: Fate,
}

/// What happens to each write that a policy governs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The policy is in mode Observe.
    Observed,
    /// It is exempt.
    Exempt,
    /// It is muted.
    Muted,
    /// No stage suppresses any of them.
    Stored,
    /// Some of them are merged into others, and none is dropped.
    Merged,
    /// That depends on the other writes, or on fields that are not known.
    Open,
}

/// The condition Effective of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EffectiveCondition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Whether it is about the current spec.
    pub is_current: bool,
}

impl WhyPolicy {
    /// Kind and name.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }

    /// Whether it dropped this entry of the report.
    pub(super) fn dropped(&self, entry: &ReportedDrops) -> bool {
        (self.kind, &*self.name) == (&*entry.policy_kind, &*entry.policy_name)
    }

    /// Why the API server does not call squelch for the policy.
    pub(super) fn not_called(&self) -> Option<&str> {
        let of = [Reason::WebhookNotArmed, Reason::ExcludedByPlatform].map(Reason::as_str);
        let condition = self.effective.as_ref().filter(|its| its.is_current && of.contains(&&*its.reason));
        condition.map(|condition| &*condition.message)
    }
}

/// Returns the policies that were listed, in order of precedence. `None` if neither kind could be listed.
pub(super) fn policies(facts: &WhyFacts) -> Option<Vec<WhyPolicy>> {
    let lists = [facts.event_policies.as_ref().ok(), facts.cluster_policies.as_ref().ok()];
    if lists.iter().all(Option::is_none) {
        return None;
    }
    let mut index = Index::default();
    for policy in lists.into_iter().flatten().flat_map(|list| &list.items) {
        index.apply(policy);
    }
    let ranked = index.set().ranked(&facts.object.namespace, facts.labels.as_ref().ok());
    let mut before = Before { certainty: Certainty::Never, all: None };
    let cluster_listed = facts.cluster_policies.is_ok();
    Some(ranked.iter().map(|ranked| explained(ranked, &facts.known(), cluster_listed, &mut before)).collect())
}

/// What the policies before another one govern.
struct Before {
    certainty: Certainty,
    /// The policy that governs every such write that those before it do not govern.
    all: Option<String>,
}

/// Whether a policy governs, why, and the clauses that matter.
type Explanation = (Certainty, String, Vec<String>);

fn explained(
    RankedPolicy { policy, place }: &RankedPolicy,
    known: &KnownFields<'_>,
    cluster_listed: bool,
    before: &mut Before,
) -> WhyPolicy {
    let compiled = policy.outcome.as_ref().as_ref();
    let effective = policy.reported.as_ref().and_then(|status| effective(policy, status));
    let elsewhere = effective.as_ref().filter(|_| !cluster_listed).and_then(overridden_by_unlisted);
    let (certainty, because, clauses) = match (elsewhere, compiled) {
        (Some(message), Ok(_)) => (Certainty::Never, message, Vec::new()),
        (_, Err(invalid)) => {
            let why = format!("Nothing of it is enforced: {}.", printable(&invalid.to_string()));
            (Certainty::Never, why, Vec::new())
        }
        (None, Ok(compiled)) => match place {
            PolicyPlace::InForce | PolicyPlace::LabelsUnknown => in_force(
                &policy.title(),
                compiled.governs_known(known),
                *place == PolicyPlace::LabelsUnknown,
                before,
            ),
            place => (Certainty::Never, not_in_force(place), Vec::new()),
        },
    };
    let governs = certainty != Certainty::Never;
    WhyPolicy {
        kind: policy.kind(),
        name: printable(&policy.name),
        precedence: compiled.ok().map(|compiled| tier(compiled.tier)),
        priority: compiled.ok().map(|compiled| compiled.priority),
        mode: compiled.ok().map(|compiled| compiled.rules.mode.as_str()),
        governs: match certainty {
            Certainty::Always => "Always",
            Certainty::Sometimes => "Sometimes",
            Certainty::Never => "Never",
        },
        because,
        clauses,
        effective,
        stages: compiled.ok().filter(|_| governs).map(|it| effects(it, known)).unwrap_or_default(),
        certainty,
        fate: compiled.map_or(Fate::Stored, |compiled| fate(compiled, known)),
    }
}

/// A policy in force, or one that is if its selector selects the namespace.
fn in_force(title: &str, own: PartialMatch, labels_unknown: bool, before: &mut Before) -> Explanation {
    let PartialMatch { mut certainty, mut clauses } = own;
    if certainty == Certainty::Never {
        let is_excluded = clauses.first().is_some_and(|clause| clause.starts_with("exclude"));
        let list = if is_excluded { "exclude leaves them to other policies" } else { "match does not fit" };
        return (certainty, format!("Its {list}: {}.", clauses_text(&clauses)), clauses);
    }
    if let Some(first) = &before.all {
        let why = format!("{first} comes before it and governs every such write.");
        return (Certainty::Never, why, Vec::new());
    }
    if labels_unknown {
        clauses.push("namespaceSelector".to_owned());
        certainty = Certainty::Sometimes;
    }
    let is_first = std::mem::replace(&mut before.certainty, Certainty::Sometimes) == Certainty::Never;
    if certainty == Certainty::Always {
        before.all = Some(title.to_owned());
    }
    let why = match (certainty, is_first) {
        (Certainty::Always, true) => "It governs every such write.".to_owned(),
        (Certainty::Always, false) => {
            "It governs every such write that no policy before it governs.".to_owned()
        }
        (_, true) => format!("That depends on {}.", clauses_text(&clauses)),
        (_, false) => format!("That depends on {}, and on the policies before it.", clauses_text(&clauses)),
    };
    (if is_first { certainty } else { Certainty::Sometimes }, why, clauses)
}

fn not_in_force(place: &PolicyPlace) -> String {
    match place {
        PolicyPlace::InForce | PolicyPlace::LabelsUnknown | PolicyPlace::Invalid => String::new(),
        PolicyPlace::NotSelected => "Its namespaceSelector does not select the namespace.".to_owned(),
        PolicyPlace::OverLimit(Limit::Policies) => {
            format!(
                "A limit excludes it: {MAX_POLICIES} policies of its kind come before it in the namespace."
            )
        }
        PolicyPlace::OverLimit(Limit::Weight { own }) => format!(
            "A limit excludes it: its texts weigh {own}, and those of all policies of its kind in the namespace can weigh \
             {MAX_WEIGHT}."
        ),
        PolicyPlace::OverLimit(Limit::Labels) => format!(
            "A limit excludes it: the namespace has more than {MAX_LABELS} labels, so that no namespaceSelector is evaluated."
        ),
        PolicyPlace::Overridden { by, governs_all: true } => {
            format!("{} comes before it and governs every Event of the namespace.", printable(&by.title()))
        }
        PolicyPlace::Overridden { by, governs_all: false } => format!(
            "Policies before it, the last of them {}, govern every Event that it matches.",
            printable(&by.title())
        ),
    }
}

/// The message of a condition about policies that were not listed.
fn overridden_by_unlisted(condition: &EffectiveCondition) -> Option<String> {
    let reasons = [Reason::Overridden, Reason::TooManyPolicies].map(Reason::as_str);
    (condition.is_current && reasons.contains(&&*condition.reason)).then(|| condition.message.clone())
}

fn effective(policy: &Policy, status: &EventPolicyStatus) -> Option<EffectiveCondition> {
    let is_it = |condition: &&Condition| condition.type_ == ConditionType::Effective.as_str();
    let condition = status.conditions.iter().find(is_it)?;
    Some(EffectiveCondition {
        status: printable(&condition.status),
        reason: printable(&condition.reason),
        message: printable(&condition.message),
        is_current: condition.observed_generation == Some(policy.generation),
    })
}

fn fate(compiled: &Compiled, known: &KnownFields<'_>) -> Fate {
    let rules = &compiled.rules;
    let mutes = compiled.mutes_known(known).certainty;
    let exempts = compiled.exempts_known(known).certainty;
    let (normal, limit) = (EventType::Normal, rules.warning_policy == WarningPolicy::Limit);
    let drops_type = limit || known.event_type.is_none_or(|event_type| event_type == normal);
    let has_limit = rules.spam_filter.is_some() || rules.budget.is_some() || mutes != Certainty::Never;
    let merges = rules.series.is_some() || rules.aggregation.is_some();
    if rules.mode == Mode::Observe {
        Fate::Observed
    } else if exempts == Certainty::Always {
        Fate::Exempt
    } else if mutes == Certainty::Always
        && exempts == Certainty::Never
        && (limit || known.event_type == Some(normal))
    {
        Fate::Muted
    } else if drops_type && has_limit {
        Fate::Open
    } else if merges {
        Fate::Merged
    } else {
        Fate::Stored
    }
}

fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Override => "Override",
        Tier::Namespace => "Namespace",
        Tier::Default => "Default",
    }
}
