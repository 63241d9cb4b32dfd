//! A process is stopped and continued before its Lease expires. The API server waits for a second and admits a write:
//! a review that is decided after that merges an occurrence that is stored as well.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::policy::idle_after;
use e2e::{GENEROUS, Policy, Squelch, Test, events, wait_for};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

/// Concurrent clients, each with five writes per second.
const CLIENTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// Lengths of the stop: below the webhook timeout, above it, and almost the lease duration.
const STOPS: [Duration; 4] = [
    Duration::from_millis(800),
    Duration::from_millis(1_200),
    Duration::from_millis(1_500),
    Duration::from_millis(2_500),
];

/// Maximum number of occurrences stored twice per stop: those whose answers are lost. Each client waits for one answer. On
/// an idle machine it is one per processor; on a busy one, more answers are decided and not yet sent.
const MAX_LOST_ANSWERS: i64 = CLIENTS as i64;

/// After a longer stop the API server has closed its connection, and squelch never gets its reviews. An unreviewed
/// PATCH stores the client's own count, merged occurrences included, which are not counted as recovered.
const SEEN: Duration = Duration::from_secs(2);

/// The kind of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteMethod {
    /// Each write is a CREATE of the same Event under a new name.
    Creates,
    /// Each client has its own Event, equal to the others', and reports its own count by PATCH.
    Patches,
}

/// One of the clients.
struct Emitter {
    client: Client,
    namespace: String,
    number: usize,
    method: WriteMethod,
    has_ended: Arc<AtomicBool>,
    answered: Arc<AtomicI64>,
}

impl Emitter {
    fn name(&self, occurrence: i64) -> String {
        match self.method {
            WriteMethod::Creates => format!("cart.{}.{occurrence:x}", self.number),
            WriteMethod::Patches => format!("cart.{}", self.number),
        }
    }

    /// Creates an Event; returns the status of the answer.
    async fn creates(&self, occurrence: i64) -> Result<u16> {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": self.name(occurrence) },
            "type": "Normal", "reason": "BackOff", "message": "m", "count": 1,
            "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": self.namespace, "name": "cart" },
            "source": { "component": "kubelet", "host": "n1" },
            "firstTimestamp": now(), "lastTimestamp": now(),
        });
        let path = format!("/api/v1/namespaces/{}/events", self.namespace);
        let request = http::Request::post(path).header("content-type", "application/json");
        self.answer(request, &event).await
    }

    async fn patches(&self, count: i64) -> Result<u16> {
        let path = format!("/api/v1/namespaces/{}/events/{}", self.namespace, self.name(count));
        let request =
            http::Request::patch(path).header("content-type", "application/strategic-merge-patch+json");
        self.answer(request, &json!({ "count": count, "lastTimestamp": now() })).await
    }

    async fn answer(&self, request: http::request::Builder, body: &Value) -> Result<u16> {
        match self.client.request_text(request.body(body.to_string().into_bytes())?).await {
            Ok(_) => Ok(200),
            Err(kube::Error::Api(status)) => Ok(status.code),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes until it is stopped. Returns the occurrences that it reported after its first.
    async fn run(self) -> Result<i64> {
        let mut ticks = interval(PAUSE);
        let mut reported = 0;
        while !self.has_ended.load(Ordering::Relaxed) {
            ticks.tick().await;
            reported += 1;
            let status = match self.method {
                WriteMethod::Creates => self.creates(reported).await?,
                WriteMethod::Patches => self.patches(1 + reported).await?,
            };
            // Stored or refused.
            ensure!(matches!(status, 200 | 409), "{:?} was answered with {status}", self.method);
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(reported)
    }
}

fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

/// The running clients.
struct Emitters {
    running: JoinSet<Result<i64>>,
    has_ended: Arc<AtomicBool>,
    answered: Arc<AtomicI64>,
}

impl Emitters {
    async fn start(test: &Test, method: WriteMethod) -> Result<Self> {
        let mut emitters =
            Self { running: JoinSet::new(), has_ended: Arc::default(), answered: Arc::default() };
        for number in 0..CLIENTS {
            let emitter = emitters.emitter(test, number, method).await?;
            emitters.running.spawn(emitter.run());
        }
        Ok(emitters)
    }

    async fn emitter(&self, test: &Test, number: usize, method: WriteMethod) -> Result<Emitter> {
        Ok(Emitter {
            client: test.emitter_client().await?,
            namespace: test.namespace.clone(),
            number,
            method,
            has_ended: self.has_ended.clone(),
            answered: self.answered.clone(),
        })
    }

    /// Waits for this many more answers.
    async fn go_on(&self, answers: i64) -> Result<()> {
        let goal = self.answered.load(Ordering::Relaxed) + answers;
        wait_for(&format!("{goal} answers"), GENEROUS, async || {
            let answered = self.answered.load(Ordering::Relaxed);
            if answered >= goal { Ok(()) } else { Err(format!("{answered}")) }
        })
        .await
    }

    /// The total number of reported occurrences.
    async fn end(mut self) -> Result<i64> {
        self.has_ended.store(true, Ordering::Relaxed);
        let mut reported = 0;
        while let Some(one) = self.running.join_next().await {
            reported += one??;
        }
        Ok(reported)
    }
}

/// A series of equal stops.
#[derive(Clone, Copy, Debug)]
struct Stop {
    method: WriteMethod,
    length: Duration,
}

impl Stop {
    /// The documented bounds of `stored - reported - recovered` (docs/promises.md, "When squelch ends"). `compacted` is
    /// the number of merged occurrences.
    fn bounds(self, compacted: i64) -> RangeInclusive<i64> {
        match self.method {
            WriteMethod::Patches if self.length > SEEN => 0..=compacted,
            WriteMethod::Creates | WriteMethod::Patches => 0..=MAX_LOST_ANSWERS,
        }
    }
}

/// Occurrences after a stop and the last flush.
#[derive(Clone, Debug)]
struct Figures {
    reported: i64,
    stored: i64,
    recovered: i64,
    failed_open: i64,
    bounds: RangeInclusive<i64>,
}

impl Figures {
    /// Stored occurrences that nobody reported.
    fn difference(&self) -> i64 {
        self.stored - self.reported - self.recovered
    }
}

/// Stops squelch while the clients write, and compares the reported with the stored occurrences.
async fn stopped(stop: Stop) -> Result<Figures> {
    let Stop { method, length } = stop;
    let test = Test::begin("stopped").await?;
    let mut first = 0;
    if method == WriteMethod::Patches {
        let emitters =
            Emitters { running: JoinSet::new(), has_ended: Arc::default(), answered: Arc::default() };
        for number in 0..CLIENTS {
            let status = emitters.emitter(&test, number, method).await?.creates(1).await?;
            ensure!(status == 200, "the first CREATE was answered with {status}");
            first += 1;
        }
    }
    let mut squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("10m")).await?;
    let emitters = Emitters::start(&test, method).await?;
    emitters.go_on(100).await?;
    let began = Instant::now();
    squelch.freeze()?;
    // A fixed time: the length of the stop.
    sleep(length).await;
    squelch.thaw()?;
    // On a busy machine it is longer.
    let stop = Stop { length: began.elapsed(), ..stop };
    emitters.go_on(150).await?;
    let reported = first + emitters.end().await?;
    let figures = adds_up(&test, squelch, &policy, reported, stop).await?;
    test.passed()?;
    Ok(figures)
}

/// Checks that stored = reported + recovered after the last flush, within the bounds.
async fn adds_up(
    test: &Test,
    mut squelch: Squelch,
    policy: &Policy,
    reported: i64,
    stop: Stop,
) -> Result<Figures> {
    if let Some(status) = squelch.ended()? {
        bail!("{stop:?}: squelch ended with {status}:\n{}", squelch.log()?);
    }
    let samples = squelch.metrics().await?;
    let failed_open = samples.reviews("failed_open") as i64;
    squelch.stop_after_trouble().await?;
    let counters = policy.counters().await?;
    let events = test.events(None).await?;
    let stored: i64 = events.iter().map(events::value).sum();
    let bounds = stop.bounds(counters.compacted);
    let figures = Figures { reported, stored, recovered: counters.recovered, failed_open, bounds };
    let difference = figures.difference();
    eprintln!("{stop:?}, {figures:?}: {difference}");
    ensure!(counters.compacted > 0, "nothing was merged: {counters:?}");
    ensure!(figures.bounds.contains(&difference), "{counters:?}\n{}", events::list(&events));
    ensure!(stored >= reported, "occurrences were lost: {counters:?}\n{}", events::list(&events));
    Ok(figures)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_beyond_the_webhook_timeout_loses_no_creates() -> Result<()> {
    stopped(Stop { method: WriteMethod::Creates, length: STOPS[2] }).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_beyond_the_webhook_timeout_loses_no_patches() -> Result<()> {
    stopped(Stop { method: WriteMethod::Patches, length: STOPS[2] }).await.map(drop)
}

/// The number of stops of each kind and length.
fn runs() -> Result<usize> {
    let asked = std::env::var("SQUELCH_STOP_RUNS").ok().filter(|text| !text.is_empty());
    let runs = asked.map_or(Ok(20), |text| text.parse())?;
    ensure!(runs > 0, "SQUELCH_STOP_RUNS is 0");
    Ok(runs)
}

/// The sums of equal stops, as a line of the table.
fn line(stop: Stop, results: &[Result<Figures>]) -> String {
    let figures: Vec<_> = results.iter().flatten().collect();
    let sum = |of: fn(&Figures) -> i64| figures.iter().map(|one| of(one)).sum::<i64>();
    let lowest = figures.iter().map(|one| one.difference()).min().unwrap_or_default();
    let highest = figures.iter().map(|one| one.difference()).max().unwrap_or_default();
    // Under PATCHes after a long stop it depends on the merged occurrences: the strictest of all runs.
    let least = figures.iter().map(|one| *one.bounds.start()).max().unwrap_or_default();
    let most = figures.iter().map(|one| *one.bounds.end()).min().unwrap_or_default();
    let ok = format!("{}/{}", figures.len(), results.len());
    format!(
        "{:<8} {:>5.1} s {ok:>6} {:>9} {:>9} {:>10} {:>12} {:>11} {:>15}",
        format!("{:?}", stop.method),
        stop.length.as_secs_f64(),
        sum(|one| one.reported),
        sum(|one| one.stored),
        sum(|one| one.recovered),
        sum(|one| one.failed_open),
        format!("{lowest}..{highest}"),
        format!("{least}..{most}"),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: just test-stops, just test-nothing-lost"]
async fn repeated_stops_of_each_length_lose_nothing() -> Result<()> {
    let runs = runs()?;
    let mut table = vec![
        "Sums of all runs; difference = stored - reported - recovered: lowest and highest of a run, and its bound."
            .to_owned(),
        "writes     stop     ok   reported    stored  recovered  failed open  difference           bound".to_owned(),
    ];
    let mut failures = Vec::new();
    for length in STOPS {
        for method in [WriteMethod::Creates, WriteMethod::Patches] {
            let stop = Stop { method, length };
            let mut results = Vec::new();
            for _ in 0..runs {
                results.push(stopped(stop).await.with_context(|| format!("{stop:?}")));
            }
            table.push(line(stop, &results));
            failures.extend(results.into_iter().filter_map(Result::err));
        }
    }
    eprintln!("\n{}", table.join("\n"));
    ensure!(failures.is_empty(), "{} stops failed: {failures:#?}", failures.len());
    Ok(())
}
