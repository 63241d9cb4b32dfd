//! Accepting connections under a bound. A connection is accepted first; where there is no place or no descriptor for it,
//! the oldest dismissible connection ends. So callers that open connections and say nothing keep nobody out.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squelch_engine::Moment;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::descriptors;

/// The pause after a failed accept. Its cause (descriptors, memory) may be over by then.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Minimum time between two warnings about failed accepts.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Which connections end for new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dismiss {
    /// Those without [`Connection::keep`]. Where every connection is kept, new ones wait.
    Unkept,
    /// The same first, then those that are kept.
    All,
}

/// A listener with a bound on open connections.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    places: Arc<Semaphore>,
    open: Arc<Open>,
    dismiss: Dismiss,
    warned: Option<Moment>,
}

impl Acceptor {
    /// At most `places` connections of `listener` are open.
    pub fn new(listener: TcpListener, places: usize, dismiss: Dismiss) -> Self {
        let places = Arc::new(Semaphore::new(places));
        Self { listener, places, open: Arc::default(), dismiss, warned: None }
    }

    /// Returns the next connection, and its place. Errors of single connections are logged, never returned.
    pub async fn accept(&mut self) -> (TcpStream, Place) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _peer)) => return (stream, self.place().await),
                // The caller's doing: nothing to wait for.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.warn(&error);
                    self.recover(&error).await;
                }
            }
        }
    }

    async fn place(&self) -> Place {
        let permit = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_taken) => {
                self.open.dismiss_oldest(self.dismiss);
                Arc::clone(&self.places).acquire_owned().await.expect("nobody closes the semaphore")
            }
        };
        Place { connection: Open::add(&self.open), _permit: permit }
    }

    /// Waits until another accept may succeed. The connection that could not be accepted is still in the backlog, and
    /// another accept at once would fail at once.
    async fn recover(&self, error: &io::Error) {
        let mut ended = std::pin::pin!(self.open.ended.notified());
        // From here on the end of a connection is noticed.
        ended.as_mut().enable();
        let exhausted = descriptors::are_exhausted(error);
        // The system takes the descriptor first: without one it fails also where no connection waits to be accepted.
        if exhausted && (!self.is_pending() || self.open.dismiss_oldest(self.dismiss)) {
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

    fn warn(&mut self, error: &io::Error) {
        let now = clock::now();
        if self.warned.is_none_or(|warned| now.since(warned) >= WARN_EVERY) {
            self.warned = Some(now);
            let port = self.listener.local_addr().map_or(0, |address| address.port());
            tracing::warn!(%error, port, "a connection could not be accepted");
        }
    }
}

/// The open connections of a listener.
#[derive(Debug, Default)]
struct Open {
    connections: Mutex<ByAge>,
    /// Notified when a connection ends.
    ended: Notify,
}

/// Tokens that dismiss connections, by their numbers: the lowest is the oldest.
#[derive(Debug, Default)]
struct ByAge {
    next: u64,
    unkept: BTreeMap<u64, CancellationToken>,
    kept: BTreeMap<u64, CancellationToken>,
}

impl Open {
    fn add(this: &Arc<Self>) -> Arc<Connection> {
        let dismissed = CancellationToken::new();
        let mut connections = this.lock();
        let number = connections.next;
        connections.next += 1;
        connections.unkept.insert(number, dismissed.clone());
        Arc::new(Connection { open: Arc::clone(this), number, dismissed })
    }

    /// False if there is none.
    fn dismiss_oldest(&self, which: Dismiss) -> bool {
        let mut connections = self.lock();
        let oldest = match (connections.unkept.pop_first(), which) {
            (None, Dismiss::All) => connections.kept.pop_first(),
            (oldest, _) => oldest,
        };
        oldest.inspect(|(_, dismissed)| dismissed.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, ByAge> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of an open connection. To be dropped after the socket is closed.
#[derive(Debug)]
pub struct Place {
    connection: Arc<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// The connection that has this place.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Connection { open, number, .. } = self.connection.as_ref();
        let mut connections = open.lock();
        connections.unkept.remove(number);
        connections.kept.remove(number);
        drop(connections);
        open.ended.notify_waiters();
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    open: Arc<Open>,
    number: u64,
    dismissed: CancellationToken,
}

impl Connection {
    /// From now on the connection is not dismissed while others can be.
    pub fn keep(&self) {
        let mut connections = self.open.lock();
        if let Some(dismissed) = connections.unkept.remove(&self.number) {
            connections.kept.insert(self.number, dismissed);
        }
    }

    /// Ends when the place is needed.
    pub async fn dismissed(&self) {
        self.dismissed.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(place: &Place) -> bool {
        place.connection.dismissed.is_cancelled()
    }

    async fn acceptor(places: usize, dismiss: Dismiss) -> Acceptor {
        Acceptor::new(TcpListener::bind("127.0.0.1:0").await.unwrap(), places, dismiss)
    }

    #[tokio::test]
    async fn the_oldest_connection_that_is_not_kept_is_dismissed_first() {
        let acceptor = acceptor(10, Dismiss::Unkept).await;
        let [first, second, third] = [acceptor.place().await, acceptor.place().await, acceptor.place().await];
        first.connection().keep();
        assert!(acceptor.open.dismiss_oldest(Dismiss::Unkept));
        assert!(!gone(&first) && gone(&second) && !gone(&third));
        drop((second, third));
        assert!(!acceptor.open.dismiss_oldest(Dismiss::Unkept) && !gone(&first));
        assert!(acceptor.open.dismiss_oldest(Dismiss::All) && gone(&first));
        drop(first);
        assert!(!acceptor.open.dismiss_oldest(Dismiss::All), "what has ended is forgotten");
    }

    #[tokio::test]
    async fn a_new_connection_takes_the_place_of_the_oldest() {
        let mut acceptor = acceptor(1, Dismiss::Unkept).await;
        let address = acceptor.listener.local_addr().unwrap();
        let _first = TcpStream::connect(address).await.unwrap();
        let (stream, place) = acceptor.accept().await;
        let connection = place.connection();
        tokio::spawn(async move {
            connection.dismissed().await;
            drop((stream, place));
        });
        let second = TcpStream::connect(address).await.unwrap();
        let (accepted, _place) = acceptor.accept().await;
        assert_eq!(accepted.peer_addr().unwrap(), second.local_addr().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn without_descriptors_the_oldest_ends_and_accepting_goes_on_at_once() {
        let acceptor = acceptor(10, Dismiss::Unkept).await;
        let place = acceptor.place().await;
        let connection = place.connection();
        tokio::spawn(async move {
            connection.dismissed().await;
            drop(place);
        });
        let exhausted = io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
        acceptor.recover(&exhausted).await;
        assert_eq!(acceptor.places.available_permits(), 9, "none waits, so none has to go");
        let _pending = TcpStream::connect(acceptor.listener.local_addr().unwrap()).await.unwrap();
        let began = clock::now();
        acceptor.recover(&exhausted).await;
        assert_eq!(clock::now().since(began), Duration::ZERO);
        assert_eq!(acceptor.places.available_permits(), 10);
        // None is left, and accepting must not spin.
        acceptor.recover(&exhausted).await;
        assert!(clock::now().since(began) >= ACCEPT_AGAIN);
    }
}
