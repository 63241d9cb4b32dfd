//! `docs/metrics.md` is made from the tables that the metrics are registered from. `just generate` writes it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use squelch::engine::Disposition;
use squelch::metrics::table::{ALL, MAX_SCOPES, OTHER, Row, Type};
use squelch::metrics::{EvictionTable, FlushResult, PolicyCondition, PolicyKind, ProofResult, WriteOutcome};

const HEAD: &str = "# Metrics

<!-- Made from src/metrics/table.rs and src/metrics/labels.rs by `just generate`. -->

`/metrics` on `--http-bind`, in Prometheus' text format. Labels are closed sets: no label holds a reason, an object's
name or a message. What can be counted is there from the start with 0, so that `rate()` sees the first drop. The
process' own metrics are there too (`process_*`).
";

fn reference() -> String {
    let mut text = HEAD.to_owned();
    let _ = writeln!(
        text,
        "\n`policy` is `namespace/name` of the policy, or the `name` of a ClusterEventPolicy. Beyond {MAX_SCOPES} pairs of `event_namespace` and `policy`, both \
         labels are `{OTHER}`."
    );
    for row in ALL {
        let _ = write!(text, "\n## {}\n\n{}. {}{}\n", row.name, kind(row), labels(row), row.help);
        for label in row.labels {
            values(&mut text, row, label);
        }
    }
    text
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

/// What a label can be, where its values have a table.
fn values(text: &mut String, row: &Row, label: &str) {
    let values: Vec<(&str, &str)> = match label {
        "disposition" => Disposition::ALL.map(|of| (of.as_str(), meaning(of))).to_vec(),
        "outcome" => WriteOutcome::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "result" if row.name == "squelch_proofs_total" => {
            ProofResult::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect()
        }
        "result" => FlushResult::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "table" => EvictionTable::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "condition" => PolicyCondition::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect(),
        "kind" if row.name == "squelch_policies" => {
            PolicyKind::ALL.iter().map(|of| (of.as_str(), of.meaning())).collect()
        }
        _ => return,
    };
    let _ = writeln!(text, "\n| `{label}` | |\n|---|---|");
    for (value, meaning) in values {
        let _ = writeln!(text, "| `{value}` | {meaning} |");
    }
}

fn meaning(disposition: Disposition) -> &'static str {
    match disposition {
        Disposition::Admitted => "Went on to be stored as the client wrote it.",
        Disposition::Compacted => "Folded into the stored Event of its series.",
        Disposition::Aggregated => "Folded into a summary.",
        Disposition::Filtered => "Dropped by the spam filter.",
        Disposition::Throttled => "Dropped by the budget.",
        Disposition::FailedOpen => "Let through undecided.",
    }
}

#[test]
fn the_reference_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let expected = reference();
    if std::env::var_os("SQUELCH_GENERATE").is_some() {
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a checkout can be written");
        fs::write(&path, &expected).expect("a checkout can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/metrics.md is not what the tables say: run `just generate` and commit it"
    );
}
