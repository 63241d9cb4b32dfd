//! The tables of the condition `Effective`.

use std::fmt::Write as _;

use serde_json::json;
use squelch::policy::Effect;

use super::{Written, matching, set};

/// A policy of higher priority that matches Warnings, or Normal Events.
fn before(name: &'static str, matches_warnings: bool) -> Written {
    let mut spec = matching(matches_warnings);
    spec["priority"] = json!(1);
    Written::own(name, spec)
}

/// [`own`] with a number of policies before it.
fn behind(count: usize) -> Vec<Written> {
    (0..count).map(|at| before(format!("p{at}").leak(), true)).chain([own()]).collect()
}

/// A policy whose `match` weighs 100 per text.
fn heavy(name: &'static str, priority: i64, texts: usize) -> Written {
    let texts = vec![format!("*{}*", "x".repeat(90)); texts];
    Written::own(name, json!({ "priority": priority, "match": [{ "reasons": texts }] }))
}

/// The status of the last policy.
fn effective_condition(policies: &[Written]) -> &'static str {
    let set = set(policies, true);
    let last = policies.last().expect("a policy");
    let policy = set.policies().iter().find(|policy| *policy.name == *last.name).expect("it was applied");
    match set.effect(policy) {
        Some(Effect::Governs) => "True, `Effective`",
        Some(Effect::GovernsInPart(_)) => {
            "True, `PartiallyEffective`; its message names a namespace in which it is not in force"
        }
        Some(Effect::TooMany(_)) => "False, `TooManyPolicies`",
        Some(Effect::Overridden { .. }) => "False, `Overridden`",
        Some(Effect::NoNamespaces { unevaluated: _ }) => "False, `NoNamespaces`",
        None => "False, `Invalid`",
    }
}

pub(super) fn conditions(text: &mut String) {
    let _ = writeln!(
        text,
        "\n## The condition `Effective`\n\nThe condition is False if other policies govern every write that the policy \
         could match. To find out, squelch compares the\nentries of each `match`. A policy with `exclude` overrides no other one: what it leaves is not compared. While the webhook is not armed, or until the API server \
         has acknowledged rules that include the\nnamespaces of a policy, a policy with the reason `Effective` below has \
         the reason `WebhookNotArmed`.\n\n\
         | `own`: EventPolicy | other policies | condition `Effective` of `own` |\n|---|---|---|"
    );
    let strong = |spec| Written::cluster("strong", "Override", spec);
    for (what, beside, policies) in [
        ("matches every Event", "none", vec![own()]),
        ("matches every Event", "`strong` matches every Event", vec![strong(json!({})), own()]),
        ("matches every Event", "`strong` matches Warnings", vec![strong(matching(true)), own()]),
        (
            "matches every Event",
            "`weak` matches every Event",
            vec![Written::cluster("weak", "Default", json!({})), own()],
        ),
        (
            "matches every Event",
            "an EventPolicy of higher priority matches every Event",
            vec![Written::own("first", json!({ "priority": 1 })), own()],
        ),
        (
            "matches every Event",
            "two EventPolicies of higher priority, one matches Warnings and the other Normal Events",
            vec![before("first", true), before("second", false), own()],
        ),
        ("matches every Event", "63 EventPolicies of higher priority match Warnings", behind(63)),
        ("matches every Event", "64 EventPolicies of higher priority match Warnings", behind(64)),
        (
            "weight 1000",
            "an EventPolicy of higher priority has weight 1000",
            vec![heavy("first", 1, 10), heavy("own", 0, 10)],
        ),
        (
            "weight 1100",
            "an EventPolicy of higher priority has weight 1000",
            vec![heavy("first", 1, 10), heavy("own", 0, 11)],
        ),
        ("invalid", "none", vec![Written::own("own", json!({ "series": { "idleTimeout": "soon" } }))]),
    ] {
        let _ = writeln!(text, "| {what} | {beside} | {} |", effective_condition(&policies));
    }
}

pub(super) fn conditions_of_cluster_policies(text: &mut String) {
    let _ = writeln!(
        text,
        "\n| `weak`: ClusterEventPolicy | other policies | condition `Effective` of `weak` |\n|---|---|---|"
    );
    let weak = |spec| Written::cluster("weak", "Default", spec);
    let bank = json!({ "namespaceSelector": { "matchLabels": { "team": "bank" } } });
    let shop = json!({ "namespaceSelector": { "matchLabels": { "team": "shop" } } });
    for (what, beside, policies) in [
        ("selects every namespace", "none", vec![weak(json!({}))]),
        ("selects no existing namespace", "none", vec![weak(bank)]),
        (
            "selects one namespace",
            "an EventPolicy of that namespace matches every Event",
            vec![own(), weak(shop)],
        ),
        (
            "selects every namespace",
            "an EventPolicy of one namespace matches every Event",
            vec![own(), weak(json!({}))],
        ),
    ] {
        let _ = writeln!(text, "| {what} | {beside} | {} |", effective_condition(&policies));
    }
}

/// A policy that matches every Event.
fn own() -> Written {
    Written::own("own", json!({}))
}
