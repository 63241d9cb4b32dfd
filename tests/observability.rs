//! Alerts, dashboard, runbooks and docs use existing metrics, labels and values. (promtool tests the alerts: `just
//! gates`.)

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test, also in the functions around it")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use squelch::metrics::table::{ALL, OTHER, Row, Type};
use squelch::metrics::{
    ArmTransition, BackgroundTask, EntryTable, EvictionTable, ExportLoss, ExporterKind, FlushResult,
    PendingLimit, PolicyKind, PolicyState, ProbeResult, RestoredField, ReviewResult, WatchedResource,
};
use squelch_engine::Disposition;

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The texts for users and for Prometheus, with their file names.
fn texts() -> Vec<(String, String)> {
    let mut paths: Vec<String> = ["rules.yaml", "rules_test.yaml", "dashboard.json"]
        .map(|file| format!("charts/squelch/files/{file}"))
        .into();
    // The changelog has old names too.
    paths.extend(["README.md", "ARCHITECTURE.md"].map(str::to_owned));
    for folder in ["docs", "examples/policies"] {
        let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
        let files = files.map(Result::unwrap).filter(|entry| entry.file_type().unwrap().is_file());
        let names = files.map(|file| file.file_name().into_string().unwrap());
        paths.extend(names.map(|name| format!("{folder}/{name}")));
    }
    paths.into_iter().map(|path| (path.clone(), read(path).replace("\\\"", "\""))).collect()
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Each metric name in a text, and the text after it.
fn mentions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices("squelch_").filter_map(|(at, _)| {
        // Not the archives of kubectl-squelch.
        let begins = text[..at].chars().next_back().is_none_or(|before| before != '-' && !is_name(before));
        let end = text[at..].find(|letter| !is_name(letter)).map_or(text.len(), |length| at + length);
        begins.then_some((&text[at..end], &text[end..]))
    })
}

fn row(name: &str) -> Option<&'static &'static Row> {
    ALL.iter().find(|row| {
        let suffixes = ["_bucket", "_sum", "_count"];
        let series = suffixes.iter().any(|suffix| name.strip_suffix(suffix) == Some(row.name));
        row.name == name || row.metric_type == Type::Histogram && series
    })
}

/// The matchers after a name: labels with their values.
fn matchers(rest: &str) -> Vec<(&str, Vec<&str>)> {
    let Some(inside) = rest.strip_prefix('{') else { return Vec::new() };
    let inside = inside.split('}').next().unwrap();
    let parts = inside.split(',').filter(|part| part.contains('"'));
    parts
        .map(|part| {
            let (label, value) = part.split_once('=').unwrap();
            (label.trim().trim_end_matches('!'), value.split('"').nth(1).unwrap().split('|').collect())
        })
        .collect()
}

/// The values of a label with a table, and nothing for a label whose values have none.
fn values(row: &Row, label: &str) -> Option<Vec<&'static str>> {
    Some(match label {
        "disposition" => Disposition::ALL.map(Disposition::as_str).to_vec(),
        "result" if row.name == "squelch_reviews_total" => {
            ReviewResult::ALL.iter().map(|of| of.as_str()).collect()
        }
        "result" if row.name == "squelch_probes_total" => {
            ProbeResult::ALL.iter().map(|of| of.as_str()).collect()
        }
        "result" => FlushResult::ALL.iter().map(|of| of.as_str()).collect(),
        "field" => RestoredField::ALL.iter().map(|of| of.as_str()).collect(),
        "to" => ArmTransition::ALL.iter().map(|of| of.as_str()).collect(),
        "limit" => PendingLimit::ALL.iter().map(|of| of.as_str()).collect(),
        "table" if row.name == "squelch_table_entries" => {
            EntryTable::ALL.iter().map(|of| of.as_str()).collect()
        }
        "table" => EvictionTable::ALL.iter().map(|of| of.as_str()).collect(),
        "task" => BackgroundTask::ALL.iter().map(|of| of.as_str()).collect(),
        "exporter" => ExporterKind::ALL.iter().map(|of| of.as_str()).collect(),
        "reason" => ExportLoss::ALL.iter().map(|of| of.as_str()).collect(),
        "state" => PolicyState::ALL.iter().map(|of| of.as_str()).collect(),
        "kind" if row.name == "squelch_policies" => PolicyKind::ALL.iter().map(|of| of.as_str()).collect(),
        "resource" => WatchedResource::ALL.iter().map(|of| of.as_str()).collect(),
        "policy_kind" => PolicyKind::ALL.iter().map(|of| of.as_str()).chain([OTHER]).collect(),
        "api" | "apiserver" | "event_namespace" | "operation" | "policy" | "version" => return None,
        _ => panic!("no table of the values of {label}: add it here"),
    })
}

#[test]
fn the_values_of_every_label_are_known() {
    for row in ALL {
        for label in row.labels {
            values(row, label);
        }
    }
}

#[test]
fn every_documented_metric_exists() {
    let mut seen = BTreeSet::new();
    for (path, text) in texts() {
        for (name, rest) in mentions(&text) {
            let row = row(name);
            assert!(row.is_some(), "{path} names {name}, which is not a metric");
            let row = row.unwrap();
            seen.insert(row.name);
            // Docs name labels in braces, without values.
            for (label, asked) in matchers(rest) {
                // Prometheus adds the scraped pod, and a histogram its buckets.
                if label == "pod" || label == "le" && row.metric_type == Type::Histogram {
                    continue;
                }
                assert!(row.labels.contains(&label), "{path}: {name} has no label {label}");
                if let Some(known) = values(row, label) {
                    assert!(
                        asked.iter().all(|value| known.contains(value)),
                        "{path}: {name}: {label}={asked:?}"
                    );
                }
            }
        }
    }
    assert_eq!(seen.len(), ALL.len(), "docs/metrics.md must describe each metric");
}

/// The alerts with their rules.
fn alerts() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read("charts/squelch/files/rules.yaml")).unwrap();
    rules["groups"][0]["rules"].as_array().unwrap().clone()
}

#[test]
fn every_alert_has_a_runbook_and_positive_and_negative_tests() {
    let runbooks = read("docs/runbooks.md");
    // The first sections are about no alert.
    let of_alerts = |section: &&str| section.starts_with("Squelch");
    let sections: Vec<&str> =
        runbooks.split("\n## ").skip(1).skip_while(|section| !of_alerts(section)).collect();
    let tests: Value = serde_saphyr::from_str(&read("charts/squelch/files/rules_test.yaml")).unwrap();
    let tests: Vec<&Value> = tests["tests"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|test| test["alert_rule_test"].as_array().unwrap())
        .collect();
    let alerts = alerts();
    assert!(alerts.len() >= 10);
    assert_eq!(alerts.len(), sections.len());
    for (alert, section) in alerts.iter().zip(sections) {
        let name = alert["alert"].as_str().unwrap();
        assert_eq!(section.lines().next(), Some(name), "the runbooks must have the order of the rules");
        let anchor = format!("https://squelch.dev/docs/runbooks.md#{}", name.to_lowercase());
        assert_eq!(alert["annotations"]["runbook_url"], anchor);
        for paragraph in ["**Meaning.**", "**Impact.**", "**Action.**", "**Resolved when.**"] {
            assert!(section.contains(paragraph), "{name} lacks {paragraph}");
        }
        let outcomes: Vec<bool> = tests
            .iter()
            .filter(|test| test["alertname"] == name)
            .map(|test| !test["exp_alerts"].as_array().unwrap().is_empty())
            .collect();
        assert!(outcomes.contains(&true) && outcomes.contains(&false), "{name}: {outcomes:?}");
    }
}

#[test]
fn every_panel_uses_the_chosen_data_source_and_has_a_description() {
    let dashboard: Value = serde_json::from_str(&read("charts/squelch/files/dashboard.json")).unwrap();
    assert_eq!(dashboard["templating"]["list"][0]["type"], "datasource");
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let chosen =
        |of: &Value| of["datasource"]["uid"] == "${datasource}" && of["datasource"]["type"] == "prometheus";
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title} has a duplicate id");
        assert!(panel["description"].as_str().unwrap().ends_with('.'), "{title}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty() && chosen(panel) && targets.iter().all(chosen), "{title}");
    }
    let titles: Vec<&str> = panels.iter().map(|panel| panel["title"].as_str().unwrap()).collect();
    for shown in ["received and stored", "disposition", "Top namespaces", "Latency", "Pending", "Armed"] {
        assert!(titles.iter().any(|title| title.contains(shown)), "no panel shows {shown}");
    }
}

#[test]
fn the_dashboard_counts_every_admitted_review_as_stored() {
    let dashboard: Value = serde_json::from_str(&read("charts/squelch/files/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut stored = targets.filter(|target| target["legendFormat"] == "stored");
    let query = stored.next().unwrap()["expr"].as_str().unwrap();
    let counted = query.split("squelch_reviews_total{result=~\"").nth(1).unwrap().split('"').next().unwrap();
    for result in
        [ReviewResult::Allowed, ReviewResult::Named, ReviewResult::FailedOpen, ReviewResult::Standby]
    {
        assert!(counted.split('|').any(|it| it == result.as_str()), "{counted} lacks {}", result.as_str());
    }
    assert!(stored.next().is_none());
}
