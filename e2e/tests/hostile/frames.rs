//! HTTP/2 by hand: what no client says.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::io::split;

use crate::callers::{Callers, SELDOM, Struck};
use crate::wire::{Place, end_of};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113, 6).
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A POST in HPACK, without its table (RFC 7541, 6.2.2).
fn head(path: &str) -> Vec<u8> {
    let text = |name: &[u8], value: &str| {
        // A length of 127 and more has a second byte.
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

/// Says all this over a connection of its own, and waits for its end: how squelch took leave, and how soon.
async fn says(place: &Place, frames: &[u8]) -> Result<(String, Duration)> {
    let (mut reader, mut writer) = split(place.dial_for(b"h2").await?);
    let writing = async {
        writer.write_all(PREFACE).await?;
        writer.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
        // What is not taken any more is not missed.
        let _ = writer.write_all(frames).await;
        let _ = writer.flush().await;
        anyhow::Ok(Instant::now())
    };
    let (sent, answered) = tokio::join!(writing, async { (end_of(&mut reader).await, Instant::now()) });
    let (sent, (read, ended)) = (sent?, answered);
    Ok((leave(&read?), ended.saturating_duration_since(sent)))
}

/// The error of the GOAWAY among these frames.
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

/// Streams that are reset as soon as they are opened (CVE-2023-44487), with the token and without; then the client's
/// GOAWAY. After a stall the API server does the same for each write that waited, so that it does not end the connection.
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
        .endure(SELDOM, async |place| {
            let mut slowest = Duration::ZERO;
            for storm in &storms {
                let (leave, took) = says(place, storm).await?;
                ensure!(leave.starts_with("GOAWAY") || leave == "closed", "{leave}");
                slowest = slowest.max(took);
            }
            Ok(Struck::new("GOAWAY or closed", slowest))
        })
        .await
}

/// A head of 8 MiB that never ends.
pub(crate) async fn continued(callers: &Callers) -> Result<String> {
    let more = frame(CONTINUATION, 0, 1, &[0; 16 << 10]);
    let storm = [frame(HEADERS, 0, 1, &head("/")), more.repeat(512)].concat();
    callers
        .endure(SELDOM, async |place| {
            let (_, took) = says(place, &storm).await?;
            Ok(Struck::new("GOAWAY or closed", took))
        })
        .await
}

/// Pings whose answers nobody reads before the last is sent; a connection that proves nothing ends after 10 s.
pub(crate) async fn pings(callers: &Callers) -> Result<String> {
    let storm = frame(PING, 0, 0, &[7; 8]).repeat(10_000);
    let end = [frame(GOAWAY, 0, 0, &[0; 8])].concat();
    callers
        .endure(SELDOM, async |place| {
            let (_, took) = says(place, &[&storm[..], &end].concat()).await?;
            Ok(Struck::new("answered, and closed at the client's GOAWAY", took))
        })
        .await
}
