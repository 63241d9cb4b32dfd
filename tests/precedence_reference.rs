//! `docs/precedence.md` is generated from the decisions of the code. `./justw generate` writes it; this test detects
//! differences.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use squelch::api::{ClusterEventPolicy, EventPolicy};
use squelch::policy::{Effect, Index, Labels, Set};
use squelch_engine::{Api, EventView, Observation, Operation};

const HEAD: &str = "# Which policy governs

<!-- Made from what src/policy decides by `./justw generate`. -->

At most one policy governs a write of an Event, and no other sees it. They are asked in this order; the first whose
`match` holds governs:

1. ClusterEventPolicies with `precedence: Override`,
2. the EventPolicies of the Event's namespace,
3. ClusterEventPolicies with `precedence: Default`.

Among those of one step the one with the higher `priority` is asked first; of equal ones the older
(`metadata.creationTimestamp`); of those the one whose name comes first in the alphabet. ClusterEventPolicies are asked
only where their `namespaceSelector` selects the namespace.

At most 64 EventPolicies of a namespace are in force there, and at most 64 of the ClusterEventPolicies that select it.
The texts in `match` of each of these groups weigh at most 2048 together: a text weighs 1 and 1 more for every 64
characters, one with more than one wildcard 8 and its characters from the first wildcard to the last. In the order above
each policy is in force that these limits leave room for. The others say `TooManyPolicies` in their conditions `Accepted` and `Effective`, and nothing is enforced by
them. A ClusterEventPolicy that a limit keeps out of some namespaces alone is in force in the others; the message of its
condition `Effective` names one of the former.

A `namespaceSelector` is evaluated for namespaces with at most 128 labels. In a namespace with more of them only the
ClusterEventPolicies that select every namespace are in force, and its own EventPolicies. The log names the namespace, and
the other ClusterEventPolicies name it in the message of their condition `Effective`.
";

/// The only label of the namespace.
const LABELS: [(&str, &str); 1] = [("team", "shop")];

/// A policy of the tables: a name, the fields besides the metadata, and its age.
struct Written {
    name: &'static str,
    cluster: bool,
    spec: Value,
    created: i64,
}

impl Written {
    fn own(name: &'static str, spec: Value) -> Self {
        Self { name, cluster: false, spec, created: 0 }
    }

    fn cluster(name: &'static str, precedence: &str, mut spec: Value) -> Self {
        spec["precedence"] = json!(precedence);
        Self { name, cluster: true, spec, created: 0 }
    }

    fn object(&self) -> DynamicObject {
        let mut object = if self.cluster {
            DynamicObject::new(self.name, &ApiResource::erase::<ClusterEventPolicy>(&()))
        } else {
            DynamicObject::new(self.name, &ApiResource::erase::<EventPolicy>(&())).within("ci")
        };
        object.metadata.uid = Some(format!("uid-of-{}", self.name));
        object.metadata.generation = Some(1);
        object.metadata.creation_timestamp = Timestamp::from_second(self.created).ok().map(Time);
        object.data(json!({ "spec": self.spec }))
    }
}

/// A set of these policies with namespace ci, whose labels are known or not yet.
fn set(policies: &[Written], known: bool) -> Set {
    let mut index = Index::default();
    for policy in policies {
        index.apply(&policy.object());
    }
    if known {
        let labels: Labels = LABELS.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        index.apply_namespace("ci", "1", labels);
    }
    index.set()
}

/// The policy that governs a Warning in namespace ci.
fn governing(policies: &[Written], known: bool) -> String {
    let write = Observation {
        operation: Operation::Create,
        api: Api::Core,
        user: "system:node:n1",
        own: false,
        dry_run: false,
        namespace: "ci",
        name: Some("pod.1".into()),
        generate_name: "".into(),
        event: EventView { event_type: "Warning".into(), reason: "BackOff".into(), ..EventView::default() },
        value: 1,
        old_value: 0,
        has_series: false,
        edited: false,
        unchanged: false,
        stale: false,
        first_seen: None,
        last_observed: None,
        occurred_at: Timestamp::UNIX_EPOCH,
    };
    let set = set(policies, known);
    match set.governing_in_known(&write) {
        Some(governing) if governing.exempt => {
            format!("{}, which exempts it", of(&governing.rules.policy.display))
        }
        Some(governing) => of(&governing.rules.policy.display),
        None => "none: it is stored as it comes".to_owned(),
    }
}

/// A policy's name without its namespace.
fn of(display: &str) -> String {
    format!("`{}`", display.rsplit('/').next().unwrap_or(display))
}

fn matching(matches: bool) -> Value {
    if matches {
        json!({ "match": { "types": ["Warning"] } })
    } else {
        json!({ "match": { "types": ["Normal"] } })
    }
}

fn tiers(text: &mut String) {
    let _ = writeln!(
        text,
        "\n## Between the steps\n\n| `strong`: ClusterEventPolicy, `Override` | `own`: EventPolicy of the namespace | \
         `weak`: ClusterEventPolicy, `Default` | governs |\n|---|---|---|---|"
    );
    let states = [None, Some(false), Some(true)];
    for strong in states {
        for own in states {
            for weak in states {
                let mut policies = Vec::new();
                policies.extend(strong.map(|is| Written::cluster("strong", "Override", matching(is))));
                policies.extend(own.map(|is| Written::own("own", matching(is))));
                policies.extend(weak.map(|is| Written::cluster("weak", "Default", matching(is))));
                let cells = [strong, own, weak].map(|state| match state {
                    None => "not there",
                    Some(false) => "does not match",
                    Some(true) => "**matches**",
                });
                let _ = writeln!(text, "| {} | {} |", cells.join(" | "), governing(&policies, true));
            }
        }
    }
}

fn row(text: &mut String, what: &str, policies: &[Written], known: bool) {
    let _ = writeln!(text, "| {what} | {} |", governing(policies, known));
}

fn within_a_tier(text: &mut String) {
    let _ =
        writeln!(text, "\n## Among those of one step\n\n| EventPolicies that match | governs |\n|---|---|");
    let policy = |name, priority: i64, created| {
        let spec = json!({ "priority": priority });
        Written { created, ..Written::own(name, spec) }
    };
    row(text, "`a` of priority 0, `b` of priority 1", &[policy("a", 0, 0), policy("b", 1, 0)], true);
    row(text, "`a` of priority -1, `b` of priority 0", &[policy("a", -1, 0), policy("b", 0, 0)], true);
    let (young, old) = (policy("a", 0, 60), policy("b", 0, 0));
    row(text, "`a` a minute younger than `b`, of the same priority", &[young, old], true);
    row(
        text,
        "`a` a minute younger than `b`, of higher priority",
        &[policy("a", 1, 60), policy("b", 0, 0)],
        true,
    );
    row(text, "`a` and `b`, of the same priority and second", &[policy("a", 0, 0), policy("b", 0, 0)], true);
}

fn what_counts(text: &mut String) {
    let _ = writeln!(text, "\n## What counts as a policy that matches\n\n| policies | governs |\n|---|---|");
    let weak = || Written::cluster("weak", "Default", json!({}));
    let wrong = json!({ "series": { "idleTimeout": "soon" } });
    row(text, "`own` is not accepted; `weak` matches", &[Written::own("own", wrong), weak()], true);
    let observing = json!({ "mode": "Observe" });
    row(
        text,
        "`own` matches in `mode: Observe`; `weak` matches",
        &[Written::own("own", observing), weak()],
        true,
    );
    let exempting = json!({ "exempt": [{ "types": ["Warning"] }] });
    row(
        text,
        "`own` matches and exempts the Event; `weak` matches",
        &[Written::own("own", exempting), weak()],
        true,
    );

    let _ = writeln!(
        text,
        "\n## Where a ClusterEventPolicy is asked\n\nThe namespace has the label `team: shop`.\n\n\
         | `namespaceSelector` | governs |\n|---|---|"
    );
    let selecting =
        |selector: Value| [Written::cluster("weak", "Default", json!({ "namespaceSelector": selector }))];
    row(text, "not given", &[weak()], true);
    row(text, "`{}`", &selecting(json!({})), true);
    row(text, "`matchLabels: {team: shop}`", &selecting(json!({ "matchLabels": { "team": "shop" } })), true);
    row(text, "`matchLabels: {team: bank}`", &selecting(json!({ "matchLabels": { "team": "bank" } })), true);
    let exists = json!({ "matchExpressions": [{ "key": "team", "operator": "Exists" }] });
    row(text, "`matchExpressions: [{key: team, operator: Exists}]`", &selecting(exists), true);
    let new = "in a namespace made so short a time ago that squelch does not know its labels";
    row(text, &format!("not given, {new}"), &[weak()], false);
    let shop = selecting(json!({ "matchLabels": { "team": "shop" } }));
    row(text, &format!("`matchLabels: {{team: shop}}`, {new}"), &shop, false);
}

/// A policy that matches every Event.
fn own() -> Written {
    Written::own("own", json!({}))
}

/// A policy of higher priority that matches Warnings, or Normal Events.
fn before(name: &'static str, matches_warnings: bool) -> Written {
    let mut spec = matching(matches_warnings);
    spec["priority"] = json!(1);
    Written::own(name, spec)
}

/// A policy that matches Warnings and Normal Events.
fn both() -> Written {
    Written::own("own", json!({ "match": { "types": ["Normal", "Warning"] } }))
}

/// [`own`] with a number of policies before it.
fn behind(count: usize) -> Vec<Written> {
    (0..count).map(|at| before(format!("p{at}").leak(), true)).chain([own()]).collect()
}

/// A policy whose `match` weighs 100 per text.
fn heavy(name: &'static str, priority: i64, texts: usize) -> Written {
    let texts = vec![format!("*{}*", "x".repeat(90)); texts];
    Written::own(name, json!({ "priority": priority, "match": { "reasons": texts } }))
}

/// The status of the last policy.
fn effective_condition(policies: &[Written]) -> &'static str {
    let set = set(policies, true);
    let last = policies.last().expect("a policy");
    let policy = set.policies().iter().find(|policy| *policy.name == *last.name).expect("it was applied");
    match set.effect(policy) {
        Some(Effect::Governs) => "True, `Effective`",
        Some(Effect::GovernsInPart(_)) => {
            "True, `Effective`, with a message that names a namespace without it"
        }
        Some(Effect::TooMany(_)) => "False, `TooManyPolicies`",
        Some(Effect::Overridden { .. }) => "False, `Overridden`",
        Some(Effect::NoNamespaces { unevaluated: _ }) => "False, `NoNamespaces`",
        None => "False, `Invalid`",
    }
}

fn conditions(text: &mut String) {
    let _ = writeln!(
        text,
        "\n## What its status says\n\nA policy says in its condition `Effective` when another one leaves it nothing to govern, or \
         several together do, as far as comparing the entries of each `match` shows. (While the webhook is not armed, policies that are `Effective` here say `WebhookNotArmed`.)\n\n\
         | `own`: EventPolicy | beside it | its `Effective` |\n|---|---|---|"
    );
    let strong = |spec| Written::cluster("strong", "Override", spec);
    for (what, beside, policies) in [
        ("any", "nothing", vec![own()]),
        ("any", "`strong`, which matches every Event", vec![strong(json!({})), own()]),
        ("any", "`strong`, which matches Warnings", vec![strong(matching(true)), own()]),
        (
            "any",
            "`weak`, which matches every Event",
            vec![Written::cluster("weak", "Default", json!({})), own()],
        ),
        (
            "any",
            "an EventPolicy of higher priority, which matches every Event",
            vec![Written::own("first", json!({ "priority": 1 })), own()],
        ),
        (
            "any",
            "two EventPolicies of higher priority, one matches Warnings and the other Normal Events (core/v1 takes other \
             types too)",
            vec![before("first", true), before("second", false), own()],
        ),
        (
            "matches Warnings and Normal Events",
            "two EventPolicies of higher priority, one matches Warnings and the other Normal Events",
            vec![before("first", true), before("second", false), both()],
        ),
        ("any", "63 EventPolicies of higher priority, which match Warnings", behind(63)),
        ("any", "64 EventPolicies of higher priority, which match Warnings", behind(64)),
        (
            "its `match` weighs 1000",
            "an EventPolicy of higher priority, whose `match` weighs 1000",
            vec![heavy("first", 1, 10), heavy("own", 0, 10)],
        ),
        (
            "its `match` weighs 1100",
            "an EventPolicy of higher priority, whose `match` weighs 1000",
            vec![heavy("first", 1, 10), heavy("own", 0, 11)],
        ),
        (
            "not accepted",
            "nothing",
            vec![Written::own("own", json!({ "series": { "idleTimeout": "soon" } }))],
        ),
    ] {
        let _ = writeln!(text, "| {what} | {beside} | {} |", effective_condition(&policies));
    }
}

fn conditions_of_cluster_policies(text: &mut String) {
    let _ = writeln!(text, "\n| `weak`: ClusterEventPolicy | beside it | its `Effective` |\n|---|---|---|");
    let weak = |spec| Written::cluster("weak", "Default", spec);
    let bank = json!({ "namespaceSelector": { "matchLabels": { "team": "bank" } } });
    let shop = json!({ "namespaceSelector": { "matchLabels": { "team": "shop" } } });
    for (what, beside, policies) in [
        ("selects every namespace", "nothing", vec![weak(json!({}))]),
        ("selects no namespace that is there", "nothing", vec![weak(bank)]),
        ("selects one namespace", "an EventPolicy there, which matches every Event", vec![own(), weak(shop)]),
        (
            "selects every namespace",
            "an EventPolicy in one, which matches every Event",
            vec![own(), weak(json!({}))],
        ),
    ] {
        let _ = writeln!(text, "| {what} | {beside} | {} |", effective_condition(&policies));
    }
}

fn reference() -> String {
    let mut text = HEAD.to_owned();
    tiers(&mut text);
    within_a_tier(&mut text);
    what_counts(&mut text);
    conditions(&mut text);
    conditions_of_cluster_policies(&mut text);
    text
}

#[test]
fn the_reference_matches_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/precedence.md");
    let expected = reference();
    if std::env::var_os("SQUELCH_GENERATE").is_some() {
        fs::write(&path, &expected).expect("a checkout can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/precedence.md is out of date: run `./justw generate`, review the changes, and commit it"
    );
}
