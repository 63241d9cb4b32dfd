//! Accepts connections within a limit. If a new connection finds no free slot or file descriptor, another connection is
//! evicted, so clients that hold connections cannot block new ones.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::descriptors;
use crate::log_limit::LogLimit;

/// The pause after a failed accept, for example without descriptors or memory.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

const NEVER_CLOSED: &str = "the semaphore is never closed";

/// Which connections are evicted for new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The oldest unprotected connection, or else the protected one that has been idle the longest. If every connection is
    /// protected and has a request in flight, new ones wait.
    Unprotected,
    /// The oldest unprotected connection if these are at least half of all, or else the oldest protected one. Half of all
    /// slots must be replaced before a new connection is evicted.
    Any,
}

/// A listener with a limit on open connections.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    slots: Arc<Semaphore>,
    open: Arc<Open>,
    eviction: Eviction,
    warnings: LogLimit,
}

impl Acceptor {
    /// Accepts connections of `listener`, at most `slots` at a time.
    pub fn new(listener: TcpListener, slots: usize, eviction: Eviction) -> Self {
        let slots = Arc::new(Semaphore::new(slots));
        Self { listener, slots, open: Arc::default(), eviction, warnings: LogLimit::new() }
    }

    /// Returns the next connection and its slot. Errors of single connections are logged, not returned.
    pub async fn accept(&mut self) -> (TcpStream, ConnectionSlot) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _peer)) => return (stream, self.acquire_slot().await),
                // The client has closed the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.warn(&error);
                    self.recover(&error).await;
                }
            }
        }
    }

    async fn acquire_slot(&self) -> ConnectionSlot {
        let permit = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_at_capacity) => self.evict_for_slot().await,
        };
        ConnectionSlot { connection: Open::add(&self.open), _permit: permit }
    }

    /// Evicts a connection and waits for its slot.
    async fn evict_for_slot(&self) -> OwnedSemaphorePermit {
        let mut permit = std::pin::pin!(Arc::clone(&self.slots).acquire_owned());
        while !self.open.evict(self.eviction) {
            if let Ok(acquired) = timeout(ACCEPT_AGAIN, permit.as_mut()).await {
                return acquired.expect(NEVER_CLOSED);
            }
        }
        permit.await.expect(NEVER_CLOSED)
    }

    /// Waits until the next accept may succeed. The connection is still in the backlog, so an immediate accept would fail.
    async fn recover(&self, error: &io::Error) {
        let mut ended = std::pin::pin!(self.open.ended.notified());
        // Registers for notifications before the checks below.
        ended.as_mut().enable();
        let exhausted = descriptors::are_exhausted(error);
        // The kernel allocates the descriptor first, so it fails even if no connection is pending.
        if exhausted && (!self.is_pending() || self.open.evict(self.eviction)) {
            let _ = timeout(ACCEPT_AGAIN, ended).await;
        } else {
            sleep(ACCEPT_AGAIN).await;
        }
    }

    /// Whether a connection waits to be accepted.
    fn is_pending(&self) -> bool {
        let mut polled = [PollFd::new(&self.listener, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn warn(&self, error: &io::Error) {
        if let Some(suppressed) = self.warnings.permit(clock::now()) {
            let port = self.listener.local_addr().map_or(0, |address| address.port());
            tracing::warn!(%error, port, suppressed, "connection not accepted");
        }
    }
}

/// The open connections of a listener.
#[derive(Debug, Default)]
struct Open {
    connections: Mutex<ByAge>,
    /// Notified when a connection ends.
    ended: Notify,
    /// The number of times that a connection has become idle, for their order.
    idle_count: AtomicU64,
}

/// Connections that are not evicted, by number. The lowest number is the oldest.
#[derive(Debug, Default)]
struct ByAge {
    next: u64,
    unprotected: BTreeMap<u64, Arc<Connection>>,
    protected: BTreeMap<u64, Arc<Connection>>,
}

impl ByAge {
    fn pop(&mut self, which: Eviction) -> Option<Arc<Connection>> {
        match which {
            Eviction::Unprotected => pop_oldest(&mut self.unprotected).or_else(|| self.pop_longest_idle()),
            Eviction::Any if self.unprotected.len() < self.protected.len() => pop_oldest(&mut self.protected),
            Eviction::Any => pop_oldest(&mut self.unprotected),
        }
    }

    /// Scans every connection, so that requests take no lock. This is rare: all slots are in use.
    fn pop_longest_idle(&mut self) -> Option<Arc<Connection>> {
        let idle = self.protected.values().filter(|connection| connection.is_idle());
        let number = idle.min_by_key(|connection| connection.idle_since.load(Ordering::Relaxed))?.number;
        self.protected.remove(&number)
    }
}

fn pop_oldest(connections: &mut BTreeMap<u64, Arc<Connection>>) -> Option<Arc<Connection>> {
    connections.pop_first().map(|(_number, connection)| connection)
}

impl Open {
    fn add(this: &Arc<Self>) -> Arc<Connection> {
        let mut connections = this.lock();
        let number = connections.next;
        connections.next += 1;
        let connection = Arc::new(Connection {
            open: Arc::clone(this),
            number,
            evicted: CancellationToken::new(),
            requests: AtomicUsize::new(0),
            idle_since: AtomicU64::new(0),
        });
        connections.unprotected.insert(number, Arc::clone(&connection));
        connection
    }

    /// Evicts a connection. Returns false if none may be evicted.
    fn evict(&self, which: Eviction) -> bool {
        let evicted = self.lock().pop(which);
        evicted.inspect(|connection| connection.evicted.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, ByAge> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of an open connection. Must be dropped after the socket is closed.
#[derive(Debug)]
pub struct ConnectionSlot {
    connection: Arc<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionSlot {
    /// The connection in this slot.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Connection { open, number, .. } = self.connection.as_ref();
        let mut connections = open.lock();
        connections.unprotected.remove(number);
        connections.protected.remove(number);
        drop(connections);
        open.ended.notify_waiters();
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    open: Arc<Open>,
    number: u64,
    evicted: CancellationToken,
    /// Requests in flight.
    requests: AtomicUsize,
    /// The value of [`Open::idle_count`] when it became idle.
    idle_since: AtomicU64,
}

impl Connection {
    /// Protects the connection, see [`Eviction`].
    pub fn protect(&self) {
        let mut connections = self.open.lock();
        if let Some(connection) = connections.unprotected.remove(&self.number) {
            connections.protected.insert(self.number, connection);
        }
    }

    /// Counts a request as in flight until the returned value is dropped.
    pub fn request(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    /// Waits until the connection is evicted.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

/// A request in flight. Its connection is not idle.
#[derive(Debug)]
pub struct InFlight(Arc<Connection>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let connection = &self.0;
        connection
            .idle_since
            .store(connection.open.idle_count.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        connection.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
