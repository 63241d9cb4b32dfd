//! The state of one client connection to the webhook: whether it is authenticated, and when it must end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::accept::{Connection, InFlight};

/// Maximum requests without the token on an unauthenticated connection. The next request ends the connection: an HTTP/2
/// client could otherwise leave any number of responses in memory. HTTP/1.1 connections end after their first request.
pub(super) const MAX_UNAUTHENTICATED: usize = 4;

/// One client connection. It is authenticated once a request has shown an accepted token.
#[derive(Debug)]
pub(super) struct ClientConnection {
    connection: Arc<Connection>,
    authenticated: Arc<AtomicBool>,
    unauthenticated_requests: AtomicUsize,
    limit_exceeded: Notify,
    responded: Notify,
    close_requested: Notify,
    retired: AtomicBool,
}

impl ClientConnection {
    /// Creates an unauthenticated connection.
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self {
            connection,
            authenticated: Arc::default(),
            unauthenticated_requests: AtomicUsize::new(0),
            limit_exceeded: Notify::new(),
            responded: Notify::new(),
            close_requested: Notify::new(),
            retired: AtomicBool::new(false),
        }
    }

    /// Marks the connection as authenticated, for the rest of its life.
    pub(super) fn authenticate(&self) {
        // The flag saves the lock on every later review.
        if !self.authenticated.swap(true, Ordering::Relaxed) {
            self.connection.protect();
        }
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    /// The flag that lifts the read limit of an unauthenticated connection.
    pub(super) fn authentication(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.authenticated)
    }

    /// Counts a request as in flight until the returned value is dropped.
    pub(super) fn request(&self) -> InFlight {
        self.connection.request()
    }

    /// Counts a request without an accepted token. Returns false, and ends the connection, above
    /// [`MAX_UNAUTHENTICATED`].
    pub(super) fn may_request(&self) -> bool {
        let earlier = self.unauthenticated_requests.fetch_add(1, Ordering::Relaxed);
        let may_request = earlier < MAX_UNAUTHENTICATED || self.is_authenticated();
        if !may_request {
            self.limit_exceeded.notify_one();
        }
        may_request
    }

    /// Records that a response is ready.
    pub(super) fn responded(&self) {
        self.responded.notify_one();
    }

    /// Waits for the first response. Must be awaited to completion only once.
    pub(super) async fn first_response(&self) {
        self.responded.notified().await;
    }

    /// Makes the next response the last one.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Requests a graceful shutdown after the current response.
    pub(super) fn close(&self) {
        self.close_requested.notify_one();
    }

    /// Waits for [`Self::close`]. Must be awaited to completion only once.
    pub(super) async fn closed(&self) {
        self.close_requested.notified().await;
    }

    /// Waits until the connection must end at once: it is evicted, or it exceeded [`MAX_UNAUTHENTICATED`].
    pub(super) async fn evicted(&self) {
        tokio::select! {
            () = self.connection.evicted() => {}
            () = self.limit_exceeded.notified() => {}
        }
    }
}
