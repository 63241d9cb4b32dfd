//! Creates and registers the metrics of the table.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use super::table::{self, Row};
use super::{ExportLoss, ExporterKind, PolicyKind, PolicyState, ReviewKind, ReviewResult, process};

/// Registers the metrics of the process and its build.
pub(super) fn register_process(registry: &Registry) {
    let build_info = gauges(registry, &table::BUILD_INFO);
    build_info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    process::register(registry);
}

fn options(row: &Row) -> Opts {
    Opts::new(row.name, row.help)
}

pub(super) fn counter(registry: &Registry, row: &Row) -> IntCounter {
    registered(registry, IntCounter::with_opts(options(row)))
}

pub(super) fn gauge(registry: &Registry, row: &Row) -> IntGauge {
    registered(registry, IntGauge::with_opts(options(row)))
}

pub(super) fn counters(registry: &Registry, row: &Row) -> IntCounterVec {
    registered(registry, IntCounterVec::new(options(row), row.labels))
}

/// Registers a counter for each of `values`, which are the values of its only label.
pub(super) fn counters_by<T: Copy>(
    registry: &Registry,
    row: &Row,
    values: &[T],
    label: fn(T) -> &'static str,
) -> Vec<IntCounter> {
    let counters = counters(registry, row);
    values.iter().map(|value| counters.with_label_values(&[label(*value)])).collect()
}

pub(super) fn gauges(registry: &Registry, row: &Row) -> IntGaugeVec {
    registered(registry, IntGaugeVec::new(options(row), row.labels))
}

pub(super) fn histogram(registry: &Registry, row: &Row, buckets: &[f64]) -> Histogram {
    let options = HistogramOpts::new(row.name, row.help).buckets(buckets.to_vec());
    registered(registry, Histogram::with_opts(options))
}

/// Registers the counters of reviews, by kind and then by result.
pub(super) fn reviews(registry: &Registry) -> Vec<IntCounter> {
    let reviews = counters(registry, &table::REVIEWS);
    let by_result = |kind: &ReviewKind| {
        let labels = (kind.operation(), kind.api());
        let counter =
            |result: &ReviewResult| reviews.with_label_values(&[labels.0, labels.1, result.as_str()]);
        ReviewResult::ALL.iter().map(counter).collect::<Vec<_>>()
    };
    ReviewKind::ALL.iter().flat_map(by_result).collect()
}

/// Registers the counters of lost exports, by exporter and then by reason.
pub(super) fn export_losses(registry: &Registry) -> Vec<IntCounter> {
    let lost = counters(registry, &table::EXPORT_LOST);
    let by_reason = |exporter: &ExporterKind| {
        let counter = |reason: &ExportLoss| lost.with_label_values(&[exporter.as_str(), reason.as_str()]);
        ExportLoss::ALL.iter().map(counter).collect::<Vec<_>>()
    };
    ExporterKind::ALL.iter().flat_map(by_reason).collect()
}

pub(super) fn policies(registry: &Registry) -> IntGaugeVec {
    let policies = gauges(registry, &table::POLICIES);
    for kind in PolicyKind::ALL {
        for state in PolicyState::ALL {
            policies.with_label_values(&[kind.as_str(), state.as_str()]);
        }
    }
    policies
}

fn registered<M: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<M>) -> M {
    let metric = metric.expect("the table holds valid names, labels and buckets");
    registry.register(Box::new(metric.clone())).expect("no two rows of the table have one name");
    metric
}
