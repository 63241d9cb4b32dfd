//! `docs/metrics.md` is generated from the tables of the registered metrics. `./justw generate` writes it.

#![expect(clippy::panic, reason = "a test, also in the functions around it")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use squelch::metrics::table::{ALL, MAX_OF_NAMESPACE, MAX_SCOPES, OTHER, Row, Type};
use squelch::metrics::{
    ArmTransition, BackgroundTask, EntryTable, EvictionTable, ExportLoss, ExporterKind, FlushResult,
    PendingLimit, PolicyKind, PolicyState, ProbeResult, RestoredField, ReviewResult, WatchedResource,
};
use squelch_engine::Disposition;

const HEAD: &str = "# Metrics

<!-- Made from src/metrics/table.rs and src/metrics/labels.rs by `./justw generate`. -->

`/metrics` on `--http-bind-address`, in Prometheus' text format. Labels are closed sets: no label holds a reason, an object's
name or a message. One scrape is gathered at a time. Gathering takes at most a tenth of one processor: a scrape beyond
that shows the last text again, which is older than a second only in clusters where gathering takes 100 ms, and never
older than ten seconds. What can be counted is there from the start with 0, so that `rate()` sees the first drop. The
process' own metrics are there too (`process_*`).
";

fn reference() -> String {
    let mut text = HEAD.to_owned();
    text.push_str(&scopes());
    for row in ALL {
        let _ = write!(text, "\n## {}\n\n{}. {}{}\n", row.name, kind(row), labels(row), row.help);
        for label in row.labels {
            values(&mut text, row, label);
        }
    }
    text
}

/// The section about labels that only the cluster bounds.
fn scopes() -> String {
    format!(
        "
## Namespaces and policies

`policy` is the name of the policy without its namespace, and `policy_kind` its kind. `event_namespace` is the namespace of
the Events, for an EventPolicy its own. There are at most {MAX_SCOPES} pairs of `event_namespace` and policy, of which one
namespace has at most {MAX_OF_NAMESPACE}. What has no pair of its own is counted under the policy `{OTHER}` of its namespace, or under its ClusterEventPolicy in the namespace `{OTHER}`, or under
`{OTHER}` in both labels.

The pairs of an EventPolicy are exported with 0 as soon as squelch knows the policy. A ClusterEventPolicy has a pair for
each namespace that it governs, within the limits, and one in the namespace `{OTHER}`. So `increase()` sees the
first burst, but for one that comes before the first scrape after the namespace or the EventPolicy was made. Where some of
the namespaces have no pair, what such a namespace counts before its first scrape is in the namespace `{OTHER}`.

Within one process no counter falls. Each occurrence is added to one pair, once, and stays there. A pair is removed one
hour after its policy or its namespace. If it returns it begins with 0, which Prometheus takes for a counter reset. So
`increase()` is right for each pair, and the increases of all pairs add up to everything that was counted. The values
themselves do not once a pair is removed: use `sum(increase(...))` rather than the increase of a `sum`.
"
    )
}

fn kind(row: &Row) -> &'static str {
    match row.metric_type {
        Type::Counter => "Counter",
        Type::Gauge => "Gauge",
        Type::Histogram => "Histogram",
    }
}

fn labels(row: &Row) -> String {
    if row.labels.is_empty() {
        return String::new();
    }
    let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
    format!("Labels: {}. ", labels.join(", "))
}

/// Appends the values of a label with a table.
fn values(text: &mut String, row: &Row, label: &str) {
    let values: Vec<(&str, &str)> = match label {
        "disposition" => Disposition::ALL.map(|of| (of.as_str(), meaning(of))).to_vec(),
        "result" if row.name == "squelch_reviews_total" => {
            ReviewResult::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect()
        }
        "result" if row.name == "squelch_probes_total" => {
            ProbeResult::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect()
        }
        "result" if row.name == "squelch_flushes_total" => {
            FlushResult::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect()
        }
        "field" => RestoredField::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "to" => ArmTransition::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "limit" => PendingLimit::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "table" if row.name == "squelch_table_entries" => {
            EntryTable::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect()
        }
        "table" => EvictionTable::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "task" => BackgroundTask::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "exporter" => ExporterKind::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "reason" => ExportLoss::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "state" => PolicyState::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "kind" if row.name == "squelch_policies" => {
            PolicyKind::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect()
        }
        "resource" => WatchedResource::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        // Without a table, or described in the section about namespaces and policies.
        "api" | "apiserver" | "event_namespace" | "operation" | "policy" | "policy_kind" | "version" => {
            return;
        }
        _ => panic!("no table of the values of {label}: add it here"),
    };
    let _ = writeln!(text, "\n| `{label}` | |\n|---|---|");
    for (value, meaning) in values {
        let _ = writeln!(text, "| `{value}` | {meaning} |");
    }
}

fn meaning(disposition: Disposition) -> &'static str {
    match disposition {
        Disposition::Admitted => "Stored as the client wrote it.",
        Disposition::Compacted => "Merged into the stored Event of its series.",
        Disposition::Aggregated => "Merged into a summary.",
        Disposition::Filtered => "Dropped by the spam filter.",
        Disposition::Throttled => "Dropped by the budget.",
        Disposition::Muted => "Dropped because it matches `mute`.",
        Disposition::FailedOpen => {
            "Admitted without a decision: no answer in time, overload, or an internal error."
        }
    }
}

#[test]
fn the_reference_matches_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let expected = reference();
    if std::env::var_os("SQUELCH_GENERATE").is_some() {
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a checkout can be written");
        fs::write(&path, &expected).expect("a checkout can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/metrics.md is out of date: run `./justw generate` and commit it");
}
