//! A cluster with realistic numbers, for tests and for the screens of `docs/kubectl-squelch.md`.

use jiff::Timestamp;
use kube::core::DynamicObject;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::snapshot::{TopModel, TopSource};

/// The time of the fixture, in seconds since 14:00 UTC.
pub(super) fn at(seconds: i64) -> Timestamp {
    let base: Timestamp = "2026-03-05T14:00:00Z".parse().unwrap();
    Timestamp::from_second(base.as_second() + seconds).unwrap()
}

/// The time at which the fixture is shown.
pub(super) fn now() -> Timestamp {
    at(250)
}

pub(super) fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

/// The counters received, admitted, compacted, aggregated, filtered, throttled, muted, failedOpen, recovered and
/// droppedWarnings.
fn counters(numbers: [i64; 9]) -> Value {
    let [admitted, compacted, aggregated, filtered, throttled, muted, failed_open, recovered, warnings] =
        numbers;
    json!({
        "received": numbers[..7].iter().sum::<i64>(), "admitted": admitted, "compacted": compacted,
        "aggregated": aggregated, "filtered": filtered, "throttled": throttled, "muted": muted,
        "failedOpen": failed_open, "recovered": recovered, "droppedWarnings": warnings,
    })
}

/// A report as squelch writes it: its sums are those of its policies.
pub(super) fn report(
    namespace: &str,
    updated: i64,
    policies: &[(&str, &str, [i64; 9])],
    dropped: &[Value],
) -> Value {
    let sum = |range: std::ops::Range<usize>| -> i64 {
        policies.iter().map(|(_, _, numbers)| numbers[range.clone()].iter().sum::<i64>()).sum()
    };
    let listed = policies.iter().map(|(kind, name, numbers)| {
        json!({ "policyKind": kind, "policyName": name, "policyUid": name, "counters": counters(*numbers) })
    });
    json!({
        "apiVersion": "squelch.dev/v1alpha1", "kind": "EventDropReport",
        "metadata": { "name": "squelch", "namespace": namespace, "uid": namespace },
        "suppressed": sum(1..6), "droppedOccurrences": sum(3..6), "droppedWarnings": sum(8..9),
        "policies": listed.collect::<Vec<_>>(), "dropped": dropped, "lastUpdated": at(updated).to_string(),
    })
}

/// An entry of `dropped`: type, reason, kind, component, disposition, count, last time and object.
pub(super) fn drops(texts: [&str; 5], count: i64, last: i64, object: &str) -> Value {
    let [event_type, reason, kind, component, disposition] = texts;
    json!({
        "policyKind": "EventPolicy", "policyName": "compact-repeats", "type": event_type, "reason": reason, "kind": kind,
        "component": component, "disposition": disposition, "count": count,
        "firstObservedTime": at(-3_000).to_string(), "lastObservedTime": at(last).to_string(),
        "exampleObject": object, "exampleMessage": format!("message about {object}"),
    })
}

pub(super) fn policy(
    namespace: Option<&str>,
    name: &str,
    mode: &str,
    reason: (&str, &str, &str),
    numbers: [i64; 9],
) -> Value {
    let (reason, status, message) = reason;
    let condition = |of: &str, status: &str, reason: &str| {
        json!({ "type": of, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": at(-9_000).to_string() })
    };
    json!({
        "apiVersion": "squelch.dev/v1alpha1",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "mode": mode },
        "status": {
            "conditions": [condition("Accepted", "True", "Accepted"), condition("Effective", status, reason)],
            "counters": counters(numbers), "since": at(-80_000).to_string(), "lastUpdated": at(240).to_string(),
        },
    })
}

/// Passes a complete list to the model.
pub(super) fn list(model: &mut TopModel, source: TopSource, objects: Vec<Value>, now: Timestamp) {
    model.apply(source, Event::Init, now);
    for value in objects {
        model.apply(source, Event::InitApply(object(value)), now);
    }
    model.apply(source, Event::InitDone, now);
}

const CI: [i64; 9] = [1_204, 38_950, 9_120, 2_210, 415, 0, 3, 0, 0];
const CI_BEFORE: [i64; 9] = [1_204, 38_350, 9_020, 2_110, 415, 0, 3, 0, 0];
const SHOP: [i64; 9] = [318, 6_004, 1_250, 960, 0, 0, 0, 2, 944];
const DATA: [i64; 9] = [77, 512, 0, 0, 0, 0, 0, 0, 0];
const FLUX: [i64; 9] = [40, 0, 0, 0, 0, 5_760, 0, 0, 0];
const KUBELET: [i64; 9] = [2_904, 118, 0, 0, 0, 0, 0, 0, 0];

/// Four namespaces and five policies. The namespace ci was reported twice.
pub(super) fn cluster() -> TopModel {
    let mut model = TopModel::new(None, &TopSource::ALL, Vec::new());
    let own = "EventPolicy";
    let ci = |updated, numbers, count| {
        let dropped = [
            drops(["Normal", "Pulled", "Pod", "kubelet", "filtered"], count, 225, "train-29-242pg"),
            drops(
                ["Normal", "Scheduled", "Pod", "default-scheduler", "throttled"],
                415,
                -900,
                "train-29-h859g",
            ),
        ];
        report("ci", updated, &[(own, "compact-repeats", numbers)], &dropped)
    };
    let shop = [
        drops(["Warning", "BackOff", "Pod", "kubelet", "filtered"], 944, 180, "web-7d4b9c6f5-x2x9q"),
        drops(
            ["Normal", "ScalingReplicaSet", "Deployment", "deployment-controller", "filtered"],
            16,
            -400,
            "web",
        ),
    ];
    let flux = [drops(
        ["Normal", "ReconciliationSucceeded", "Kustomization", "kustomize-controller", "muted"],
        5_760,
        205,
        "apps",
    )];
    let reports = vec![
        ci(190, CI_BEFORE, 2_110),
        report("shop", 184, &[(own, "limit-warnings", SHOP)], &shop),
        report("data", -3_400, &[("ClusterEventPolicy", "default", DATA)], &[]),
        report("flux-system", 210, &[("ClusterEventPolicy", "flux-reconciliations", FLUX)], &flux),
    ];
    list(&mut model, TopSource::Reports, reports, at(200));
    model.apply(TopSource::Reports, Event::Apply(object(ci(230, CI, 2_210))), at(231));
    let effective = ("Effective", "True", "the policy governs the Event writes that it matches");
    let overridden =
        ("Overridden", "False", "ci/compact-repeats governs every Event that this policy matches");
    let policies = vec![
        policy(Some("ci"), "compact-repeats", "Enforce", effective, CI),
        policy(Some("shop"), "limit-warnings", "Enforce", effective, SHOP),
        policy(Some("ci"), "old-limits", "Observe", overridden, [0; 9]),
    ];
    list(&mut model, TopSource::Policies, policies, at(201));
    let policies = vec![
        policy(None, "default", "Enforce", effective, DATA),
        policy(None, "flux-reconciliations", "Enforce", effective, FLUX),
        policy(None, "kubelet-observe", "Observe", effective, KUBELET),
    ];
    list(&mut model, TopSource::ClusterPolicies, policies, at(202));
    model
}
