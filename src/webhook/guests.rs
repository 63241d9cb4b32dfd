//! Who is connected, and who of them has proved to be the API server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Every open connection that has not proved itself, by age.
#[derive(Debug, Default)]
pub(super) struct Guests {
    next: AtomicU64,
    strangers: Mutex<BTreeMap<u64, CancellationToken>>,
}

impl Guests {
    /// A new connection: a stranger.
    pub(super) fn welcome(self: &Arc<Self>) -> Guest {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let dismissed = CancellationToken::new();
        self.strangers().insert(number, dismissed.clone());
        let guests = Arc::clone(self);
        let (proved, answered, leaves) = (AtomicBool::new(false), Notify::new(), Notify::new());
        Guest { guests, number, dismissed, proved, answered, leaves }
    }

    /// Makes room: whoever has been here longest without proof has to go.
    pub(super) fn dismiss_oldest_stranger(&self) {
        if let Some((_, dismissed)) = self.strangers().pop_first() {
            dismissed.cancel();
        }
    }

    fn strangers(&self) -> MutexGuard<'_, BTreeMap<u64, CancellationToken>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Guest {
    guests: Arc<Guests>,
    number: u64,
    dismissed: CancellationToken,
    proved: AtomicBool,
    answered: Notify,
    leaves: Notify,
}

impl Guest {
    /// It has shown an accepted token, and is not asked again.
    pub(super) fn prove(&self) {
        // The flag spares the lock on every later review of the connection.
        if !self.proved.swap(true, Ordering::Relaxed) {
            self.guests.strangers().remove(&self.number);
        }
    }

    pub(super) fn has_proved(&self) -> bool {
        self.proved.load(Ordering::Relaxed)
    }

    /// An answer was given.
    pub(super) fn answer(&self) {
        self.answered.notify_one();
    }

    /// Ends once an answer was given, at once if one was given before. To be awaited to its end once.
    pub(super) async fn answered(&self) {
        self.answered.notified().await;
    }

    /// It has had the one answer that it came for.
    pub(super) fn take_leave(&self) {
        self.leaves.notify_one();
    }

    /// Ends once it has taken leave. To be awaited to its end once.
    pub(super) async fn leaves(&self) {
        self.leaves.notified().await;
    }

    /// Ends when its place is needed.
    pub(super) async fn dismissed(&self) {
        self.dismissed.cancelled().await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests.strangers().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_goes_first_and_who_proved_stays() {
        let guests = Arc::new(Guests::default());
        let [first, second, third] = [guests.welcome(), guests.welcome(), guests.welcome()];
        first.prove();
        guests.dismiss_oldest_stranger();
        let gone = |guest: &Guest| guest.dismissed.is_cancelled();
        assert!(!gone(&first) && gone(&second) && !gone(&third));
        drop((second, third));
        guests.dismiss_oldest_stranger();
        assert!(!gone(&first));
        assert!(guests.strangers().is_empty());
    }
}
