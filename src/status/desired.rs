//! The desired status of a policy. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use squelch_engine::{Counters, Disposition, Mode};

use super::dropped::{DroppedIn, top_dropped};
use crate::api;
use crate::api::{ConditionType, DroppedOccurrences, EventPolicyStatus, PolicyCounters, Reason};
use crate::policy::{
    Compiled, Effect, ExceededLimit, Exclusion, Invalid, InvalidKind, Limit, MAX_LABELS, MAX_POLICIES,
};

/// The inputs of a status.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// `metadata.generation` of the policy.
    pub generation: i64,
    /// Whether it is a `ClusterEventPolicy`.
    pub cluster_scoped: bool,
    /// Result of compiling the spec.
    pub outcome: &'a Result<Compiled, Invalid>,
    /// Effect of the policy among the other policies. `None` if it is invalid.
    pub effect: Option<&'a Effect>,
    /// The namespaces of the policy that other writers of the webhook configuration exclude.
    pub exclusion: Option<&'a Exclusion>,
    /// What these have added that cannot be evaluated, in words.
    pub unevaluated: Option<&'a str>,
    /// Why the webhook is not armed, in a sentence. `None` while it is armed.
    pub disarmed_reason: Option<&'a str>,
    /// Whether the armed webhook gets the writes of the policy: in all its namespaces, or in one if it was effective.
    pub is_selected: bool,
    /// Which API servers do not reach the armed webhook, in a sentence. `None` if all do.
    pub note: Option<&'a str>,
    /// The engine's counters since the start of the process.
    pub counted: &'a Counters,
    /// The engine's counts of dropped occurrences since then.
    pub dropped: &'a [DroppedIn],
    /// Counters in the status when the process first read the policy.
    pub base: PolicyCounters,
    /// `topDropped` in the status at that time.
    pub base_dropped: &'a [DroppedOccurrences],
    /// Start time of the counters.
    pub since: Timestamp,
    /// Last known status in the cluster.
    pub previous: Option<&'a EventPolicyStatus>,
    /// Wall clock time.
    pub now: Timestamp,
}

/// Returns the desired status.
pub fn desired(facts: &Facts<'_>) -> EventPolicyStatus {
    EventPolicyStatus {
        observed_generation: Some(facts.generation),
        conditions: conditions(facts),
        counters: Some(plus_counted(facts.base, facts.counted)),
        top_dropped: top_dropped(facts.base_dropped, facts.dropped),
        since: Some(whole_second(facts.since)),
        last_updated: Some(whole_second(facts.now)),
    }
}

fn conditions(facts: &Facts<'_>) -> Vec<Condition> {
    let mut conditions = vec![
        condition(facts, ConditionType::Accepted, accepted(facts)),
        condition(facts, ConditionType::Effective, effective(facts)),
    ];
    if let Err(invalid) = facts.outcome {
        let message = "squelch waits for a valid spec: see the condition Accepted.".to_owned();
        conditions.push(Condition {
            status: "True".to_owned(),
            ..condition(facts, ConditionType::Stalled, (invalid_reason(invalid), message))
        });
    }
    conditions
}

/// The difference between two statuses, ignoring `lastUpdated`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// They are equal.
    Nothing,
    /// Only counters differ.
    Counters,
    /// Conditions or the observed generation differ.
    Conditions,
}

/// Returns the difference between the current status in the cluster and the desired one.
pub fn difference(current: Option<&EventPolicyStatus>, desired: &EventPolicyStatus) -> Difference {
    let Some(current) = current else { return Difference::Conditions };
    if (current.observed_generation, &current.conditions)
        != (desired.observed_generation, &desired.conditions)
    {
        Difference::Conditions
    } else if counters_differ(current, desired) {
        Difference::Counters
    } else {
        Difference::Nothing
    }
}

/// Whether the counters of two statuses differ, regardless of the conditions.
pub(super) fn counters_differ(current: &EventPolicyStatus, desired: &EventPolicyStatus) -> bool {
    (current.counters, &current.top_dropped, &current.since)
        != (desired.counters, &desired.top_dropped, &desired.since)
}

fn accepted(facts: &Facts<'_>) -> (Reason, String) {
    match (facts.outcome, facts.effect) {
        (Err(invalid), _) => (invalid_reason(invalid), invalid.to_string()),
        (Ok(_), Some(Effect::TooMany(exceeded))) => {
            (Reason::TooManyPolicies, too_many(facts.cluster_scoped, exceeded))
        }
        (Ok(_), _) => (Reason::Accepted, "The policy is valid.".to_owned()),
    }
}

fn invalid_reason(invalid: &Invalid) -> Reason {
    match invalid.kind {
        InvalidKind::Value => Reason::Invalid,
        InvalidKind::UnknownField => Reason::UnsupportedField,
        InvalidKind::UnknownValue => Reason::UnsupportedValue,
    }
}

fn effective(facts: &Facts<'_>) -> (Reason, String) {
    let unaccepted = |reason| (reason, "The policy governs no Event writes until it is accepted.".to_owned());
    let compiled = match facts.outcome {
        Ok(compiled) => compiled,
        Err(invalid) => return unaccepted(invalid_reason(invalid)),
    };
    match facts.effect {
        Some(Effect::TooMany(_)) => return unaccepted(Reason::TooManyPolicies),
        Some(Effect::Overridden { by, governs_all, namespace }) => {
            let message = if *governs_all {
                overridden(facts.cluster_scoped, &by.title(), namespace.as_deref())
            } else {
                overridden_together(&by.title(), namespace.as_deref())
            };
            return (Reason::Overridden, message);
        }
        Some(Effect::NoNamespaces { unevaluated }) => {
            let message = "spec.namespaceSelector selects no namespace.".to_owned();
            let message = match unevaluated {
                Some(namespace) => format!("{message} {}", too_many_labels(namespace)),
                None => message,
            };
            return (Reason::NoNamespaces, message);
        }
        Some(Effect::Governs | Effect::GovernsInPart(_)) | None => {}
    }
    if let Some(exclusion) = facts.exclusion.filter(|exclusion| exclusion.all) {
        return (Reason::ExcludedByPlatform, excluded(facts.cluster_scoped, exclusion));
    }
    if let Some(why) = facts.disarmed_reason {
        return (Reason::WebhookNotArmed, format!("The webhook is not armed. {why}"));
    }
    if !facts.is_selected {
        let message = "The webhook is not armed for the namespaces of the policy: the API server has not acknowledged the \
                       rules with them yet.";
        return (Reason::WebhookNotArmed, message.to_owned());
    }
    let message = match compiled.rules.mode {
        _ if compiled.suppresses_nothing() => {
            "The policy governs and counts Event writes. All stages are disabled: it suppresses none."
        }
        Mode::Enforce => "The policy governs Event writes.",
        Mode::Observe => "The policy governs and counts Event writes. With mode Observe it suppresses none.",
    };
    let message = match facts.effect {
        Some(Effect::GovernsInPart(exceeded)) => {
            let reason = too_many(facts.cluster_scoped, exceeded);
            format!("{message} It is not in force in all selected namespaces. {reason}")
        }
        _ => message.to_owned(),
    };
    let additions =
        facts.exclusion.map(excluded_in_part).into_iter().chain(facts.unevaluated.map(unevaluated));
    let notes = additions.chain(facts.note.map(str::to_owned));
    let in_part = matches!(facts.effect, Some(Effect::GovernsInPart(_))) || facts.exclusion.is_some();
    let reason = if in_part { Reason::PartiallyEffective } else { Reason::Effective };
    (reason, notes.fold(message, |message, note| format!("{message} {note}")))
}

fn excluded(cluster_scoped: bool, Exclusion { namespace, requirement, .. }: &Exclusion) -> String {
    let namespaces = if cluster_scoped {
        format!("every namespace that the policy governs, such as {namespace}")
    } else {
        format!("namespace {namespace}")
    };
    format!(
        "The webhook configuration excludes {namespaces}: another writer has added the requirement \"{requirement}\" to \
         its namespaceSelector. Event writes there are not sent to squelch."
    )
}

fn excluded_in_part(Exclusion { namespace, requirement, .. }: &Exclusion) -> String {
    format!(
        "The webhook configuration excludes some of its namespaces, such as {namespace}: another writer has added the \
         requirement \"{requirement}\" to its namespaceSelector. Event writes there are not sent to squelch."
    )
}

fn unevaluated(additions: &str) -> String {
    format!(
        "Another writer has restricted the webhook configuration by {additions}. squelch cannot evaluate that: some Event \
         writes may not be sent to squelch."
    )
}

/// Returns a message with the limit, the namespace and the changes to make. It contains no numbers of other policies:
/// otherwise each edit of another policy would change this status.
fn too_many(cluster_scoped: bool, ExceededLimit { namespace, limit }: &ExceededLimit) -> String {
    let (policies, order) = if cluster_scoped {
        ("ClusterEventPolicies", "precedence, priority, age, name")
    } else {
        ("EventPolicies", "priority, age, name")
    };
    let example = match namespace {
        Some(namespace) if cluster_scoped => format!(" such as {namespace}"),
        _ => String::new(),
    };
    match limit {
        Limit::Policies => format!(
            "At most {MAX_POLICIES} {policies} can be in force in a namespace{example}, and {MAX_POLICIES} precede this \
             one (by {order}). Delete or merge policies, or increase the priority of this one."
        ),
        Limit::Weight { own } => format!(
            "The texts in match and exclude of the {policies} in force in a namespace{example} can have a total weight of {}. Those of \
             this policy weigh {own}, which is more than the policies that precede it (by {order}) leave. Use exact texts \
             or one wildcard in each, delete or merge policies, or increase the priority of this one.",
            api::MAX_WEIGHT
        ),
        Limit::Labels => too_many_labels(namespace.as_deref().unwrap_or_default()),
    }
}

fn too_many_labels(namespace: &str) -> String {
    format!(
        "Namespace {namespace} has more than {MAX_LABELS} labels. squelch does not evaluate spec.namespaceSelector for it, \
         so the policy is not in force there. Remove labels from that namespace."
    )
}

fn overridden(cluster_scoped: bool, by: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) if cluster_scoped => format!(
            "Policies of higher precedence govern every Event of each selected namespace. In namespace {namespace} it is \
             {by}."
        ),
        Some(_) => format!("{by} has precedence and governs every Event of the namespace."),
        None => format!("{by} has precedence and governs every Event of every namespace."),
    }
}

fn overridden_together(last: &str, namespace: Option<&str>) -> String {
    let place = namespace.map_or_else(|| "every namespace".to_owned(), |name| format!("namespace {name}"));
    format!(
        "Policies of higher precedence govern every Event that this one matches. In {place} the last of them is {last}."
    )
}

fn condition(facts: &Facts<'_>, kind: ConditionType, (reason, message): (Reason, String)) -> Condition {
    let previous = facts.previous.into_iter().flat_map(|status| &status.conditions);
    let unchanged = { previous }
        .find(|condition| condition.type_ == kind.as_str() && condition.status == reason.status())
        .map(|condition| condition.last_transition_time.clone());
    Condition {
        type_: kind.as_str().to_owned(),
        status: reason.status().to_owned(),
        reason: reason.as_str().to_owned(),
        message,
        observed_generation: Some(facts.generation),
        last_transition_time: unchanged.unwrap_or_else(|| whole_second(facts.now)),
    }
}

/// Returns the counters in the cluster, plus what the engine has counted since.
pub(crate) fn plus_counted(base: PolicyCounters, counted: &Counters) -> PolicyCounters {
    let plus = |base: i64, counted: u64| base.saturating_add_unsigned(counted);
    let disposition = |base, disposition| plus(base, counted.of(disposition));
    PolicyCounters {
        received: plus(base.received, counted.received()),
        admitted: disposition(base.admitted, Disposition::Admitted),
        compacted: disposition(base.compacted, Disposition::Compacted),
        aggregated: disposition(base.aggregated, Disposition::Aggregated),
        filtered: disposition(base.filtered, Disposition::Filtered),
        throttled: disposition(base.throttled, Disposition::Throttled),
        muted: disposition(base.muted, Disposition::Muted),
        failed_open: disposition(base.failed_open, Disposition::FailedOpen),
        recovered: plus(base.recovered, counted.recovered),
        dropped_warnings: plus(base.dropped_warnings, counted.dropped_warnings),
    }
}

/// Truncates a time to seconds, as the API server does. Otherwise a status read back would differ from the desired one.
fn whole_second(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

#[cfg(test)]
mod tests;
