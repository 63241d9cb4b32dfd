//! The end, in the order that loses nothing.

use std::time::Duration;

use tracing::{error, info, warn};

use crate::arming::{Arming, Desired, Reach};
use crate::config::RunOptions;
use crate::flush;

use super::parts::{Parts, qps};

/// How long the last statuses may take.
const LAST_STATUSES: Duration = Duration::from_secs(5);

/// How often it is tried to take the rules away. A call without an answer takes 5 s.
const DISARM_ATTEMPTS: usize = 3;

/// How long the payment of what came in while the rules were taken away may take.
const LAST_PAYMENTS: Duration = Duration::from_secs(5);

impl Parts {
    /// Folds nothing more, pays what is owed, takes the webhook's rules away, writes the last statuses, and ends.
    /// Until the rules are away writes are still answered: none ever fails because squelch ends.
    pub(super) async fn shut_down(self, options: &RunOptions) {
        let limit = qps(options.shutdown_flush_qps);
        self.engine.drain();
        let paying = async {
            self.flushing.end().await;
            flush::drain(&self.engine, self.payer.clone(), limit, options.shutdown_timeout).await
        };
        if tokio::time::timeout(options.shutdown_timeout, paying).await != Ok(true) {
            error!("not everything that is owed could be paid within --shutdown-timeout");
        }

        // Only now: while anything is owed, the webhook keeps clients from lowering what is stored.
        self.keeping_armed.end().await;
        let last = Desired { reach: Reach::Nothing, ..self.desired.borrow().clone() };
        disarm(&self.arming, &last).await;
        self.armed.send_replace(false);
        self.metrics.armed(false);
        // What was folded and admitted since: no write is reviewed any more, so this comes to an end.
        self.engine.drain_the_rest();
        flush::drain(&self.engine, self.payer.clone(), limit, LAST_PAYMENTS).await;
        let lost_occurrences = self.engine.write_off();
        if lost_occurrences > 0 {
            error!(
                lost_occurrences,
                "what is still owed is lost: give more time with --shutdown-timeout, or more --shutdown-flush-qps"
            );
        }

        if let Some(mut telling) = self.telling.end().await {
            let written = tokio::time::timeout(LAST_STATUSES, telling.write_all_now()).await;
            if written != Ok(0) {
                error!("not every status could be written: counters there are up to --status-interval old");
            }
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

/// Takes the rules away, trying more than once: left behind they cost each Event write a refused connection.
async fn disarm(arming: &Arming, last: &Desired) {
    for attempt in 1..=DISARM_ATTEMPTS {
        match arming.apply(last).await {
            Ok(()) => return info!("the webhook's rules are taken away"),
            Err(error) => warn!(%error, attempt, "the webhook's rules could not be taken away"),
        }
    }
    error!(
        "the webhook's rules are still there: Events are written all the same (failurePolicy Ignore); remove them \
         with `kubectl delete mutatingwebhookconfiguration squelch`"
    );
}
