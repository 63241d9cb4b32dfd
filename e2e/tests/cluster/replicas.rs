//! Two replicas, each a process of its own: one decides, the other takes over, whatever becomes of the first.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::accounts::SQUELCH;
use e2e::emitters::Emitting;
use e2e::policy::idle_after;
use e2e::squelch::Way;
use e2e::wait::told;
use e2e::writes::never_lowered;
use e2e::{Emission, GENEROUS, Policy, Squelch, Test, events, wait_for};
use serde_json::{Value, json};

const STORM: Duration = Duration::from_secs(120);
const RATE: u32 = 50;

/// The replicas share it: each serves a certificate of the same authority, and is asked with the same token.
const SECRET: [&str; 2] = ["--secret", squelch::SECRET];

/// Two replicas and a policy; the first is the active one, and the other knows that it is proven.
struct Stage {
    test: Test,
    policy: Policy,
    active: Squelch,
    standby: Squelch,
}

impl Stage {
    async fn set(label: &str) -> Result<Self> {
        let test = Test::begin(label).await?;
        let active = test.squelch_with(&SECRET).await?;
        let policy = test.policy(&idle_after("3s")).await?;
        let standby = another(&test, &SECRET).await?;
        Ok(Self { test, policy, active, standby })
    }

    /// Each occurrence is a CREATE of its own: none is ever told again.
    fn storm(&self, objects: usize, count: i64) -> Result<Emitting> {
        self.test.emit(&Emission::creates_core().about("pod", objects).count(count).rate(RATE))
    }
}

/// One more replica.
async fn another(test: &Test, flags: &[&str]) -> Result<Squelch> {
    let standby = test.squelch_by(Way { flags, standby: true, ..Way::default() }).await?;
    wait_for("the standby to prove the active one", GENEROUS, async || {
        let metrics = standby.metrics().await.map_err(told)?;
        let proven = metrics.sum("squelch_proofs_total", &[("result", "proven")]);
        if proven >= 3.0 { Ok(()) } else { Err(metrics.show("squelch_proofs_total")) }
    })
    .await?;
    ensure!(!decides(&standby).await?, "two decide");
    Ok(standby)
}

async fn decides(squelch: &Squelch) -> Result<bool> {
    Ok(squelch.metrics().await?.sum("squelch_active", &[]) > 0.0)
}

async fn is_armed(squelch: &Squelch, armed: bool) -> Result<()> {
    wait_for(&format!("squelch_armed to be {armed}"), GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(told)?;
        let is = metrics.sum("squelch_armed", &[]) > 0.0;
        if is == armed { Ok(()) } else { Err(metrics.show("squelch_proofs_total")) }
    })
    .await
}

/// Waits until it has decided on more than it had.
async fn goes_on_deciding(squelch: &Squelch) -> Result<()> {
    let received = async || Ok::<_, anyhow::Error>(squelch.metrics().await?.sum("squelch_events_total", &[]));
    let before = received().await?;
    wait_for("more decisions", GENEROUS, async || {
        let now = received().await.map_err(told)?;
        if now > before { Ok(()) } else { Err(now.to_string()) }
    })
    .await
}

/// Every occurrence is in a stored Event, none is told twice, and no call failed.
async fn nothing_is_lost(test: &Test, storm: Emitting) -> Result<()> {
    let told_of = storm.finish(STORM).await?;
    let failed: Vec<_> =
        told_of.refused().into_iter().filter(|call| !call.error.contains("squelch: ")).collect();
    ensure!(failed.is_empty(), "failed writes: {failed:?}");
    stored_are(test, told_of.sent()).await
}

async fn stored_are(test: &Test, sent: i64) -> Result<()> {
    wait_for(&format!("{sent} occurrences to be stored"), GENEROUS, async || {
        let stored = test.events(None).await.map_err(told)?;
        let sum: i64 = stored.iter().map(events::value).sum();
        if sum == sent { Ok(()) } else { Err(format!("{sum}:\n{}", events::list(&stored))) }
    })
    .await
}

async fn object(test: &Test, what: &str) -> Result<Value> {
    let kubectl = test.cluster.kubectl.namespace(SQUELCH.namespace);
    Ok(serde_json::from_str(&kubectl.run(&["get", what, "--output=json"]).await?)?)
}

async fn holder(test: &Test) -> Result<String> {
    let lease = object(test, "lease/squelch").await?;
    Ok(lease["spec"]["holderIdentity"].as_str().context("a Lease without a holder")?.to_owned())
}

async fn rules(test: &Test) -> Result<usize> {
    let configuration = object(test, "mutatingwebhookconfiguration/squelch").await?;
    Ok(configuration["webhooks"][0]["rules"].as_array().map_or(0, Vec::len))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_ends_hands_over_and_nothing_is_lost() -> Result<()> {
    let Stage { test, policy, active, standby } = Stage::set("hand-over").await?;
    let writes = test.writes().await?;
    let storm = test.emit(&Emission::legacy().about("pod", 2).count(300).rate(RATE))?;
    storm.has_called(100, STORM).await?;
    let before = policy.counters().await?;
    active.stop().await?;
    let ended = Instant::now();
    standby.is_active().await?;
    eprintln!("the other is active {:?} after the end of the first", ended.elapsed());
    policy.effective().await?;
    goes_on_deciding(&standby).await?;

    storm.finish(STORM).await?;
    for object in ["pod-0", "pod-1"] {
        test.one_event(object, 300).await?;
    }
    standby.is_quiet(GENEROUS).await?;
    let after = policy.counters().await?;
    ensure!(after.are_conserved(), "{after:?}");
    ensure!(after.received > before.received && after.received <= 600, "{before:?}, then {after:?}");
    never_lowered(&writes.so_far().await?)?;
    standby.stop().await?;
    ensure!(rules(&test).await? == 0, "rules are left behind");
    test.passed()
}

/// Clients that create an Event for each occurrence tell nothing again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_both_decided_on_is_stored_and_counted_once() -> Result<()> {
    let Stage { test, policy, active, standby } = Stage::set("both").await?;
    let first = test.emit(&Emission::creates_core().about("pod", 5).count(40).rate(RATE))?;
    let first = first.finish(STORM).await?.sent();
    active.stop().await?;
    standby.is_active().await?;
    policy.effective().await?;
    let second = test.emit(&Emission::creates_core().about("pod", 5).count(40).rate(RATE))?;
    let sent = first + second.finish(STORM).await?.sent();
    let counters = policy.received(sent).await?;
    ensure!(counters.compacted > 0, "{counters:?}");
    standby.stop().await?;
    stored_are(&test, sent).await?;
    assert_eq!(policy.counters().await?, counters);
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_crashes_is_replaced() -> Result<()> {
    let stage = Stage::set("crashed").await?;
    let storm = stage.storm(5, 10_000)?;
    storm.has_called(100, STORM).await?;
    let Stage { test, policy, active, standby } = stage;
    // So that nothing is owed as it goes: what was is lost with it.
    let calls = storm.so_far()?.calls.len();
    active.crash()?;
    let crashed = Instant::now();
    standby.is_active().await?;
    let took = crashed.elapsed();
    eprintln!("the other is active {took:?} after the crash");
    is_armed(&standby, true).await?;
    eprintln!("and armed after {:?}", crashed.elapsed());
    policy.effective().await?;
    goes_on_deciding(&standby).await?;
    let told_of = storm.so_far()?;
    drop(storm);
    let failed: Vec<_> = told_of.calls[calls..]
        .iter()
        .filter(|call| !call.succeeded() && !call.error.contains("squelch: "))
        .collect();
    ensure!(failed.is_empty(), "failed writes: {failed:?}");
    let counters = policy.counters().await?;
    ensure!(counters.are_conserved(), "{counters:?}");
    standby.stop().await?;
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_freezes_is_disarmed_and_replaced_and_ends_when_it_thaws() -> Result<()> {
    let stage = Stage::set("frozen").await?;
    let storm = stage.storm(5, 10_000)?;
    storm.has_called(50, STORM).await?;
    let Stage { test, policy, mut active, standby } = stage;
    active.freeze()?;
    let frozen = Instant::now();
    wait_for("the standby to take the rules away", GENEROUS, async || match rules(&test).await {
        Ok(0) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await?;
    eprintln!("disarmed after {:?}", frozen.elapsed());
    standby.is_active().await?;
    is_armed(&standby, true).await?;
    eprintln!("another is armed after {:?}", frozen.elapsed());
    policy.effective().await?;
    goes_on_deciding(&standby).await?;

    active.thaw()?;
    let ended = wait_for("the thawed one to end", GENEROUS, async || {
        active.ended().map_err(told)?.ok_or_else(|| "it still runs".to_owned())
    })
    .await?;
    assert_eq!(ended.code(), Some(squelch::leader::STALLED));
    ensure!(active.log()?.contains("stalled past the Lease"), "it does not say why");
    goes_on_deciding(&standby).await?;
    ensure!(rules(&test).await? == 1, "the thawed one has disarmed the other");
    drop(storm);
    standby.stop().await?;
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_restarts_flips_nothing() -> Result<()> {
    let stage = Stage::set("flips").await?;
    let storm = stage.storm(5, 10_000)?;
    storm.has_called(50, STORM).await?;
    let Stage { test, policy, active, standby } = stage;
    let before = holder(&test).await?;
    test.cluster.restart_apiserver(false, &[]).await?;
    active.is_active().await?;
    policy.effective().await?;
    assert_eq!(holder(&test).await?, before);
    ensure!(!decides(&standby).await?, "two decide");
    goes_on_deciding(&active).await?;
    drop(storm);
    standby.stop_after_trouble().await?;
    active.stop_after_trouble().await?;
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_stolen_is_won_back_by_another_and_one_that_is_deleted_stays() -> Result<()> {
    let stage = Stage::set("stolen").await?;
    let storm = stage.storm(5, 120)?;
    storm.has_called(50, STORM).await?;
    let Stage { test, policy, mut active, standby } = stage;
    let kubectl = test.cluster.kubectl.namespace(SQUELCH.namespace);
    let before = holder(&test).await?;
    kubectl.run(&["delete", "lease/squelch"]).await?;
    wait_for("the Lease to be made again", GENEROUS, async || match holder(&test).await {
        Ok(holder) if holder == before => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await?;
    ensure!(decides(&active).await? && !decides(&standby).await?, "the Lease was only deleted");

    let thief = json!({ "spec": { "holderIdentity": "thief" } }).to_string();
    kubectl.run(&["patch", "lease/squelch", "--type=merge", "--patch", &thief]).await?;
    let ended = wait_for("the first to end", GENEROUS, async || {
        active.ended().map_err(told)?.ok_or_else(|| "it still runs".to_owned())
    })
    .await?;
    ensure!(ended.success() && active.log()?.contains("another replica decides"), "{}", active.log()?);
    standby.is_active().await?;
    is_armed(&standby, true).await?;
    policy.effective().await?;
    nothing_is_lost(&test, storm).await?;
    standby.stop().await?;
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_over_leaves_a_deleted_configuration_away() -> Result<()> {
    let Stage { test, policy, active, standby } = Stage::set("deleted").await?;
    let kubectl = &test.cluster.kubectl;
    kubectl.run(&["delete", "mutatingwebhookconfiguration", "squelch"]).await?;
    is_armed(&standby, false).await?;
    active.stop().await?;
    standby.is_active().await?;
    // Its statuses are those of the one that decides.
    policy.says("Effective", "Unknown", "WebhookNotArmed", "deleted the configuration").await?;
    let is_away = async || {
        let there = kubectl.run(&["get", "mutatingwebhookconfiguration", "--output=name"]).await?;
        ensure!(!there.contains("/squelch\n"), "it was written again: {there}");
        anyhow::Ok(())
    };
    is_away().await?;
    standby.stop().await?;
    is_away().await?;
    test.passed()
}

/// What a kubelet would have made: nothing runs in it.
fn pod(name: &str) -> Value {
    let labels = json!({ "app.kubernetes.io/name": "squelch", "app.kubernetes.io/instance": "test" });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": SQUELCH.namespace, "labels": labels },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{ "name": "squelch", "image": "none" }],
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_label_goes_with_the_lease() -> Result<()> {
    let test = Test::begin("label").await?;
    let kubectl = test.cluster.kubectl.namespace(SQUELCH.namespace);
    for name in ["squelch-a", "squelch-b"] {
        kubectl.apply(&pod(name)).await?;
    }
    let labelled = async |expected: &[&str]| {
        wait_for(&format!("the label on {expected:?}"), GENEROUS, async || {
            let pods = ["get", "pods", "--selector=squelch.dev/role=active", "--output=name"];
            let found = kubectl.run(&pods).await.map_err(told)?;
            let names: Vec<_> = found.lines().map(|line| line.trim_start_matches("pod/")).collect();
            if names == expected { Ok(()) } else { Err(found.clone()) }
        })
        .await
    };
    let placed = async |name: &str, address: &str| {
        let status = json!({ "status": { "podIP": address, "podIPs": [{ "ip": address }] } }).to_string();
        kubectl.run(&["patch", "pod", name, "--subresource=status", "--patch", &status]).await.map(drop)
    };
    // Left over of a former process.
    kubectl.run(&["label", "pod/squelch-b", "squelch.dev/role=active"]).await?;
    let flags = |pod| [&SECRET[..], &["--pod-name", pod]].concat();
    // No Service leads to a pod without an address: whoever has one is the active one, although he came later.
    let unplaced_flags = flags("squelch-a");
    let unplaced = test.squelch_by(Way { flags: &unplaced_flags, standby: true, ..Way::default() }).await?;
    placed("squelch-b", "10.244.0.9").await?;
    let first = test.squelch_with(&flags("squelch-b")).await?;
    labelled(&["squelch-b"]).await?;
    ensure!(!decides(&unplaced).await?, "two decide");
    placed("squelch-a", "10.244.0.8").await?;
    first.stop().await?;
    let active = unplaced;
    active.is_active().await?;
    labelled(&["squelch-a"]).await?;
    test.policy(&idle_after("3s")).await?;
    let standby = another(&test, &flags("squelch-b")).await?;
    labelled(&["squelch-a"]).await?;

    // The next process of the same pod need not wait for the Lease.
    active.crash()?;
    let crashed = Instant::now();
    let active = test.squelch_with(&flags("squelch-a")).await?;
    eprintln!("the next process of the pod is active after {:?}", crashed.elapsed());
    labelled(&["squelch-a"]).await?;
    ensure!(!decides(&standby).await?, "two decide");
    ensure!(holder(&test).await?.starts_with("squelch-a_"), "the standby was faster than a restart");

    active.stop().await?;
    standby.is_active().await?;
    labelled(&["squelch-b"]).await?;
    standby.stop().await?;
    kubectl.run(&["delete", "pod", "squelch-a", "squelch-b", "--grace-period=0", "--force"]).await?;
    test.passed()
}
