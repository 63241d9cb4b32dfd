//! The chart: its values are documented and validated, and its flags exist. (The end-to-end test `scenarios` checks
//! the rendered objects with the API server.)

#![expect(clippy::unwrap_used, reason = "a test, also in the functions around it")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use serde_json::Value;
use squelch::config::Cli;

fn chart(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/squelch").join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(chart(file)).unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Every value by its path; descends into maps whose properties the schema lists.
fn paths(value: &Value, schema: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().unwrap() {
        let path = format!("{prefix}{key}");
        let schema = &schema["properties"][key];
        assert!(schema.is_object(), "values.schema.json lacks {path}");
        if schema["properties"].is_object() {
            paths(value, schema, &format!("{path}."), found);
        } else {
            found.insert(path);
        }
    }
}

#[test]
fn the_schema_lists_exactly_the_values() {
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let mut there = BTreeSet::new();
    paths(&yaml(&read("values.yaml")), &schema, "", &mut there);
    let mut known = BTreeSet::new();
    leaves(&schema, "", &mut known);
    // An optional part of a container's resources, and what only a parent chart sets.
    known.retain(|path| !path.ends_with("resources.claims") && path != "enabled");
    assert_eq!(there, known);
}

fn leaves(schema: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    for (key, schema) in schema["properties"].as_object().unwrap() {
        let path = format!("{prefix}{key}");
        if schema["properties"].is_object() {
            // A parent chart passes its own global values too.
            let is_closed = schema["additionalProperties"] == Value::Bool(false);
            assert!(is_closed || path == "global", "{path} accepts any property");
            leaves(schema, &format!("{path}."), found);
        } else {
            found.insert(path);
        }
    }
}

#[test]
fn every_value_is_documented() {
    let text = read("values.yaml");
    let mut documented = false;
    let mut within_default = 0;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if line.trim_start().starts_with('#') {
            documented |= line.trim_start().starts_with("# -- ");
        } else if line.trim().is_empty() {
            documented = false;
        } else if within_default > 0 && indent >= within_default {
            // A part of a documented default.
        } else {
            let group = line.ends_with(':') && !documented;
            assert!(group || documented, "values.yaml does not document {line}");
            within_default = if documented && line.ends_with(':') { indent + 1 } else { 0 };
            documented = false;
        }
    }
}

#[test]
fn the_chart_uses_existing_flags() {
    let command = Cli::command();
    for (template, subcommand) in
        [("deployment.yaml", "run"), ("uninstall.yaml", "uninstall"), ("doctor.yaml", "doctor")]
    {
        let known = command.find_subcommand(subcommand).unwrap();
        let known: BTreeSet<_> = known.get_arguments().filter_map(clap::Arg::get_long).collect();
        let text = read(&format!("templates/{template}"));
        let asked: BTreeSet<_> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- --"))
            .filter_map(|flag| flag.split_once('='))
            .map(|(flag, _)| flag)
            .collect();
        assert!(asked.len() > 3, "{template}: {asked:?}");
        assert!(asked.is_subset(&known), "{template}: squelch {subcommand} has no {:?}", &asked - &known);
        for (flag, value) in text.lines().filter_map(|line| line.trim().strip_prefix("- --")?.split_once('='))
        {
            let mut arguments = command.find_subcommand(subcommand).unwrap().get_arguments();
            let argument = arguments.find(|argument| argument.get_long() == Some(flag)).unwrap();
            let possible = argument.get_possible_values();
            let is_template = value.contains("{{");
            assert!(
                is_template || possible.is_empty() || possible.iter().any(|it| it.matches(value, false)),
                "{template}: --{flag} has no value {value}"
            );
        }
    }
}

/// The rules of a file's roles, as in a cluster.
fn rules(text: &str) -> BTreeSet<String> {
    let mut rules = BTreeSet::new();
    for document in text.split("\n---\n") {
        let object = yaml(document);
        for rule in object["rules"].as_array().into_iter().flatten() {
            rules.insert(format!("{}: {rule}", object["kind"]));
        }
    }
    rules
}

#[test]
fn the_chart_grants_the_permissions_that_doctor_checks() {
    let template = read("templates/rbac.yaml");
    let named = template
        .replace(r#"{{ include "squelch.secret" . }}"#, "squelch-webhook")
        .replace("{{ $name }}", "squelch")
        .replace("{{ .Release.Namespace }}", "squelch");
    let rendered: Vec<_> = named.lines().filter(|line| !line.contains("{{")).collect();
    let given = rules(&rendered.join("\n"));
    let asked = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/rbac.yaml")).unwrap();
    assert_eq!(given, rules(&asked));
    assert!(given.len() > 5);
}

/// Each scope with the verbs that are granted there together.
#[test]
fn security_md_lists_the_permissions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("deploy/rbac.yaml")).unwrap();
    let mut granted = BTreeSet::new();
    for object in text.split("\n---\n").map(yaml) {
        let scope = match object["metadata"]["namespace"].as_str() {
            None => "cluster".to_owned(),
            Some("squelch") => "its own namespace".to_owned(),
            Some(other) => format!("the namespace `{other}`"),
        };
        for rule in object["rules"].as_array().into_iter().flatten() {
            let verbs: Vec<_> =
                rule["verbs"].as_array().unwrap().iter().map(|verb| verb.as_str().unwrap()).collect();
            granted.insert((scope.clone(), verbs.join(", ")));
        }
    }
    let text = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let table = text.lines().skip_while(|line| line.trim() != "| where | what | verbs |").skip(2);
    let rows = table.map_while(|line| line.trim().strip_prefix("| ")?.strip_suffix(" |"));
    let listed: BTreeSet<_> = rows
        .map(|row| {
            let (scope, verbs) = (row.split(" | ").next().unwrap(), row.rsplit(" | ").next().unwrap());
            (scope.to_owned(), verbs.replace('`', ""))
        })
        .collect();
    assert_eq!(listed, granted);
}

/// How SECURITY.md names each resource.
const NAMED: [(&str, &str); 14] = [
    ("clustereventpolicies", "ClusterEventPolicies"),
    ("clustereventpolicies/status", "the status of both policies"),
    ("clusterroles", "the ClusterRole"),
    ("endpointslices", "EndpointSlices"),
    ("eventdropreports", "the EventDropReport"),
    ("eventpolicies", "EventPolicies"),
    ("eventpolicies/status", "the status of both policies"),
    ("events", "Events of"),
    ("leases", "the Lease"),
    ("mutatingwebhookconfigurations", "the MutatingWebhookConfiguration"),
    ("namespaces", "namespaces"),
    ("pods", "pods"),
    ("secrets", "the Secret"),
    ("selfsubjectreviews", "SelfSubjectReviews"),
];

#[test]
fn security_md_names_every_resource() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let table: Vec<_> = text
        .lines()
        .skip_while(|line| line.trim() != "| where | what | verbs |")
        .skip(2)
        .take_while(|line| line.trim().starts_with('|'))
        .collect();
    let text = fs::read_to_string(root.join("deploy/rbac.yaml")).unwrap();
    let mut granted = BTreeSet::new();
    for object in text.split("\n---\n").map(yaml) {
        for rule in object["rules"].as_array().into_iter().flatten() {
            granted.extend(
                rule["resources"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()),
            );
        }
    }
    assert_eq!(granted, NAMED.iter().map(|(resource, _)| (*resource).to_owned()).collect());
    for (resource, name) in NAMED {
        assert!(table.iter().any(|row| row.contains(name)), "SECURITY.md does not list {resource}");
    }
}

#[test]
fn the_chart_has_this_version_and_the_committed_crds() {
    let about = yaml(&read("Chart.yaml"));
    assert_eq!(
        (&about["version"], &about["appVersion"]),
        (&about["appVersion"], &env!("CARGO_PKG_VERSION").into())
    );
    let definitions = squelch::api::crds();
    for (name, _) in &definitions {
        let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds").join(name);
        assert_eq!(read(&format!("files/crds/{name}")), fs::read_to_string(committed).unwrap(), "{name}");
    }
    assert_eq!(fs::read_dir(chart("files/crds")).unwrap().count(), definitions.len());
}

#[test]
fn every_scenario_begins_with_a_comment() {
    let mut scenarios = 0;
    for entry in fs::read_dir(chart("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{} does not begin with a comment", path.display());
        assert!(yaml(&text).is_object(), "{}", path.display());
        scenarios += 1;
    }
    assert!(scenarios >= 10, "only {scenarios}");
}

/// The active replica sets the label itself. In the template all pods would have it, and in the Deployment's selector
/// it would orphan pods that lose it.
#[test]
fn only_the_webhook_service_selects_the_active_label() {
    let label = "squelch.dev/role: active";
    let holders =
        ["deployment.yaml", "_helpers.tpl", "availability.yaml", "monitoring.yaml", "networkpolicy.yaml"];
    for template in holders {
        assert!(!read(&format!("templates/{template}")).contains(label), "{template}");
    }
    let services = read("templates/services.yaml");
    let (webhook, metrics) = services.split_once("---").unwrap();
    assert!(webhook.contains(label) && webhook.contains("publishNotReadyAddresses: true"));
    assert!(!metrics.contains(label), "the metrics Service selects every replica");
}

/// A NetworkPolicy rule without peers allows all peers, so each must begin with its peers. (The end-to-end test
/// `scenarios` checks the rendered objects.)
#[test]
fn every_rule_of_the_network_policy_begins_with_its_peers() {
    let template = read("templates/networkpolicy.yaml");
    let mut rules = 0;
    let mut begins = "";
    for line in template.lines() {
        begins = match line {
            "  ingress:" => "  - from:",
            "  egress:" => "  - to:",
            _ => begins,
        };
        if line.starts_with("  - ") {
            assert_eq!(line, begins);
            rules += 1;
        }
    }
    assert_eq!(rules, 6, "reviews, scrapes, probes; the API server, the collector, DNS");
    let refused = template.lines().position(|line| line == "{{- if not $values.apiServerPeers }}").unwrap();
    let reason = template.lines().nth(refused + 1).unwrap();
    assert!(reason.starts_with("{{- fail \"networkPolicy.apiServerPeers"), "{reason}");
}
