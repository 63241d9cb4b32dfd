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
use crate::webhook::server::{self, ConnectionLimits, ReservedPort, Stages};
use crate::webhook::{Webhook, router};

/// The flag of the webhook's address.
pub(super) const WEBHOOK_FLAG: &str = "--webhook-bind-address";

/// Binds `address`, which `flag` sets.
pub(super) fn bind(address: SocketAddr, flag: &str) -> Result<ReservedPort> {
    server::bind(address)
        .with_context(|| format!("cannot listen on {address}; choose another address with {flag}"))
}

fn listen(port: ReservedPort, flag: &str) -> Result<TcpListener> {
    let listener = port.listen().with_context(|| format!("cannot listen on the port of {flag}"))?;
    info!(address = %listener.local_addr()?, flag, "listening");
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
    let flag = "--http-bind-address";
    let listener = listen(bind(options.http_bind_address, flag)?, flag)?;
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
    port: ReservedPort,
    tls: rustls::ServerConfig,
    webhook: Arc<Webhook>,
    stages: &Stages,
    descriptors: Descriptors,
) -> Result<Task<()>> {
    let listener = listen(port, WEBHOOK_FLAG)?;
    let limits =
        ConnectionLimits { connections: descriptors.webhook_connections(), ..ConnectionLimits::default() };
    Ok(supervisor.start_with(BackgroundTask::Webhook, stages.stop.clone(), |_stop| {
        server::serve(listener, Arc::new(tls), router(webhook), stages.clone(), limits)
    }))
}
