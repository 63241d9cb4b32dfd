//! What a connection to the webhook has shown and done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::accept::Connection;

/// Maximum requests without the token on a connection that has not shown it. The next request cuts the connection: an
/// HTTP/2 client could otherwise leave any number of answers in memory. HTTP/1.1 connections end after their first one.
pub(super) const MAX_UNAUTHENTICATED: usize = 4;

/// One connection.
#[derive(Debug)]
pub(super) struct Guest {
    connection: Arc<Connection>,
    proved: AtomicBool,
    unauthenticated: AtomicUsize,
    exceeded: Notify,
    answered: Notify,
    leaves: Notify,
}

impl Guest {
    /// A new connection: a stranger.
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self {
            connection,
            proved: AtomicBool::new(false),
            unauthenticated: AtomicUsize::new(0),
            exceeded: Notify::new(),
            answered: Notify::new(),
            leaves: Notify::new(),
        }
    }

    /// It has shown an accepted token, and is not asked again.
    pub(super) fn prove(&self) {
        // The flag spares the lock on every later review of the connection.
        if !self.proved.swap(true, Ordering::Relaxed) {
            self.connection.keep();
        }
    }

    pub(super) fn has_proved(&self) -> bool {
        self.proved.load(Ordering::Relaxed)
    }

    /// Counts a request without an accepted token.
    pub(super) fn count_unauthenticated(&self) {
        let earlier = self.unauthenticated.fetch_add(1, Ordering::Relaxed);
        if earlier >= MAX_UNAUTHENTICATED && !self.has_proved() {
            self.exceeded.notify_one();
        }
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

    /// Ends when the connection must be cut: its place is needed, or it exceeded [`MAX_UNAUTHENTICATED`].
    pub(super) async fn dismissed(&self) {
        tokio::select! {
            () = self.connection.dismissed() => {}
            () = self.exceeded.notified() => {}
        }
    }
}
