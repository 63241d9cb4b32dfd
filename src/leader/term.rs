//! Until when this replica decides: what each review looks at.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::engine::Moment;

/// Until when this replica decides. Past that it lets everything through, whatever else it is busy with: one that was
/// frozen, or is cut off from the API server, ends by its clock alone.
#[derive(Debug, Default)]
pub struct Term {
    /// Nanoseconds since the process's epoch.
    until: AtomicU64,
    ended: Notify,
}

impl Term {
    /// The term of one who has no Lease to lose.
    pub fn endless() -> Self {
        Self { until: AtomicU64::new(u64::MAX), ended: Notify::new() }
    }

    /// Whether this replica decides at `now`.
    pub fn holds(&self, now: Moment) -> bool {
        nanoseconds(now) < self.until.load(Ordering::Acquire)
    }

    /// It decides until then. What was done before is seen by every review that finds the term to hold.
    pub(super) fn extend(&self, until: Moment) {
        self.until.store(nanoseconds(until), Ordering::Release);
    }

    /// It decides no more, from the next review on.
    pub(crate) fn end(&self) {
        self.until.store(0, Ordering::Release);
        self.ended.notify_waiters();
    }

    /// Ends when the term is ended that holds now.
    pub async fn ended(&self) {
        self.ended.notified().await;
    }
}

fn nanoseconds(moment: Moment) -> u64 {
    u64::try_from(moment.since(Moment::default()).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        assert!(term.holds(at(3_999)));
        let mut waiting = std::pin::pin!(term.ended());
        assert!(futures::poll!(&mut waiting).is_pending());
        term.end();
        waiting.await;
        assert!(!term.holds(at(0)));
        assert!(Term::endless().holds(at(u64::MAX / 1_000_000)));
    }
}
