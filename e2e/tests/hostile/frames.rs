//! Handmade HTTP/2 frames that no client sends.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::io::split;

use crate::callers::{Attempt, Callers, SELDOM};
use crate::wire::{Place, end_of};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113, 6).
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A POST in HPACK without the table (RFC 7541, 6.2.2).
fn head(path: &str) -> Vec<u8> {
    let text = |name: &[u8], value: &str| {
        // A length of 127 or more has a second byte.
        let length = match value.len() {
            short @ 0..127 => vec![short as u8],
            long => vec![127, (long - 127) as u8],
        };
        [name, &length, value.as_bytes()].concat()
    };
    let (method, scheme) = ([0x83], [0x87]);
    let fields =
        [text(&[0x04], path), text(&[0x01], "squelch"), text(&[0x0f, 0x10], "application/json")].concat();
    [&method[..], &scheme, &fields].concat()
}

/// Sends these frames over a new connection, and waits for its end: returns how squelch closed it, and the latency.
async fn says(place: &Place, frames: &[u8]) -> Result<(String, Duration)> {
    let (mut reader, mut writer) = split(place.dial_for(b"h2").await?);
    let writing = async {
        writer.write_all(PREFACE).await?;
        writer.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
        // A write may fail after squelch has closed.
        let _ = writer.write_all(frames).await;
        let _ = writer.flush().await;
        anyhow::Ok(Instant::now())
    };
    let (sent, answered) = tokio::join!(writing, async { (end_of(&mut reader).await, Instant::now()) });
    let (sent, (read, ended)) = (sent?, answered);
    Ok((leave(&read?), ended.saturating_duration_since(sent)))
}

/// The error of the GOAWAY in these frames.
fn leave(mut read: &[u8]) -> String {
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = read {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        if let (GOAWAY, [_, _, _, _, 0, 0, 0, error, ..]) = (*kind, payload) {
            return format!("GOAWAY {error}");
        }
        read = rest;
    }
    "closed".to_owned()
}

/// Streams that are reset after they are opened (CVE-2023-44487), with and without the token; then a GOAWAY. The API
/// server does the same after a stall for each waiting write, so squelch must not close the connection.
pub(crate) async fn resets(callers: &Callers) -> Result<String> {
    let storm = |path: &str| -> Vec<u8> {
        let head = head(path);
        let cancel = 8_u32.to_be_bytes();
        let streams = (0..1_000).map(|number| 2 * number + 1);
        let resets = streams.flat_map(|stream| {
            [frame(HEADERS, END_HEADERS, stream, &head), frame(RST_STREAM, 0, stream, &cancel)].concat()
        });
        resets.chain(frame(GOAWAY, 0, 0, &[0; 8])).collect()
    };
    let storms = [storm(&callers.path()), storm("/events/guessed")];
    callers
        .measure(SELDOM, async |place| {
            let mut slowest = Duration::ZERO;
            for storm in &storms {
                let (leave, took) = says(place, storm).await?;
                ensure!(leave.starts_with("GOAWAY") || leave == "closed", "{leave}");
                slowest = slowest.max(took);
            }
            Ok(Attempt::new("GOAWAY or closed", slowest))
        })
        .await
}

/// Streams without the token that are reset as soon as they are opened. Each head repeats one entry of HPACK's table 475
/// times, so it is long once decompressed.
pub(crate) async fn long_heads_reset(callers: &Callers) -> Result<String> {
    let fields = [0xbe; 475];
    let streams = (0..1_000).flat_map(|number| {
        let into_table: &[u8] = if number == 0 { &[0x40, 1, b'a', 0] } else { &[] };
        let head = [&head("/"), into_table, &fields].concat();
        let stream = 2 * number + 1;
        [
            frame(HEADERS, END_HEADERS | END_STREAM, stream, &head),
            frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
        ]
        .concat()
    });
    let storm: Vec<u8> = streams.collect();
    callers
        .measure(SELDOM, async |place| {
            let (_, took) = says(place, &storm).await?;
            Ok(Attempt::new("cut", took))
        })
        .await
}

/// A header block of 8 MiB without an end.
pub(crate) async fn continued(callers: &Callers) -> Result<String> {
    let more = frame(CONTINUATION, 0, 1, &[0; 16 << 10]);
    let storm = [frame(HEADERS, 0, 1, &head("/")), more.repeat(512)].concat();
    callers
        .measure(SELDOM, async |place| {
            let (_, took) = says(place, &storm).await?;
            Ok(Attempt::new("GOAWAY or closed", took))
        })
        .await
}

/// Pings whose answers are not read until the last one is sent. A connection without the token is closed after 4 KiB.
pub(crate) async fn pings(callers: &Callers) -> Result<String> {
    let storm = frame(PING, 0, 0, &[7; 8]).repeat(10_000);
    let end = [frame(GOAWAY, 0, 0, &[0; 8])].concat();
    callers
        .measure(SELDOM, async |place| {
            let (_, took) = says(place, &[&storm[..], &end].concat()).await?;
            Ok(Attempt::new("cut", took))
        })
        .await
}
