//! Starts the exporters of `--export-file` and `--export-otlp`.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
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
        let headers = (1..).zip(&options.export_otlp_header).map(|(number, header)| {
            header.parse().map_err(|problem| {
                anyhow!("header {number} of --export-otlp-header: {problem}; must be NAME=VALUE, such as Authorization=Bearer ...")
            })
        });
        let collector = OtlpCollector::new(url.clone(), headers.collect::<Result<_>>()?, instance)
            .context("cannot use --export-otlp")?;
        info!(url = collector.shown_url(), "exporting as OpenTelemetry logs");
        let delivery = exporters.add(ExporterKind::Otlp, metrics);
        tasks.push(supervisor.start(BackgroundTask::Export, |stop| deliver(delivery, collector, stop)));
    }
    Ok((exporters, tasks))
}
