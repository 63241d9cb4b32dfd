//! What the status of a policy should say. Pure: the same facts, the same status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use squelch_engine::{Counters, Disposition, Mode, Rules};

use super::dropped::{DroppedIn, top_dropped};
use crate::api;
use crate::api::{ConditionType, DroppedOccurrences, EventPolicyStatus, PolicyCounters, Reason};
use crate::policy::{Beyond, Compiled, Effect, Invalid, Limit, MOST_LABELS, MOST_POLICIES};

/// All that a status depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// `metadata.generation` of the policy.
    pub generation: i64,
    /// It is a `ClusterEventPolicy`.
    pub cluster_scoped: bool,
    /// What became of its spec.
    pub outcome: &'a Result<Compiled, Invalid>,
    /// What becomes of it beside the other policies; `None` while it is not understood.
    pub effect: Option<&'a Effect>,
    /// Why Event writes do not reach the webhook, in a sentence; `None` while they do.
    pub unarmed: Option<&'a str>,
    /// What was counted since the process began.
    pub counted: &'a Counters,
    /// What of it was dropped, by what it was.
    pub dropped: &'a [DroppedIn],
    /// What stood in the status when the process first saw the policy.
    pub base: PolicyCounters,
    /// What it listed as dropped then.
    pub base_dropped: &'a [DroppedOccurrences],
    /// Since when the counters count.
    pub since: Timestamp,
    /// The status as it is known to stand in the cluster.
    pub previous: Option<&'a EventPolicyStatus>,
    /// The wall clock.
    pub now: Timestamp,
}

/// The status that goes with the facts.
pub fn desired(facts: &Facts<'_>) -> EventPolicyStatus {
    EventPolicyStatus {
        observed_generation: Some(facts.generation),
        conditions: vec![
            condition(facts, ConditionType::Accepted, accepted(facts)),
            condition(facts, ConditionType::Effective, effective(facts)),
        ],
        counters: Some(counters(facts.base, facts.counted)),
        top_dropped: top_dropped(facts.base_dropped, facts.dropped),
        since: Some(whole_second(facts.since)),
        last_updated: Some(whole_second(facts.now)),
    }
}

/// How two statuses differ, the time of writing apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Not at all.
    Nothing,
    /// In numbers alone.
    Counters,
    /// In what they say of the policy.
    Conditions,
}

/// How `desired` differs from what stands in the cluster.
pub fn difference(standing: Option<&EventPolicyStatus>, desired: &EventPolicyStatus) -> Difference {
    let Some(standing) = standing else { return Difference::Conditions };
    if (standing.observed_generation, &standing.conditions)
        != (desired.observed_generation, &desired.conditions)
    {
        Difference::Conditions
    } else if counters_differ(standing, desired) {
        Difference::Counters
    } else {
        Difference::Nothing
    }
}

/// Whether the counts of two statuses differ, whatever else does.
pub(super) fn counters_differ(standing: &EventPolicyStatus, desired: &EventPolicyStatus) -> bool {
    (standing.counters, &standing.top_dropped, &standing.since)
        != (desired.counters, &desired.top_dropped, &desired.since)
}

fn accepted(facts: &Facts<'_>) -> (Reason, String) {
    match (facts.outcome, facts.effect) {
        (Err(invalid), _) => (Reason::Invalid, invalid.to_string()),
        (Ok(_), Some(Effect::TooMany(beyond))) => {
            (Reason::TooManyPolicies, too_many(facts.cluster_scoped, beyond))
        }
        (Ok(_), _) => (Reason::Accepted, "The policy is understood.".to_owned()),
    }
}

fn effective(facts: &Facts<'_>) -> (Reason, String) {
    let unaccepted = |reason| (reason, "Nothing is enforced until the policy is accepted.".to_owned());
    let Ok(compiled) = facts.outcome else { return unaccepted(Reason::Invalid) };
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
        Some(Effect::NoNamespaces { unread }) => {
            let message = "No namespace has the labels that spec.namespaceSelector asks for.".to_owned();
            let message = match unread {
                Some(namespace) => format!("{message} {}", unread_labels(namespace)),
                None => message,
            };
            return (Reason::NoNamespaces, message);
        }
        Some(Effect::Governs | Effect::GovernsInPart(_)) | None => {}
    }
    if let Some(why) = facts.unarmed {
        return (Reason::WebhookNotArmed, format!("The webhook is not armed. {why}"));
    }
    let message = match compiled.rules.mode {
        _ if all_off(&compiled.rules) => {
            "Event writes are counted; nothing is held back: every stage is off."
        }
        Mode::Enforce => "Event writes are decided by this policy.",
        Mode::Observe => "Event writes are decided and counted; nothing is held back (mode: Observe).",
    };
    let message = match facts.effect {
        Some(Effect::GovernsInPart(beyond)) => {
            format!("{message} Not in all namespaces: {}", too_many(facts.cluster_scoped, beyond))
        }
        _ => message.to_owned(),
    };
    (Reason::Effective, message)
}

/// Which limit is exhausted, where, and what to do. It contains no figures of other policies: each edit of one would
/// change this status.
fn too_many(cluster_scoped: bool, Beyond { namespace, limit }: &Beyond) -> String {
    let of_namespace = if cluster_scoped {
        let namespace =
            namespace.as_deref().map_or_else(String::new, |namespace| format!(" such as {namespace}"));
        format!("ClusterEventPolicies that select a namespace{namespace}")
    } else {
        "EventPolicies of a namespace".to_owned()
    };
    let order = if cluster_scoped { "precedence, priority, age, name" } else { "priority, age, name" };
    match limit {
        Limit::Policies => format!(
            "At most {MOST_POLICIES} {of_namespace} are in force there, and {MOST_POLICIES} precede this one (by {order}). \
             Delete or merge policies, or raise the priority of this one to put it in the place of another."
        ),
        Limit::Weight { own } => format!(
            "The texts in match of the {of_namespace} weigh at most {} together: those of this one weigh {own}, which \
             the policies that precede it (by {order}) do not leave. Write exact texts or a single wildcard in each, \
             delete or merge policies, or raise the priority of this one.",
            api::MOST_WEIGHT
        ),
        Limit::Labels => unread_labels(namespace.as_deref().unwrap_or_default()),
    }
}

fn unread_labels(namespace: &str) -> String {
    format!(
        "Namespace {namespace} has more than {MOST_LABELS} labels. squelch does not evaluate spec.namespaceSelector there: the \
         policy is not in force, whatever the selector. Remove labels from that namespace."
    )
}

fn all_off(rules: &Rules) -> bool {
    let Rules { policy: _, mode: _, rejection: _, series, aggregation, spam_filter, budget } = rules;
    series.is_none() && aggregation.is_none() && spam_filter.is_none() && budget.is_none()
}

fn overridden(cluster_scoped: bool, by: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) if cluster_scoped => format!(
            "Policies of higher precedence govern every Event of each namespace that is selected: in {namespace} \
             it is {by}."
        ),
        Some(_) => format!("{by} has precedence and governs every Event of the namespace."),
        None => format!("{by} has precedence and governs every Event of every namespace."),
    }
}

fn overridden_together(last: &str, namespace: Option<&str>) -> String {
    let place = namespace.map_or_else(|| "every namespace".to_owned(), |name| format!("namespace {name}"));
    format!(
        "Policies of higher precedence govern every Event that this one matches: in {place} the last of them is {last}."
    )
}

fn condition(facts: &Facts<'_>, kind: ConditionType, (reason, message): (Reason, String)) -> Condition {
    let standing = facts.previous.into_iter().flat_map(|status| &status.conditions);
    let unchanged = { standing }
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

fn counters(base: PolicyCounters, counted: &Counters) -> PolicyCounters {
    let plus = |base: i64, counted: u64| base.saturating_add_unsigned(counted);
    let disposition = |base, disposition| plus(base, counted.of(disposition));
    PolicyCounters {
        received: plus(base.received, counted.received()),
        admitted: disposition(base.admitted, Disposition::Admitted),
        compacted: disposition(base.compacted, Disposition::Compacted),
        aggregated: disposition(base.aggregated, Disposition::Aggregated),
        filtered: disposition(base.filtered, Disposition::Filtered),
        throttled: disposition(base.throttled, Disposition::Throttled),
        failed_open: disposition(base.failed_open, Disposition::FailedOpen),
        recovered: plus(base.recovered, counted.recovered),
    }
}

/// The API server keeps times to the second; finer ones would never compare equal to what is read back.
fn whole_second(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use squelch_engine::Dropped;

    use super::*;
    use crate::policy::fixtures::{cluster_policy, policy};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn said(status: &EventPolicyStatus) -> Vec<(&str, &str, &str)> {
        let words = status.conditions.iter();
        words.map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str())).collect()
    }

    #[test]
    fn conditions_follow_the_facts() {
        let good = policy("ci", "p", &json!({}), 0);
        let bad = policy("ci", "p", &json!({"series": {"idleTimeout": "soon"}}), 0);
        let accepted = ("Accepted", "True", "Accepted");
        let by = policy("ci", "q", &json!({}), 0);
        let by = Effect::Overridden { by, governs_all: true, namespace: Some("ci".into()) };
        let (governs, nowhere) = (Effect::Governs, Effect::NoNamespaces { unread: None });
        let beyond = Beyond { namespace: Some("ci".into()), limit: Limit::Policies };
        let (too_many, in_part) = (Effect::TooMany(beyond.clone()), Effect::GovernsInPart(beyond));
        for (outcome, effect, unarmed, expected) in [
            (&good, Some(&governs), None, [accepted, ("Effective", "True", "Effective")]),
            (
                &good,
                Some(&governs),
                Some("It hangs."),
                [accepted, ("Effective", "Unknown", "WebhookNotArmed")],
            ),
            (&good, Some(&by), Some("It hangs."), [accepted, ("Effective", "False", "Overridden")]),
            (&good, Some(&nowhere), Some("It hangs."), [accepted, ("Effective", "False", "NoNamespaces")]),
            (&good, Some(&in_part), None, [accepted, ("Effective", "True", "Effective")]),
            (
                &good,
                Some(&too_many),
                Some("It hangs."),
                [("Accepted", "False", "TooManyPolicies"), ("Effective", "False", "TooManyPolicies")],
            ),
            (&bad, None, None, [("Accepted", "False", "Invalid"), ("Effective", "False", "Invalid")]),
        ] {
            let counted = Counters::default();
            let facts = Facts { effect, unarmed, ..facts(&outcome.outcome, &counted) };
            assert_eq!(said(&desired(&facts)), expected);
        }
        let counted = Counters::default();
        let message = &desired(&facts(&bad.outcome, &counted)).conditions[0].message;
        assert!(message.starts_with("spec.series.idleTimeout: idleTimeout must be"), "{message}");
    }

    #[test]
    fn a_policy_whose_stages_are_all_off_says_so() {
        let counted = Counters::default();
        let message = |spec| {
            desired(&facts(&policy("ci", "p", &spec, 0).outcome, &counted)).conditions[1].message.clone()
        };
        let off = json!({"disabled": true});
        let mut spec = json!({"series": off, "aggregation": off, "spamFilter": off});
        assert_eq!(
            message(spec.clone()),
            "Event writes are counted; nothing is held back: every stage is off."
        );
        spec["budget"] = json!({});
        assert_eq!(message(spec), "Event writes are decided by this policy.");
    }

    #[test]
    fn who_has_precedence_is_told_by_name() {
        let good = policy("ci", "p", &json!({}), 0);
        let (own, strong) = (policy("ci", "own", &json!({}), 0), cluster_policy("strong", &json!({}), 0));
        for (cluster_scoped, by, namespace, expected) in [
            (
                false,
                &own,
                Some("ci"),
                "EventPolicy own has precedence and governs every Event of the namespace.",
            ),
            (
                false,
                &strong,
                Some("ci"),
                "ClusterEventPolicy strong has precedence and governs every Event of the namespace.",
            ),
            (
                true,
                &own,
                Some("ci"),
                "Policies of higher precedence govern every Event of each namespace that is selected: in ci it is \
                 EventPolicy own.",
            ),
            (
                true,
                &strong,
                None,
                "ClusterEventPolicy strong has precedence and governs every Event of every namespace.",
            ),
        ] {
            let effect = Effect::Overridden {
                by: by.clone(),
                governs_all: true,
                namespace: namespace.map(Into::into),
            };
            let counted = Counters::default();
            let facts = Facts { cluster_scoped, effect: Some(&effect), ..facts(&good.outcome, &counted) };
            assert_eq!(desired(&facts).conditions[1].message, expected);
        }
    }

    #[test]
    fn a_policy_that_others_leave_nothing_together_names_the_last_of_them() {
        let good = policy("ci", "p", &json!({}), 0);
        let by = policy("ci", "q", &json!({}), 0);
        let effect = Effect::Overridden { by, governs_all: false, namespace: Some("ci".into()) };
        let counted = Counters::default();
        let facts = Facts { effect: Some(&effect), ..facts(&good.outcome, &counted) };
        assert_eq!(
            desired(&facts).conditions[1].message,
            "Policies of higher precedence govern every Event that this one matches: in namespace ci the last of them is \
             EventPolicy q."
        );
    }

    #[test]
    fn a_policy_beyond_a_limit_says_which_and_what_to_do() {
        let good = policy("ci", "p", &json!({}), 0);
        let counted = Counters::default();
        let messages = |cluster_scoped, effect: Effect| {
            let facts = Facts { cluster_scoped, effect: Some(&effect), ..facts(&good.outcome, &counted) };
            desired(&facts).conditions.into_iter().map(|condition| condition.message).collect::<Vec<_>>()
        };
        let beyond = |limit| Beyond { namespace: Some("ci".into()), limit };
        let own = messages(false, Effect::TooMany(beyond(Limit::Policies)));
        assert_eq!(
            own,
            [
                "At most 64 EventPolicies of a namespace are in force there, and 64 precede this one (by \
                 priority, age, name). Delete or merge policies, or raise the priority of this one to put it in the \
                 place of another.",
                "Nothing is enforced until the policy is accepted."
            ]
        );
        let heavy = messages(false, Effect::TooMany(beyond(Limit::Weight { own: 900 })));
        assert!(
            heavy[0].contains("weigh at most 2048 together: those of this one weigh 900"),
            "{}",
            heavy[0]
        );
        let in_part = messages(true, Effect::GovernsInPart(beyond(Limit::Policies)));
        let expected = "Event writes are decided by this policy. Not in all namespaces: At most 64 \
            ClusterEventPolicies that select a namespace such as ci are in force there, and 64 precede this \
            one (by precedence, priority, age, name). ";
        assert!(in_part[1].starts_with(expected), "{}", in_part[1]);
    }

    #[test]
    fn a_namespace_with_too_many_labels_is_named() {
        let good = cluster_policy("p", &json!({}), 0);
        let counted = Counters::default();
        let effective = |effect: &Effect| {
            let facts = facts(&good.outcome, &counted);
            let facts = Facts { cluster_scoped: true, effect: Some(effect), ..facts };
            desired(&facts).conditions[1].message.clone()
        };
        let unread = "Namespace ci has more than 128 labels. squelch does not evaluate spec.namespaceSelector \
            there: the policy is not in force, whatever the selector. Remove labels from that namespace.";
        let beyond = Beyond { namespace: Some("ci".into()), limit: Limit::Labels };
        assert_eq!(
            effective(&Effect::GovernsInPart(beyond)),
            format!("Event writes are decided by this policy. Not in all namespaces: {unread}")
        );
        assert_eq!(
            effective(&Effect::NoNamespaces { unread: Some("ci".into()) }),
            format!("No namespace has the labels that spec.namespaceSelector asks for. {unread}")
        );
    }

    #[test]
    fn counters_go_on_from_what_stood_there() {
        let good = policy("ci", "p", &json!({}), 0);
        let mut counted = Counters::default();
        for (occurrences, disposition) in (1..).zip(Disposition::ALL) {
            counted.count(disposition, occurrences);
        }
        counted.recovered = 7;
        let base = PolicyCounters { received: 100, admitted: 60, compacted: 40, ..Default::default() };
        let facts = Facts { base, ..facts(&good.outcome, &counted) };
        assert_eq!(
            desired(&facts).counters,
            Some(PolicyCounters {
                received: 121,
                admitted: 61,
                compacted: 42,
                aggregated: 3,
                filtered: 4,
                throttled: 5,
                failed_open: 6,
                recovered: 7
            })
        );
        let mut endless = counted;
        endless.count(Disposition::Admitted, u64::MAX);
        let facts = Facts { counted: &endless, ..facts };
        assert_eq!(desired(&facts).counters.unwrap().received, i64::MAX);
    }

    #[test]
    fn a_transition_is_dated_and_a_change_without_one_keeps_its_date() {
        let good = policy("ci", "p", &json!({}), 0);
        let counted = Counters::default();
        let first = desired(&Facts { now: at(10), ..facts(&good.outcome, &counted) });
        let later = Facts { now: at(20), previous: Some(&first), ..facts(&good.outcome, &counted) };
        let second = desired(&Facts { generation: 2, unarmed: Some("It hangs."), ..later });
        assert_eq!(second.conditions[0].last_transition_time, Time(at(10)));
        assert_eq!(second.conditions[1].last_transition_time, Time(at(20)));
        assert_eq!(second.conditions[1].message, "The webhook is not armed. It hangs.");
        let other = Facts { unarmed: Some("INC-7"), previous: Some(&second), now: at(30), ..later };
        let third = desired(&other).conditions[1].clone();
        assert_eq!((third.last_transition_time, third.message.contains("INC-7")), (Time(at(20)), true));
        assert_eq!(second.conditions[0].observed_generation, Some(2));
    }

    #[test]
    fn the_largest_status_has_at_most_8_kib() {
        let widest = "\"".repeat(1000);
        let bad = Err(Invalid {
            field: "spec.match.regarding[31].name".to_owned(),
            sentence: widest[..512].to_owned(),
        });
        let mut counted = Counters { recovered: u64::MAX, ..Counters::default() };
        Disposition::ALL.iter().for_each(|disposition| counted.count(*disposition, u64::MAX));
        let dropped: Vec<DroppedIn> = (0..40)
            .map(|at| {
                let component = format!("{}{at}", &widest[..62]);
                let dropped = Dropped::new([&widest, &widest, &component], Disposition::Throttled, u64::MAX);
                ("n".repeat(63).into(), dropped)
            })
            .collect();
        let status = desired(&Facts { generation: i64::MAX, dropped: &dropped, ..facts(&bad, &counted) });
        assert_eq!(status.top_dropped.len(), 10);
        let size = serde_json::to_string(&status).unwrap().len();
        assert!((6_000..=8 * 1024).contains(&size), "{size} bytes");
    }

    #[test]
    fn only_the_time_of_writing_is_no_difference() {
        let good = policy("ci", "p", &json!({}), 0);
        let counted = Counters::default();
        let standing = desired(&facts(&good.outcome, &counted));
        let with = |facts: Facts<'_>| difference(Some(&standing), &desired(&facts));
        let later = Facts { now: at(99), previous: Some(&standing), ..facts(&good.outcome, &counted) };
        assert_eq!(with(later), Difference::Nothing);
        let base = PolicyCounters { recovered: 1, ..Default::default() };
        assert_eq!(with(Facts { base, ..later }), Difference::Counters);
        let dropped = [("ci".into(), Dropped::new(["BackOff", "Pod", "kubelet"], Disposition::Filtered, 1))];
        assert_eq!(with(Facts { dropped: &dropped, ..later }), Difference::Counters);
        assert_eq!(with(Facts { unarmed: Some("It hangs."), ..later }), Difference::Conditions);
        assert_eq!(with(Facts { generation: 2, ..later }), Difference::Conditions);
        assert_eq!(difference(None, &standing), Difference::Conditions);
        // What is read back is what was written.
        let read: EventPolicyStatus =
            serde_json::from_value(serde_json::to_value(&standing).unwrap()).unwrap();
        assert_eq!(difference(Some(&read), &desired(&later)), Difference::Nothing);
    }

    fn facts<'a>(outcome: &'a Result<Compiled, Invalid>, counted: &'a Counters) -> Facts<'a> {
        Facts {
            generation: 1,
            cluster_scoped: false,
            outcome,
            effect: Some(&Effect::Governs),
            unarmed: None,
            counted,
            dropped: &[],
            base: PolicyCounters::default(),
            base_dropped: &[],
            since: at(1),
            previous: None,
            now: at(10),
        }
    }
}
