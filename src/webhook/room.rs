//! Bounds that nobody waits for: what does not fit is shed.

use std::sync::atomic::{AtomicUsize, Ordering};

/// So much of something, shared by all reviews.
#[derive(Debug)]
pub(super) struct Room {
    free: AtomicUsize,
}

impl Room {
    pub(super) fn new(size: usize) -> Self {
        Self { free: AtomicUsize::new(size) }
    }

    /// Takes `amount` until the answer is dropped; `None` if less is free.
    pub(super) fn take(&self, amount: usize) -> Option<Taken<'_>> {
        // Nothing but the number itself is guarded: no ordering with other memory is needed.
        self.free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(amount))
            .ok()
            .map(|_| Taken { room: self, amount })
    }
}

/// A share of a [`Room`], given back when dropped.
#[derive(Debug)]
pub(super) struct Taken<'r> {
    room: &'r Room,
    amount: usize,
}

impl Taken<'_> {
    /// Grows to `amount` if it is smaller; false if there is no room for that.
    pub(super) fn grow_to(&mut self, amount: usize) -> bool {
        let Some(more) = amount.checked_sub(self.amount) else { return true };
        let Some(taken) = self.room.take(more) else { return false };
        std::mem::forget(taken);
        self.amount = amount;
        true
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.room.free.fetch_add(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let room = Room::new(10);
        let mut first = room.take(4).unwrap();
        assert!(first.grow_to(3) && first.grow_to(8) && !first.grow_to(11));
        assert!(room.take(3).is_none());
        let second = room.take(2).unwrap();
        drop((first, second));
        assert!(room.take(10).is_some());
    }
}
