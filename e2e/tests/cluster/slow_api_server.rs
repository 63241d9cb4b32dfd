//! An API server that answers late, or not at all, simulated by the fault proxy: it delays the answers to Lease
//! writes, as with a slow etcd disk, and never answers lists and watches.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::policy::idle_after;
use e2e::proxy::{Fault, ProxiedCall, Rule};
use e2e::squelch::StartOptions;
use e2e::writer::gap;
use e2e::{FaultProxy, GENEROUS, Policy, Test};
use http::Method;
use serde_json::json;
use tokio::time::interval;

/// Longer than a replica's timeout of a renewal.
const LATE: Duration = Duration::from_millis(1_200);
/// Several Lease durations.
const TIME: Duration = Duration::from_secs(20);
const RATE: u32 = 100;
/// Maximum time between two refused writes at that rate, with tolerance for a busy machine.
const UNDECIDED: Duration = Duration::from_millis(500);

fn writes_of_leases(asked: &ProxiedCall) -> bool {
    asked.writes() && asked.is_about("leases")
}

/// Matches lists and watches of policies and namespaces, but no read or write of a single object.
fn follows(asked: &ProxiedCall) -> bool {
    let ends = ["/eventpolicies", "/clustereventpolicies", "/namespaces"];
    asked.method == Method::GET && ends.iter().any(|end| asked.path.ends_with(end))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_lease_writes_do_not_stop_decisions() -> Result<()> {
    let test = Test::begin("late-lease").await?;
    let proxy = FaultProxy::start(&test.cluster).await?;
    let squelch =
        test.squelch_with_options(StartOptions { proxy: Some(&proxy), ..StartOptions::default() }).await?;
    test.policy(&idle_after("10m")).await?;
    let writer = test.writer(RATE).await?;
    writer.wait_for_answers(2 * RATE as usize).await?;
    let (before, began) = (squelch.metrics().await?, writer.elapsed());
    proxy.to_api_server.follow([Rule::new(writes_of_leases, 100, [Fault::DelayAnswer(LATE)])]);
    let mut ends = interval(TIME);
    ends.tick().await;
    // A fixed time, not a condition.
    ends.tick().await;
    let ended = writer.elapsed();
    let (times, answers) = (writer.times(), writer.stop().await);
    proxy.end_all_faults();
    let after = squelch.metrics().await?;
    let undecided = |result| after.reviews(result) - before.reviews(result);
    let longest = gap(&times, began, ended);
    let said = format!(
        "at most {longest:.1?} without an active replica in {TIME:?}; {} writes admitted by a standby, {} failed open; {:?}; \
         {answers}",
        undecided("standby"),
        undecided("failed_open"),
        proxy.to_api_server.injected()
    );
    eprintln!("{said}");
    ensure!(proxy.to_api_server.injected().values().sum::<usize>() >= 5, "{said}");
    ensure!(longest <= UNDECIDED && undecided("standby") + undecided("failed_open") == 0.0, "{said}");
    squelch.wait_until_active().await?;
    squelch.stop_after_trouble().await?;
    test.passed()
}

/// The watches break off, and the next list is never answered, as after a lost flow; later calls succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: just test-nothing-lost"]
async fn watches_recover_from_a_list_without_an_answer() -> Result<()> {
    let test = Test::begin("unanswered").await?;
    let proxy = FaultProxy::start(&test.cluster).await?;
    let soon = Duration::from_secs(10);
    proxy.to_api_server.follow([Rule::new(
        |asked| asked.watch && follows(asked),
        100,
        [Fault::BreakOff(soon)],
    )]);
    let squelch =
        test.squelch_with_options(StartOptions { proxy: Some(&proxy), ..StartOptions::default() }).await?;
    test.policy(&json!({})).await?;
    proxy.to_api_server.follow([Rule::new(follows, 100, [Fault::Hang])]);
    let hung = "never answered";
    // Policies of both kinds, and namespaces.
    e2e::wait_for("three calls without an answer", GENEROUS, async || {
        match proxy.to_api_server.injected().get(hung).copied().unwrap_or_default() {
            calls if calls >= 3 => Ok(()),
            calls => Err(format!("{calls}: {:?}", proxy.to_api_server.injected())),
        }
    })
    .await?;
    proxy.end_all_faults();
    let began = Instant::now();
    let second = Policy::named(test.client(), &test.namespace, "second");
    second.put(&test.kubectl(), &json!({ "priority": 1 })).await?;
    let within = Duration::from_secs(120);
    let followed = second.effective_within(within).await;
    eprintln!("watching again after {:.0?}: {followed:?}", began.elapsed());
    followed?;
    squelch.stop_after_trouble().await?;
    test.passed()
}
