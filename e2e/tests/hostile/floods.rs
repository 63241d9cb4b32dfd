//! As many Events as the API server takes, each of which makes work of another kind.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::figures::median;
use e2e::writer::percentile;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use crate::script::pods;
use crate::tenancy::{Ending, Tenancy};
use crate::tenant::{Said, event};

/// Writes under way at a time.
const HANDS: usize = 8;

/// No more than these, however fast the API server is.
const MOST: u64 = 100_000;

/// So long the flood goes to the governed namespace, in all.
const MINUTE: Duration = Duration::from_secs(60);

/// So long it goes to a namespace without a policy before each part of that.
const CONTROL: Duration = Duration::from_secs(3);

/// In so many parts.
const PARTS: u32 = 5;

/// A neighbour's p99 may rise by a fifth, or by so many milliseconds where that is less.
const NOISE: f64 = 1.0;

/// The neighbour's writes a second.
const RATE: u32 = 50;

/// Each makes a series, and a group.
pub(crate) async fn reasons() -> Result<String> {
    let tenancy = Tenancy::begin("reasons").await?;
    let about = |number: u64| pods((number % 4) as usize)[2].clone();
    flooded(tenancy, MINUTE, u64::MAX, |namespace, number| {
        event(
            namespace,
            &format!("m.{number}"),
            &about(number),
            &format!("Failed{number}"),
            "told by somebody else",
        )
    })
    .await
}

/// Each makes a series, a group, a bucket and a name. Nothing but a budget holds those back, and a budget is shared by
/// whom a policy governs: so the policy's author gives this user one of his own.
pub(crate) async fn names() -> Result<String> {
    let budget = json!({ "burst": 500, "refillInterval": "100ms" });
    let apart = json!({ "priority": 1, "match": { "users": ["mallory"] }, "budget": budget });
    let tenancy = Tenancy::with("names", Some(&apart)).await?;
    flooded(tenancy, MINUTE, u64::MAX, |namespace, number| {
        event(namespace, &format!("m.{number}"), &format!("pod-{number}"), "BackOff", "told by somebody else")
    })
    .await
}

/// Each is one more of a group.
pub(crate) async fn messages() -> Result<String> {
    let tenancy = Tenancy::begin("messages").await?;
    let about = |number: u64| pods((number % 4) as usize)[1].clone();
    flooded(tenancy, MINUTE, u64::MAX, |namespace, number| {
        event(
            namespace,
            &format!("m.{number}"),
            &about(number),
            "BackOff",
            &format!("told by somebody else {number}"),
        )
    })
    .await
}

/// As long as etcd takes them.
pub(crate) async fn long() -> Result<String> {
    let message = "x".repeat(1_500_000);
    long_messages("long", &message).await
}

/// The API server writes each as six characters where it asks squelch, and Go's encoder wants room for more.
pub(crate) async fn escaped() -> Result<String> {
    let message = "<".repeat(1_400_000);
    long_messages("escaped", &message).await
}

async fn long_messages(label: &str, message: &str) -> Result<String> {
    let tenancy = Tenancy::begin(label).await?;
    // What no policy holds back is stored but once, or it would fill etcd.
    flooded(tenancy, MINUTE / 2, 1, |namespace, number| {
        let message = format!("{number} {message}");
        event(namespace, &format!("m.{number}"), &pods((number % 2) as usize)[1], "BackOff", &message)
    })
    .await
}

/// Floods the namespace for so long in all, by turns with one without a policy, in which there are `names` names at
/// most, while a neighbour writes: his writes take no longer than when squelch has nothing to do with the flood.
async fn flooded(
    tenancy: Tenancy,
    within: Duration,
    names: u64,
    make: impl Fn(&str, u64) -> Value,
) -> Result<String> {
    let writer = tenancy.beside.writer(RATE).await?;
    writer.goes_on(RATE as usize).await?;
    let (next, unseen) = (Cell::new(0), Cell::new(0));
    let mut windows = Vec::new();
    for part in 0..PARTS {
        let began = writer.has_written_for();
        let free = &tenancy.free.namespace;
        flood(&unseen, CONTROL, async |number| {
            tenancy.hostile.create(free, &make(free, number % names)).await
        })
        .await?;
        let between = writer.has_written_for();
        let governed = flood(&next, within / PARTS, async |number| {
            tenancy.creates(&make(tenancy.namespace(), number)).await
        });
        // Not while the first is measured: these writes are the neighbour's own.
        let playing = async { if part == 0 { tenancy.play().await } else { Ok(()) } };
        tokio::try_join!(governed, playing)?;
        windows.push((began, between, writer.has_written_for()));
    }
    let times = writer.times();
    let answers = writer.stop().await;
    ensure!(answers.failed.is_empty(), "the neighbour: {answers}");
    tenancy.was_told_beside(answers.occurrences());
    let p99 = |from, to| percentile(&times, 99, from, to).as_secs_f64() * 1000.0;
    let without: Vec<_> = windows.iter().map(|window| p99(window.0, window.1)).collect();
    let without = median(&without);
    let rise = windows.iter().map(|window| p99(window.1, window.2) - p99(window.0, window.1));
    let rise = median(&rise.collect::<Vec<_>>());
    let rate = next.get() as f64 / within.as_secs_f64();
    let said = format!(
        "{} writes, {rate:.0} a second; neighbour's p99 {without:.1} ms in that flood without squelch, {rise:+.1} with it",
        next.get()
    );
    ensure!(rise <= (without / 5.0).max(NOISE), "{said}");
    Ok(format!("{said}; {}", tenancy.ends(Ending::AddsUp).await?))
}

/// Writes with the numbers that `next` goes on with, as fast as they are answered.
async fn flood(next: &Cell<u64>, within: Duration, write: impl AsyncFn(u64) -> Result<Said>) -> Result<()> {
    let began = Instant::now();
    let numbers = std::iter::from_fn(|| {
        let number = next.get();
        (number < MOST && began.elapsed() < within).then(|| {
            next.set(number + 1);
            number
        })
    });
    let writing = stream::iter(numbers).map(|number| write(number)).buffer_unordered(HANDS);
    writing
        .try_for_each(async |said| {
            ensure!(!matches!(said, Said::Other(status) if status != 409), "{said:?}");
            Ok(())
        })
        .await
}
