//! Half an hour of a storm that tells of other objects each minute, and of policies that come and go meanwhile: what squelch
//! takes of its machine is after half an hour what it was after five minutes, and every occurrence is stored, and counted
//! unless the API server did not ask.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::figures::table;
use e2e::load::Usage;
use e2e::{Emission, GENEROUS, Squelch, Test};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

/// Occurrences a second, in each minute by another recorder.
const RATE: u32 = 500;
/// New ones each minute, each with a series of its own.
const OBJECTS: usize = 300;
/// Occurrences of each: a minute of the rate.
const REPEATS: i64 = 100;
/// Names are remembered for a day, as many as this: full after two minutes, or it would be seen for hours how they fill.
const MAX_SERIES: &str = "50000";
/// An emitter of a minute has long ended by then, however slow the machine is.
const MINUTE_AT_MOST: Duration = Duration::from_secs(600);
/// So often it is looked whether the webhook is armed.
const LOOK: Duration = Duration::from_millis(250);
/// A policy is changed, or made, or deleted, so often.
const CHANGE: Duration = Duration::from_secs(5);
/// Until then caches, pools and tables fill.
const SETTLED: usize = 5;
/// What the allocator may keep, or return, by chance.
const TOLERANCE_MIB: f64 = 8.0;
/// Connections of status, payments, proofs and watches that happen to be open.
const TOLERANCE_DESCRIPTORS: f64 = 16.0;
/// tokio's threads for what blocks come and go.
const TOLERANCE_THREADS: f64 = 2.0;

#[tokio::test]
#[ignore = "half an hour: just soak"]
async fn nothing_grows() -> Result<()> {
    let minutes = minutes()?;
    let test = Test::begin("soak").await?;
    let other = test.neighbour().await?;
    let squelch = test.squelch_with(&["--max-series", MAX_SERIES]).await?;
    let off = json!({ "disabled": true });
    let series = json!({ "idleTimeout": "30s", "heartbeatInterval": "1m" });
    let policy = test.policy(&json!({ "series": series, "aggregation": off, "spamFilter": off })).await?;
    let given_up = test.cluster.given_up().await?;
    let (mut told, mut unarmed, mut taken) = (0, Duration::ZERO, Vec::new());
    for minute in 1..=minutes {
        let began = Instant::now();
        let storm = test.emit(&of_minute(minute))?;
        let of_minute = tokio::select! {
            done = storm.finish(MINUTE_AT_MOST) => done?,
            failure = policies_come_and_go(&other) => return failure.map(drop),
            failure = looked_at(&squelch, &mut unarmed) => return failure.map(drop),
        };
        let occurrences = of_minute.sent();
        told += occurrences;
        let now = Taken::by(&squelch, occurrences, began.elapsed()).await?;
        eprintln!("minute {minute} of {minutes}: {}", now.cells().join(", "));
        taken.push(now);
    }
    squelch.is_quiet(GENEROUS).await?;
    let stored: i64 = test.events(None).await?.iter().map(e2e::events::value).sum();
    let namespace = [("event_namespace", test.namespace.as_str())];
    let received = squelch.metrics().await?.sum("squelch_events_total", &namespace) as i64;
    let given_up = test.cluster.given_up().await? - given_up;
    eprintln!(
        "\n{}\n{told} occurrences told, {received} received, {stored} stored; not armed for {:.1} s, {given_up} reviews given up",
        report(&taken),
        unarmed.as_secs_f64(),
    );
    // A storm that takes all of a machine may keep the API server from answering the proofs, and from waiting for the
    // webhook. What it then lets pass is stored as it was written; of what it gave up waiting for, squelch may have heard.
    ensure!((told..=told + given_up).contains(&stored), "{stored} occurrences are stored of {told}");
    ensure!(
        (told - unseen_at_most(unarmed, given_up)..=told).contains(&received),
        "{received} occurrences were received of {told}"
    );
    policy.received(received).await?;
    is_flat(&taken)?;
    squelch.stop().await?;
    test.passed()
}

fn minutes() -> Result<usize> {
    let minutes = std::env::var("SQUELCH_SOAK_MINUTES").unwrap_or_else(|_| "30".to_owned());
    let minutes =
        minutes.parse().with_context(|| format!("SQUELCH_SOAK_MINUTES={minutes}: a number of minutes"))?;
    ensure!(
        minutes > SETTLED,
        "SQUELCH_SOAK_MINUTES={minutes}: more than {SETTLED}, until then nothing is compared"
    );
    Ok(minutes)
}

/// By turns client-go's legacy recorder, kube's, and bare CREATEs through either API.
fn of_minute(minute: usize) -> Emission {
    let recorders = [Emission::legacy, Emission::kube, Emission::creates_core, Emission::creates_new_style];
    recorders[minute % recorders.len()]()
        .about(&format!("minute-{minute}"), OBJECTS)
        .count(REPEATS)
        .rate(RATE)
}

/// In another namespace, until this is dropped: it ends by a failure only.
async fn policies_come_and_go(other: &Test) -> Result<std::convert::Infallible> {
    let kubectl = other.kubectl();
    let mut ticks = interval(CHANGE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for change in 0_u64.. {
        ticks.tick().await;
        let name = format!("changing-{}", change / 3 % 4);
        if change % 3 == 2 {
            kubectl.run(&["delete", "eventpolicy", &name, "--ignore-not-found"]).await?;
            continue;
        }
        let spec = json!({ "mode": if change % 3 == 0 { "Enforce" } else { "Observe" },
            "budget": { "burst": change % 1_000 + 1 } });
        let policy = json!({ "apiVersion": "squelch.dev/v1alpha1", "kind": "EventPolicy",
            "metadata": { "name": name, "namespace": other.namespace }, "spec": spec });
        kubectl.apply(&policy).await?;
    }
    unreachable!("there is a change after each")
}

/// Adds to `unarmed` how long the webhook was not armed, until this is dropped: it ends by a failure only.
async fn looked_at(squelch: &Squelch, unarmed: &mut Duration) -> Result<std::convert::Infallible> {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Instant::now();
    loop {
        ticks.tick().await;
        let armed = squelch.metrics().await?.sum("squelch_armed", &[]) > 0.0;
        let now = Instant::now();
        if !armed {
            *unarmed += now - before;
        }
        before = now;
    }
}

/// How many occurrences squelch may not have heard of. Of a time in which it was not armed the beginning and the end may
/// have been missed by a look; and what a caller could not write in time, it writes as fast as it can: a second of each.
fn unseen_at_most(unarmed: Duration, given_up: i64) -> i64 {
    let around = if unarmed.is_zero() { Duration::ZERO } else { 2 * LOOK + Duration::from_secs(1) };
    given_up + (f64::from(RATE) * (unarmed + around).as_secs_f64()) as i64
}

/// What squelch holds at the end of a minute.
struct Taken {
    per_second: f64,
    resident_mib: f64,
    descriptors: f64,
    threads: f64,
    series: f64,
}

impl Taken {
    async fn by(squelch: &Squelch, occurrences: i64, took: Duration) -> Result<Self> {
        let entries = |folder: &str| {
            anyhow::Ok(Path::new("/proc").join(squelch.id().to_string()).join(folder).read_dir()?.count())
        };
        Ok(Self {
            per_second: occurrences as f64 / took.as_secs_f64(),
            resident_mib: Usage::of(squelch.id())?.resident_mib,
            descriptors: entries("fd")? as f64,
            threads: entries("task")? as f64,
            series: squelch.metrics().await?.sum("squelch_series", &[]),
        })
    }

    fn cells(&self) -> [String; 5] {
        [
            format!("{:.0}/s", self.per_second),
            format!("{:.1} MiB", self.resident_mib),
            format!("{} descriptors", self.descriptors),
            format!("{} threads", self.threads),
            format!("{} series", self.series),
        ]
    }
}

fn report(taken: &[Taken]) -> String {
    let rows: Vec<_> = (1..)
        .zip(taken)
        .map(|(minute, taken)| [vec![format!("{minute}")], taken.cells().to_vec()].concat())
        .collect();
    table(&["minute", "told", "resident", "open", "threads", "live"], &rows)
}

/// The most of any later minute, beside what it was when all had settled.
fn is_flat(taken: &[Taken]) -> Result<()> {
    type Figure = fn(&Taken) -> f64;
    let figures: [(&str, Figure, f64); 3] = [
        ("MiB", |taken| taken.resident_mib, TOLERANCE_MIB),
        ("descriptors", |taken| taken.descriptors, TOLERANCE_DESCRIPTORS),
        ("threads", |taken| taken.threads, TOLERANCE_THREADS),
    ];
    for (what, figure, tolerance) in figures {
        let settled = figure(&taken[SETTLED - 1]);
        let most = taken[SETTLED..].iter().map(figure).fold(settled, f64::max);
        ensure!(most <= settled + tolerance, "{settled:.1} {what} after {SETTLED} minutes, later {most:.1}");
    }
    Ok(())
}
