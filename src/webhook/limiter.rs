//! Limits without a queue: a request above a limit is shed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// A fixed capacity that all reviews share.
#[derive(Debug)]
pub(super) struct Limiter {
    free: Arc<AtomicUsize>,
}

impl Limiter {
    pub(super) fn new(capacity: usize) -> Self {
        Self { free: Arc::new(AtomicUsize::new(capacity)) }
    }

    /// Acquires `amount` until the permit is dropped; `None` if less is free.
    pub(super) fn try_acquire(&self, amount: usize) -> Option<Permit> {
        acquire(&self.free, amount).then(|| Permit { free: Arc::clone(&self.free), amount })
    }
}

fn acquire(free: &AtomicUsize, amount: usize) -> bool {
    // The number guards no other memory, so relaxed ordering is enough.
    free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(amount)).is_ok()
}

/// A share of a [`Limiter`]'s capacity, released on drop.
#[derive(Debug)]
pub(super) struct Permit {
    free: Arc<AtomicUsize>,
    amount: usize,
}

impl Permit {
    /// Grows to `amount` if it is smaller. Returns false if the limiter has no capacity for that.
    pub(super) fn grow_to(&mut self, amount: usize) -> bool {
        let Some(more) = amount.checked_sub(self.amount) else { return true };
        let has_grown = acquire(&self.free, more);
        if has_grown {
            self.amount = amount;
        }
        has_grown
    }

    /// Releases all but `amount`.
    fn shrink_to(&mut self, amount: usize) {
        let less = self.amount.saturating_sub(amount);
        self.free.fetch_add(less, Ordering::Relaxed);
        self.amount -= less;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.free.fetch_add(self.amount, Ordering::Relaxed);
    }
}

/// The permits of one request.
#[derive(Debug)]
pub(super) struct RequestPermits {
    _request: Permit,
    /// Bytes of the body, once it is received.
    body: Option<Permit>,
}

impl RequestPermits {
    pub(super) fn new(request: Permit) -> Self {
        Self { _request: request, body: None }
    }

    pub(super) fn set_body(&mut self, body: Permit) {
        self.body = Some(body);
    }

    /// Returns `response` with the permits attached: they are released once it is sent or its connection has ended. The
    /// body's permit shrinks to the length of the response.
    pub(super) fn attach_to(mut self, response: Bytes) -> Bytes {
        if response.is_empty() {
            return response;
        }
        if let Some(body) = &mut self.body {
            body.shrink_to(response.len());
        }
        Bytes::from_owner(LimitedResponse { response, _permits: self })
    }
}

struct LimitedResponse {
    response: Bytes,
    _permits: RequestPermits,
}

impl AsRef<[u8]> for LimitedResponse {
    fn as_ref(&self) -> &[u8] {
        &self.response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_releases_its_capacity() {
        let limiter = Limiter::new(10);
        let mut first = limiter.try_acquire(4).unwrap();
        assert!(first.grow_to(3) && first.grow_to(8) && !first.grow_to(11));
        assert!(limiter.try_acquire(3).is_none());
        let second = limiter.try_acquire(2).unwrap();
        drop((first, second));
        assert!(limiter.try_acquire(10).is_some());
    }

    #[test]
    fn a_response_holds_its_permits_until_it_is_dropped() {
        let (requests, bodies) = (Limiter::new(1), Limiter::new(10));
        let mut permits = RequestPermits::new(requests.try_acquire(1).unwrap());
        permits.set_body(bodies.try_acquire(10).unwrap());
        let response = permits.attach_to(Bytes::from_static(b"abc"));
        assert_eq!(response, "abc");
        assert!(requests.try_acquire(1).is_none());
        assert!(bodies.try_acquire(7).is_some() && bodies.try_acquire(8).is_none());
        let part = response.slice(1..);
        drop(response);
        assert!(requests.try_acquire(1).is_none(), "a part of the response is not sent yet");
        drop(part);
        assert!(requests.try_acquire(1).is_some() && bodies.try_acquire(10).is_some());
    }
}
