//! Output of kubectl and of the metrics endpoint.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use anyhow::Result;
use e2e::process::run_with_input;

use crate::stage::{NO_POLICY, RATES, Stage, WITH_POLICY};

/// Number of shown Events per reason.
const SHOWN: usize = 2;

/// `kubectl get events` shows no counts by itself: they are in `count` (v1) or in `series` (events.k8s.io).
const COLUMNS: &str = "custom-columns=REASON:.reason,KIND:.involvedObject.kind,OBJECT:.involvedObject.name,\
                       COUNT:.count,SERIES:.series.count,MESSAGE:.message";

/// The metrics of suppressed occurrences and of their cost.
const METRICS: [&str; 6] = [
    "squelch_occurrences_total",
    "squelch_lost_occurrences_total",
    "squelch_pending_occurrences",
    "squelch_reviews_total",
    "squelch_flushes_total",
    "squelch_armed",
];

/// The policies, the Events of both namespaces, and the metrics.
pub(crate) async fn everything(stage: &Stage) -> Result<String> {
    let mut text = String::new();
    let policies = stage.cluster.kubectl.run(&["get", "eventpolicies", "--all-namespaces"]).await?;
    let _ = write!(text, "\n$ kubectl get eventpolicies --all-namespaces\n{policies}");
    for namespace in [NO_POLICY, WITH_POLICY] {
        let events = stage.kubectl(namespace).run(&["get", "events", "--output", COLUMNS]).await?;
        let _ = write!(text, "\n$ kubectl get events --namespace {namespace} --output custom-columns=...\n");
        text += &shortened(&events);
    }
    let metrics = stage.squelch.admin().get("/metrics").await?;
    let _ = writeln!(
        text,
        "\n$ curl {}/metrics     (suppressed occurrences and their cost; without the zeros of _reviews_ and _flushes_)",
        stage.squelch.admin().url
    );
    for name in METRICS {
        for line in metrics.lines().filter(|line| is_shown(line, name)) {
            let _ = writeln!(text, "{line}");
        }
    }
    let asked = ["query", "instant", &stage.prometheus.url, RATES];
    let rates = run_with_input(Command::new("promtool").args(asked), "")?;
    let _ = write!(text, "\n$ promtool {}\n{}", asked.join(" "), String::from_utf8_lossy(&rates.stdout));
    Ok(text)
}

/// The first lines of each reason, and the number of the others.
fn shortened(events: &str) -> String {
    let mut lines = events.lines();
    let mut text = lines.next().map(|header| format!("{header}\n")).unwrap_or_default();
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in lines {
        by_reason.entry(line.split_whitespace().next().unwrap_or_default()).or_default().push(line);
    }
    for (reason, lines) in by_reason {
        for line in lines.iter().take(SHOWN) {
            let _ = writeln!(text, "{line}");
        }
        if lines.len() > SHOWN {
            let _ = writeln!(text, "... and {} more {reason}", lines.len() - SHOWN);
        }
    }
    text
}

/// Whether a line is a sample of the metric; zeros of metrics with many children are hidden.
fn is_shown(line: &str, name: &str) -> bool {
    let Some(rest) = line.strip_prefix(name) else { return false };
    let many = ["squelch_reviews_total", "squelch_flushes_total"].contains(&name);
    rest.starts_with(['{', ' ']) && !(many && rest.ends_with(" 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_shortened_by_reason() {
        let events = "REASON OBJECT\nA a\nB b\nA c\nA d\n";
        assert_eq!(shortened(events), "REASON OBJECT\nA a\nA c\n... and 1 more A\nB b\n");
    }

    #[test]
    fn zeros_are_hidden_for_metrics_with_many_children() {
        assert!(is_shown(
            "squelch_occurrences_total{disposition=\"filtered\"} 0",
            "squelch_occurrences_total"
        ));
        assert!(is_shown("squelch_pending_occurrences 0", "squelch_pending_occurrences"));
        assert!(!is_shown("squelch_flushes_total{result=\"lost\"} 0", "squelch_flushes_total"));
        assert!(is_shown("squelch_flushes_total{result=\"written\"} 10", "squelch_flushes_total"));
        assert!(!is_shown("# HELP squelch_armed x", "squelch_armed"));
    }
}
