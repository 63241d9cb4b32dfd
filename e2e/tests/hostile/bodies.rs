//! Bodies that the API server would not send, and the largest that it would.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncWriteExt as _, split};

use crate::callers::{Callers, OFTEN, Struck};
use crate::reviews::{create, update_with};
use crate::wire::{Answer, Place, answer, end_of, post};

const MEBIBYTE: usize = 1 << 20;

/// squelch reads so much of a body.
pub(crate) const READ: usize = 40 * MEBIBYTE;

/// Strikes with these bodies, of which each is answered as `expected` says.
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
        Ok(Struck::new(answer, took))
    };
    if requests.iter().any(|request| request.len() >= MEBIBYTE) {
        callers.endure_heavy(Duration::from_secs(1), strike).await
    } else {
        callers.endure(OFTEN, strike).await
    }
}

fn texts(bodies: impl IntoIterator<Item = String>) -> Vec<Vec<u8>> {
    bodies.into_iter().map(String::into_bytes).collect()
}

/// Nothing at all.
pub(crate) async fn empty(callers: &Callers) -> Result<String> {
    answered(callers, &[Vec::new()], |answer| answer.is(400)).await
}

/// As long as the API server takes an Event.
pub(crate) async fn long(callers: &Callers) -> Result<String> {
    let message = "x".repeat(3 * MEBIBYTE);
    let review = create(&callers.struck, &format!(r#","message":"{message}""#));
    answered(callers, &texts([review]), Answer::is_allowed).await
}

/// Longer than squelch reads, its length untold. The answer is due when more was sent than squelch reads.
pub(crate) async fn endless(callers: &Callers) -> Result<String> {
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: squelch\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        callers.path()
    );
    let review = create(&callers.struck, "");
    let first = format!("{head}{:x}\r\n{}\r\n", review.len() - 1, &review[..review.len() - 1]);
    let chunk = format!("{MEBIBYTE:x}\r\n{}\r\n", " ".repeat(MEBIBYTE));
    callers
        .endure_heavy(Duration::from_secs(2), async |place| {
            let (mut reader, mut writer) = split(place.dial().await?);
            let writing = async {
                writer.write_all(first.as_bytes()).await?;
                let (mut sent, mut due) = (0, None);
                // Until squelch takes no more.
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
            ensure!(sent < 64 * MEBIBYTE, "all of it was read");
            end_of(&mut reader).await?;
            let took = due.map_or(Duration::ZERO, |due| at.saturating_duration_since(due));
            Ok(Struck::new(format!("{answer}, connection closed"), took))
        })
        .await
}

/// Where squelch reads, where it compares, and where it looks over.
pub(crate) async fn deep(callers: &Callers) -> Result<String> {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let objects = r#"{"a":"#.repeat(10_000) + "1" + &"}".repeat(10_000);
    let namespace = &callers.struck;
    let bodies = [
        create(namespace, &format!(r#","tomorrow":{deep}"#)),
        create(namespace, &format!(r#","metadata":{deep}"#)),
        create(namespace, &format!(r#","involvedObject":{objects}"#)),
        create(namespace, &format!(r#","metadata":{{"name":"struck","labels":{objects}}}"#)),
        update_with(namespace, &format!(r#","tomorrow":{deep}"#), &format!(r#","tomorrow":{objects}"#)),
        create(namespace, "").replace(r#""dryRun":false"#, &format!(r#""dryRun":{deep}"#)),
        create(namespace, "").replace(r#""options":{"#, &format!(r#""more":{objects},"options":{{"#)),
    ];
    answered(callers, &texts(bodies), Answer::is_allowed).await
}

/// A million labels, and a million members that no Event has.
pub(crate) async fn wide(callers: &Callers) -> Result<String> {
    let members = |value: &str| {
        let members: Vec<_> = (0..1_000_000).map(|at| format!(r#""{at:06}":"{value}""#)).collect();
        members.join(",")
    };
    let (members, others) = (members(""), members("1"));
    let labels = |members: &str| format!(r#","metadata":{{"name":"struck","labels":{{{members}}}}}"#);
    let namespace = &callers.struck;
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

/// The last holds, where it can be read.
pub(crate) async fn twice(callers: &Callers) -> Result<String> {
    let review =
        create(&callers.struck, r#","count":1,"reason":"Again","metadata":{"name":"struck"},"message":1"#);
    let twice =
        review.replace(r#""operation":"#, r#""uid":"x","operation":"UPDATE","name":"y","operation":"#);
    answered(callers, &texts([review.clone(), twice]), Answer::is_allowed).await
}

/// Half of a character, in text that squelch keeps, and in text that it has to repeat.
pub(crate) async fn surrogates(callers: &Callers) -> Result<String> {
    let namespace = &callers.struck;
    let kept =
        [r#""\ud800""#, r#""\udc00\ud800 ""#].map(|text| create(namespace, &format!(r#","message":{text}"#)));
    let told = answered(callers, &texts(kept), Answer::is_allowed).await?;
    let name = create(namespace, "").replace(r#""username":""#, r#""username":"\ud800"#);
    let read = answered(callers, &texts([name]), Answer::is_allowed).await?;
    let uid = create(namespace, "").replace(r#""uid":""#, r#""uid":"\ud800"#);
    let repeated = answered(callers, &texts([uid]), |answer| answer.is(400)).await?;
    Ok(format!("in the message: {told} | in the user: {read} | in the uid: {repeated}"))
}

/// Bytes that are no text.
pub(crate) async fn no_text(callers: &Callers) -> Result<String> {
    let review = create(&callers.struck, r#","message":"@""#);
    let bodies: [&[u8]; 3] = [&[0xff], &[0xed, 0xa0, 0x80], &[0xc0, 0x80]];
    let bodies = bodies.map(|bytes| {
        let at = review.find('@').unwrap_or_default();
        [&review.as_bytes()[..at], bytes, &review.as_bytes()[at + 1..]].concat()
    });
    answered(callers, &bodies, Answer::is_allowed).await
}

/// No number that JSON knows.
pub(crate) async fn no_number(callers: &Callers) -> Result<String> {
    let bodies = ["NaN", "-Infinity", "0x7", "1e99999"]
        .map(|number| create(&callers.struck, &format!(r#","count":{number}"#)));
    answered(callers, &texts(bodies), Answer::is_allowed).await
}
