//! Starts the exporters of `--export-file` and `--export-otlp`.

use std::sync::Arc;

use anyhow::{Context, Result};
use tracing::info;

use crate::config::RunOptions;
use crate::export::{Exporters, JsonLines, OtlpCollector, deliver};
use crate::metrics::{BackgroundTask, ExporterKind, Metrics};
use crate::tls;

use super::tasks::{Supervisor, Task};

/// Starts a task for each exporter.
///
/// # Errors
/// If the file cannot be opened, or the certificate authorities of the system cannot be read.
pub(super) fn start(
    supervisor: &Supervisor,
    options: &RunOptions,
    metrics: &Arc<Metrics>,
) -> Result<(Exporters, Vec<Task<()>>)> {
    let (mut exporters, mut tasks) = (Exporters::default(), Vec::new());
    let [high, low] = tls::random_seed().context("cannot read random numbers")?;
    let instance: Arc<str> = format!("{high:016x}{low:016x}").into();
    if let Some(path) = &options.export_file {
        let file = JsonLines::open(path, instance.clone())
            .with_context(|| format!("cannot open --export-file {}", path.display()))?;
        info!(path = %path.display(), "exporting as JSON lines");
        let delivery = exporters.add(ExporterKind::File, metrics);
        tasks.push(supervisor.start(BackgroundTask::Export, |stop| deliver(delivery, file, stop)));
    }
    if let Some(url) = &options.export_otlp {
        let headers = options.export_otlp_header.iter();
        let headers = headers.map(|header| (header.name.clone(), header.value.clone())).collect();
        let collector = OtlpCollector::new(url.clone(), headers, instance)
            .with_context(|| format!("cannot use --export-otlp {url}"))?;
        info!(%url, "exporting as OpenTelemetry logs");
        let delivery = exporters.add(ExporterKind::Otlp, metrics);
        tasks.push(supervisor.start(BackgroundTask::Export, |stop| deliver(delivery, collector, stop)));
    }
    Ok((exporters, tasks))
}
