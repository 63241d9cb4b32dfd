use k8s_openapi::api::core::v1::Event as CoreEvent;
use proptest::prelude::*;
use serde_json::{Value, json};
use squelch_engine::testing::cases;
use squelch_engine::{Governing, Observation};

use super::facts::{Assumptions, Part, ReadItems, Unread, WhyFacts};
use super::object::WhyObject;
use super::report::WhyReport;
use super::stored::ListedEvent;
use super::text::table;
use crate::api::{DropReport, EventType};
use crate::output::OutputFormat;
use crate::policy::fixtures::generated::{specs, writes};
use crate::policy::fixtures::{cluster_object, labels, object};
use crate::policy::{Certainty, Index, KnownFields};

fn items<T>(items: Vec<T>) -> Part<ReadItems<T>> {
    Ok(ReadItems { items, complete: true })
}

/// Pod batch-1 in namespace ci, with these EventPolicies and ClusterEventPolicies, and nothing stored or suppressed.
fn facts(own: &[(&str, Value)], cluster: &[(&str, Value)]) -> WhyFacts {
    let own = own.iter().map(|(name, spec)| object("ci", name, json!({ "spec": spec }))).collect();
    let cluster = cluster.iter().map(|(name, spec)| cluster_object(name, json!({ "spec": spec }))).collect();
    WhyFacts {
        object: WhyObject {
            kind: "Pod".to_owned(),
            is_kind: true,
            api_group: Some(String::new()),
            name: "batch-1".to_owned(),
            namespace: "ci".to_owned(),
        },
        assumed: Assumptions::default(),
        discovery: Ok(()),
        events: items(Vec::new()),
        event_policies: items(own),
        cluster_policies: items(cluster),
        labels: Ok(labels(&[("team", "x")])),
        report: Ok(None),
    }
}

fn event(event: Value) -> ListedEvent {
    ListedEvent::from(serde_json::from_value::<CoreEvent>(event).unwrap())
}

fn report() -> DropReport {
    let entry = |reason: &str, kind: &str, object: &str, count: i64| {
        json!({
            "policyKind": "EventPolicy", "policyName": "noisy", "type": "Warning", "reason": reason, "kind": kind,
            "component": "kubelet", "disposition": "throttled", "count": count,
            "firstObservedTime": "2026-01-01T00:00:00Z", "lastObservedTime": "2026-01-02T00:00:00Z",
            "exampleObject": object, "exampleMessage": "m",
        })
    };
    let counters = json!({ "received": 400, "admitted": 60, "throttled": 340 });
    let report = json!({
        "suppressed": 340, "droppedOccurrences": 340, "droppedWarnings": 340,
        "policies": [{ "policyKind": "EventPolicy", "policyName": "noisy", "policyUid": "u", "counters": counters }],
        "dropped": [
            entry("Failed", "Pod", "other", 200), entry("BackOff", "Pod", "batch-1", 112),
            entry("BackOff", "Job", "batch-1", 8),
        ],
        "lastUpdated": "2026-01-02T00:00:10Z",
    });
    serde_json::from_value(report).unwrap()
}

/// Name, `governs` and `because` of each policy.
fn governance(facts: &WhyFacts) -> Vec<(String, &'static str, String)> {
    let policies = WhyReport::of(facts).policies.unwrap().into_iter();
    policies.map(|policy| (policy.name, policy.governs, policy.because)).collect()
}

#[test]
fn dropped_events_are_found_with_the_policy_that_dropped_them() {
    let mut facts = facts(&[("noisy", json!({ "warningPolicy": "Limit", "budget": {} }))], &[]);
    facts.report = Ok(Some(report()));
    facts.assumed.reason = Some("BackOff".to_owned());
    let found = WhyReport::of(&facts);
    assert_eq!(
        found.conclusion,
        "EventPolicy noisy governs BackOff Events about Pod batch-1 in namespace ci: it compacts, aggregates or drops some \
         of them, as its stages say. Of such Events of kind Pod in this namespace, 112 occurrences were dropped (at \
         least one about batch-1): 112 throttled by EventPolicy noisy. No such Event is stored."
    );
    let next = found.next.join("\n");
    assert!(next.contains("kubectl get edr squelch -n ci -o yaml"), "{next}");
    assert!(next.contains("kubectl edit evp noisy -n ci"), "{next}");

    facts.object.name = "batch-2".to_owned();
    let found = WhyReport::of(&facts).conclusion;
    assert!(found.contains("112 occurrences were dropped (the report does not name batch-2): "), "{found}");
    facts.object.name = "batch-1".to_owned();

    facts.assumed.reason = None;
    let found = WhyReport::of(&facts).report.unwrap();
    let reasons: Vec<_> = found.dropped.iter().map(|it| (&*it.entry.reason, it.is_about_object)).collect();
    assert_eq!(reasons, [("BackOff", true), ("Failed", false)], "those of the object come first");
    assert_eq!((found.occurrences, found.unlisted), (312, 20));
    facts.assumed.event_type = Some(EventType::Normal);
    let found = WhyReport::of(&facts);
    assert!(found.report.unwrap().dropped.is_empty());
    assert!(found.conclusion.contains("no dropped Events of kind Pod that fit"), "{}", found.conclusion);
}

#[test]
fn long_texts_are_compared_as_the_report_has_them() {
    let mut facts = facts(&[], &[]);
    let mut report = report();
    let long = "x".repeat(100);
    report.dropped[0].example_object = "x".repeat(64);
    report.dropped[0].reason = "x".repeat(64);
    facts.report = Ok(Some(report));
    facts.object.name = long.clone();
    facts.assumed.reason = Some(long);
    let dropped = WhyReport::of(&facts).report.unwrap().dropped;
    assert_eq!(dropped.iter().map(|it| it.is_about_object).collect::<Vec<_>>(), [true]);
}

#[test]
fn without_policies_events_are_stored_as_they_are_written() {
    let found = WhyReport::of(&facts(&[], &[]));
    assert!(
        found.conclusion.starts_with("No policy governs Events about Pod batch-1"),
        "{}",
        found.conclusion
    );
    assert!(found.conclusion.contains("squelch has suppressed nothing in this namespace."));
    assert!(table(&found).contains("POLICIES: none\n"));
    assert!(found.next.iter().any(|next| next.contains("kubectl get events -n ci")), "{:?}", found.next);
}

#[test]
fn an_incomplete_list_is_no_evidence_of_absence() {
    let mut facts = facts(&[], &[]);
    facts.events = Ok(ReadItems { items: Vec::new(), complete: false });
    let found = WhyReport::of(&facts);
    assert!(
        found.conclusion.ends_with(" None of the Events that were read is such an Event."),
        "{}",
        found.conclusion
    );
    assert!(!found.next.iter().any(|next| next.contains("may not have written it")), "{:?}", found.next);
}

#[test]
fn each_policy_says_why_it_governs_or_not() {
    let mut facts = facts(
        &[
            ("jobs", json!({ "priority": 9, "match": [{ "regarding": [{ "kind": "Job" }] }] })),
            ("back-off", json!({ "priority": 8, "match": [{ "reasons": ["Back*"] }] })),
            ("every", json!({ "priority": 7, "exclude": [{ "reasons": ["Keep"] }] })),
            ("last", json!({ "match": [{ "types": ["Warning"] }] })),
            ("broken", json!({ "priority": 1_000_000 })),
        ],
        &[(
            "elsewhere",
            json!({ "precedence": "Override", "namespaceSelector": { "matchLabels": { "team": "y" } } }),
        )],
    );
    facts.assumed.reason = Some("BackOff".to_owned());
    let expected = [
        ("elsewhere", "Never", "Its namespaceSelector does not select the namespace."),
        ("jobs", "Never", "Its match does not fit: match[0]: regarding [{kind: Job}]."),
        ("back-off", "Always", "It governs every such write."),
        ("every", "Never", "EventPolicy back-off comes before it and governs every such write."),
        ("last", "Never", "EventPolicy back-off comes before it and governs every such write."),
        (
            "broken",
            "Never",
            "Nothing of it is enforced: spec.priority: priority must be between -100000 and 100000.",
        ),
    ];
    assert_eq!(
        governance(&facts),
        expected.map(|(name, governs, why)| (name.to_owned(), governs, why.to_owned()))
    );

    facts.assumed.reason = None;
    let found = governance(&facts);
    assert_eq!((found[2].1, &*found[2].2), ("Sometimes", "That depends on match[0]: reasons [Back*]."));
    let expected = "That depends on exclude[0]: reasons [Keep], and on the policies before it.";
    assert_eq!((found[3].1, &*found[3].2), ("Sometimes", expected));
    let report = WhyReport::of(&facts);
    assert!(report.conclusion.contains("the first that matches of EventPolicy back-off, EventPolicy every"));
    assert!(report.next.iter().any(|next| next.contains("--reason")));
}

#[test]
fn a_policy_that_others_override_names_them() {
    let found = governance(&facts(&[("own", json!({}))], &[("guard", json!({ "precedence": "Override" }))]));
    assert_eq!(found[0].1, "Always");
    let expected = "ClusterEventPolicy guard comes before it and governs every Event of the namespace.";
    assert_eq!((found[1].1, &*found[1].2), ("Never", expected));
}

#[test]
fn the_outcome_depends_on_mode_exempt_and_mute() {
    let outcome = |spec: Value| {
        let mut facts = facts(&[("p", spec)], &[]);
        facts.assumed.event_type = Some(EventType::Normal);
        WhyReport::of(&facts).conclusion
    };
    let entry = json!([{ "regarding": [{ "kind": "Pod" }] }]);
    for (spec, expected) in [
        (json!({ "mode": "Observe" }), "in mode Observe: they are stored"),
        (json!({ "spamFilter": { "mode": "Disabled" } }), "may compact or aggregate them, and drops none"),
        (json!({}), "compacts, aggregates or drops some of them"),
        (json!({ "exempt": entry }), "they are exempt: they are stored"),
        (json!({ "mute": entry }), "drops each of them"),
        (
            json!({ "series": { "mode": "Disabled" }, "aggregation": { "mode": "Disabled" },
                    "spamFilter": { "mode": "Disabled" } }),
            "none of its stages suppresses them",
        ),
    ] {
        let conclusion = outcome(spec);
        assert!(conclusion.contains(expected), "{conclusion}");
    }
    let mut facts = facts(&[("p", json!({ "budget": {} }))], &[]);
    facts.assumed.event_type = Some(EventType::Warning);
    let conclusion = WhyReport::of(&facts).conclusion;
    assert!(conclusion.contains("drops none"), "a Warning without warningPolicy: Limit: {conclusion}");
}

#[test]
fn a_muted_event_that_may_be_exempt_is_not_always_dropped() {
    let disabled = json!({ "mode": "Disabled" });
    let muting = |exempt: Value| {
        let spec = json!({
            "mute": [{ "reasons": ["Pulled"] }], "exempt": [exempt],
            "series": disabled, "aggregation": disabled, "spamFilter": disabled,
        });
        let mut facts = facts(&[("p", spec)], &[]);
        facts.assumed.event_type = Some(EventType::Normal);
        facts.assumed.reason = Some("Pulled".to_owned());
        let found = WhyReport::of(&facts);
        let stages = &found.policies.as_ref().unwrap()[0].stages;
        let mute = stages.iter().find(|stage| stage.field == "mute").unwrap().effect.clone();
        (found.conclusion, mute)
    };
    let (conclusion, mute) = muting(json!({ "messages": ["*registry*"] }));
    assert!(!conclusion.contains("drops each of them"), "{conclusion}");
    assert!(conclusion.contains("compacts, aggregates or drops some of them"), "{conclusion}");
    assert_eq!(mute, "Every such write that is not exempt is dropped (muted).");
    let (conclusion, mute) = muting(json!({ "regarding": [{ "kind": "Pod" }] }));
    assert!(conclusion.contains("they are exempt"), "{conclusion}");
    assert_eq!(mute, "No such write is muted: every one is exempt.");
    let (conclusion, mute) = muting(json!({ "regarding": [{ "kind": "Job" }] }));
    assert!(conclusion.contains("drops each of them"), "{conclusion}");
    assert_eq!(mute, "Every such write is dropped (muted).");
}

#[test]
fn stages_have_their_numbers() {
    let spec = json!({ "budget": { "burst": 7 }, "aggregation": { "maxEvents": 3, "groupBy": "Kind" }, "normalize": ["Numbers"] });
    let policies = WhyReport::of(&facts(&[("p", spec)], &[])).policies.unwrap();
    let stages: Vec<_> = policies[0].stages.iter().map(|it| format!("{}: {}", it.field, it.effect)).collect();
    insta::assert_snapshot!(stages.join("\n"), @r"
    mode: Enforce: what the policy suppresses is not stored.
    warningPolicy: NeverDrop: mute, spamFilter and budget drop no Warning.
    exempt: No such write is exempt.
    mute: No such write is muted.
    series: Repeats (same emitter, object, type, reason, action and message as normalize masks it) are merged into one stored Event. Its count is at most 30m old. After 6m without a repeat, the next one is stored as a new Event.
    aggregation: The first 2 different objects of one kind, with one component, type and reason, are stored. Others are merged into a summary, which is an Event about one of these objects, until 10m pass without one.
    spamFilter: For each emitter, object, type, writes beyond a burst of 25 and then one every 5m are dropped (filtered).
    budget: Of all that the policy governs in the namespace, writes beyond a burst of 7 and then one every 100ms are dropped (throttled).
    ");
}

#[test]
fn stored_events_are_counted_with_their_series() {
    let mut facts = facts(&[], &[]);
    let of = |reason: &str, more: Value| {
        let mut it = json!({ "metadata": {}, "involvedObject": { "kind": "Pod" }, "type": "Warning", "reason": reason });
        it.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event(it)
    };
    facts.events = items(vec![
        of(
            "Old",
            json!({ "count": 3, "lastTimestamp": "2026-01-01T00:00:00Z", "source": { "component": "kubelet" } }),
        ),
        of(
            "New",
            json!({ "count": 1, "series": { "count": 40, "lastObservedTime": "2026-01-02T00:00:00.000000Z" } }),
        ),
        event(json!({ "metadata": {}, "involvedObject": { "kind": "Job" }, "reason": "Other" })),
    ]);
    let stored = WhyReport::of(&facts).stored_events.unwrap();
    assert_eq!((stored.number, stored.occurrences), (2, 43));
    assert_eq!(stored.newest.iter().map(|event| &*event.reason).collect::<Vec<_>>(), ["New", "Old"]);
    assert_eq!(stored.newest[1].component, "kubelet");
    facts.assumed.component = Some("kubelet".to_owned());
    assert_eq!(WhyReport::of(&facts).stored_events.unwrap().occurrences, 3);
}

#[test]
fn missing_rights_are_named_and_do_not_end_the_answer() {
    let mut facts = facts(&[("own", json!({}))], &[]);
    let asks = |facts: &WhyFacts, whom: &str| WhyReport::of(facts).next.join("\n").contains(whom);
    facts.cluster_policies = Err(Unread::Forbidden);
    assert!(asks(&facts, "ask its administrator: kubectl auth can-i list clustereventpolicies.squelch.dev"));
    facts.labels = Err(Unread::Forbidden);
    assert!(asks(&facts, "ask for the ClusterRoles view and squelch-view"));
    let found = WhyReport::of(&facts);
    assert!(found.conclusion.contains("EventPolicy own governs"), "{}", found.conclusion);
    assert!(found.conclusion.contains("Policies that you may not list are not considered."));
    assert_eq!(found.missing_rights.len(), 2);
    facts.events = Err(Unread::Forbidden);
    facts.event_policies = Err(Unread::Forbidden);
    facts.report = Err(Unread::Forbidden);
    let found = WhyReport::of(&facts);
    let text = table(&found);
    for right in [
        "you may not list events in namespace ci",
        "you may not list eventpolicies.squelch.dev in namespace ci",
        "you may not list clustereventpolicies.squelch.dev",
        "you may not get namespaces in namespace ci",
        "you may not get eventdropreports.squelch.dev in namespace ci",
    ] {
        assert!(text.contains(right), "{right}: {text}");
    }
    assert!(found.conclusion.contains("is unknown: you may not list policies."), "{}", found.conclusion);
    assert!(found.stored_events.is_none() && found.policies.is_none() && found.report.is_none());
}

#[test]
fn a_tenant_reads_in_the_status_that_an_unlisted_policy_governs() {
    let mut facts = facts(&[], &[]);
    let condition = json!({
        "type": "Effective", "status": "False", "reason": "Overridden", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "message": "ClusterEventPolicy guard has precedence and governs every Event of the namespace.",
    });
    let policy = object("ci", "own", json!({ "spec": {}, "status": { "conditions": [condition] } }));
    facts.event_policies = items(vec![policy.clone()]);
    assert_eq!(governance(&facts)[0].1, "Always", "the listed policies are decisive");
    facts.cluster_policies = Err(Unread::Forbidden);
    let found = governance(&facts);
    assert_eq!(found[0].1, "Never");
    assert!(found[0].2.starts_with("ClusterEventPolicy guard has precedence"), "{}", found[0].2);
    let mut changed = policy;
    changed.metadata.generation = Some(2);
    facts.event_policies = items(vec![changed]);
    assert_eq!(governance(&facts)[0].1, "Always", "the status is about an older spec");
}

#[test]
fn a_selector_is_undecided_without_the_labels() {
    let selector =
        json!({ "namespaceSelector": { "matchLabels": { "team": "x" } }, "precedence": "Override" });
    let mut facts = facts(&[("own", json!({}))], &[("team", selector)]);
    assert_eq!(governance(&facts)[0].1, "Always");
    facts.labels = Err(Unread::Forbidden);
    let found = governance(&facts);
    assert_eq!((found[0].1, found[1].1), ("Sometimes", "Sometimes"));
    assert!(found[0].2.starts_with("That depends on namespaceSelector."), "{}", found[0].2);
}

#[test]
fn without_definitions_squelch_is_not_installed() {
    let mut facts = facts(&[], &[]);
    facts.event_policies = Err(Unread::NotInstalled);
    facts.cluster_policies = Err(Unread::NotInstalled);
    facts.report = Err(Unread::NotInstalled);
    let found = WhyReport::of(&facts);
    assert!(!found.installed && found.missing_rights.is_empty());
    assert!(found.conclusion.starts_with("squelch is not installed in this cluster"), "{}", found.conclusion);
    assert!(table(&found).contains("squelch is not installed here"));
}

#[test]
fn text_of_tenants_cannot_control_a_terminal() {
    let hostile = "a\u{1b}]0;x\u{7}\u{202e}\n\u{9b}31m";
    let spec = json!({ "match": [{ "messages": [hostile] }], "spamFilter": {} });
    let mut facts = facts(&[("p", spec)], &[]);
    let text = |name: &str| json!({ "metadata": {}, "involvedObject": { "kind": "Pod" }, name: hostile });
    facts.events =
        items(["reason", "type", "message", "reportingComponent"].map(|name| event(text(name))).into());
    let mut report = report();
    for entry in &mut report.dropped {
        for field in [
            &mut entry.reason,
            &mut entry.component,
            &mut entry.example_object,
            &mut entry.example_message,
            &mut entry.policy_name,
        ] {
            hostile.clone_into(field);
        }
    }
    hostile.clone_into(&mut report.policies[0].policy_name);
    facts.report = Ok(Some(report));
    hostile.clone_into(&mut facts.object.name);
    let found = WhyReport::of(&facts);
    let text = table(&found);
    let bad = |it: char| (it.is_control() && it != '\n') || it == '\u{202e}';
    assert!(!text.contains(bad), "{text:?}");
    assert!(text.lines().all(|line| !line.starts_with('\u{9b}')));
    facts.assumed.reason = Some(hostile.to_owned());
    facts.assumed.user = Some(hostile.to_owned());
    assert!(!table(&WhyReport::of(&facts)).contains(bad));
}

#[test]
fn json_has_the_documented_fields() {
    let mut facts = facts(&[("noisy", json!({}))], &[]);
    facts.report = Ok(Some(report()));
    let json = OutputFormat::Json.render(&WhyReport::of(&facts), table).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schemaVersion"], 1);
    assert_eq!(json["object"]["kind"], "Pod");
    assert_eq!(json["policies"][0]["governs"], "Always");
    assert_eq!(json["policies"][0]["stages"][0]["field"], "mode");
    assert_eq!(json["report"]["dropped"][0]["isAboutObject"], true);
    assert_eq!(json["report"]["dropped"][0]["count"], 112);
    assert_eq!(json["storedEvents"]["number"], 0);
}

/// The fields of the write that the command line can name, without the type.
fn assumed(write: &Observation<'_>, bits: u8) -> Assumptions {
    let given = |bit: u8, text: &str| (bits & 1 << bit != 0).then(|| text.to_owned());
    let event = &write.event;
    Assumptions {
        reason: given(0, &event.reason),
        component: given(1, event.reporter().0),
        user: given(2, write.user),
        event_type: None,
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    /// The policies are listed, compiled and ordered as by the operator.
    #[test]
    fn a_certain_answer_agrees_with_the_operator(
        own in prop::collection::vec((specs(), 0i32..3), 0..4),
        cluster in prop::collection::vec((specs(), any::<bool>(), any::<bool>()), 0..3),
        write in writes(),
        bits in 0u8..8,
    ) {
        let own: Vec<_> = own.iter().enumerate().map(|(at, (spec, priority))| {
            let mut spec = serde_json::to_value(spec).unwrap();
            spec["priority"] = (*priority).into();
            object("ci", &format!("own-{at}"), json!({ "spec": spec }))
        }).collect();
        let cluster: Vec<_> = cluster.iter().enumerate().map(|(at, (spec, first, selected))| {
            let mut spec = serde_json::to_value(spec).unwrap();
            spec["precedence"] = if *first { "Override" } else { "Default" }.into();
            spec["namespaceSelector"] = json!({ "matchLabels": { "team": if *selected { "x" } else { "y" } } });
            cluster_object(&format!("cluster-{at}"), json!({ "spec": spec }))
        }).collect();
        let mut index = Index::default();
        own.iter().chain(&cluster).for_each(|policy| { index.apply(policy); });
        index.apply_namespace("ci", "uid", labels(&[("team", "x")]));
        let set = index.set();
        let governing = set.governing(&write).map(|Governing { rules, .. }| rules.policy.display.to_string());

        let mut facts = facts(&[], &[]);
        facts.event_policies = items(own);
        facts.cluster_policies = items(cluster);
        facts.assumed = assumed(&write, bits);
        facts.object.kind = write.event.regarding.kind.to_string();
        facts.object.name = write.event.regarding.name.to_string();
        facts.object.api_group = Some(write.event.regarding.api_group().to_owned());
        let KnownFields { kind, .. } = facts.known();
        prop_assert!(kind.is_some());
        for policy in WhyReport::of(&facts).policies.unwrap() {
            let display = if policy.kind == "EventPolicy" { format!("ci/{}", policy.name) } else { policy.name.clone() };
            let governs = governing.as_deref() == Some(&*display);
            prop_assert!(policy.certainty != Certainty::Always || governs, "{policy:?}, but {governing:?}");
            prop_assert!(policy.certainty != Certainty::Never || !governs, "{policy:?}");
        }
    }
}
