//! The end, in the order that loses nothing.

use std::time::Duration;

use tracing::{error, info};

use crate::arming::Reach;
use crate::config::RunOptions;
use crate::flush::{self, Until};

use super::parts::{Parts, qps};

/// How long the last statuses may take.
const LAST_STATUSES: Duration = Duration::from_secs(5);

/// How long the payment of what came in while the rules were taken away may take.
const LAST_PAYMENTS: Duration = Duration::from_secs(5);

impl Parts {
    /// Folds nothing more, pays what is owed, takes the webhook's rules away, writes the last statuses, and ends.
    /// Until the rules are away writes are still answered: none ever fails because squelch ends.
    pub(super) async fn shut_down(self, options: &RunOptions) {
        self.engine.drain();
        self.flushing.end().await;
        let limit = qps(options.shutdown_flush_qps);
        let timeout = options.shutdown_timeout;
        let first =
            flush::drain(self.engine.clone(), self.payer.clone(), limit, Until::EachPaidOnce, timeout).await;

        // Only now: while anything is owed, the webhook keeps clients from lowering what is stored.
        self.keeping_armed.end().await;
        let mut last = self.desired.borrow().clone();
        last.reach = Reach::Nothing;
        match self.arming.apply(&last).await {
            Ok(()) => info!("the webhook's rules are taken away"),
            Err(error) => error!(
                %error,
                "the webhook's rules could not be taken away: Events are written all the same (failurePolicy \
                 Ignore); remove them with `kubectl delete mutatingwebhookconfiguration squelch`"
            ),
        }
        self.armed.send_replace(false);
        self.metrics.armed(false);
        let timeout = if first.timed_out { Duration::ZERO } else { LAST_PAYMENTS };
        let rest =
            flush::drain(self.engine.clone(), self.payer.clone(), limit, Until::AllPaid, timeout).await;
        if rest.unpaid_series > 0 {
            error!(
                series = rest.unpaid_series,
                lost_occurrences = rest.lost_occurrences,
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
        info!("squelch ends");
    }
}
