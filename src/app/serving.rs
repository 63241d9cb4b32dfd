//! Starts the servers: the webhook, and plain HTTP for metrics and health.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tracing::info;

use super::tasks::{Supervisor, Task};
use crate::admin::{self, Admin, Readiness};
use crate::config::RunOptions;
use crate::descriptors::Descriptors;
use crate::metrics::{BackgroundTask, Metrics};
use crate::tls::ClientAuthorities;
use crate::webhook::server::{self, ConnectionLimits, Stages};
use crate::webhook::{Webhook, router};

/// Binds `address`, which `flag` sets.
pub(super) fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    let listener = server::bind(address)
        .with_context(|| format!("cannot listen on {address}; choose another address with {flag}"))?;
    info!(%address, flag, "listening");
    Ok(listener)
}

/// Starts the plain HTTP server.
pub(super) fn http(
    supervisor: &Supervisor,
    options: &RunOptions,
    metrics: &Arc<Metrics>,
    readiness: &Arc<Readiness>,
    descriptors: Descriptors,
) -> Result<Task<()>> {
    let admin = Admin::new(metrics.clone(), readiness.clone());
    let listener = bind(options.http_bind_address, "--http-bind-address")?;
    let places = descriptors.admin_connections();
    Ok(supervisor.start(BackgroundTask::Http, |stop| admin::serve(listener, admin, places, stop)))
}

/// The authorities of client certificates, if they are required.
pub(super) fn callers(options: &RunOptions) -> Result<Option<Arc<ClientAuthorities>>> {
    let Some(file) = options.client_ca_file.clone() else { return Ok(None) };
    let loaded = ClientAuthorities::load(file.clone(), options.client_subject.clone());
    Ok(Some(Arc::new(loaded.with_context(|| format!("--client-ca-file {}", file.display()))?)))
}

/// Starts the webhook's server.
pub(super) fn webhook(
    supervisor: &Supervisor,
    listener: TcpListener,
    tls: rustls::ServerConfig,
    webhook: Arc<Webhook>,
    stages: &Stages,
    descriptors: Descriptors,
) -> Task<()> {
    let limits =
        ConnectionLimits { connections: descriptors.webhook_connections(), ..ConnectionLimits::default() };
    supervisor.start_with(BackgroundTask::Webhook, stages.stop.clone(), |_stop| {
        server::serve(listener, Arc::new(tls), router(webhook), stages.clone(), limits)
    })
}
