//! The shutdown, in an order that loses no occurrence: of the active replica, and of a standby.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use squelch_engine::Engine;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::arming::{self, SHUT_DOWN};
use crate::config::RunOptions;
use crate::metrics::Metrics;
use crate::policy::Armed;
use crate::reports::ReportWriter;
use crate::webhook::server::Stages;
use crate::{clock, flush, status};

use super::parts::{Parts, qps};
use super::tasks::Task;

/// The time for the last statuses.
const LAST_STATUSES: Duration = Duration::from_secs(5);

/// The time for the last reports. The Lease is held meanwhile.
const LAST_REPORTS: Duration = Duration::from_secs(2);

/// The time for the last Events about squelch.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// The time for flushing what arrived while the rules were being removed.
const LAST_FLUSHES: Duration = Duration::from_secs(5);

/// Maximum namespaces in the log of lost occurrences; `squelch_lost_occurrences_total` has all.
const MAX_LOGGED_NAMESPACES: usize = 20;

/// The time for the Service to switch to the next active replica.
const SUCCESSION: Duration = Duration::from_secs(10);

/// The time during which every answer asks the API server to reconnect, after that.
const CLOSING: Duration = Duration::from_secs(10);

impl Parts {
    /// Shuts down without losing occurrences. Reviews are answered as long as the API server sends them, so no write
    /// fails.
    pub(super) async fn shut_down(self, options: &RunOptions) {
        // A replica that could not renew keeps the Lease until another one acquires it.
        if self.begun.is_cancelled() && !self.deposed.is_cancelled() {
            self.step_down(options).await;
        } else {
            self.leave(options).await;
        }
    }

    /// The shutdown of the active replica: it merges nothing more, flushes the pending occurrences, writes the
    /// statuses, and releases the Lease. The webhook's rules stay if another replica is ready, and are removed
    /// otherwise.
    async fn step_down(mut self, options: &RunOptions) {
        let limits = flush::FlushLimits::at_shutdown(qps(options.shutdown_flush_qps));
        let began = clock::now();
        self.engine.drain();
        self.flushing.end().await;
        let left = options.shutdown_timeout.saturating_sub(clock::now().since(began));
        flush_pending(self.flush_writer.clone(), &self.engine, limits, left).await;

        // Only now: while anything is pending, the webhook prevents clients from lowering stored counts.
        self.keeping_keys.end().await;
        let mut controller = self.keeping_armed.end().await;
        let peers = match self.peers.take() {
            Some(peers) if peers.any_ready().await => Some(peers),
            _ => None,
        };
        if peers.is_none() && !self.deposed.is_cancelled() {
            disarm(controller.as_mut(), &self.armed, &self.metrics).await;
        }
        let mut statuses = self.statuses.end().await;
        write_statuses(statuses.as_mut(), &self.deposed).await;
        let mut reports = self.reports.end().await;

        // From here on reviews count nothing. What was merged and admitted since the first flush is flushed.
        let mut leader = self.leading.end().await;
        if let Some(leader) = &leader {
            leader.deactivate();
        }
        let last_writes = async {
            self.engine.drain_remaining();
            flush::flush_all(self.flush_writer.clone(), limits, LAST_FLUSHES).await;
            log_lost(&self.engine.discard_pending());
            write_statuses(statuses.as_mut(), &self.deposed).await;
            let occurrences = unwritten(statuses.as_mut());
            if occurrences > 0 {
                error!(occurrences, "occurrences missing from the statuses of policies");
            }
            write_reports(reports.as_mut(), &self.deposed).await;
        };
        // The next active replica begins with what these writes leave.
        match &mut leader {
            Some(leader) => {
                tokio::select! { () = last_writes => {}, never = leader.keep() => match never {} }
            }
            None => last_writes.await,
        }
        match leader {
            Some(leader) => leader.release().await,
            None => error!("leader task panicked, another replica becomes active when the Lease expires"),
        }
        if let Some(peers) = peers {
            if peers.wait_until_serving(SUCCESSION).await {
                info!("another replica is active, closing the connections of the API server");
                self.ending.stages.closing.cancel();
                sleep(CLOSING).await;
            } else {
                warn!("no other replica became active");
                disarm(controller.as_mut(), &self.armed, &self.metrics).await;
            }
        }
        self.ending.end().await;
    }

    /// The shutdown of a standby: it has nothing to hand over. If it was active before, it flushes what is still
    /// pending, and writes nothing else that belongs to the active replica.
    async fn leave(self, options: &RunOptions) {
        self.ending.stages.closing.cancel();
        let leader = self.leading.end().await;
        self.keeping_keys.end().await;
        self.keeping_armed.end().await;
        self.flushing.end().await;
        self.engine.drain_remaining();
        let limits = flush::FlushLimits::at_shutdown(qps(options.shutdown_flush_qps));
        flush_pending(self.flush_writer.clone(), &self.engine, limits, options.shutdown_timeout).await;
        log_lost(&self.engine.discard_pending());
        self.reports.end().await;
        let occurrences = unwritten(self.statuses.end().await.as_mut());
        if occurrences > 0 {
            warn!(occurrences, "occurrences missing from the statuses of policies");
        }
        if let Some(leader) = leader {
            leader.release().await;
        }
        self.ending.end().await;
    }
}

/// Flushes the pending occurrences within the given time.
async fn flush_pending(
    writer: Arc<flush::Writer>,
    engine: &Engine,
    limits: flush::FlushLimits,
    within: Duration,
) {
    if !flush::flush_all(writer, limits, within).await {
        error!(
            pending = engine.unflushed(),
            "shutdown timed out before all pending occurrences were flushed"
        );
    }
}

async fn disarm(
    controller: Option<&mut arming::ArmingController>,
    armed: &watch::Sender<Armed>,
    metrics: &Metrics,
) {
    match controller {
        Some(controller) => controller.disarm().await,
        None => error!("arming task panicked, the webhook may still have its rules"),
    }
    armed.send_modify(|armed| *armed = Err(SHUT_DOWN.into()));
    metrics.armed(false);
}

/// Writes the statuses, unless another replica is active. [`unwritten`] says what they lack.
async fn write_statuses(statuses: Option<&mut status::StatusWriter>, deposed: &CancellationToken) {
    if let Some(statuses) = statuses.filter(|_| !deposed.is_cancelled()) {
        let _ = tokio::time::timeout(LAST_STATUSES, statuses.write_all_now()).await;
    }
}

/// Returns the number of received occurrences that no status includes.
fn unwritten(statuses: Option<&mut status::StatusWriter>) -> u64 {
    statuses.map_or(0, status::StatusWriter::unwritten)
}

/// Writes the reports, unless another replica is active.
async fn write_reports(reports: Option<&mut ReportWriter>, deposed: &CancellationToken) {
    let Some(reports) = reports.filter(|_| !deposed.is_cancelled()) else { return };
    let failed = tokio::time::timeout(LAST_REPORTS, reports.write_all_now()).await;
    if failed != Ok(0) {
        warn!("not all EventDropReports written, they lack what was counted since their last write");
    }
}

/// What runs until the end.
pub(super) struct Ending {
    pub(super) recording_events: Task<()>,
    pub(super) serving_webhook: Task<()>,
    pub(super) serving_http: Task<()>,
    pub(super) watching_policies: Task<()>,
    /// End after the webhook.
    pub(super) exporting: Vec<Task<()>>,
    pub(super) stages: Stages,
}

impl Ending {
    async fn end(self) {
        if tokio::time::timeout(LAST_EVENTS, self.recording_events.end()).await.is_err() {
            warn!("not all Events about squelch written");
        }
        self.stages.closing.cancel();
        if self.serving_webhook.end().await.is_none() {
            error!(task = "webhook", "task panicked");
        }
        for ended in join_all(self.exporting.into_iter().map(Task::end)).await {
            if ended.is_none() {
                error!(task = "export", "task panicked");
            }
        }
        if self.serving_http.end().await.is_none() {
            error!(task = "http", "task panicked");
        }
        // Ended last: the watch logs errors when its runtime ends first.
        if self.watching_policies.end().await.is_none() {
            error!(task = "policy-watch", "task panicked");
        }
        info!("shutdown complete");
    }
}

/// Logs what could not be flushed. The namespaces with the largest losses have a line each.
fn log_lost(lost: &[(Arc<str>, u64)]) {
    let mut largest: Vec<_> = lost.iter().collect();
    largest.sort_by_key(|(_, occurrences)| Reverse(*occurrences));
    for (namespace, occurrences) in largest.iter().take(MAX_LOGGED_NAMESPACES) {
        error!(%namespace, occurrences, "pending occurrences lost");
    }
    if !lost.is_empty() {
        let occurrences = lost.iter().map(|(_, occurrences)| occurrences).sum::<u64>();
        error!(
            occurrences,
            namespaces = lost.len(),
            "pending occurrences lost at shutdown, raise --shutdown-timeout or --shutdown-flush-qps"
        );
    }
}
