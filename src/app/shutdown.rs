//! The end, in the order that loses nothing.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, info, warn};

use crate::arming::{Arming, Desired, Reach};
use crate::clock;
use crate::config::RunOptions;
use crate::flush;

use super::parts::{Parts, qps};

/// How long the last statuses may take.
const LAST_STATUSES: Duration = Duration::from_secs(5);

/// How long the last Events about squelch itself may take.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// How often it is tried to take the rules away. A call without an answer takes 5 s.
const DISARM_ATTEMPTS: usize = 3;

/// How long the payment of what came in while the rules were taken away may take.
const LAST_PAYMENTS: Duration = Duration::from_secs(5);

/// So many namespaces are named that lost something; `squelch_lost_occurrences_total` has them all.
const NAMESPACES_TOLD: usize = 20;

impl Parts {
    /// Folds nothing more, pays what is owed, takes the webhook's rules away, writes the last statuses, and ends.
    /// Until the rules are away writes are still answered: none ever fails because squelch ends.
    pub(super) async fn shut_down(self, options: &RunOptions) {
        let limits = flush::Limits::at_shutdown(qps(options.shutdown_flush_qps));
        let began = clock::now();
        self.engine.drain();
        self.flushing.end().await;
        let left = options.shutdown_timeout.saturating_sub(clock::now().since(began));
        if !flush::drain(self.payer.clone(), limits, left).await {
            error!(
                unpaid = self.engine.unpaid(),
                "not all that is owed could be paid within --shutdown-timeout"
            );
        }

        // Only now: while anything is owed, the webhook keeps clients from lowering what is stored.
        self.keeping_armed.end().await;
        self.keeping_keys.end().await;
        let last = Desired { reach: Reach::Nothing, ..self.desired.borrow().clone() };
        disarm(&self.arming, &last, *self.armed.borrow()).await;
        self.armed.send_replace(false);
        self.metrics.armed(false);
        // What was folded and admitted since: no write is reviewed any more, so this comes to an end.
        self.engine.drain_the_rest();
        flush::drain(self.payer.clone(), limits, LAST_PAYMENTS).await;
        tell_of_loss(&self.engine.write_off());

        if let Some(mut telling) = self.telling.end().await {
            let written = tokio::time::timeout(LAST_STATUSES, telling.write_all_now()).await;
            if written != Ok(0) {
                error!("not every status could be written: counters there are up to --status-interval old");
            }
        }
        if tokio::time::timeout(LAST_EVENTS, self.announcing.end()).await.is_err() {
            warn!("not every Event about what squelch does could be written");
        }
        self.stages.closing.cancel();
        self.stages.stop.cancel();
        if self.serving.await.is_err() {
            error!("the webhook's server had panicked");
        }
        self.background.cancel();
        // Let go of in order: the watch would complain of a runtime that ends under it.
        if self.watching.await.is_err() {
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

/// Takes the rules away, trying more than once: left behind they cost each Event write a refused connection.
async fn disarm(arming: &Arming, last: &Desired, armed: bool) {
    for attempt in 1..=DISARM_ATTEMPTS {
        match arming.apply(last).await {
            Ok(configuration) => {
                if armed {
                    let note = "squelch ends: Event writes pass as if there were no policy.".to_owned();
                    arming.announce(configuration, false, note);
                }
                return info!("the webhook's rules are taken away");
            }
            Err(error) => warn!(%error, attempt, "the webhook's rules could not be taken away"),
        }
    }
    error!(
        "the webhook's rules are still there: Events are written all the same (failurePolicy Ignore); remove them \
         with `kubectl delete mutatingwebhookconfiguration squelch`"
    );
}
