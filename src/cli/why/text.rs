//! The answer as text. Pure.

use super::drops::{ReportedSuppression, word};
use super::facts::printable;
use super::report::WhyReport;
use super::stored::ObjectEvents;
use super::verdict::WhyPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Maximum number of entries of the report that are printed.
const MAX_ENTRIES: usize = 10;

/// Returns the answer, and then what it is based on.
pub(super) fn table(report: &WhyReport) -> String {
    let mut lines = vec![report.conclusion.clone()];
    lines.extend(report.next.iter().map(|next| format!("- {next}")));
    lines.push(String::new());
    lines.extend(stored(report.stored_events.as_ref()));
    lines.push(String::new());
    lines.extend(policies(report));
    lines.push(String::new());
    lines.extend(suppression(report));
    if !report.missing_rights.is_empty() {
        lines.push(String::new());
        lines.push("MISSING RIGHTS".to_owned());
        lines.extend(report.missing_rights.iter().map(|missing| format!("  {missing}")));
    }
    for list in &report.truncated {
        lines.push(format!(
            "There are more {list} than were read. The answer considers those that were read."
        ));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn stored(events: Option<&ObjectEvents>) -> Vec<String> {
    let Some(events) = events else { return vec!["STORED EVENTS: not listed".to_owned()] };
    let newest = if events.newest.len() < events.number { ", the newest of them:" } else { "" };
    let mut lines =
        vec![format!("STORED EVENTS: {}, with {} occurrences{newest}", events.number, events.occurrences)];
    let rows = events.newest.iter().map(|event| {
        [
            event.event_type.clone(),
            event.reason.clone(),
            event.count.to_string(),
            time(event.last_observed_time.as_ref()),
            event.component.clone(),
            event.message.chars().take(80).collect(),
        ]
    });
    lines.extend(columns(["TYPE", "REASON", "COUNT", "LAST", "COMPONENT", "MESSAGE"], rows.collect()));
    lines
}

fn policies(report: &WhyReport) -> Vec<String> {
    if !report.installed {
        return vec!["POLICIES: squelch is not installed here".to_owned()];
    }
    match report.policies.as_deref() {
        None => vec!["POLICIES: not listed".to_owned()],
        Some([]) => vec!["POLICIES: none".to_owned()],
        Some(policies) => {
            let heading = "POLICIES, in order of precedence".to_owned();
            std::iter::once(heading).chain(policies.iter().flat_map(policy)).collect()
        }
    }
}

fn policy(policy: &WhyPolicy) -> Vec<String> {
    let precedence = policy.precedence.filter(|_| policy.kind == "ClusterEventPolicy");
    let details = [
        policy.mode.map(str::to_owned),
        precedence.map(|precedence| format!("precedence {precedence}")),
        policy.priority.map(|priority| format!("priority {priority}")),
        policy.effective.as_ref().map(|it| format!("Effective={} ({})", it.status, it.reason)),
    ];
    let details: Vec<_> = details.into_iter().flatten().collect();
    let mut lines = vec![
        format!("  {}: {}", policy.title(), details.join(", ")),
        format!("    governs: {}. {}", policy.governs, policy.because),
    ];
    lines.extend(policy.stages.iter().map(|stage| format!("    {}: {}", stage.field, stage.effect)));
    lines
}

fn suppression(report: &WhyReport) -> Vec<String> {
    let Some(suppression) = &report.report else {
        return vec!["SUPPRESSED: the report was not read".to_owned()];
    };
    if !suppression.exists {
        return vec!["SUPPRESSED: the namespace has no report (a first one is up to 30 s behind)".to_owned()];
    }
    let kind = printable(&report.object.kind);
    let mut lines = vec![format!(
        "SUPPRESSED, by the report of {} (up to 30 s behind, lists the 20 most frequent)",
        time(suppression.last_updated.as_ref())
    )];
    lines.push(format!(
        "  dropped Events of kind {kind} that fit: {} occurrences{}",
        suppression.occurrences,
        period(suppression)
    ));
    lines.extend(entries(suppression));
    if suppression.unlisted > 0 {
        lines.push(format!(
            "  dropped in this namespace, in no entry of the report: {} occurrences",
            suppression.unlisted
        ));
    }
    lines.push("  all Events of this namespace:".to_owned());
    let counters = suppression.policies.iter().map(|policy| {
        let it = policy.counters;
        let counts =
            [it.received, it.admitted, it.compacted, it.aggregated, it.filtered, it.throttled, it.muted];
        let [received, admitted, compacted, aggregated, filtered, throttled, muted] =
            counts.map(|it| it.to_string());
        let policy = format!("{} {}", policy.policy_kind, policy.policy_name);
        [policy, received, admitted, compacted, aggregated, filtered, throttled, muted]
    });
    let headings =
        ["POLICY", "RECEIVED", "ADMITTED", "COMPACTED", "AGGREGATED", "FILTERED", "THROTTLED", "MUTED"];
    lines.extend(columns(headings, counters.collect()));
    lines
}

fn entries(suppression: &ReportedSuppression) -> Vec<String> {
    let rows = suppression.dropped.iter().take(MAX_ENTRIES).map(|it| {
        let entry = &it.entry;
        [
            format!("{:?}", entry.event_type),
            entry.reason.clone(),
            entry.count.to_string(),
            word(entry.disposition).to_owned(),
            format!("{} {}", entry.policy_kind, entry.policy_name),
            time(Some(&entry.last_observed_time)),
            entry.component.clone(),
            entry.example_object.clone(),
        ]
    });
    let headings = ["TYPE", "REASON", "COUNT", "BY", "POLICY", "LAST", "COMPONENT", "EXAMPLE"];
    let mut lines = columns(headings, rows.collect());
    let more = suppression.dropped.len().saturating_sub(MAX_ENTRIES);
    lines.extend((more > 0).then(|| format!("    {more} more entries")));
    lines
}

fn period(suppression: &ReportedSuppression) -> String {
    match (&suppression.first_observed_time, &suppression.last_observed_time) {
        (Some(first), Some(last)) => format!(", from {} to {}", time(Some(first)), time(Some(last))),
        _ => String::new(),
    }
}

fn time(time: Option<&Time>) -> String {
    time.and_then(|time| jiff::Timestamp::from_second(time.0.as_second()).ok())
        .map_or_else(|| "-".to_owned(), |time| time.to_string())
}

/// Aligned columns, without a heading if there are no rows. The last one is as long as its text.
fn columns<const N: usize>(headings: [&str; N], rows: Vec<[String; N]>) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let all: Vec<_> = std::iter::once(headings.map(str::to_owned)).chain(rows).collect();
    let width = |at: usize| all.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("    {}", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    all.iter().map(line).collect()
}
