//! An API server that answers late, or not at all. The fault proxy stands in for it: it delays the answers to writes of
//! Leases as an etcd does whose disk is slow, and keeps lists and watches without an answer.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::policy::idle_after;
use e2e::proxy::{Asked, Fault, Rule};
use e2e::squelch::Way;
use e2e::writer::gap;
use e2e::{Detour, GENEROUS, Policy, Test};
use http::Method;
use serde_json::json;
use tokio::time::interval;

/// Longer than a replica waits for the answer to a renewal.
const LATE: Duration = Duration::from_millis(1_200);
/// Several lifetimes of a Lease.
const TIME: Duration = Duration::from_secs(20);
const RATE: u32 = 100;
/// Between two writes that squelch refuses, at that rate; a busy machine takes its time.
const UNDECIDED: Duration = Duration::from_millis(500);

fn writes_of_leases(asked: &Asked) -> bool {
    asked.writes() && asked.is_about("leases")
}

/// Lists and watches of policies and namespaces, but no read or write of one of them.
fn follows(asked: &Asked) -> bool {
    let ends = ["/eventpolicies", "/clustereventpolicies", "/namespaces"];
    asked.method == Method::GET && ends.iter().any(|end| asked.path.ends_with(end))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_decided_while_the_lease_is_written_late() -> Result<()> {
    let test = Test::begin("late-lease").await?;
    let detour = Detour::start(&test.cluster).await?;
    let squelch = test.squelch_by(Way { by: Some(&detour), ..Way::default() }).await?;
    test.policy(&idle_after("10m")).await?;
    let writer = test.writer(RATE).await?;
    writer.goes_on(2 * RATE as usize).await?;
    let (before, began) = (squelch.metrics().await?, writer.has_written_for());
    detour.to_api_server.follow([Rule::new(writes_of_leases, 100, [Fault::DelayAnswer(LATE)])]);
    let mut ends = interval(TIME);
    ends.tick().await;
    // It is the time that is waited for.
    ends.tick().await;
    let ended = writer.has_written_for();
    let (times, answers) = (writer.times(), writer.stop().await);
    detour.end_all_faults();
    let after = squelch.metrics().await?;
    let undecided = |outcome| {
        let labels = [("outcome", outcome)];
        after.sum("squelch_writes_total", &labels) - before.sum("squelch_writes_total", &labels)
    };
    let longest = gap(&times, began, ended);
    let said = format!(
        "at most {longest:.1?} without a decision in {TIME:?}; {} writes let through by a standby, {} failed open; {:?}; \
         {answers}",
        undecided("standby"),
        undecided("failed_open"),
        detour.to_api_server.dealt()
    );
    eprintln!("{said}");
    ensure!(detour.to_api_server.dealt().values().sum::<usize>() >= 5, "{said}");
    ensure!(longest <= UNDECIDED && undecided("standby") + undecided("failed_open") == 0.0, "{said}");
    squelch.is_active().await?;
    squelch.stop_after_trouble().await?;
    test.passed()
}

/// The watches break off, and what asks again is never answered, as after a lost flow: every later call is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: just test-nothing-lost"]
async fn policies_are_followed_again_after_a_list_that_is_never_answered() -> Result<()> {
    let test = Test::begin("unanswered").await?;
    let detour = Detour::start(&test.cluster).await?;
    let soon = Duration::from_secs(10);
    detour.to_api_server.follow([Rule::new(
        |asked| asked.watch && follows(asked),
        100,
        [Fault::BreakOff(soon)],
    )]);
    let squelch = test.squelch_by(Way { by: Some(&detour), ..Way::default() }).await?;
    test.policy(&json!({})).await?;
    detour.to_api_server.follow([Rule::new(follows, 100, [Fault::Hang])]);
    let hung = "never answered";
    // Policies of both kinds, and namespaces.
    e2e::wait_for("three calls without an answer", GENEROUS, async || {
        match detour.to_api_server.dealt().get(hung).copied().unwrap_or_default() {
            calls if calls >= 3 => Ok(()),
            calls => Err(format!("{calls}: {:?}", detour.to_api_server.dealt())),
        }
    })
    .await?;
    detour.end_all_faults();
    let began = Instant::now();
    let second = Policy::named(test.client(), &test.namespace, "second");
    second.put(&test.kubectl(), &json!({ "priority": 1 })).await?;
    let within = Duration::from_secs(120);
    let followed = second.effective_within(within).await;
    eprintln!("followed again after {:.0?}: {followed:?}", began.elapsed());
    followed?;
    squelch.stop_after_trouble().await?;
    test.passed()
}
