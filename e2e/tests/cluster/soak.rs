//! Half an hour of a storm about other objects each minute, with policies that change: squelch's resource usage after
//! half an hour equals that after five minutes, and every occurrence is stored, and counted unless it was not
//! reviewed.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::figures::table;
use e2e::load::Usage;
use e2e::{Emission, GENEROUS, Squelch, Test};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

/// Occurrences per second; each minute has another recorder.
const RATE: u32 = 500;
/// New objects per minute, each with its own series.
const OBJECTS: usize = 300;
/// Occurrences per object: a minute of the rate.
const REPEATS: i64 = 100;
/// Names are remembered for a day, up to this many: reached within two minutes, so that memory is constant
/// afterwards.
const MAX_SERIES: &str = "50000";
/// Deadline of a minute's emitter.
const MINUTE_AT_MOST: Duration = Duration::from_secs(600);
/// Interval of the checks whether the webhook is armed.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Interval of policy changes.
const CHANGE: Duration = Duration::from_secs(5);
/// Minutes until caches, pools and tables are filled.
const SETTLED: usize = 5;
/// Allowed variation of the allocator.
const TOLERANCE_MIB: f64 = 8.0;
/// Allowed variation of open connections.
const TOLERANCE_DESCRIPTORS: f64 = 16.0;
/// Allowed variation of tokio's blocking threads.
const TOLERANCE_THREADS: f64 = 2.0;

#[tokio::test]
#[ignore = "half an hour: just soak"]
async fn memory_descriptors_and_threads_stay_constant() -> Result<()> {
    let minutes = minutes()?;
    let test = Test::begin("soak").await?;
    let other = test.neighbour().await?;
    let squelch = test.squelch_with(&["--max-series", MAX_SERIES]).await?;
    let off = json!({ "mode": "Disabled" });
    let series = json!({ "idleTimeout": "30s", "heartbeatInterval": "1m" });
    let policy = test.policy(&json!({ "series": series, "aggregation": off, "spamFilter": off })).await?;
    let failed_calls = test.cluster.failed_webhook_calls().await?;
    let (mut reported, mut disarmed, mut taken) = (0, Duration::ZERO, Vec::new());
    for minute in 1..=minutes {
        let began = Instant::now();
        let storm = test.emit(&of_minute(minute))?;
        let of_minute = tokio::select! {
            done = storm.finish(MINUTE_AT_MOST) => done?,
            failure = policies_come_and_go(&other) => return failure.map(drop),
            failure = measure_disarmed(&squelch, &mut disarmed) => return failure.map(drop),
        };
        let occurrences = of_minute.sent();
        reported += occurrences;
        let now = Taken::by(&squelch, occurrences, began.elapsed()).await?;
        eprintln!("minute {minute} of {minutes}: {}", now.cells().join(", "));
        taken.push(now);
    }
    squelch.wait_until_idle(GENEROUS).await?;
    let stored: i64 = test.events(None).await?.iter().map(e2e::events::value).sum();
    let namespace = [("event_namespace", test.namespace.as_str())];
    let received = squelch.metrics().await?.sum("squelch_occurrences_total", &namespace) as i64;
    let failed_calls = test.cluster.failed_webhook_calls().await? - failed_calls;
    eprintln!(
        "\n{}\n{reported} occurrences reported, {received} received, {stored} stored; disarmed for {:.1} s, {failed_calls} reviews without an answer",
        report(&taken),
        disarmed.as_secs_f64(),
    );
    // On an overloaded machine probes may time out, and the API server may admit writes without waiting for the
    // webhook. These are stored unchanged; squelch may have counted those that timed out.
    ensure!(
        (reported..=reported + failed_calls).contains(&stored),
        "{stored} occurrences stored of {reported}"
    );
    ensure!(
        (reported - unseen_at_most(disarmed, failed_calls)..=reported).contains(&received),
        "{received} occurrences received of {reported}"
    );
    policy.received(received).await?;
    is_flat(&taken)?;
    squelch.stop().await?;
    test.passed()
}

fn minutes() -> Result<usize> {
    let minutes = std::env::var("SQUELCH_SOAK_MINUTES").unwrap_or_else(|_| "30".to_owned());
    let minutes = minutes
        .parse()
        .with_context(|| format!("SQUELCH_SOAK_MINUTES={minutes}: must be a number of minutes"))?;
    ensure!(
        minutes > SETTLED,
        "SQUELCH_SOAK_MINUTES={minutes}: must be more than {SETTLED}, the minutes before the comparison"
    );
    Ok(minutes)
}

/// client-go's legacy recorder, kube's, and plain CREATEs through either API, in turn.
fn of_minute(minute: usize) -> Emission {
    let recorders = [Emission::legacy, Emission::kube, Emission::creates_core, Emission::creates_new_style];
    recorders[minute % recorders.len()]()
        .about(&format!("minute-{minute}"), OBJECTS)
        .count(REPEATS)
        .rate(RATE)
}

/// Changes policies in another namespace until it is dropped; it returns only on an error.
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
    unreachable!("the stream of changes is endless")
}

/// Adds the time without armed webhook to `disarmed` until it is dropped; it returns only on an error.
async fn measure_disarmed(squelch: &Squelch, disarmed: &mut Duration) -> Result<std::convert::Infallible> {
    let mut ticks = interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Instant::now();
    loop {
        ticks.tick().await;
        let armed = squelch.metrics().await?.is_armed();
        let now = Instant::now();
        if !armed {
            *disarmed += now - before;
        }
        before = now;
    }
}

/// Maximum number of unreviewed occurrences. The polls can miss the start and the end of a disarmed time, and delayed
/// writes are sent in a burst: a second for each.
fn unseen_at_most(disarmed: Duration, failed_calls: i64) -> i64 {
    let around =
        if disarmed.is_zero() { Duration::ZERO } else { 2 * CHECK_INTERVAL + Duration::from_secs(1) };
    failed_calls + (f64::from(RATE) * (disarmed + around).as_secs_f64()) as i64
}

/// squelch's resource usage at the end of a minute.
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
    table(&["minute", "reported", "resident", "open files", "threads", "series"], &rows)
}

/// Checks the maximum of later minutes against the settled value.
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
