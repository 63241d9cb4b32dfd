//! The text of `/metrics`. Gathering visits every namespace, so it is limited: one at a time, on a blocking thread, and at
//! most a tenth of one processor. A text is shown again for at most ten seconds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use squelch_engine::Moment;
use tokio::sync::Mutex;

use crate::clock;
use crate::metrics::Metrics;

/// Gathering takes at most 1/10 of the time of one processor.
const INVERSE_SHARE: u32 = 10;

/// The size of the bucket: gathering may exceed its share by a tenth of this time, so that several Prometheus servers that
/// scrape at the same moment each get a new text.
const BURST: Duration = Duration::from_secs(1);

/// The time up to which one gathering is charged. A longer one has waited for a processor, or the process was stalled: it
/// must not hide new metrics for ten times as long.
const MAX_CHARGED: Duration = Duration::from_secs(1);

/// Gathers the metrics for scrapes.
pub(super) struct Scrapes {
    metrics: Arc<Metrics>,
    last: Arc<Mutex<Last>>,
}

/// The last text, and the share that is left.
#[derive(Debug, Default)]
struct Last {
    text: Bytes,
    share: ProcessorShare,
}

impl Scrapes {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, last: Arc::default() }
    }

    /// Gathers and returns the text; returns the last text if gathering has used up its share. `None` if gathering panics.
    pub(super) async fn text(&self) -> Option<Bytes> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if !last.share.is_left(clock::now()) {
            return Some(last.text.clone());
        }
        let metrics = Arc::clone(&self.metrics);
        // The task keeps the lock: if this scrape is cancelled, the next one waits for the task and returns its text.
        let gathering = tokio::task::spawn_blocking(move || {
            let began = clock::now();
            let text = Bytes::from(metrics.text());
            let now = clock::now();
            last.share.spend(now.since(began), now);
            last.text = text.clone();
            text
        });
        gathering.await.ok()
    }
}

/// The share of a processor's time that gathering may take: a leaky bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ProcessorShare {
    /// The time at which the bucket is empty.
    empty_at: Moment,
}

impl ProcessorShare {
    fn is_left(self, now: Moment) -> bool {
        self.empty_at.since(now) <= BURST
    }

    fn spend(&mut self, took: Duration, now: Moment) {
        self.empty_at = self.empty_at.max(now).plus(took.min(MAX_CHARGED) * INVERSE_SHARE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_millis(milliseconds))
    }

    #[test]
    fn gathering_takes_at_most_a_tenth_of_a_processor() {
        let took = Duration::from_millis(40);
        let mut share = ProcessorShare::default();
        let (mut now, mut spent) = (at(0), Duration::ZERO);
        while now < at(100_000) {
            now = now.plus(Duration::from_millis(1));
            if share.is_left(now) {
                now = now.plus(took);
                share.spend(took, now);
                spent += took;
            }
        }
        let whole = Duration::from_secs(10);
        assert!(
            spent > whole - Duration::from_secs(1) && spent < whole + Duration::from_secs(1),
            "{spent:?}"
        );
    }

    #[test]
    fn a_scrape_every_fifteen_seconds_is_always_gathered() {
        let mut share = ProcessorShare::default();
        for round in 0..100 {
            // Two Prometheus servers at the same moment, and more namespaces than most clusters have.
            for _ in 0..2 {
                let now = at(15_000 * round);
                assert!(share.is_left(now), "round {round}");
                share.spend(Duration::from_millis(100), now);
            }
        }
    }

    #[test]
    fn a_stall_while_gathering_hides_new_metrics_for_at_most_ten_seconds() {
        let mut share = ProcessorShare::default();
        for took in [100, 30_000] {
            assert!(share.is_left(at(60_000)));
            share.spend(Duration::from_millis(took), at(60_000));
        }
        assert!(!share.is_left(at(60_000)) && share.is_left(at(70_000)));
    }

    #[tokio::test]
    async fn a_scrape_returns_the_last_text_only_once_the_share_is_used_up() {
        let metrics = Arc::new(Metrics::new());
        let scrapes = Scrapes::new(metrics.clone());
        let shown = async || String::from_utf8(scrapes.text().await.unwrap().to_vec()).unwrap();
        metrics.unauthenticated_request();
        assert!(shown().await.contains("squelch_unauthenticated_requests_total 1\n"));
        metrics.unauthenticated_request();
        assert!(shown().await.contains("squelch_unauthenticated_requests_total 2\n"));
        scrapes.last.lock().await.share.spend(Duration::from_secs(1), clock::now());
        metrics.unauthenticated_request();
        assert!(shown().await.contains("squelch_unauthenticated_requests_total 2\n"), "the last text");
    }

    /// A cancelled scrape must not start a second gathering.
    #[tokio::test]
    async fn the_text_of_a_cancelled_scrape_is_returned_to_the_next() {
        let metrics = Arc::new(Metrics::new());
        let scrapes = Scrapes::new(metrics.clone());
        {
            let mut cancelled = std::pin::pin!(scrapes.text());
            let _ = futures::poll!(cancelled.as_mut());
        }
        // Gathering is still in progress, or it has ended.
        let is_empty = scrapes.last.try_lock().map(|last| last.text.is_empty());
        assert!(!is_empty.is_ok_and(|empty| empty), "a second gathering could begin");
        assert!(scrapes.text().await.is_some());
    }
}
