//! Silent connections to both ports of a squelch with a soft limit of 1,024 open files, as for a container under
//! containerd 2.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::policy::idle_after;
use e2e::squelch::StartOptions;
use e2e::wait::not_yet;
use e2e::writer::Timed;
use e2e::{GENEROUS, Squelch, Test, wait_for};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

/// The soft limit.
const LIMITS: &str = "1024:";
const SILENT: usize = 1_100;
/// Longer than squelch's handshake timeout.
const TIME: Duration = Duration::from_secs(15);
/// The designed bound; on a busy machine, the latency without the connections and a fifth.
const SLOW: Duration = Duration::from_millis(100);
const RATE: u32 = 50;
/// Default timeout of a kubelet's probe: 1 s.
const PROBE: Duration = Duration::from_secs(1);

/// Connections that are kept until the drop: closed ones are dialled again.
struct Silent {
    dialled: Arc<AtomicUsize>,
    established: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Silent {
    /// Dials this many connections, and waits until each is established.
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

    /// Number of established and of dialled connections.
    fn now(&self) -> String {
        let [established, dialled] = [&self.established, &self.dialled].map(|it| it.load(Ordering::Relaxed));
        format!("{established} silent connections of {dialled} dialled")
    }
}

async fn keep(address: SocketAddr, dialled: Arc<AtomicUsize>, established: Arc<AtomicUsize>) {
    loop {
        dialled.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut stream) = TcpStream::connect(address).await {
            // No TIME_WAIT on this machine.
            let _ = stream.set_zero_linger();
            established.fetch_add(1, Ordering::Relaxed);
            let _ = stream.read(&mut [0]).await;
            established.fetch_sub(1, Ordering::Relaxed);
        }
        // Closed connections are dialled again with a delay: dials cost this machine more than squelch.
        sleep(Duration::from_millis(500)).await;
    }
}

fn address(url: &str) -> Result<SocketAddr> {
    let (_, address) = url.split_once("://").context("no URL")?;
    Ok(address.parse()?)
}

async fn limited(test: &Test) -> Result<Squelch> {
    test.squelch_with_options(StartOptions { open_files: Some(LIMITS), ..StartOptions::default() }).await
}

/// The slowest write that began in this window.
fn slowest(times: &[Timed], from: Duration, to: Duration) -> Duration {
    let within = times.iter().filter(|timed| (from..to).contains(&timed.after));
    within.map(|timed| timed.took).max().unwrap_or_default()
}

/// Polls liveness for `time`, and returns the slowest answer. A missing answer counts as the time waited.
async fn liveness(squelch: &Squelch, time: Duration) -> Duration {
    let (began, mut slowest, mut ticks) =
        (Instant::now(), Duration::ZERO, interval(Duration::from_millis(500)));
    while began.elapsed() < time {
        ticks.tick().await;
        let asked = Instant::now();
        // A new connection each time, as by a kubelet.
        let answer = timeout(3 * PROBE, async {
            let admin = e2e::squelch::Admin::at(squelch.admin.url.clone()).map_err(not_yet)?;
            admin.get("/livez").await.map_err(not_yet)
        });
        let answered = matches!(answer.await, Ok(Ok(_)));
        slowest = slowest.max(if answered { asked.elapsed() } else { 3 * PROBE });
    }
    slowest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_to_the_webhook_do_not_slow_writes() -> Result<()> {
    let test = Test::begin("silent").await?;
    let squelch = limited(&test).await?;
    test.policy(&idle_after("10m")).await?;
    // The API server has sent no review yet: it has to dial.
    let silent = Silent::open(address(&squelch.webhook)?, SILENT).await?;
    let writer = test.writer(RATE).await?;
    let alive = liveness(&squelch, TIME).await;
    let (ended, open) = (writer.elapsed(), silent.now());
    drop(silent);
    // A window of the same length without them.
    writer.wait_for_answers(RATE as usize).await?;
    let calm = writer.elapsed();
    writer.wait_for_answers(RATE as usize * TIME.as_secs() as usize).await?;
    let times = writer.times();
    let answers = writer.stop().await;
    let with = slowest(&times, Duration::ZERO, ended);
    let without = slowest(&times, calm, Duration::MAX);
    let slow = times.iter().filter(|timed| timed.took > SLOW && timed.after < ended).count();
    let metrics = squelch.metrics().await?;
    let said = format!(
        "slowest write {without:.0?} without silent connections, {with:.0?} with {open}; {slow} above {SLOW:?}; slowest \
         liveness {alive:.0?}; armed {}; {answers}",
        metrics.sum("squelch_armed", &[])
    );
    eprintln!("{said}");
    ensure!(with <= SLOW.max(without.mul_f64(1.2)), "{said}");
    ensure!(alive <= PROBE, "{said}");
    ensure!(answers.failed.is_empty() && metrics.is_armed(), "{said}");
    squelch.stop().await?;
    test.passed()
}

/// With 200 connections, and with a thousand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_to_the_plain_port_do_not_block_liveness() -> Result<()> {
    let test = Test::begin("silent-plain").await?;
    let squelch = limited(&test).await?;
    test.policy(&idle_after("10m")).await?;
    let writer = test.writer(RATE).await?;
    writer.wait_for_answers(RATE as usize).await?;
    let mut said = Vec::new();
    for connections in [200, 1_000] {
        let began = writer.elapsed();
        let silent = Silent::open(address(&squelch.admin.url)?, connections).await?;
        let alive = liveness(&squelch, TIME / 2).await;
        drop(silent);
        let write = slowest(&writer.times(), began, writer.elapsed());
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
