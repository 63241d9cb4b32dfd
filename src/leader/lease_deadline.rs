//! The lease deadline: until when this replica is active. Each review checks it.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use squelch_engine::Moment;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long reviews wait for a renewal after the deadline has passed, counted from the first of them. An API server
/// that restarts answers the renewal at the same moment as the Event writes that waited for it. If renewals fail for
/// longer, no review waits.
const RENEWAL_WAIT: Duration = Duration::from_millis(250);

/// The time until which this replica is active. After it, every write is allowed. The deadline passes by the clock
/// alone, so it also holds for a replica that was frozen or is cut off from the API server.
#[derive(Debug, Default)]
pub struct LeaseDeadline {
    /// Nanoseconds since the process's epoch. 0: no renewal is expected.
    deadline: AtomicU64,
    /// End of `RENEWAL_WAIT` after the deadline has passed. 0: no review has come since.
    wait_until: AtomicU64,
    extended: Notify,
    ended: Notify,
}

impl LeaseDeadline {
    /// A deadline that never passes, for a process without a Lease.
    pub fn unlimited() -> Self {
        Self { deadline: AtomicU64::new(u64::MAX), ..Self::default() }
    }

    /// Whether this replica is active at `now`.
    pub fn is_active(&self, now: Moment) -> bool {
        nanoseconds(now) < self.deadline.load(Ordering::Acquire)
    }

    /// Extends the deadline to `until`. It never moves back. Writes to memory before this call are visible to every
    /// review that finds the replica active.
    pub(super) fn extend(&self, until: Moment) {
        self.deadline.fetch_max(nanoseconds(until), Ordering::AcqRel);
        self.wait_until.store(0, Ordering::Release);
        self.extended.notify_waiters();
    }

    /// Waits up to `RENEWAL_WAIT` for a renewal if the deadline has passed and may still be extended.
    pub async fn wait_for_renewal(&self, now: Moment) {
        if !self.has_passed(now) {
            return;
        }
        let mut extended = pin!(self.extended.notified());
        // Registers the waiter, so that an extension between the check and the wait is not missed.
        extended.as_mut().enable();
        if self.has_passed(now) {
            let _ = timeout(self.remaining_wait(now), extended).await;
        }
    }

    fn has_passed(&self, now: Moment) -> bool {
        let deadline = self.deadline.load(Ordering::Acquire);
        deadline != 0 && deadline <= nanoseconds(now)
    }

    /// Returns the rest of the wait. The first review after the deadline starts it.
    fn remaining_wait(&self, now: Moment) -> Duration {
        let end = nanoseconds(now.plus(RENEWAL_WAIT));
        let started = self.wait_until.compare_exchange(0, end, Ordering::AcqRel, Ordering::Acquire);
        Duration::from_nanos(started.map_or_else(|started| started, |_| end).saturating_sub(nanoseconds(now)))
    }

    /// Wakes those that wait in [`Self::ended`]: the deadline has passed. It may still be extended.
    pub(super) fn notify_passed(&self) {
        self.ended.notify_waiters();
    }

    /// Makes this replica inactive from the next review on.
    pub(crate) fn revoke(&self) {
        self.deadline.store(0, Ordering::Release);
        self.extended.notify_waiters();
        self.ended.notify_waiters();
    }

    /// Waits until the deadline has passed or was revoked.
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
    async fn a_replica_is_active_until_its_deadline_which_can_be_extended_and_revoked() {
        let deadline = LeaseDeadline::default();
        assert!(!deadline.is_active(at(0)));
        deadline.extend(at(3_000));
        assert!(deadline.is_active(at(2_999)) && !deadline.is_active(at(3_000)));
        deadline.extend(at(4_000));
        deadline.extend(at(3_500));
        assert!(deadline.is_active(at(3_999)));
        let mut waiting = std::pin::pin!(deadline.ended());
        assert!(futures::poll!(&mut waiting).is_pending());
        deadline.revoke();
        waiting.await;
        assert!(!deadline.is_active(at(0)));
        assert!(LeaseDeadline::unlimited().is_active(at(u64::MAX / 1_000_000)));
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_wait_once_for_a_renewal_after_the_deadline_and_never_after_a_revocation() {
        let began = crate::clock::now();
        let waited = || crate::clock::now().since(began);
        let deadline = LeaseDeadline::default();
        deadline.wait_for_renewal(at(10)).await;
        deadline.extend(at(5));
        deadline.wait_for_renewal(at(4)).await;
        assert_eq!(waited(), Duration::ZERO);
        tokio::join!(deadline.wait_for_renewal(at(10)), async { deadline.extend(at(3_000)) });
        assert_eq!(waited(), Duration::ZERO);
        deadline.wait_for_renewal(at(3_000)).await;
        assert!((RENEWAL_WAIT..2 * RENEWAL_WAIT).contains(&waited()), "{:?}", waited());
        // All reviews share one wait.
        tokio::join!(deadline.wait_for_renewal(at(3_250)), deadline.wait_for_renewal(at(9_000)));
        assert!(waited() < 2 * RENEWAL_WAIT, "{:?}", waited());
        deadline.extend(at(10_000));
        deadline.wait_for_renewal(at(9_000)).await;
        tokio::join!(deadline.wait_for_renewal(at(10_000)), async { deadline.revoke() });
        deadline.wait_for_renewal(at(10_000)).await;
        assert!(waited() < 2 * RENEWAL_WAIT, "{:?}", waited());
    }
}
