//! The table in Markdown.

use e2e::figures::{grouped, median, table};

use crate::churn::Churn;
use crate::row::Row;
use crate::setting::Setting;

/// The section of these measurements.
pub(crate) fn section(nodes: usize, churn: Churn, rows: &[Row]) -> String {
    let Churn { deployments, replicas, rollouts } = churn;
    let lines = Setting::ALL.iter().filter_map(|setting| line(*setting, rows));
    let rounds = rows.iter().filter(|row| row.setting == Setting::None).count();
    format!(
        "{nodes} nodes, {deployments} Deployments of {replicas} pods. Rollouts of all of them: {rollouts}; rounds: {rounds}.\n\n{}",
        table(
            &[
                "rollouts on nodes of kwok",
                "rollouts, s",
                "Event requests",
                "Event writes in etcd",
                "occurrences reported",
                "stored",
                "dropped and counted",
                "lost",
                "WAL, MiB",
                "API server, s",
                "etcd, s",
                "squelch, s",
                "Events: p50, p99 ms",
                "Leases: p50, p99 ms",
            ],
            &lines.collect::<Vec<_>>()
        )
    )
}

/// The medians of a setting over the rounds; the occurrences are sums.
fn line(setting: Setting, rows: &[Row]) -> Option<Vec<String>> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.setting == setting).collect();
    let middle =
        |figure: &dyn Fn(&Row) -> f64| median(&rows.iter().map(|row| figure(row)).collect::<Vec<_>>());
    let sum = |figure: &dyn Fn(&Row) -> i64| grouped(rows.iter().map(|row| figure(row)).sum::<i64>() as f64);
    let pair = |figures: &dyn Fn(&Row) -> [f64; 2]| {
        format!("{:.1}, {:.1}", middle(&|row| figures(row)[0]), middle(&|row| figures(row)[1]))
    };
    (!rows.is_empty()).then(|| {
        vec![
            setting.title().to_owned(),
            format!("{:.0}", middle(&|row| row.rollouts_seconds)),
            grouped(middle(&|row| row.evidence.requests as f64)),
            grouped(middle(&|row| row.evidence.stored_writes as f64)),
            sum(&|row| row.evidence.account.reported),
            sum(&|row| row.evidence.account.stored),
            sum(&|row| row.evidence.account.dropped),
            sum(&|row| row.evidence.account.lost),
            format!("{:.1}", middle(&|row| row.used.stored.wal_bytes) / f64::from(1 << 20)),
            format!("{:.1}", middle(&|row| row.used.spent.api_server)),
            format!("{:.1}", middle(&|row| row.used.spent.etcd)),
            format!("{:.1}", middle(&|row| row.used.spent.webhook)),
            pair(&|row| row.evidence.event_ms),
            pair(&|row| row.evidence.lease_ms),
        ]
    })
}
