//! A relay of TCP connections to a port of this machine, which delays, resets or never answers them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// The bytes of a connection that are on their way.
const IN_FLIGHT: usize = 64;

/// What the relay does to a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TcpFault {
    /// Each byte of the client arrives this much later; the answers are not delayed.
    Delay(Duration),
    /// The connection is reset when the client has sent something.
    Reset,
    /// The connection is accepted, and nothing ever answers.
    Silent,
}

/// A listener on loopback. It and its connections end on drop.
pub(crate) struct TcpRelay {
    pub(crate) port: u16,
    serving: JoinHandle<()>,
}

impl TcpRelay {
    /// Relays to a port on loopback.
    pub(crate) async fn start(to: u16, fault: TcpFault) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(async move {
                    // A connection that breaks is the business of its two ends.
                    let _ = relay(client, to, fault).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { port, serving })
    }
}

impl Drop for TcpRelay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn relay(mut client: TcpStream, to: u16, fault: TcpFault) -> Result<()> {
    let delay = match fault {
        TcpFault::Reset => {
            client.readable().await?;
            client.set_zero_linger()?;
            return Ok(());
        }
        TcpFault::Silent => {
            tokio::io::copy(&mut client, &mut tokio::io::sink()).await?;
            return Ok(());
        }
        TcpFault::Delay(delay) => delay,
    };
    let mut target = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, to))).await?;
    client.set_nodelay(true)?;
    target.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_target, mut to_target) = target.split();
    // Chunks and the time of their arrival: a delay is no limit of the throughput.
    let (sender, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(IN_FLIGHT);
    let read = async move {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let length = from_client.read(&mut buffer).await?;
            if length == 0 || sender.send((Instant::now() + delay, buffer[..length].to_vec())).await.is_err()
            {
                return anyhow::Ok(());
            }
        }
    };
    let write = async move {
        while let Some((time, chunk)) = chunks.recv().await {
            sleep_until(time).await;
            to_target.write_all(&chunk).await?;
        }
        to_target.shutdown().await?;
        anyhow::Ok(())
    };
    let answer = async move {
        tokio::io::copy(&mut from_target, &mut to_client).await?;
        to_client.shutdown().await?;
        anyhow::Ok(())
    };
    tokio::try_join!(read, write, answer)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers each connection's bytes with the same bytes.
    async fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        port
    }

    #[tokio::test]
    async fn bytes_arrive_late_and_complete() {
        let delay = Duration::from_millis(100);
        let relay = TcpRelay::start(echo().await, TcpFault::Delay(delay)).await.unwrap();
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port)).await.unwrap();
        let began = Instant::now();
        client.write_all(b"a question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "a question");
        assert!(began.elapsed() >= delay, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_silent_connection_stays_open_without_an_answer() {
        let relay = TcpRelay::start(echo().await, TcpFault::Silent).await.unwrap();
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port)).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        let answer = tokio::time::timeout(Duration::from_millis(200), client.read_u8()).await;
        assert!(answer.is_err(), "{answer:?}");
    }

    #[tokio::test]
    async fn a_connection_is_reset_after_its_first_bytes() {
        let relay = TcpRelay::start(echo().await, TcpFault::Reset).await.unwrap();
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port)).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        let error = client.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}
