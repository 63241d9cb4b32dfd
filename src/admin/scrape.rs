//! The text of `/metrics`. Gathering it visits every namespace, so it is bounded: one at a time, beside the threads that
//! answer reviews, and never more than a tenth of one processor.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use squelch_engine::Moment;
use tokio::sync::Mutex;

use crate::clock;
use crate::metrics::Metrics;

/// Gathering takes at most one part in so many of the time of a processor.
const PARTS: u32 = 10;

/// The same over a short time: scrapes are gathered anew as long as they have taken a tenth of this less than they may.
/// Several Prometheus servers that scrape at the same moment each get a new text.
const BURST: Duration = Duration::from_secs(1);

/// Gathers the metrics for scrapes.
pub(super) struct Scrapes {
    metrics: Arc<Metrics>,
    last: Arc<Mutex<Last>>,
}

/// The last text, and whether another may be gathered.
#[derive(Debug, Default)]
struct Last {
    text: Bytes,
    share: Share,
}

impl Scrapes {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, last: Arc::default() }
    }

    /// Returns the text, gathered anew unless gathering has used up its share: then the last text. `None` if gathering
    /// panics.
    pub(super) async fn text(&self) -> Option<Bytes> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if !last.share.is_left(clock::now()) {
            return Some(last.text.clone());
        }
        let metrics = Arc::clone(&self.metrics);
        // The lock goes along: also where this caller has gone, the next one waits for the end and gets this text.
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
struct Share {
    /// What was spent is made up for then.
    even: Moment,
}

impl Share {
    fn is_left(self, now: Moment) -> bool {
        self.even.since(now) <= BURST
    }

    fn spend(&mut self, took: Duration, now: Moment) {
        self.even = self.even.max(now).plus(took * PARTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_millis(milliseconds))
    }

    #[test]
    fn gathering_takes_a_tenth_of_a_processor_however_often_it_is_asked_for() {
        let took = Duration::from_millis(40);
        let mut share = Share::default();
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
    fn a_scrape_now_and_then_is_always_gathered_anew() {
        let mut share = Share::default();
        for round in 0..100 {
            // Two Prometheus servers at one moment, and more namespaces than most clusters have.
            for _ in 0..2 {
                let now = at(15_000 * round);
                assert!(share.is_left(now), "round {round}");
                share.spend(Duration::from_millis(100), now);
            }
        }
    }

    #[tokio::test]
    async fn a_scrape_shows_what_was_counted_before_it_unless_the_share_is_used_up() {
        let metrics = Arc::new(Metrics::new());
        let scrapes = Scrapes::new(metrics.clone());
        let shown = async || String::from_utf8(scrapes.text().await.unwrap().to_vec()).unwrap();
        metrics.stray_request();
        assert!(shown().await.contains("squelch_stray_requests_total 1\n"));
        metrics.stray_request();
        assert!(shown().await.contains("squelch_stray_requests_total 2\n"));
        scrapes.last.lock().await.share.spend(Duration::from_secs(1), clock::now());
        metrics.stray_request();
        assert!(shown().await.contains("squelch_stray_requests_total 2\n"), "the last text");
    }

    /// A caller that asks and goes must not start one gathering beside another.
    #[tokio::test]
    async fn a_scrape_whose_caller_has_gone_is_the_next_callers() {
        let metrics = Arc::new(Metrics::new());
        let scrapes = Scrapes::new(metrics.clone());
        {
            let mut gone = std::pin::pin!(scrapes.text());
            let _ = futures::poll!(gone.as_mut());
        }
        // Either it still gathers, or it is done.
        let is_empty = scrapes.last.try_lock().map(|last| last.text.is_empty());
        assert!(!is_empty.is_ok_and(|empty| empty), "another may begin beside it");
        assert!(scrapes.text().await.is_some());
    }
}
