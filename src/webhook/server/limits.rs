//! Limits of connections, and the stages of a shutdown.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The two stages of a shutdown. The second implies the first.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    /// Connections are still accepted and reviews answered, but each response closes its connection, and idle connections
    /// are closed. The API server then dials the current endpoints of the Service.
    pub closing: CancellationToken,
    /// No connection is accepted. Reviews in flight are answered.
    pub stop: CancellationToken,
}

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Maximum open connections. Above it the oldest unauthenticated connection is evicted, or else the one that has been
    /// idle the longest. If none is idle, dials wait.
    pub connections: usize,
    /// Timeout of the TLS handshake.
    pub handshake: Duration,
    /// Maximum time from the accept until the first complete request head with an accepted token.
    pub authentication: Duration,
    /// Maximum time without a request. Longer than the API server's idle timeout of 90 s, so that the API server closes
    /// first.
    pub idle: Duration,
    /// Maximum age of a connection, so that dials and certificates are exercised.
    pub age: Duration,
    /// Maximum wait for responses in flight when a connection or the server ends.
    pub shutdown_grace: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 4_000,
            handshake: Duration::from_secs(10),
            authentication: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            age: Duration::from_secs(240),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}
