//! Until when this replica decides: what each review looks at.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use squelch_engine::Moment;
use tokio::sync::Notify;
use tokio::time::timeout;

/// So long after the first review that finds the term lapsed do reviews wait for its renewal. An API server that comes
/// back after a restart lets go of all writes that have waited for it, at the moment at which it also answers the
/// renewal. Where that fails for longer, nobody waits.
const PATIENCE: Duration = Duration::from_millis(250);

/// Until when this replica decides. Past that it lets everything through, whatever else it is busy with: one that was
/// frozen, or is cut off from the API server, ends by its clock alone.
#[derive(Debug, Default)]
pub struct Term {
    /// Nanoseconds since the process's epoch; 0: it is not expected to be extended.
    until: AtomicU64,
    /// Since it has lapsed, reviews wait until then; 0: none has come.
    patience: AtomicU64,
    extended: Notify,
    ended: Notify,
}

impl Term {
    /// The term of one who has no Lease to lose.
    pub fn endless() -> Self {
        Self { until: AtomicU64::new(u64::MAX), ..Self::default() }
    }

    /// Whether this replica decides at `now`.
    pub fn holds(&self, now: Moment) -> bool {
        nanoseconds(now) < self.until.load(Ordering::Acquire)
    }

    /// It decides until then, or longer if an earlier call said so. What was done before is seen by every review that
    /// finds the term to hold.
    pub(super) fn extend(&self, until: Moment) {
        self.until.fetch_max(nanoseconds(until), Ordering::AcqRel);
        self.patience.store(0, Ordering::Release);
        self.extended.notify_waiters();
    }

    /// Waits for a moment, once, where it has lapsed and may be extended yet.
    pub async fn settled(&self, now: Moment) {
        if !self.has_lapsed(now) {
            return;
        }
        let mut extended = pin!(self.extended.notified());
        // From here on an extension is heard of.
        extended.as_mut().enable();
        if self.has_lapsed(now) {
            let _ = timeout(self.patience_left(now), extended).await;
        }
    }

    fn has_lapsed(&self, now: Moment) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until != 0 && until <= nanoseconds(now)
    }

    /// How long the reviews of this lapse still wait, of which the first begins the time.
    fn patience_left(&self, now: Moment) -> Duration {
        let end = nanoseconds(now.plus(PATIENCE));
        let begun = self.patience.compare_exchange(0, end, Ordering::AcqRel, Ordering::Acquire);
        Duration::from_nanos(begun.map_or_else(|begun| begun, |_| end).saturating_sub(nanoseconds(now)))
    }

    /// It has come to its end by the clock, and may be extended yet.
    pub(super) fn lapse(&self) {
        self.ended.notify_waiters();
    }

    /// It decides no more, from the next review on.
    pub(crate) fn end(&self) {
        self.until.store(0, Ordering::Release);
        self.extended.notify_waiters();
        self.ended.notify_waiters();
    }

    /// Ends when the term does that holds now.
    pub async fn ended(&self) {
        self.ended.notified().await;
    }
}

fn nanoseconds(moment: Moment) -> u64 {
    u64::try_from(moment.since(Moment::default()).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::from_epoch(Duration::from_millis(milliseconds))
    }

    #[tokio::test]
    async fn it_holds_until_its_end_and_can_be_extended_and_ended() {
        let term = Term::default();
        assert!(!term.holds(at(0)));
        term.extend(at(3_000));
        assert!(term.holds(at(2_999)) && !term.holds(at(3_000)));
        term.extend(at(4_000));
        term.extend(at(3_500));
        assert!(term.holds(at(3_999)));
        let mut waiting = std::pin::pin!(term.ended());
        assert!(futures::poll!(&mut waiting).is_pending());
        term.end();
        waiting.await;
        assert!(!term.holds(at(0)));
        assert!(Term::endless().holds(at(u64::MAX / 1_000_000)));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_lapsed_is_waited_for_once_and_one_that_is_over_is_not() {
        let began = crate::clock::now();
        let waited = || crate::clock::now().since(began);
        let term = Term::default();
        term.settled(at(10)).await;
        term.extend(at(5));
        term.settled(at(4)).await;
        assert_eq!(waited(), Duration::ZERO);
        tokio::join!(term.settled(at(10)), async { term.extend(at(3_000)) });
        assert_eq!(waited(), Duration::ZERO);
        term.settled(at(3_000)).await;
        assert!((PATIENCE..2 * PATIENCE).contains(&waited()), "{:?}", waited());
        // Once for all of them.
        tokio::join!(term.settled(at(3_250)), term.settled(at(9_000)));
        assert!(waited() < 2 * PATIENCE, "{:?}", waited());
        term.extend(at(10_000));
        term.settled(at(9_000)).await;
        tokio::join!(term.settled(at(10_000)), async { term.end() });
        term.settled(at(10_000)).await;
        assert!(waited() < 2 * PATIENCE, "{:?}", waited());
    }
}
