//! Bodies that the API server never sends, and the largest one that it sends.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncWriteExt as _, split};

use crate::callers::{Attempt, Callers, OFTEN};
use crate::reviews::{create, update_with};
use crate::wire::{Answer, Place, answer, end_of, post};

const MEBIBYTE: usize = 1 << 20;

/// Maximum size of a body in squelch.
pub(crate) const READ: usize = 40 * MEBIBYTE;

/// Sends these bodies; each must be answered as `expected` says.
async fn answered(
    callers: &Callers,
    bodies: &[Vec<u8>],
    expected: impl Fn(&Answer) -> bool,
) -> Result<String> {
    let requests: Vec<_> = bodies.iter().map(|body| post(&callers.path(), body)).collect();
    let mut turns = requests.iter().cycle();
    let strike = async |place: &Place| {
        let (answer, took) = place.ask(turns.next().context("no bodies")?).await?;
        ensure!(expected(&answer), "{answer:?}");
        Ok(Attempt::new(answer, took))
    };
    if requests.iter().any(|request| request.len() >= MEBIBYTE) {
        callers.measure_against_sink(Duration::from_secs(1), strike).await
    } else {
        callers.measure(OFTEN, strike).await
    }
}

fn texts(bodies: impl IntoIterator<Item = String>) -> Vec<Vec<u8>> {
    bodies.into_iter().map(String::into_bytes).collect()
}

/// An empty body.
pub(crate) async fn empty(callers: &Callers) -> Result<String> {
    answered(callers, &[Vec::new()], |answer| answer.is(400)).await
}

/// The largest Event that the API server accepts.
pub(crate) async fn long(callers: &Callers) -> Result<String> {
    let message = "x".repeat(3 * MEBIBYTE);
    let review = create(&callers.hostile_namespace, &format!(r#","message":"{message}""#));
    answered(callers, &texts([review]), Answer::is_allowed).await
}

/// A chunked body longer than the limit. The answer is due when more than the limit was sent.
pub(crate) async fn endless(callers: &Callers) -> Result<String> {
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: squelch\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        callers.path()
    );
    let review = create(&callers.hostile_namespace, "");
    let first = format!("{head}{:x}\r\n{}\r\n", review.len() - 1, &review[..review.len() - 1]);
    let chunk = format!("{MEBIBYTE:x}\r\n{}\r\n", " ".repeat(MEBIBYTE));
    callers
        .measure_against_sink(Duration::from_secs(2), async |place| {
            let (mut reader, mut writer) = split(place.dial().await?);
            let writing = async {
                writer.write_all(first.as_bytes()).await?;
                let (mut sent, mut due) = (0, None);
                // Until squelch stops reading.
                while sent < 64 * MEBIBYTE && writer.write_all(chunk.as_bytes()).await.is_ok() {
                    sent += MEBIBYTE;
                    if sent > READ {
                        due.get_or_insert_with(Instant::now);
                    }
                }
                anyhow::Ok((sent, due))
            };
            let answering = async {
                let answer = answer(&mut reader).await?;
                anyhow::Ok((answer, Instant::now()))
            };
            let (written, answered) = tokio::join!(writing, answering);
            let ((sent, due), (answer, at)) = (written?, answered?);
            ensure!(answer.is_allowed(), "{answer:?}");
            ensure!(sent < 64 * MEBIBYTE, "the whole body was read");
            end_of(&mut reader).await?;
            let took = due.map_or(Duration::ZERO, |due| at.saturating_duration_since(due));
            Ok(Attempt::new(format!("{answer}, connection closed"), took))
        })
        .await
}

/// In fields that squelch parses, compares, and skips.
pub(crate) async fn deep(callers: &Callers) -> Result<String> {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let objects = r#"{"a":"#.repeat(10_000) + "1" + &"}".repeat(10_000);
    let namespace = &callers.hostile_namespace;
    let bodies = [
        create(namespace, &format!(r#","tomorrow":{deep}"#)),
        create(namespace, &format!(r#","metadata":{deep}"#)),
        create(namespace, &format!(r#","involvedObject":{objects}"#)),
        create(namespace, &format!(r#","metadata":{{"name":"hostile","labels":{objects}}}"#)),
        update_with(namespace, &format!(r#","tomorrow":{deep}"#), &format!(r#","tomorrow":{objects}"#)),
        create(namespace, "").replace(r#""dryRun":false"#, &format!(r#""dryRun":{deep}"#)),
        create(namespace, "").replace(r#""options":{"#, &format!(r#""more":{objects},"options":{{"#)),
    ];
    answered(callers, &texts(bodies), Answer::is_allowed).await
}

/// A million labels, and a million unknown fields.
pub(crate) async fn wide(callers: &Callers) -> Result<String> {
    let members = |value: &str| {
        let members: Vec<_> = (0..1_000_000).map(|at| format!(r#""{at:06}":"{value}""#)).collect();
        members.join(",")
    };
    let (members, others) = (members(""), members("1"));
    let labels = |members: &str| format!(r#","metadata":{{"name":"hostile","labels":{{{members}}}}}"#);
    let namespace = &callers.hostile_namespace;
    let bodies = [
        create(namespace, &format!(",{members}")),
        create(namespace, &labels(&members)),
        update_with(namespace, &labels(&members), &labels(&members)),
        update_with(namespace, &labels(&members), &labels(&others)),
    ];
    let mut measured = Vec::new();
    for body in texts(bodies) {
        measured.push(answered(callers, &[body], Answer::is_allowed).await?);
    }
    Ok(measured.join(" | "))
}

/// The last of duplicate keys applies, where it can be read.
pub(crate) async fn twice(callers: &Callers) -> Result<String> {
    let review = create(
        &callers.hostile_namespace,
        r#","count":1,"reason":"Again","metadata":{"name":"hostile"},"message":1"#,
    );
    let twice =
        review.replace(r#""operation":"#, r#""uid":"x","operation":"UPDATE","name":"y","operation":"#);
    answered(callers, &texts([review.clone(), twice]), Answer::is_allowed).await
}

/// A lone surrogate in text that squelch stores, and in text that it returns.
pub(crate) async fn surrogates(callers: &Callers) -> Result<String> {
    let namespace = &callers.hostile_namespace;
    let kept =
        [r#""\ud800""#, r#""\udc00\ud800 ""#].map(|text| create(namespace, &format!(r#","message":{text}"#)));
    let outcome = answered(callers, &texts(kept), Answer::is_allowed).await?;
    let name = create(namespace, "").replace(r#""username":""#, r#""username":"\ud800"#);
    let read = answered(callers, &texts([name]), Answer::is_allowed).await?;
    let uid = create(namespace, "").replace(r#""uid":""#, r#""uid":"\ud800"#);
    let repeated = answered(callers, &texts([uid]), |answer| answer.is(400)).await?;
    Ok(format!("in the message: {outcome} | in the user: {read} | in the uid: {repeated}"))
}

/// Bytes that are not UTF-8.
pub(crate) async fn no_text(callers: &Callers) -> Result<String> {
    let review = create(&callers.hostile_namespace, r#","message":"@""#);
    let bodies: [&[u8]; 3] = [&[0xff], &[0xed, 0xa0, 0x80], &[0xc0, 0x80]];
    let bodies = bodies.map(|bytes| {
        let at = review.find('@').unwrap_or_default();
        [&review.as_bytes()[..at], bytes, &review.as_bytes()[at + 1..]].concat()
    });
    answered(callers, &bodies, Answer::is_allowed).await
}

/// Invalid JSON numbers.
pub(crate) async fn no_number(callers: &Callers) -> Result<String> {
    let bodies = ["NaN", "-Infinity", "0x7", "1e99999"]
        .map(|number| create(&callers.hostile_namespace, &format!(r#","count":{number}"#)));
    answered(callers, &texts(bodies), Answer::is_allowed).await
}
