use serde_json::json;
use squelch_engine::Dropped;

use super::*;
use crate::policy::Index;
use crate::policy::fixtures::{cluster_policy, object, policy};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn conditions(status: &EventPolicyStatus) -> Vec<(&str, &str, &str)> {
    shown(&status.conditions)
}

fn shown(conditions: &[Condition]) -> Vec<(&str, &str, &str)> {
    conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str())).collect()
}

#[test]
fn conditions_follow_the_facts() {
    let good = policy("ci", "p", &json!({}), 0);
    let bad = policy("ci", "p", &json!({"series": {"idleTimeout": "soon"}}), 0);
    let accepted = ("Accepted", "True", "Accepted");
    let by = policy("ci", "q", &json!({}), 0);
    let by = Effect::Overridden { by, governs_all: true, namespace: Some("ci".into()) };
    let (governs, nowhere) = (Effect::Governs, Effect::NoNamespaces { unevaluated: None });
    let exceeded = ExceededLimit { namespace: Some("ci".into()), limit: Limit::Policies };
    let (too_many, in_part) = (Effect::TooMany(exceeded.clone()), Effect::GovernsInPart(exceeded));
    for (outcome, effect, disarmed_reason, expected) in [
        (&good, Some(&governs), None, [accepted, ("Effective", "True", "Effective")]),
        (&good, Some(&governs), Some("It hangs."), [accepted, ("Effective", "False", "WebhookNotArmed")]),
        (&good, Some(&by), Some("It hangs."), [accepted, ("Effective", "False", "Overridden")]),
        (&good, Some(&nowhere), Some("It hangs."), [accepted, ("Effective", "False", "NoNamespaces")]),
        (&good, Some(&in_part), None, [accepted, ("Effective", "True", "PartiallyEffective")]),
        (
            &good,
            Some(&too_many),
            Some("It hangs."),
            [("Accepted", "False", "TooManyPolicies"), ("Effective", "False", "TooManyPolicies")],
        ),
        (&bad, None, None, [("Accepted", "False", "Invalid"), ("Effective", "False", "Invalid")]),
    ] {
        let counted = Counters::default();
        let facts = Facts { effect, disarmed_reason, ..facts(&outcome.outcome, &counted) };
        let status = desired(&facts);
        let (common, stalled) = status.conditions.split_at(2);
        assert_eq!(shown(common), expected);
        assert_eq!(!stalled.is_empty(), outcome.outcome.is_err(), "{stalled:?}");
    }
    let counted = Counters::default();
    let message = &desired(&facts(&bad.outcome, &counted)).conditions[0].message;
    assert!(message.starts_with("spec.series.idleTimeout: idleTimeout must be"), "{message}");
}

#[test]
fn a_policy_that_this_version_does_not_support_is_stalled() {
    let counted = Counters::default();
    for (spec, reason, message) in [
        (json!({"series": {"idleTimeout": "soon"}}), "Invalid", "spec.series.idleTimeout: "),
        (
            json!({"unmute": []}),
            "UnsupportedField",
            "spec.unmute: this version of squelch does not know the field; ",
        ),
        (
            json!({"match": [{"types": ["Alarm"]}]}),
            "UnsupportedValue",
            "spec.match: cannot be parsed: unknown variant `Alarm`, expected `Normal` or `Warning`",
        ),
    ] {
        let mut index = Index::default();
        index.apply(&object("ci", "p", json!({ "spec": spec })));
        let set = index.set();
        let status = desired(&facts(&set.policies()[0].outcome, &counted));
        let reasons =
            [("Accepted", "False", reason), ("Effective", "False", reason), ("Stalled", "True", reason)];
        assert_eq!(conditions(&status), reasons);
        assert!(status.conditions[0].message.starts_with(message), "{}", status.conditions[0].message);
    }
}

#[test]
fn namespaces_that_another_writer_excludes_are_named() {
    let good = policy("ci", "p", &json!({}), 0);
    let counted = Counters::default();
    let exclusion = |all| Exclusion {
        all,
        namespace: "kube-system".into(),
        requirement: "control-plane DoesNotExist".into(),
    };
    let said = |facts: &Facts<'_>| {
        let condition = &desired(facts).conditions[1];
        format!("{}/{}: {}", condition.status, condition.reason, condition.message)
    };
    let rest = "another writer has added the requirement \"control-plane DoesNotExist\" to its namespaceSelector. Event \
                writes there are not sent to squelch.";
    for (cluster_scoped, all, expected) in [
        (false, true, "False/ExcludedByPlatform: The webhook configuration excludes namespace kube-system"),
        (
            true,
            true,
            "False/ExcludedByPlatform: The webhook configuration excludes every namespace that the policy governs, such \
             as kube-system",
        ),
        (
            true,
            false,
            "True/PartiallyEffective: The policy governs Event writes. The webhook configuration excludes some of its namespaces, \
             such as kube-system",
        ),
    ] {
        let exclusion = exclusion(all);
        let facts = Facts { cluster_scoped, exclusion: Some(&exclusion), ..facts(&good.outcome, &counted) };
        assert_eq!(said(&facts), format!("{expected}: {rest}"));
    }
    let all = exclusion(true);
    let facts =
        Facts { exclusion: Some(&all), disarmed_reason: Some("It hangs."), ..facts(&good.outcome, &counted) };
    assert!(said(&facts).starts_with("False/ExcludedByPlatform"));
    let facts = Facts { exclusion: None, disarmed_reason: None, unevaluated: Some("not-theirs"), ..facts };
    assert_eq!(
        said(&facts),
        "True/Effective: The policy governs Event writes. Another writer has restricted the webhook configuration by \
         not-theirs. squelch cannot evaluate that: some Event writes may not be sent to squelch."
    );
}

#[test]
fn a_policy_whose_stages_are_all_disabled_has_its_own_message() {
    let counted = Counters::default();
    let message =
        |spec| desired(&facts(&policy("ci", "p", &spec, 0).outcome, &counted)).conditions[1].message.clone();
    let off = json!({ "mode": "Disabled" });
    let mut spec = json!({"series": off, "aggregation": off, "spamFilter": off});
    assert_eq!(
        message(spec.clone()),
        "The policy governs and counts Event writes. All stages are disabled: it suppresses none."
    );
    spec["budget"] = json!({});
    assert_eq!(message(spec), "The policy governs Event writes.");
}

#[test]
fn the_message_names_the_policy_with_precedence() {
    let good = policy("ci", "p", &json!({}), 0);
    let (own, strong) = (policy("ci", "own", &json!({}), 0), cluster_policy("strong", &json!({}), 0));
    for (cluster_scoped, by, namespace, expected) in [
        (false, &own, Some("ci"), "EventPolicy own has precedence and governs every Event of the namespace."),
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
            "Policies of higher precedence govern every Event of each selected namespace. In namespace ci it is \
                 EventPolicy own.",
        ),
        (
            true,
            &strong,
            None,
            "ClusterEventPolicy strong has precedence and governs every Event of every namespace.",
        ),
    ] {
        let effect =
            Effect::Overridden { by: by.clone(), governs_all: true, namespace: namespace.map(Into::into) };
        let counted = Counters::default();
        let facts = Facts { cluster_scoped, effect: Some(&effect), ..facts(&good.outcome, &counted) };
        assert_eq!(desired(&facts).conditions[1].message, expected);
    }
}

#[test]
fn a_policy_that_several_override_names_the_last_of_them() {
    let good = policy("ci", "p", &json!({}), 0);
    let by = policy("ci", "q", &json!({}), 0);
    let effect = Effect::Overridden { by, governs_all: false, namespace: Some("ci".into()) };
    let counted = Counters::default();
    let facts = Facts { effect: Some(&effect), ..facts(&good.outcome, &counted) };
    assert_eq!(
        desired(&facts).conditions[1].message,
        "Policies of higher precedence govern every Event that this one matches. In namespace ci the last of them is \
             EventPolicy q."
    );
}

#[test]
fn the_message_of_a_policy_over_a_limit_states_the_limit_and_the_remedy() {
    let good = policy("ci", "p", &json!({}), 0);
    let counted = Counters::default();
    let messages = |cluster_scoped, effect: Effect| {
        let facts = Facts { cluster_scoped, effect: Some(&effect), ..facts(&good.outcome, &counted) };
        desired(&facts).conditions.into_iter().map(|condition| condition.message).collect::<Vec<_>>()
    };
    let exceeded = |limit| ExceededLimit { namespace: Some("ci".into()), limit };
    let own = messages(false, Effect::TooMany(exceeded(Limit::Policies)));
    assert_eq!(
        own,
        [
            "At most 64 EventPolicies can be in force in a namespace, and 64 precede this one (by priority, age, \
                 name). Delete or merge policies, or increase the priority of this one.",
            "The policy governs no Event writes until it is accepted."
        ]
    );
    let heavy = messages(false, Effect::TooMany(exceeded(Limit::Weight { own: 900 })));
    assert!(
        heavy[0].contains("can have a total weight of 2048. Those of this policy weigh 900"),
        "{}",
        heavy[0]
    );
    let in_part = messages(true, Effect::GovernsInPart(exceeded(Limit::Policies)));
    let expected = "The policy governs Event writes. It is not in force in all selected namespaces. At most 64 \
            ClusterEventPolicies can be in force in a namespace such as ci, and 64 precede this one (by precedence, \
            priority, age, name). ";
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
    let too_many = "Namespace ci has more than 128 labels. squelch does not evaluate spec.namespaceSelector for \
            it, so the policy is not in force there. Remove labels from that namespace.";
    let exceeded = ExceededLimit { namespace: Some("ci".into()), limit: Limit::Labels };
    assert_eq!(
        effective(&Effect::GovernsInPart(exceeded)),
        format!("The policy governs Event writes. It is not in force in all selected namespaces. {too_many}")
    );
    assert_eq!(
        effective(&Effect::NoNamespaces { unevaluated: Some("ci".into()) }),
        format!("spec.namespaceSelector selects no namespace. {too_many}")
    );
}

#[test]
fn counters_continue_from_the_base() {
    let good = policy("ci", "p", &json!({}), 0);
    let mut counted = Counters::default();
    for (occurrences, disposition) in (1..).zip(Disposition::ALL) {
        counted.count(disposition, occurrences);
    }
    (counted.recovered, counted.dropped_warnings) = (8, 9);
    let base = PolicyCounters { received: 100, admitted: 60, compacted: 40, ..Default::default() };
    let facts = Facts { base, ..facts(&good.outcome, &counted) };
    assert_eq!(
        desired(&facts).counters,
        Some(PolicyCounters {
            received: 128,
            admitted: 61,
            compacted: 42,
            aggregated: 3,
            filtered: 4,
            throttled: 5,
            muted: 6,
            failed_open: 7,
            recovered: 8,
            dropped_warnings: 9,
        })
    );
    let mut largest = counted;
    largest.count(Disposition::Admitted, u64::MAX);
    let facts = Facts { counted: &largest, ..facts };
    assert_eq!(desired(&facts).counters.unwrap().received, i64::MAX);
}

#[test]
fn only_a_changed_condition_status_updates_the_transition_time() {
    let good = policy("ci", "p", &json!({}), 0);
    let counted = Counters::default();
    let first = desired(&Facts { now: at(10), ..facts(&good.outcome, &counted) });
    let later = Facts { now: at(20), previous: Some(&first), ..facts(&good.outcome, &counted) };
    let second = desired(&Facts { generation: 2, disarmed_reason: Some("It hangs."), ..later });
    assert_eq!(second.conditions[0].last_transition_time, Time(at(10)));
    assert_eq!(second.conditions[1].last_transition_time, Time(at(20)));
    assert_eq!(second.conditions[1].message, "The webhook is not armed. It hangs.");
    let other = Facts { disarmed_reason: Some("INC-7"), previous: Some(&second), now: at(30), ..later };
    let third = desired(&other).conditions[1].clone();
    assert_eq!((third.last_transition_time, third.message.contains("INC-7")), (Time(at(20)), true));
    assert_eq!(second.conditions[0].observed_generation, Some(2));
}

#[test]
fn the_largest_status_has_at_most_8_kib() {
    let widest = "\"".repeat(1000);
    let bad = Err(Invalid {
        field: "spec.match[15].regarding[15].name".to_owned(),
        message: widest[..512].to_owned(),
        kind: InvalidKind::UnknownField,
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
fn last_updated_alone_is_no_difference() {
    let good = policy("ci", "p", &json!({}), 0);
    let counted = Counters::default();
    let current = desired(&facts(&good.outcome, &counted));
    let with = |facts: Facts<'_>| difference(Some(&current), &desired(&facts));
    let later = Facts { now: at(99), previous: Some(&current), ..facts(&good.outcome, &counted) };
    assert_eq!(with(later), Difference::Nothing);
    let base = PolicyCounters { recovered: 1, ..Default::default() };
    assert_eq!(with(Facts { base, ..later }), Difference::Counters);
    let dropped = [("ci".into(), Dropped::new(["BackOff", "Pod", "kubelet"], Disposition::Filtered, 1))];
    assert_eq!(with(Facts { dropped: &dropped, ..later }), Difference::Counters);
    assert_eq!(with(Facts { disarmed_reason: Some("It hangs."), ..later }), Difference::Conditions);
    let noted = Facts { note: Some("API server 10.0.0.2:6443 fails."), ..later };
    assert_eq!(with(noted), Difference::Conditions);
    let message = &desired(&noted).conditions[1].message;
    assert!(
        message.starts_with("The policy governs") && message.ends_with("10.0.0.2:6443 fails."),
        "{message}"
    );
    assert_eq!(with(Facts { generation: 2, ..later }), Difference::Conditions);
    assert_eq!(difference(None, &current), Difference::Conditions);
    // A status read back is equal to the written one.
    let read: EventPolicyStatus = serde_json::from_value(serde_json::to_value(&current).unwrap()).unwrap();
    assert_eq!(difference(Some(&read), &desired(&later)), Difference::Nothing);
}

fn facts<'a>(outcome: &'a Result<Compiled, Invalid>, counted: &'a Counters) -> Facts<'a> {
    Facts {
        generation: 1,
        cluster_scoped: false,
        outcome,
        effect: Some(&Effect::Governs),
        exclusion: None,
        unevaluated: None,
        disarmed_reason: None,
        is_selected: true,
        note: None,
        counted,
        dropped: &[],
        base: PolicyCounters::default(),
        base_dropped: &[],
        since: at(1),
        previous: None,
        now: at(10),
    }
}
