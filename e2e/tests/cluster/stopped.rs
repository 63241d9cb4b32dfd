//! A process that is stopped and goes on before its Lease expires. The API server waits for a second and lets a write
//! pass: a review that is decided after that merges an occurrence that is stored as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use e2e::policy::idle_after;
use e2e::{GENEROUS, Policy, Squelch, Test, events, wait_for};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

/// Clients that write at a time: ten, each five times a second.
const CLIENTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// Below the deadline, above it, and almost as long as a replica may be without its Lease.
const STOPS: [Duration; 4] = [
    Duration::from_millis(800),
    Duration::from_millis(1_200),
    Duration::from_millis(1_500),
    Duration::from_millis(2_500),
];

/// What may be stored twice for each stop: a review that a worker of the runtime was just deciding. Squelch has a worker
/// for each processor.
fn bound() -> i64 {
    std::thread::available_parallelism().map_or(1, |processors| processors.get() as i64)
}

/// What `recovered` may count too much under PATCHes: where two reviews of one client wait for the end of a stop, the later
/// may be counted first, with the occurrence of the earlier.
const REORDERED: i64 = CLIENTS as i64;

/// After a longer stop the API server has closed its connection, and squelch never sees its reviews. A PATCH that was never
/// seen stores the client's own count, merged occurrences included, and nothing counts these as recovered.
const SEEN: Duration = Duration::from_secs(2);

/// How the clients write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Each write is a CREATE of the same Event under a new name.
    Creates,
    /// Each client has an Event of its own, equal to the others', and reports its own count by PATCH.
    Patches,
}

/// One of the clients.
struct Emitter {
    client: Client,
    namespace: String,
    number: usize,
    way: Way,
    has_ended: Arc<AtomicBool>,
    answered: Arc<AtomicI64>,
}

impl Emitter {
    fn name(&self, occurrence: i64) -> String {
        match self.way {
            Way::Creates => format!("cart.{}.{occurrence:x}", self.number),
            Way::Patches => format!("cart.{}", self.number),
        }
    }

    /// The status code of the answer to a CREATE.
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

    /// Writes until it is ended. Returns the occurrences that it reported after its first.
    async fn run(self) -> Result<i64> {
        let mut ticks = interval(PAUSE);
        let mut reported = 0;
        while !self.has_ended.load(Ordering::Relaxed) {
            ticks.tick().await;
            reported += 1;
            let status = match self.way {
                Way::Creates => self.creates(reported).await?,
                Way::Patches => self.patches(1 + reported).await?,
            };
            // Stored, or held back.
            ensure!(matches!(status, 200 | 409), "{:?} was answered with {status}", self.way);
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(reported)
    }
}

fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

/// The clients at work.
struct Emitters {
    running: JoinSet<Result<i64>>,
    has_ended: Arc<AtomicBool>,
    answered: Arc<AtomicI64>,
}

impl Emitters {
    async fn start(test: &Test, way: Way) -> Result<Self> {
        let mut emitters =
            Self { running: JoinSet::new(), has_ended: Arc::default(), answered: Arc::default() };
        for number in 0..CLIENTS {
            let emitter = emitters.emitter(test, number, way).await?;
            emitters.running.spawn(emitter.run());
        }
        Ok(emitters)
    }

    async fn emitter(&self, test: &Test, number: usize, way: Way) -> Result<Emitter> {
        Ok(Emitter {
            client: test.emitter_client().await?,
            namespace: test.namespace.clone(),
            number,
            way,
            has_ended: self.has_ended.clone(),
            answered: self.answered.clone(),
        })
    }

    /// Waits for so many more answers.
    async fn go_on(&self, answers: i64) -> Result<()> {
        let goal = self.answered.load(Ordering::Relaxed) + answers;
        wait_for(&format!("{goal} answers"), GENEROUS, async || {
            let answered = self.answered.load(Ordering::Relaxed);
            if answered >= goal { Ok(()) } else { Err(format!("{answered}")) }
        })
        .await
    }

    /// The occurrences that they reported in all.
    async fn end(mut self) -> Result<i64> {
        self.has_ended.store(true, Ordering::Relaxed);
        let mut reported = 0;
        while let Some(one) = self.running.join_next().await {
            reported += one??;
        }
        Ok(reported)
    }
}

/// Stops a squelch for this long while the clients write, and compares what they reported with what is stored.
async fn stopped(way: Way, length: Duration) -> Result<()> {
    let test = Test::begin("stopped").await?;
    let mut first = 0;
    if way == Way::Patches {
        let emitters =
            Emitters { running: JoinSet::new(), has_ended: Arc::default(), answered: Arc::default() };
        for number in 0..CLIENTS {
            let status = emitters.emitter(&test, number, way).await?.creates(1).await?;
            ensure!(status == 200, "the first CREATE was answered with {status}");
            first += 1;
        }
    }
    let mut squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("10m")).await?;
    let emitters = Emitters::start(&test, way).await?;
    emitters.go_on(100).await?;
    squelch.freeze()?;
    // The length of the stop is what is tested.
    sleep(length).await;
    squelch.thaw()?;
    emitters.go_on(150).await?;
    let reported = first + emitters.end().await?;
    adds_up(&test, squelch, &policy, reported, (way, length)).await?;
    test.passed()
}

/// Once all is written, what is stored is what was reported and what was reported again.
async fn adds_up(
    test: &Test,
    mut squelch: Squelch,
    policy: &Policy,
    reported: i64,
    (way, length): (Way, Duration),
) -> Result<()> {
    let row = format!("{way:?}, {length:?}");
    if let Some(status) = squelch.ended()? {
        bail!("{row}: squelch ended with {status}:\n{}", squelch.log()?);
    }
    let samples = squelch.metrics().await?;
    let failed_open = samples.sum("squelch_writes_total", &[("outcome", "failed_open")]);
    squelch.stop_after_trouble().await?;
    let counters = policy.counters().await?;
    let stored = test.events(None).await?;
    let sum: i64 = stored.iter().map(events::value).sum();
    let difference = sum - reported - counters.recovered;
    eprintln!(
        "{row}: {reported} reported, {sum} stored in {}, {} recovered, {failed_open} writes failed open: {difference}",
        stored.len(),
        counters.recovered
    );
    ensure!(counters.compacted > 0, "nothing was merged: {counters:?}");
    let (lowest, highest) = match way {
        Way::Creates => (0, bound()),
        Way::Patches if length > SEEN => (-REORDERED, counters.compacted),
        Way::Patches => (-REORDERED, bound()),
    };
    ensure!((lowest..=highest).contains(&difference), "{counters:?}\n{}", events::list(&stored));
    ensure!(sum >= reported, "occurrences were lost: {counters:?}\n{}", events::list(&stored));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn for_longer_than_the_api_server_waits_under_creates() -> Result<()> {
    stopped(Way::Creates, STOPS[2]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn for_longer_than_the_api_server_waits_under_patches() -> Result<()> {
    stopped(Way::Patches, STOPS[2]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: hack/e2e nothing-lost"]
async fn twenty_times_for_each_length() -> Result<()> {
    for length in STOPS {
        for way in [Way::Creates, Way::Patches] {
            for _ in 0..20 {
                stopped(way, length).await?;
            }
        }
    }
    Ok(())
}
