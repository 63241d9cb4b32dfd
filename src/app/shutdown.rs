//! The end, in the order that loses nothing: of the active replica, and of another.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use squelch_engine::Engine;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::arming::{ENDED, Keeper};
use crate::config::RunOptions;
use crate::metrics::Metrics;
use crate::webhook::server::Stages;
use crate::{clock, flush, status};

use super::parts::{Parts, qps};
use super::tasks::Task;

/// How long the last statuses may take.
const LAST_STATUSES: Duration = Duration::from_secs(5);

/// How long the last Events about squelch itself may take.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// How long the payment of what came in while the rules were taken away may take.
const LAST_PAYMENTS: Duration = Duration::from_secs(5);

/// So many namespaces are named that lost something; `squelch_lost_occurrences_total` has them all.
const NAMESPACES_TOLD: usize = 20;

/// How long the next active replica may take until the API server is led to it.
const SUCCESSION: Duration = Duration::from_secs(10);

/// For so long every answer asks the API server to dial anew, after that.
const CLOSING: Duration = Duration::from_secs(10);

impl Parts {
    /// Ends in the order that loses nothing. Writes are answered until nobody asks any more: none ever fails because
    /// squelch ends.
    pub(super) async fn shut_down(self, options: &RunOptions) {
        // One that could not renew for a while goes on with the Lease until another has taken it.
        if self.begun.is_cancelled() && !self.deposed.is_cancelled() {
            self.step_down(options).await;
        } else {
            self.leave(options).await;
        }
    }

    /// The active replica folds nothing more, pays what is owed, writes the statuses, and gives the Lease back. The
    /// webhook's rules stay if another one is ready to take over, and are taken away if not.
    async fn step_down(mut self, options: &RunOptions) {
        let limits = flush::Limits::at_shutdown(qps(options.shutdown_flush_qps));
        let began = clock::now();
        self.engine.drain();
        self.flushing.end().await;
        let left = options.shutdown_timeout.saturating_sub(clock::now().since(began));
        pay(self.payer.clone(), &self.engine, limits, left).await;

        // Only now: while anything is owed, the webhook keeps clients from lowering what is stored.
        self.keeping_keys.end().await;
        let mut keeper = self.keeping_armed.end().await;
        let peers = match self.peers.take() {
            Some(peers) if peers.one_is_ready().await => Some(peers),
            _ => None,
        };
        if peers.is_none() && !self.deposed.is_cancelled() {
            disarm(keeper.as_mut(), &self.unarmed, &self.metrics).await;
        }
        let mut telling = self.telling.end().await;
        write_statuses(telling.as_mut(), &self.deposed).await;

        // Reviews count nothing from here on, and what was folded and admitted since comes to an end.
        let leader = self.leading.end().await;
        if let Some(leader) = &leader {
            leader.retire();
        }
        self.engine.drain_remaining();
        flush::drain(self.payer.clone(), limits, LAST_PAYMENTS).await;
        tell_of_loss(&self.engine.discard_pending());
        write_statuses(telling.as_mut(), &self.deposed).await;
        match leader {
            Some(leader) => leader.release().await,
            None => error!("what held the Lease had panicked: another replica takes over when it ends"),
        }
        let Self { announcing, serving, showing, watching, stages, unarmed, metrics, .. } = self;
        let ending = Ending { announcing, serving, showing, watching, stages };
        if let Some(peers) = peers {
            if peers.one_serves(SUCCESSION).await {
                info!("another replica has taken over; the API server is asked to dial anew");
                ending.stages.closing.cancel();
                sleep(CLOSING).await;
            } else {
                warn!("no other replica has taken over");
                disarm(keeper.as_mut(), &unarmed, &metrics).await;
            }
        }
        ending.end().await;
    }

    /// One that is not the active one has nothing to hand over. It may have been that, and owe: it pays what nobody
    /// else has paid, and touches nothing else that is another's by now.
    async fn leave(self, options: &RunOptions) {
        self.stages.closing.cancel();
        let leader = self.leading.end().await;
        self.keeping_keys.end().await;
        self.keeping_armed.end().await;
        self.flushing.end().await;
        self.engine.drain_remaining();
        let limits = flush::Limits::at_shutdown(qps(options.shutdown_flush_qps));
        pay(self.payer.clone(), &self.engine, limits, options.shutdown_timeout).await;
        tell_of_loss(&self.engine.discard_pending());
        let untold = self.telling.end().await.map_or(0, |mut telling| telling.unwritten());
        if untold > 0 {
            warn!(untold, "occurrences that this replica has decided on are in no policy's status");
        }
        if let Some(leader) = leader {
            leader.release().await;
        }
        let Self { announcing, serving, showing, watching, stages, .. } = self;
        Ending { announcing, serving, showing, watching, stages }.end().await;
    }
}

/// Pays what is owed, as far as there is time.
async fn pay(payer: Arc<flush::Writer>, engine: &Engine, limits: flush::Limits, within: Duration) {
    if !flush::drain(payer, limits, within).await {
        error!(unpaid = engine.unflushed(), "not all that is owed could be paid within --shutdown-timeout");
    }
}

async fn disarm(keeper: Option<&mut Keeper>, unarmed: &watch::Sender<Option<Arc<str>>>, metrics: &Metrics) {
    match keeper {
        Some(keeper) => keeper.disarm().await,
        None => error!("what kept the webhook configuration had panicked: its rules may still be there"),
    }
    unarmed.send_replace(Some(ENDED.into()));
    metrics.armed(false);
}

/// Nobody else's counts are written over.
async fn write_statuses(telling: Option<&mut status::Writer>, deposed: &CancellationToken) {
    let Some(telling) = telling.filter(|_| !deposed.is_cancelled()) else { return };
    let written = tokio::time::timeout(LAST_STATUSES, telling.write_all_now()).await;
    if written != Ok(0) {
        error!("not every status could be written: counters there are up to --status-interval old");
    }
}

/// What goes on until the last.
struct Ending {
    announcing: Task<()>,
    serving: Task<()>,
    showing: Task<()>,
    watching: Task<()>,
    stages: Stages,
}

impl Ending {
    async fn end(self) {
        if tokio::time::timeout(LAST_EVENTS, self.announcing.end()).await.is_err() {
            warn!("not every Event about what squelch does could be written");
        }
        self.stages.closing.cancel();
        if self.serving.end().await.is_none() {
            error!("the webhook's server had panicked");
        }
        if self.showing.end().await.is_none() {
            error!("the server of the plain HTTP port had panicked");
        }
        // Let go of in order: the watch would complain of a runtime that ends under it.
        if self.watching.end().await.is_none() {
            error!("the watch of policies had panicked");
        }
        info!("squelch ends");
    }
}

/// What could not be paid, by namespace, the largest losses each on a line of its own.
fn tell_of_loss(lost: &[(Arc<str>, u64)]) {
    let mut largest: Vec<_> = lost.iter().collect();
    largest.sort_by_key(|(_, occurrences)| Reverse(*occurrences));
    for (namespace, occurrences) in largest.iter().take(NAMESPACES_TOLD) {
        error!(%namespace, occurrences, "what was folded into Events of this namespace is lost");
    }
    if !lost.is_empty() {
        let occurrences = lost.iter().map(|(_, occurrences)| occurrences).sum::<u64>();
        error!(
            occurrences,
            namespaces = lost.len(),
            "what is still owed is lost: give more time with --shutdown-timeout, or more --shutdown-flush-qps"
        );
    }
}
