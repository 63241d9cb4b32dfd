//! A squelch that is attacked on its port, and another caller that must not be affected.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::accounts::SQUELCH;
use e2e::figures::median;
use e2e::wait::not_yet;
use e2e::{GENEROUS, Squelch, Test, events, wait_for};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::json;
use squelch::SECRET;
use tokio::sync::watch;
use tokio::time::interval;

use crate::bodies::READ;
use crate::paced::Paced;
use crate::sink;
use crate::wire::Place;

/// Pause between two cheap requests.
pub(crate) const OFTEN: Duration = Duration::from_millis(20);

/// Pause between two requests that cost both sides a millisecond or more on two processors.
pub(crate) const SELDOM: Duration = Duration::from_millis(250);

/// Reviews of the other caller per window.
const REVIEWS: usize = 200;

/// Number of windows without and with hostile requests, alternating.
const PAIRS: usize = 7;

/// Retries of the comparison: other load on the machine raises a p99 too, but not in every attempt.
const ATTEMPTS: usize = 3;

/// Deadline of the median answer of a row.
const DUE: Duration = Duration::from_millis(50);

/// Allowed increase of the other caller's p99: a fifth, or this value if it is larger, because all share two
/// processors; plus the spread of the windows without hostile requests, except the best and the worst.
const NOISE: Duration = Duration::from_millis(1);

/// Allowed growth in MiB, for the allocator.
const TOLERANCE: f64 = 8.0;

/// Allowed growth of descriptors: probes, status writes and flushes have their own connections.
const DESCRIPTORS: f64 = 16.0;

/// The outcome of a hostile request.
pub(crate) struct Attempt {
    outcome: String,
    took: Duration,
}

impl Attempt {
    /// An outcome with its latency after the due time.
    pub(crate) fn new(outcome: impl fmt::Display, took: Duration) -> Self {
        Self { outcome: outcome.to_string(), took }
    }
}

/// The environment of the first table.
pub(crate) struct Callers {
    test: Test,
    other: Test,
    pub(crate) squelch: Squelch,
    pub(crate) place: Place,
    /// A server that discards what it reads.
    sink: Place,
    /// The path with the current token: squelch replaces it after a failed probe.
    path: watch::Receiver<String>,
    /// The namespace of the other caller.
    pub(crate) quiet: String,
    /// The namespace of hostile reviews with a valid token.
    pub(crate) hostile_namespace: String,
    paced: Paced,
}

impl Callers {
    /// Starts squelch and the other caller.
    pub(crate) async fn begin() -> Result<Self> {
        let test = Test::begin("callers").await?;
        let squelch = test.squelch_with(&["--secret", SECRET]).await?;
        let other = test.neighbour().await?;
        // These Events were never written: pending occurrences of Observe are never flushed.
        for test in [&test, &other] {
            test.policy(&json!({ "mode": "Observe" })).await?;
        }
        let secrets: Api<Secret> = Api::namespaced(test.client(), SQUELCH.namespace);
        let mut data = secrets.get(SECRET).await?.data.context("a Secret without data")?;
        let authority = String::from_utf8(data.remove("ca.crt").context("no ca.crt")?.0)?;
        let place = Place::new(&squelch.webhook, &authority)?;
        let path = follow_path(test.client(), squelch.webhook.clone()).await?;
        let (quiet, hostile_namespace) = (test.namespace.clone(), other.namespace.clone());
        let paced = Paced::start(place.clone(), path.clone(), quiet.clone());
        // Warm-up of connections, buffers and tables.
        paced.next(1_000).await?;
        let sink = sink::start(READ).await?;
        Ok(Self { test, other, squelch, place, sink, path, quiet, hostile_namespace, paced })
    }

    /// The path that the API server currently uses.
    pub(crate) fn path(&self) -> String {
        self.path.borrow().clone()
    }

    /// Sends hostile requests at this pace, alternating with windows without them.
    pub(crate) async fn measure(
        &self,
        pace: Duration,
        strike: impl AsyncFnMut(&Place) -> Result<Attempt>,
    ) -> Result<String> {
        self.measure_windows(PAIRS, pace, false, strike).await
    }

    /// Same for requests that load both processors wherever they go: alternating with windows in which they go to the
    /// sink.
    pub(crate) async fn measure_against_sink(
        &self,
        pace: Duration,
        strike: impl AsyncFnMut(&Place) -> Result<Attempt>,
    ) -> Result<String> {
        self.measure_windows(PAIRS, pace, true, strike).await
    }

    /// Same with this number of windows of each kind.
    pub(crate) async fn measure_windows(
        &self,
        pairs: usize,
        pace: Duration,
        heavy: bool,
        mut strike: impl AsyncFnMut(&Place) -> Result<Attempt>,
    ) -> Result<String> {
        let [memory, descriptors] = self.taken().await?;
        let failures = self.failed_probes().await?;
        let (mut windows, mut attempts) = (Vec::new(), Vec::new());
        let (mut said, mut kept) = (String::new(), false);
        for _ in 0..ATTEMPTS {
            for _ in 0..pairs {
                windows.push(self.pair(pace, heavy, &mut strike, &mut attempts).await?);
            }
            (said, kept) = others(&windows);
            if kept {
                break;
            }
        }
        let answers = answers(&attempts)?;
        let against = if heavy { " compared with a server that only reads" } else { "" };
        ensure!(kept, "{answers}; {said}{against}");
        let back = self.is_back(memory, descriptors).await?;
        ensure!(self.failed_probes().await? == failures, "the API server did not reach squelch");
        Ok(format!("{answers}; {said}{against}; {back}"))
    }

    /// Latency of the other caller without and with hostile requests.
    async fn pair(
        &self,
        pace: Duration,
        heavy: bool,
        strike: &mut impl AsyncFnMut(&Place) -> Result<Attempt>,
        attempts: &mut Vec<Attempt>,
    ) -> Result<(Vec<Duration>, Vec<Duration>)> {
        let calm = if heavy {
            // The answer is ignored.
            self.window(pace, async || strike(&self.sink).await.map_or(Ok(()), |_| Ok(()))).await?
        } else {
            self.paced.next(REVIEWS).await?
        };
        let during = async || {
            attempts.push(strike(&self.place).await?);
            Ok(())
        };
        Ok((calm, self.window(pace, during).await?))
    }

    /// Latency of the other caller in a window with hostile requests.
    async fn window(
        &self,
        pace: Duration,
        mut strike: impl AsyncFnMut() -> Result<()>,
    ) -> Result<Vec<Duration>> {
        let over = Cell::new(false);
        let window = async {
            let taken = self.paced.next(REVIEWS).await;
            over.set(true);
            taken
        };
        let striking = async {
            let mut ticks = interval(pace);
            while !over.get() {
                ticks.tick().await;
                strike().await?;
            }
            anyhow::Ok(())
        };
        let (taken, striking) = tokio::join!(window, striking);
        striking?;
        taken
    }

    /// Resident memory in MiB, and descriptors.
    async fn taken(&self) -> Result<[f64; 2]> {
        let metrics = self.squelch.metrics().await?;
        let memory = metrics.sum("process_resident_memory_bytes", &[]) / 1024.0 / 1024.0;
        Ok([memory, metrics.sum("process_open_fds", &[])])
    }

    async fn failed_probes(&self) -> Result<f64> {
        let metrics = self.squelch.metrics().await?;
        let succeeded = metrics.sum("squelch_probes_total", &[("result", "succeeded")]);
        Ok(metrics.sum("squelch_probes_total", &[]) - succeeded)
    }

    async fn is_back(&self, memory: f64, descriptors: f64) -> Result<String> {
        wait_for("memory and descriptors to return to their previous values", GENEROUS, async || {
            let now = self.taken().await.map_err(not_yet)?;
            let seen = format!("{:+.1} MiB and {:+} descriptors", now[0] - memory, now[1] - descriptors);
            let back = now[0] <= memory + TOLERANCE && now[1] <= descriptors + DESCRIPTORS;
            if back { Ok(seen) } else { Err(seen) }
        })
        .await
    }

    /// The stored Events in the reported namespaces: none are expected.
    pub(crate) async fn written(&self) -> Result<String> {
        let stored = [self.test.events(None).await?, self.other.events(None).await?].concat();
        Ok(events::list(&stored))
    }

    /// At the end: checks that the other caller's occurrences are counted exactly.
    pub(crate) async fn end(self) -> Result<String> {
        let sent = self.paced.stop()?;
        let metrics = self.squelch.metrics().await?;
        let received =
            metrics.sum("squelch_observed_occurrences_total", &[("event_namespace", &self.quiet)]) as i64;
        ensure!(
            received == sent,
            "{received} of {sent} counted:\n{}",
            metrics.show("squelch_observed_occurrences_total")
        );
        ensure!(metrics.is_armed(), "disarmed");
        self.squelch.stop().await?;
        self.test.passed()?;
        Ok(format!("all {sent} occurrences of the other caller are counted once"))
    }
}

/// The path in the webhook configuration, with the token.
async fn configured_path(client: &Client, webhook: &str) -> Result<String> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let entries = api.get("squelch").await?.webhooks.unwrap_or_default();
    let events =
        entries.into_iter().find(|entry| entry.name == "events.squelch.dev").context("no webhook entry")?;
    let url = events.client_config.url.context("no URL")?;
    let path = url.strip_prefix(webhook).context("the webhook has another address")?;
    Ok(format!("{path}?timeout=1s"))
}

/// Reads the configured path every second, until the receiver is dropped.
async fn follow_path(client: Client, webhook: String) -> Result<watch::Receiver<String>> {
    let (newest, path) = watch::channel(configured_path(&client, &webhook).await?);
    tokio::spawn(async move {
        let mut ticks = interval(Duration::from_secs(1));
        while !newest.is_closed() {
            ticks.tick().await;
            // If it cannot be read, the last path is valid for another minute.
            if let Ok(path) = configured_path(&client, &webhook).await {
                newest.send_replace(path);
            }
        }
    });
    Ok(path)
}

/// Checks that all answers are equal and in time.
fn answers(attempts: &[Attempt]) -> Result<String> {
    let first = attempts.first().context("no attempt was made")?.outcome.clone();
    let other = attempts.iter().find(|attempt| attempt.outcome != first);
    ensure!(other.is_none(), "answered {first} and {:?}", other.map(|attempt| &attempt.outcome));
    let mut took: Vec<_> = attempts.iter().map(|attempt| attempt.took).collect();
    took.sort_unstable();
    let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
    let said = format!("{} times {first}, in {median:.1?} (at most {most:.1?})", took.len());
    ensure!(median <= DUE, "{said}");
    Ok(said)
}

/// The other caller's p99 without and with hostile requests, and whether the increase is allowed.
fn others(windows: &[(Vec<Duration>, Vec<Duration>)]) -> (String, bool) {
    let p99 = |window: &[Duration]| {
        let mut took = window.to_vec();
        took.sort_unstable();
        took[took.len() * 99 / 100].as_secs_f64()
    };
    let pairs: Vec<_> = windows.iter().map(|(calm, during)| (p99(calm), p99(during))).collect();
    let mut calm: Vec<_> = pairs.iter().map(|pair| pair.0).collect();
    calm.sort_unstable_by(f64::total_cmp);
    let aside = usize::from(calm.len() > 3);
    let spread = calm[calm.len() - 1 - aside] - calm[aside];
    let calm = median(&calm);
    let rise = median(&pairs.iter().map(|pair| pair.1 - pair.0).collect::<Vec<_>>());
    let figures = [calm, spread, rise].map(|seconds| seconds * 1000.0);
    let said = format!("other caller's p99 {:.2} ms (±{:.2}), {:+.2}", figures[0], figures[1], figures[2]);
    (said, rise <= (calm / 5.0).max(NOISE.as_secs_f64()).max(spread))
}
