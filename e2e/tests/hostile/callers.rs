//! One squelch that is struck at its port, and another caller who goes on meanwhile.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::accounts::SQUELCH;
use e2e::figures::median;
use e2e::wait::told;
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

/// A pause between two strikes that cost little.
pub(crate) const OFTEN: Duration = Duration::from_millis(20);

/// Between two that cost both sides a millisecond or more of one of two processors.
pub(crate) const SELDOM: Duration = Duration::from_millis(250);

/// The other caller's reviews in a window.
const REVIEWS: usize = 200;

/// Windows without strikes and with them, by turns.
const PAIRS: usize = 7;

/// Where a machine does other things meanwhile, a p99 rises by those too, but not by as much each time: so many times as
/// many windows are looked at in all before it is said to rise.
const ATTEMPTS: usize = 3;

/// An answer that is due is there within this; the median of a row's strikes, for a machine does other things too.
const DUE: Duration = Duration::from_millis(50);

/// The other caller's p99 may rise by a fifth, or by this where that is less: two processors serve everybody here. And
/// by as much as windows without strikes differ from each other, the best and the worst of them aside.
const NOISE: Duration = Duration::from_millis(1);

/// The allocator keeps a little.
const TOLERANCE: f64 = 8.0;

/// Proofs, status and flushes have connections of their own.
const DESCRIPTORS: f64 = 16.0;

/// What became of one strike.
pub(crate) struct Struck {
    told: String,
    took: Duration,
}

impl Struck {
    /// Answered so, so long after it was due.
    pub(crate) fn new(told: impl fmt::Display, took: Duration) -> Self {
        Self { told: told.to_string(), took }
    }
}

/// The stage of the first table.
pub(crate) struct Callers {
    test: Test,
    other: Test,
    pub(crate) squelch: Squelch,
    pub(crate) place: Place,
    /// Somebody who makes nothing of what he reads.
    sink: Place,
    /// The path with the newest token: squelch replaces it after a failed proof.
    path: watch::Receiver<String>,
    /// The namespace that only the other caller tells of.
    pub(crate) quiet: String,
    /// The one that strikes with the token tell of.
    pub(crate) struck: String,
    paced: Paced,
}

impl Callers {
    /// squelch decides, and another caller asks it.
    pub(crate) async fn begin() -> Result<Self> {
        let test = Test::begin("callers").await?;
        let squelch = test.squelch_with(&["--secret", SECRET]).await?;
        let other = test.neighbour().await?;
        // Nothing that is told of here was ever written: what Observe owes is never paid.
        for test in [&test, &other] {
            test.policy(&json!({ "mode": "Observe" })).await?;
        }
        let secrets: Api<Secret> = Api::namespaced(test.client(), SQUELCH.namespace);
        let mut data = secrets.get(SECRET).await?.data.context("a Secret without data")?;
        let authority = String::from_utf8(data.remove("ca.crt").context("no ca.crt")?.0)?;
        let place = Place::new(&squelch.webhook, &authority)?;
        let path = follow_path(test.client(), squelch.webhook.clone()).await?;
        let (quiet, struck) = (test.namespace.clone(), other.namespace.clone());
        let paced = Paced::start(place.clone(), path.clone(), quiet.clone());
        // Connections, buffers and tables are there.
        paced.next(1_000).await?;
        let sink = sink::start(READ).await?;
        Ok(Self { test, other, squelch, place, sink, path, quiet, struck, paced })
    }

    /// The path that the API server asks at now.
    pub(crate) fn path(&self) -> String {
        self.path.borrow().clone()
    }

    /// Strikes at this pace while the other caller goes on, by turns with windows in which nobody strikes.
    pub(crate) async fn endure(
        &self,
        pace: Duration,
        strike: impl AsyncFnMut(&Place) -> Result<Struck>,
    ) -> Result<String> {
        self.endure_times(PAIRS, pace, false, strike).await
    }

    /// The same where a strike costs so much of the two processors that it is felt wherever it goes: by turns with
    /// windows in which it goes to somebody who makes nothing of it.
    pub(crate) async fn endure_heavy(
        &self,
        pace: Duration,
        strike: impl AsyncFnMut(&Place) -> Result<Struck>,
    ) -> Result<String> {
        self.endure_times(PAIRS, pace, true, strike).await
    }

    /// The same with so many windows of each kind.
    pub(crate) async fn endure_times(
        &self,
        pairs: usize,
        pace: Duration,
        heavy: bool,
        mut strike: impl AsyncFnMut(&Place) -> Result<Struck>,
    ) -> Result<String> {
        let [memory, descriptors] = self.taken().await?;
        let misses = self.missed_proofs().await?;
        let (mut windows, mut struck) = (Vec::new(), Vec::new());
        let (mut said, mut kept) = (String::new(), false);
        for _ in 0..ATTEMPTS {
            for _ in 0..pairs {
                windows.push(self.pair(pace, heavy, &mut strike, &mut struck).await?);
            }
            (said, kept) = others(&windows);
            if kept {
                break;
            }
        }
        let answers = answers(&struck)?;
        let against = if heavy { " against one who only reads it" } else { "" };
        ensure!(kept, "{answers}; {said}{against}");
        let back = self.is_back(memory, descriptors).await?;
        ensure!(self.missed_proofs().await? == misses, "the API server did not reach squelch");
        Ok(format!("{answers}; {said}{against}; {back}"))
    }

    /// How long the other caller's reviews take while nobody strikes squelch, and while somebody does.
    async fn pair(
        &self,
        pace: Duration,
        heavy: bool,
        strike: &mut impl AsyncFnMut(&Place) -> Result<Struck>,
        struck: &mut Vec<Struck>,
    ) -> Result<(Vec<Duration>, Vec<Duration>)> {
        let calm = if heavy {
            // Whatever he answers.
            self.window(pace, async || strike(&self.sink).await.map_or(Ok(()), |_| Ok(()))).await?
        } else {
            self.paced.next(REVIEWS).await?
        };
        let during = async || {
            struck.push(strike(&self.place).await?);
            Ok(())
        };
        Ok((calm, self.window(pace, during).await?))
    }

    /// How long the other caller's reviews take while somebody strikes.
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

    async fn missed_proofs(&self) -> Result<f64> {
        let metrics = self.squelch.metrics().await?;
        let proven = metrics.sum("squelch_proofs_total", &[("result", "proven")]);
        Ok(metrics.sum("squelch_proofs_total", &[]) - proven)
    }

    async fn is_back(&self, memory: f64, descriptors: f64) -> Result<String> {
        wait_for("memory and descriptors to be what they were", GENEROUS, async || {
            let now = self.taken().await.map_err(told)?;
            let seen = format!("{:+.1} MiB and {:+} descriptors", now[0] - memory, now[1] - descriptors);
            let back = now[0] <= memory + TOLERANCE && now[1] <= descriptors + DESCRIPTORS;
            if back { Ok(seen) } else { Err(seen) }
        })
        .await
    }

    /// The Events that are stored in the namespaces told of: there should be none.
    pub(crate) async fn written(&self) -> Result<String> {
        let stored = [self.test.events(None).await?, self.other.events(None).await?].concat();
        Ok(events::list(&stored))
    }

    /// After everything: what the other caller has told is counted to the last occurrence.
    pub(crate) async fn end(self) -> Result<String> {
        let sent = self.paced.stop()?;
        let metrics = self.squelch.metrics().await?;
        let received = metrics.sum("squelch_events_total", &[("event_namespace", &self.quiet)]) as i64;
        ensure!(received == sent, "{received} counted of {sent}:\n{}", metrics.show("squelch_events_total"));
        ensure!(metrics.sum("squelch_armed", &[]) > 0.0, "disarmed");
        self.squelch.stop().await?;
        self.test.passed()?;
        Ok(format!("of the other caller's {sent} occurrences all are counted, once"))
    }
}

/// The path of the webhook configuration, with the token.
async fn configured_path(client: &Client, webhook: &str) -> Result<String> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let entries = api.get("squelch").await?.webhooks.unwrap_or_default();
    let events = entries.into_iter().find(|entry| entry.name == "events.squelch.dev").context("no entry")?;
    let url = events.client_config.url.context("no URL")?;
    let path = url.strip_prefix(webhook).context("the webhook is elsewhere")?;
    Ok(format!("{path}?timeout=1s"))
}

/// Reads the configured path each second, until nobody wants it any more.
async fn follow_path(client: Client, webhook: String) -> Result<watch::Receiver<String>> {
    let (newest, path) = watch::channel(configured_path(&client, &webhook).await?);
    tokio::spawn(async move {
        let mut ticks = interval(Duration::from_secs(1));
        while !newest.is_closed() {
            ticks.tick().await;
            // Where it cannot be read, the last one holds for another minute.
            if let Ok(path) = configured_path(&client, &webhook).await {
                newest.send_replace(path);
            }
        }
    });
    Ok(path)
}

/// All were answered alike, and in time.
fn answers(struck: &[Struck]) -> Result<String> {
    let first = struck.first().context("nobody struck")?.told.clone();
    let other = struck.iter().find(|struck| struck.told != first);
    ensure!(other.is_none(), "answered {first} and {:?}", other.map(|struck| &struck.told));
    let mut took: Vec<_> = struck.iter().map(|struck| struck.took).collect();
    took.sort_unstable();
    let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
    let said = format!("{} times {first}, in {median:.1?} (at most {most:.1?})", took.len());
    ensure!(median <= DUE, "{said}");
    Ok(said)
}

/// The other caller's p99, before and meanwhile, and whether it is what it may be.
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
    let told = [calm, spread, rise].map(|seconds| seconds * 1000.0);
    let said = format!("others' p99 {:.2} ms (±{:.2}), {:+.2}", told[0], told[1], told[2]);
    (said, rise <= (calm / 5.0).max(NOISE.as_secs_f64()).max(spread))
}
