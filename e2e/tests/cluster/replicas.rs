//! Two replicas as processes: one is active, the other takes over.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use e2e::accounts::SQUELCH;
use e2e::emitters::RunningEmitter;
use e2e::policy::idle_after;
use e2e::squelch::StartOptions;
use e2e::wait::not_yet;
use e2e::writes::never_lowered;
use e2e::{Emission, GENEROUS, Policy, STORM, Squelch, Test, events, wait_for};
use serde_json::{Value, json};

const RATE: u32 = 50;

/// The Secret of the replicas: they share authority and token.
const SECRET: [&str; 2] = ["--secret", squelch::SECRET];

/// Two replicas and a policy; the first one is active, and the other has probed it.
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

    /// Each occurrence is a new CREATE: none is reported again.
    fn storm(&self, objects: usize, count: i64) -> Result<RunningEmitter> {
        self.test.emit(&Emission::creates_core().about("pod", objects).count(count).rate(RATE))
    }
}

/// Starts a standby.
async fn another(test: &Test, flags: &[&str]) -> Result<Squelch> {
    let standby =
        test.squelch_with_options(StartOptions { flags, standby: true, ..StartOptions::default() }).await?;
    wait_for("the standby to probe the active replica", GENEROUS, async || {
        let metrics = standby.metrics().await.map_err(not_yet)?;
        let succeeded = metrics.sum("squelch_probes_total", &[("result", "succeeded")]);
        if succeeded >= 3.0 { Ok(()) } else { Err(metrics.show("squelch_probes_total")) }
    })
    .await?;
    ensure!(!is_active(&standby).await?, "two replicas are active");
    Ok(standby)
}

async fn is_active(squelch: &Squelch) -> Result<bool> {
    Ok(squelch.metrics().await?.sum("squelch_active", &[]) > 0.0)
}

/// Waits until it has decided on more reviews.
async fn wait_for_decisions(squelch: &Squelch) -> Result<()> {
    let received =
        async || Ok::<_, anyhow::Error>(squelch.metrics().await?.sum("squelch_occurrences_total", &[]));
    let before = received().await?;
    wait_for("more decisions", GENEROUS, async || {
        let now = received().await.map_err(not_yet)?;
        if now > before { Ok(()) } else { Err(now.to_string()) }
    })
    .await
}

/// Checks that every occurrence is stored exactly once, and that no call failed.
async fn nothing_is_lost(test: &Test, storm: RunningEmitter) -> Result<()> {
    let reported = storm.finish(STORM).await?;
    let failed: Vec<_> =
        reported.refused().into_iter().filter(|call| !call.error.contains("squelch: ")).collect();
    ensure!(failed.is_empty(), "failed writes: {failed:?}");
    stored_are(test, reported.sent()).await
}

async fn stored_are(test: &Test, sent: i64) -> Result<()> {
    wait_for(&format!("{sent} occurrences to be stored"), GENEROUS, async || {
        let stored = test.events(None).await.map_err(not_yet)?;
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
async fn a_terminating_active_replica_hands_over_without_loss() -> Result<()> {
    let Stage { test, policy, active, standby } = Stage::set("hand-over").await?;
    let writes = test.writes().await?;
    let storm = test.emit(&Emission::legacy().about("pod", 2).count(300).rate(RATE))?;
    storm.wait_for_calls(100, STORM).await?;
    let before = policy.counters().await?;
    active.stop().await?;
    let ended = Instant::now();
    standby.wait_until_active().await?;
    eprintln!("the standby is active {:?} after the shutdown of the first", ended.elapsed());
    policy.effective().await?;
    wait_for_decisions(&standby).await?;

    storm.finish(STORM).await?;
    for object in ["pod-0", "pod-1"] {
        test.one_event(object, 300).await?;
    }
    standby.wait_until_idle(GENEROUS).await?;
    let after = policy.counters().await?;
    ensure!(after.are_conserved(), "{after:?}");
    ensure!(after.received > before.received && after.received <= 600, "{before:?}, then {after:?}");
    never_lowered(&writes.so_far().await?)?;
    standby.stop().await?;
    ensure!(rules(&test).await? == 0, "the rules are still configured");
    test.passed()
}

/// Clients that create an Event per occurrence report nothing again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_stores_and_counts_each_occurrence_once() -> Result<()> {
    let Stage { test, policy, active, standby } = Stage::set("both").await?;
    let first = test.emit(&Emission::creates_core().about("pod", 5).count(40).rate(RATE))?;
    let first = first.finish(STORM).await?.sent();
    active.stop().await?;
    standby.wait_until_active().await?;
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
async fn a_crashed_active_replica_is_replaced() -> Result<()> {
    let stage = Stage::set("crashed").await?;
    let storm = stage.storm(5, 10_000)?;
    storm.wait_for_calls(100, STORM).await?;
    let Stage { test, policy, active, standby } = stage;
    // With nothing pending, because a crash loses pending occurrences.
    let calls = storm.so_far()?.calls.len();
    active.crash()?;
    let crashed = Instant::now();
    standby.wait_until_active().await?;
    let took = crashed.elapsed();
    eprintln!("the standby is active {took:?} after the crash");
    standby.wait_until_armed(true).await?;
    eprintln!("armed {:?} after the crash", crashed.elapsed());
    policy.effective().await?;
    wait_for_decisions(&standby).await?;
    let reported = storm.so_far()?;
    drop(storm);
    let failed: Vec<_> = reported.calls[calls..]
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
async fn a_frozen_active_replica_is_replaced_and_exits_when_resumed() -> Result<()> {
    let stage = Stage::set("frozen").await?;
    let storm = stage.storm(5, 10_000)?;
    storm.wait_for_calls(50, STORM).await?;
    let Stage { test, policy, mut active, standby } = stage;
    active.freeze()?;
    let frozen = Instant::now();
    wait_for("the standby to remove the rules", GENEROUS, async || match rules(&test).await {
        Ok(0) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await?;
    eprintln!("disarmed after {:?}", frozen.elapsed());
    standby.wait_until_active().await?;
    standby.wait_until_armed(true).await?;
    eprintln!("another replica is armed after {:?}", frozen.elapsed());
    policy.effective().await?;
    wait_for_decisions(&standby).await?;

    active.thaw()?;
    let ended = wait_for("the resumed replica to exit", GENEROUS, async || {
        active.ended().map_err(not_yet)?.ok_or_else(|| "it still runs".to_owned())
    })
    .await?;
    assert_eq!(ended.code(), Some(squelch::leader::STALLED));
    ensure!(active.log()?.contains("stalled past the Lease"), "the log does not name the reason");
    wait_for_decisions(&standby).await?;
    ensure!(rules(&test).await? == 1, "the resumed replica has disarmed the other");
    drop(storm);
    standby.stop().await?;
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_restart_keeps_the_active_replica() -> Result<()> {
    let stage = Stage::set("flips").await?;
    let storm = stage.storm(5, 10_000)?;
    storm.wait_for_calls(50, STORM).await?;
    let Stage { test, policy, active, standby } = stage;
    let before = holder(&test).await?;
    test.cluster.restart_apiserver(false, &[]).await?;
    active.wait_until_active().await?;
    policy.effective().await?;
    assert_eq!(holder(&test).await?, before);
    ensure!(!is_active(&standby).await?, "two replicas are active");
    wait_for_decisions(&active).await?;
    drop(storm);
    standby.stop_after_trouble().await?;
    active.stop_after_trouble().await?;
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stolen_lease_moves_to_another_replica_and_a_deleted_one_stays() -> Result<()> {
    let stage = Stage::set("stolen").await?;
    let storm = stage.storm(5, 120)?;
    storm.wait_for_calls(50, STORM).await?;
    let Stage { test, policy, mut active, standby } = stage;
    let kubectl = test.cluster.kubectl.namespace(SQUELCH.namespace);
    let before = holder(&test).await?;
    kubectl.run(&["delete", "lease/squelch"]).await?;
    wait_for("the Lease to be created again", GENEROUS, async || match holder(&test).await {
        Ok(holder) if holder == before => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await?;
    ensure!(
        is_active(&active).await? && !is_active(&standby).await?,
        "the active replica changed although the Lease was only deleted"
    );

    let thief = json!({ "spec": { "holderIdentity": "thief" } }).to_string();
    kubectl.run(&["patch", "lease/squelch", "--type=merge", "--patch", &thief]).await?;
    let ended = wait_for("the first replica to exit", GENEROUS, async || {
        active.ended().map_err(not_yet)?.ok_or_else(|| "it still runs".to_owned())
    })
    .await?;
    ensure!(ended.success() && active.log()?.contains("another replica is active"), "{}", active.log()?);
    standby.wait_until_active().await?;
    standby.wait_until_armed(true).await?;
    policy.effective().await?;
    nothing_is_lost(&test, storm).await?;
    standby.stop().await?;
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_active_replica_does_not_restore_a_deleted_configuration() -> Result<()> {
    let Stage { test, policy, active, standby } = Stage::set("deleted").await?;
    let kubectl = &test.cluster.kubectl;
    kubectl.run(&["delete", "mutatingwebhookconfiguration", "squelch"]).await?;
    standby.wait_until_armed(false).await?;
    active.stop().await?;
    standby.wait_until_active().await?;
    // The new active replica writes the statuses.
    policy.says("Effective", "False", "WebhookNotArmed", "configuration was deleted").await?;
    let is_away = async || {
        let there = kubectl.run(&["get", "mutatingwebhookconfiguration", "--output=name"]).await?;
        ensure!(!there.contains("/squelch\n"), "the configuration was created again: {there}");
        anyhow::Ok(())
    };
    is_away().await?;
    standby.stop().await?;
    is_away().await?;
    test.passed()
}

/// A pod as of a kubelet, without a container.
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
async fn the_active_label_follows_the_lease() -> Result<()> {
    let test = Test::begin("label").await?;
    let kubectl = test.cluster.kubectl.namespace(SQUELCH.namespace);
    for name in ["squelch-a", "squelch-b"] {
        kubectl.apply(&pod(name)).await?;
    }
    let labelled = async |expected: &[&str]| {
        wait_for(&format!("the label on {expected:?}"), GENEROUS, async || {
            let pods = ["get", "pods", "--selector=squelch.dev/role=active", "--output=name"];
            let found = kubectl.run(&pods).await.map_err(not_yet)?;
            let names: Vec<_> = found.lines().map(|line| line.trim_start_matches("pod/")).collect();
            if names == expected { Ok(()) } else { Err(found.clone()) }
        })
        .await
    };
    let placed = async |name: &str, address: &str| {
        let status = json!({ "status": { "podIP": address, "podIPs": [{ "ip": address }] } }).to_string();
        kubectl.run(&["patch", "pod", name, "--subresource=status", "--patch", &status]).await.map(drop)
    };
    // Left by a previous process.
    kubectl.run(&["label", "pod/squelch-b", "squelch.dev/role=active"]).await?;
    let flags = |pod| [&SECRET[..], &["--pod-name", pod]].concat();
    // No Service routes to a pod without an address: the replica with an address becomes active, although it is
    // newer.
    let unplaced_flags = flags("squelch-a");
    let unplaced = test
        .squelch_with_options(StartOptions {
            flags: &unplaced_flags,
            standby: true,
            ..StartOptions::default()
        })
        .await?;
    placed("squelch-b", "10.244.0.9").await?;
    let first = test.squelch_with(&flags("squelch-b")).await?;
    labelled(&["squelch-b"]).await?;
    ensure!(!is_active(&unplaced).await?, "two replicas are active");
    placed("squelch-a", "10.244.0.8").await?;
    first.stop().await?;
    let active = unplaced;
    active.wait_until_active().await?;
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
    ensure!(!is_active(&standby).await?, "two replicas are active");
    ensure!(holder(&test).await?.starts_with("squelch-a_"), "the standby became active before the restart");

    active.stop().await?;
    standby.wait_until_active().await?;
    labelled(&["squelch-b"]).await?;
    standby.stop().await?;
    kubectl.run(&["delete", "pod", "squelch-a", "squelch-b", "--grace-period=0", "--force"]).await?;
    test.passed()
}
