//! Connections: too many, too slow, of the wrong protocol, half-closed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{interval, timeout};

use crate::callers::{Attempt, Callers, OFTEN, SELDOM};
use crate::reviews::create;
use crate::wire::{Answer, answer, end_of, post};

/// squelch's deadline of handshake, headers and body of an unauthenticated caller, and of the body of an
/// authenticated one.
const SLOW: Duration = Duration::from_secs(10);

/// Maximum number of connections in squelch (`webhook::server::ConnectionLimits`).
const MOST: f64 = 4_000.0;

/// More than that maximum.
const IDLE: usize = 10_000;

/// Sends the rest byte by byte, two per second, until squelch answers or closes; returns how it ended, and when after
/// `since`.
async fn drip(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    bytes: &[u8],
    since: Instant,
) -> Result<(String, Duration)> {
    let (mut read, mut bytes) = (Vec::new(), bytes.iter());
    loop {
        match timeout(Duration::from_millis(500), stream.read_buf(&mut read)).await {
            Ok(Ok(more)) if more > 0 => continue,
            Ok(_) => break,
            Err(_) => {}
        }
        ensure!(since.elapsed() < 3 * SLOW, "it is still open");
        if let Some(byte) = bytes.next() {
            let _ = stream.write_all(&[*byte]).await;
        }
    }
    let status =
        String::from_utf8_lossy(&read).split(' ').nth(1).map_or_else(|| "closed".to_owned(), str::to_owned);
    Ok((status, since.elapsed()))
}

/// Ten of each kind concurrently. The expected end is the deadline in the threat model.
pub(crate) async fn slow(callers: &Callers) -> Result<String> {
    let authenticated = post(&callers.path(), create(&callers.hostile_namespace, "").as_bytes());
    let unauthenticated = post("/events/guessed", create(&callers.hostile_namespace, "").as_bytes());
    let body = |request: &[u8]| request.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4);
    let (authenticated_body, unauthenticated_body) =
        (body(&authenticated).context("no headers")?, body(&unauthenticated).context("no headers")?);
    callers
        .measure_windows(2, SELDOM, false, async |place| {
            // Sequentially: handshakes load both processors.
            let turns = Mutex::new(interval(Duration::from_millis(50)));
            let begun = async |sent: &[u8], rest: &[u8]| {
                turns.lock().await.tick().await;
                let since = Instant::now();
                let mut stream = place.dial().await?;
                stream.write_all(sent).await?;
                drip(stream, rest, since).await
            };
            let unshaken = async || {
                let since = Instant::now();
                drip(place.connect().await?, b"\x16\x03\x01", since).await
            };
            let ten = 0..10;
            let (shaking, silent, heads, bodies, authenticated) = tokio::try_join!(
                try_join_all(ten.clone().map(|_| unshaken())),
                try_join_all(ten.clone().map(|_| begun(b"", b""))),
                try_join_all(ten.clone().map(|_| begun(&authenticated[..20], &authenticated[20..]))),
                try_join_all(ten.clone().map(|_| begun(
                    &unauthenticated[..unauthenticated_body],
                    &unauthenticated[unauthenticated_body..]
                ))),
                try_join_all(ten.clone().map(|_| begun(
                    &authenticated[..authenticated_body],
                    &authenticated[authenticated_body..]
                ))),
            )?;
            let mut latest = Duration::ZERO;
            for (kind, ends) in
                [("closed", [shaking, silent, heads, bodies].concat()), ("408", authenticated)]
            {
                for (status, after) in ends {
                    ensure!(
                        status == kind || (kind == "closed" && status == "408"),
                        "{status} instead of {kind}"
                    );
                    ensure!(after + Duration::from_millis(100) >= SLOW, "{status} after {after:?}");
                    latest = latest.max(after);
                }
            }
            // Each connection polls twice per second.
            Ok(Attempt::new(
                "50 slow connections closed or answered 408 after 10 s",
                latest.saturating_sub(SLOW),
            ))
        })
        .await
}

/// Ten thousand silent connections, a thousand per 250 ms. A new connection of the API server must be accepted and
/// answered in time.
pub(crate) async fn idle(callers: &Callers) -> Result<String> {
    let request = post(&callers.path(), create(&callers.hostile_namespace, "").as_bytes());
    callers
        .measure_windows(3, SELDOM, false, async |place| {
            let mut ticks = interval(Duration::from_millis(25));
            let mut idle: Vec<TcpStream> = Vec::with_capacity(IDLE);
            while idle.len() < IDLE {
                ticks.tick().await;
                for _ in 0..100 {
                    let stream = place.connect().await?;
                    // Otherwise this machine runs out of ports.
                    stream.set_zero_linger()?;
                    idle.push(stream);
                }
            }
            let began = Instant::now();
            let (answer, _) = place.ask(&request).await?;
            let took = began.elapsed();
            ensure!(answer.is_allowed(), "{answer:?}");
            let held = callers.squelch.metrics().await?.sum("process_open_fds", &[]);
            ensure!(held < MOST + 100.0, "{held} descriptors");
            // The first ones were closed.
            end_of(&mut idle[0]).await?;
            Ok(Attempt::new(format!("{IDLE} opened, at most 4,000 held; a new connection 200 allowed"), took))
        })
        .await
}

/// A handshake costs both sides processor time on the same two processors: so 40 per second, alternating with as many
/// to the sink.
pub(crate) async fn handshakes(callers: &Callers) -> Result<String> {
    callers
        .measure_against_sink(Duration::from_millis(25), async |place| {
            let began = Instant::now();
            let stream = place.dial().await?;
            let took = began.elapsed();
            stream.get_ref().0.set_zero_linger()?;
            Ok(Attempt::new("40 handshakes/s completed", took))
        })
        .await
}

/// Plain HTTP.
pub(crate) async fn plain(callers: &Callers) -> Result<String> {
    let request = post("/", create(&callers.hostile_namespace, "").as_bytes());
    callers
        .measure(OFTEN, async |place| {
            let mut stream = place.connect().await?;
            stream.write_all(&request).await?;
            let sent = Instant::now();
            let read = end_of(&mut stream).await?;
            ensure!(!read.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&read));
            Ok(Attempt::new("closed", sent.elapsed()))
        })
        .await
}

/// A ClientHello of TLS 1.0 (RFC 2246, 7.4.1.2) with two suites of its time.
pub(crate) async fn outdated(callers: &Callers) -> Result<String> {
    let hello = [&[3, 1][..], &[7; 32], &[0], &[0, 4, 0xc0, 0x13, 0, 0x2f], &[1, 0]].concat();
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    let handshake = [&[1, 0, 0, length(&hello)][..], &hello].concat();
    let record = [&[22, 3, 1, 0, length(&handshake)][..], &handshake].concat();
    callers
        .measure(OFTEN, async |place| {
            let mut stream = place.connect().await?;
            stream.write_all(&record).await?;
            let sent = Instant::now();
            let read = end_of(&mut stream).await?;
            // A fatal alert.
            ensure!(matches!(read[..], [21, 3, _, 0, 2, 2, _]), "{read:?}");
            Ok(Attempt::new(format!("alert {}, closed", read[6]), sent.elapsed()))
        })
        .await
}

/// The caller half-closes the connection: before the handshake, after it, within a request, after it.
pub(crate) async fn half_closed(callers: &Callers) -> Result<String> {
    let request = post(&callers.path(), create(&callers.hostile_namespace, "").as_bytes());
    callers
        .measure(OFTEN, async |place| {
            let mut slowest = Duration::ZERO;
            let mut unshaken = place.connect().await?;
            unshaken.shutdown().await?;
            let since = Instant::now();
            end_of(&mut unshaken).await?;
            slowest = slowest.max(since.elapsed());
            for sent in [0, 30, request.len() - 10, request.len()] {
                let mut stream = place.dial().await?;
                stream.write_all(&request[..sent]).await?;
                stream.shutdown().await?;
                let since = Instant::now();
                let answer = answer(&mut stream).await?;
                let whole = sent == request.len();
                ensure!(
                    answer == Answer::Closed || answer.is(400) || whole && answer.is_allowed(),
                    "{answer:?}"
                );
                end_of(&mut stream).await?;
                slowest = slowest.max(since.elapsed());
            }
            Ok(Attempt::new("closed", slowest))
        })
        .await
}
