//! Connections that nobody speaks on, at both ports of a squelch that may open 1,024 files before it asks for more. That
//! is the soft limit of a container under containerd 2.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::policy::idle_after;
use e2e::squelch::Way;
use e2e::wait::told;
use e2e::writer::Timed;
use e2e::{GENEROUS, Squelch, Test, wait_for};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

/// The soft limit alone.
const LIMITS: &str = "1024:";
const SILENT: usize = 1_100;
/// Longer than squelch waits for a handshake.
const TIME: Duration = Duration::from_secs(15);
/// The bound of the design; and for a machine that does other things, what is seen without the connections, and a fifth.
const SLOW: Duration = Duration::from_millis(100);
const RATE: u32 = 50;
/// A kubelet's probe has a timeout of 1 s unless a chart says otherwise.
const PROBE: Duration = Duration::from_secs(1);

/// Connections that are kept until the end of this value: one that the peer closes is dialled again.
struct Silent {
    dialled: Arc<AtomicUsize>,
    established: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Silent {
    /// Dials so many, and waits until each has begun.
    async fn open(address: SocketAddr, connections: usize) -> Result<Self> {
        let (dialled, established) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut tasks = JoinSet::new();
        for _ in 0..connections {
            tasks.spawn(keep(address, dialled.clone(), established.clone()));
        }
        wait_for(&format!("{connections} connections"), GENEROUS, async || {
            match dialled.load(Ordering::Relaxed) {
                all if all >= connections => Ok(()),
                some => Err(format!("{some} are dialled")),
            }
        })
        .await?;
        Ok(Self { dialled, established, _tasks: tasks })
    }

    /// How many are established now, of how many that were dialled.
    fn now(&self) -> String {
        let [established, dialled] = [&self.established, &self.dialled].map(|it| it.load(Ordering::Relaxed));
        format!("{established} silent connections of {dialled} dialled")
    }
}

async fn keep(address: SocketAddr, dialled: Arc<AtomicUsize>, established: Arc<AtomicUsize>) {
    loop {
        dialled.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut stream) = TcpStream::connect(address).await {
            // The end leaves no connection waiting on this machine.
            let _ = stream.set_zero_linger();
            established.fetch_add(1, Ordering::Relaxed);
            let _ = stream.read(&mut [0]).await;
            established.fetch_sub(1, Ordering::Relaxed);
        }
        // Those who mean harm come back, but not at once: dials cost this machine more than they cost squelch.
        sleep(Duration::from_millis(500)).await;
    }
}

fn address(url: &str) -> Result<SocketAddr> {
    let (_, address) = url.split_once("://").context("no URL")?;
    Ok(address.parse()?)
}

async fn limited(test: &Test) -> Result<Squelch> {
    test.squelch_by(Way { open_files: Some(LIMITS), ..Way::default() }).await
}

/// The slowest of the writes that began in this window.
fn slowest(times: &[Timed], from: Duration, to: Duration) -> Duration {
    let within = times.iter().filter(|timed| (from..to).contains(&timed.after));
    within.map(|timed| timed.took).max().unwrap_or_default()
}

/// Asks for liveness for so long, and returns the slowest answer. One that does not come counts as the time waited.
async fn liveness(squelch: &Squelch, time: Duration) -> Duration {
    let (began, mut slowest, mut ticks) =
        (Instant::now(), Duration::ZERO, interval(Duration::from_millis(500)));
    while began.elapsed() < time {
        ticks.tick().await;
        let asked = Instant::now();
        // A dial of its own each time, as a kubelet's.
        let answer = timeout(3 * PROBE, async {
            let admin = e2e::squelch::Admin::at(squelch.admin.url.clone()).map_err(told)?;
            admin.get("/livez").await.map_err(told)
        });
        let answered = matches!(answer.await, Ok(Ok(_)));
        slowest = slowest.max(if answered { asked.elapsed() } else { 3 * PROBE });
    }
    slowest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_not_slowed_by_silent_connections_to_the_webhook() -> Result<()> {
    let test = Test::begin("silent").await?;
    let squelch = limited(&test).await?;
    test.policy(&idle_after("10m")).await?;
    // The API server has asked about no Event yet: it has to dial.
    let silent = Silent::open(address(&squelch.webhook)?, SILENT).await?;
    let writer = test.writer(RATE).await?;
    let alive = liveness(&squelch, TIME).await;
    let (ended, open) = (writer.has_written_for(), silent.now());
    drop(silent);
    // A window without them, of the same length.
    writer.goes_on(RATE as usize).await?;
    let calm = writer.has_written_for();
    writer.goes_on(RATE as usize * TIME.as_secs() as usize).await?;
    let times = writer.times();
    let answers = writer.stop().await;
    let with = slowest(&times, Duration::ZERO, ended);
    let without = slowest(&times, calm, Duration::MAX);
    let slow = times.iter().filter(|timed| timed.took > SLOW && timed.after < ended).count();
    let metrics = squelch.metrics().await?;
    let said = format!(
        "slowest write {without:.0?} without them, {with:.0?} beside {open}; {slow} of them above {SLOW:?}; slowest \
         liveness {alive:.0?}; armed {}; {answers}",
        metrics.sum("squelch_armed", &[])
    );
    eprintln!("{said}");
    ensure!(with <= SLOW.max(without.mul_f64(1.2)), "{said}");
    ensure!(alive <= PROBE, "{said}");
    ensure!(answers.failed.is_empty() && metrics.sum("squelch_armed", &[]) > 0.0, "{said}");
    squelch.stop().await?;
    test.passed()
}

/// 200 connections, and a thousand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn liveness_is_answered_beside_silent_connections_to_the_plain_port() -> Result<()> {
    let test = Test::begin("silent-plain").await?;
    let squelch = limited(&test).await?;
    test.policy(&idle_after("10m")).await?;
    let writer = test.writer(RATE).await?;
    writer.goes_on(RATE as usize).await?;
    let mut said = Vec::new();
    for connections in [200, 1_000] {
        let began = writer.has_written_for();
        let silent = Silent::open(address(&squelch.admin.url)?, connections).await?;
        let alive = liveness(&squelch, TIME / 2).await;
        drop(silent);
        let write = slowest(&writer.times(), began, writer.has_written_for());
        said.push((connections, alive, write));
    }
    let answers = writer.stop().await;
    let text = format!("connections, slowest liveness, slowest write: {said:.0?}; {answers}");
    eprintln!("{text}");
    ensure!(said.iter().all(|(_, alive, _)| *alive <= PROBE), "{text}");
    ensure!(answers.failed.is_empty(), "{text}");
    squelch.stop().await?;
    test.passed()
}
