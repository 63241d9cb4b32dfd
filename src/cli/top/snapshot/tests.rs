use serde_json::json;

use super::super::fixture::{at, cluster, drops, list, now, object, policy, report};
use super::*;

fn names(model: &TopModel, order: TopOrder) -> Vec<&str> {
    model.namespaces(order, now()).iter().map(|row| row.namespace.as_str()).collect()
}

#[test]
fn namespaces_are_ordered_by_the_chosen_number_and_then_by_suppressed_occurrences() {
    let model = cluster();
    assert_eq!(names(&model, TopOrder::Suppressed), ["ci", "shop", "flux-system", "data"]);
    assert_eq!(names(&model, TopOrder::Dropped), ["flux-system", "ci", "shop", "data"]);
    assert_eq!(names(&model, TopOrder::Warnings), ["shop", "ci", "flux-system", "data"]);
    assert_eq!(names(&model, TopOrder::Rate), ["ci", "shop", "flux-system", "data"]);
    assert_eq!(model.totals(), [50_695 + 8_214 + 512 + 5_760, 2_625 + 960 + 5_760, 944]);
}

#[test]
fn policies_of_both_kinds_are_ordered_together() {
    let names =
        |order| -> Vec<String> { cluster().policies(order).iter().map(|row| row.full_name()).collect() };
    let by_suppressed = names(TopOrder::Suppressed);
    assert_eq!(by_suppressed[..3], ["ci/compact-repeats", "shop/limit-warnings", "flux-reconciliations"]);
    assert_eq!(names(TopOrder::Dropped)[0], "flux-reconciliations");
    assert_eq!(names(TopOrder::Warnings)[0], "shop/limit-warnings");
}

#[test]
fn the_offenders_with_the_largest_counts_are_kept() {
    let model = cluster();
    let reasons =
        |limit| -> Vec<&str> { model.offenders(limit).0.iter().map(|of| of.drops.reason.as_str()).collect() };
    let all = ["ReconciliationSucceeded", "Pulled", "BackOff", "Scheduled", "ScalingReplicaSet"];
    assert_eq!(reasons(usize::MAX), all);
    assert_eq!(reasons(2), all[..2]);
    assert_eq!(model.offenders(2).1, 5);
}

#[test]
fn a_rate_needs_two_versions_of_one_report() {
    let mut model = cluster();
    let rate = |model: &TopModel, name: &str, now| model.namespace(name).unwrap().rate(now);
    // 800 more in 40 s.
    assert_eq!(rate(&model, "ci", now()), Some(20.0));
    assert_eq!(rate(&model, "shop", now()), None, "one version");
    assert_eq!(rate(&model, "ci", at(231 + 121)), None, "outdated");

    let ci = |updated, compacted, uid: &str| {
        let mut report =
            report("ci", updated, &[("EventPolicy", "p", [0, compacted, 0, 0, 0, 0, 0, 0, 0])], &[]);
        report["metadata"]["uid"] = uid.into();
        object(report)
    };
    let mut apply = |event| {
        model.apply(TopSource::Reports, event, now());
        rate(&model, "ci", now())
    };
    assert_eq!(apply(Event::Apply(ci(240, 90, "ci"))), None, "a count that fell");
    assert_eq!(apply(Event::Apply(ci(250, 190, "ci"))), Some(10.0));
    assert_eq!(apply(Event::Apply(ci(250, 190, "ci"))), Some(10.0), "the same report again");
    assert_eq!(apply(Event::Apply(ci(260, 200, "other"))), None, "a namespace that was created again");
    assert_eq!(apply(Event::Apply(ci(270, 230, "other"))), Some(3.0));
    assert_eq!(apply(Event::Init), Some(3.0));
    assert_eq!(
        apply(Event::InitApply(ci(280, 330, "other"))),
        Some(3.0),
        "an incomplete list changes nothing"
    );
    assert_eq!(apply(Event::Init), Some(3.0));
    assert_eq!(apply(Event::InitApply(ci(280, 430, "other"))), Some(3.0));
    assert_eq!(apply(Event::InitDone), Some(20.0));
    let listed = model.namespaces(TopOrder::Suppressed, now());
    assert_eq!(listed.len(), 1, "the others are not in the new list");
}

#[test]
fn a_deleted_object_disappears() {
    let mut model = cluster();
    model.apply(TopSource::Reports, Event::Delete(object(report("ci", 0, &[], &[]))), now());
    let deleted = policy(Some("ci"), "compact-repeats", "Enforce", ("", "", ""), [0; 9]);
    model.apply(TopSource::Policies, Event::Delete(object(deleted)), now());
    assert!(model.namespace("ci").is_none() && model.policy("ci/compact-repeats").is_none());
    assert!(model.policy("default").is_some());
}

#[test]
fn texts_of_tenants_are_sanitised() {
    let mut model = TopModel::default();
    let hostile = "a\u{1b}[2J\u{202e}b\u{9b}\r\n";
    let entry = drops(["Warning", hostile, hostile, hostile, "filtered"], 1, 0, hostile);
    list(
        &mut model,
        TopSource::Reports,
        vec![report("n", 0, &[(hostile, hostile, [0; 9])], &[entry])],
        now(),
    );
    let status = (hostile, hostile, hostile);
    list(&mut model, TopSource::Policies, vec![policy(Some("n"), "p", hostile, status, [0; 9])], now());
    model.failed(TopSource::Reports, TopFailure::Disconnected(hostile.to_owned()), now());
    let shown = format!(
        "{:?}{:?}{:?}{:?}",
        model.namespaces(TopOrder::Suppressed, now()),
        model.policies(TopOrder::Suppressed),
        model.offenders(10),
        model.notes(),
    );
    assert!(shown.contains("a [2J b") && !shown.contains("\\u{") && !shown.contains("\\r"), "{shown}");
}

#[test]
fn an_object_of_another_version_is_counted_and_not_shown() {
    let mut model = TopModel::default();
    let mut other = report("n", 0, &[], &[drops(["Normal", "R", "Pod", "c", "filtered"], 1, 0, "o")]);
    other["dropped"][0]["disposition"] = "evaporated".into();
    list(&mut model, TopSource::Reports, vec![other], now());
    assert!(model.namespaces(TopOrder::Suppressed, now()).is_empty());
    assert!(model.notes()[0].starts_with("1 object is of another version"), "{:?}", model.notes());
}

#[test]
fn notes_say_what_is_missing_since_when() {
    let mut model = TopModel::new(Some("shop"), &TopSource::ALL, Vec::new());
    model.missing.push(TopSource::ClusterPolicies.forbidden("list", None, TopSource::ClusterPolicies.loss()));
    let lost = |text: &str| TopFailure::Disconnected(text.to_owned());
    model.failed(TopSource::Reports, lost("connection refused"), at(61));
    model.failed(TopSource::Reports, lost("connection refused"), at(70));
    model.failed(TopSource::Policies, lost("connection refused"), at(62));
    let missing = "you may not list clustereventpolicies.squelch.dev: no ClusterEventPolicies are shown";
    assert_eq!(model.notes(), [missing, "not connected since 14:01:01 UTC, retrying: connection refused"]);
    model.responded(TopSource::Reports);
    model.responded(TopSource::Policies);
    assert_eq!(model.notes(), [missing]);
    model.failed(TopSource::Reports, TopFailure::Forbidden("watch"), at(80));
    let outdated =
        "you may not watch eventdropreports.squelch.dev in the namespace shop: what is shown may be outdated";
    assert_eq!(model.notes(), [missing, outdated]);
    let all = TopSource::Policies.forbidden("list", None, "only the namespace shop is shown");
    assert_eq!(
        all,
        "you may not list eventpolicies.squelch.dev in all namespaces: only the namespace shop is shown"
    );
}

#[test]
fn a_policy_without_a_status_is_pending() {
    let new = object(json!({ "metadata": { "name": "new", "namespace": "n" }, "spec": {} }));
    let row = PolicyLine::of("EventPolicy", &new).unwrap();
    assert_eq!(
        [&*row.mode, &*row.accepted, &*row.effective, &*row.reason],
        ["Enforce", "Unknown", "Unknown", "Pending"]
    );
}
