//! The other caller: valid reviews at a steady rate over kept connections, as from the API server, with their
//! latency. It runs in its own thread, so that the work of a row on this side is not measured.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::{GENEROUS, wait_for};
use rustls::{ClientConnection, StreamOwned};
use tokio::sync::watch;

use crate::reviews;
use crate::wire::{self, Answer, Place};

/// Reviews per second.
const RATE: u32 = 400;

/// Connections: as many as the API server keeps, and two more.
const CONNECTIONS: usize = 4;

type Connection = StreamOwned<ClientConnection, TcpStream>;

/// A running caller.
pub(crate) struct Paced {
    took: Arc<Mutex<Vec<Duration>>>,
    stop: Sender<()>,
    thread: JoinHandle<Result<i64>>,
}

impl Paced {
    /// Starts to send reviews of this namespace's Events.
    pub(crate) fn start(place: Place, path: watch::Receiver<String>, namespace: String) -> Self {
        let took = Arc::<Mutex<Vec<Duration>>>::default();
        let (stop, stopped) = channel();
        let book = took.clone();
        let thread = std::thread::spawn(move || {
            let mut caller = Caller { place, path, namespace, connections: Vec::new(), reported: 0 };
            let began = Instant::now();
            for number in 1_u32.. {
                // Latency from the due time: includes waiting for the previous review.
                let due = began + Duration::from_secs(1) * number / RATE;
                match stopped.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
                caller.report()?;
                book.lock().unwrap_or_else(PoisonError::into_inner).push(due.elapsed());
            }
            Ok(caller.reported)
        });
        Self { took, stop, thread }
    }

    /// The latency of its next reviews.
    pub(crate) async fn next(&self, reviews: usize) -> Result<Vec<Duration>> {
        let len = || self.took.lock().unwrap_or_else(PoisonError::into_inner).len();
        let from = len();
        let goes_on = wait_for("the answers to the other caller", GENEROUS, async || match len() - from {
            answers if answers >= reviews => Ok(true),
            _ if self.thread.is_finished() => Ok(false),
            answers => Err(format!("{answers} of {reviews}")),
        })
        .await?;
        ensure!(goes_on, "the other caller stopped after an error");
        let took = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(took[from..from + reviews].to_vec())
    }

    /// Stops it; returns the reported occurrences.
    pub(crate) fn stop(self) -> Result<i64> {
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| anyhow::anyhow!("the other caller panicked"))?
    }
}

struct Caller {
    place: Place,
    path: watch::Receiver<String>,
    namespace: String,
    connections: Vec<Connection>,
    reported: i64,
}

impl Caller {
    /// Reports one occurrence.
    fn report(&mut self) -> Result<()> {
        self.reported += 1;
        let review = reviews::update(&self.namespace, self.reported);
        let request = wire::post(&self.path.borrow(), review.as_bytes());
        let answer = match self.connection(self.reported as usize) {
            Some(mut kept) => match asked(&mut kept, &request) {
                Ok(answer) => self.keep(kept, answer),
                // As in Go's client: a kept connection may have been closed.
                Err(_) => self.ask_anew(&request)?,
            },
            None => self.ask_anew(&request)?,
        };
        ensure!(answer.is_allowed(), "review {}: {answer:?}", self.reported);
        Ok(())
    }

    fn connection(&mut self, number: usize) -> Option<Connection> {
        if self.connections.len() < CONNECTIONS {
            return None;
        }
        Some(self.connections.remove(number % CONNECTIONS))
    }

    fn keep(&mut self, connection: Connection, answer: Answer) -> Answer {
        if !matches!(answer, Answer::Http { last: true, .. }) {
            self.connections.push(connection);
        }
        answer
    }

    fn ask_anew(&mut self, request: &[u8]) -> Result<Answer> {
        let stream = TcpStream::connect(self.place.address)?;
        stream.set_nodelay(true)?;
        let client = ClientConnection::new(self.place.config(b"http/1.1"), self.place.name())?;
        let mut connection = StreamOwned::new(client, stream);
        let answer = asked(&mut connection, request).context("a connection of its own")?;
        Ok(self.keep(connection, answer))
    }
}

fn asked(connection: &mut Connection, request: &[u8]) -> Result<Answer> {
    connection.write_all(request)?;
    connection.flush()?;
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(answer) = wire::parse(&read)? {
            return Ok(answer);
        }
        let more = connection.read(&mut buffer)?;
        ensure!(more > 0, "closed");
        read.extend_from_slice(&buffer[..more]);
    }
}
