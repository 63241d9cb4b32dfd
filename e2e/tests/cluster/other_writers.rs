//! Other writers of the webhook configuration: what they add stays, and writes are bounded. The API server counts them.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::other_writer::{OtherWriter, applies, platform_expression, requirements, stored};
use e2e::policy::idle_after;
use e2e::proxy::FaultProxy;
use e2e::squelch::StartOptions;
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, Policy, Squelch, Test, wait_for};
use serde_json::{Value, json};

const CONFIGURATION: &str = "mutatingwebhookconfiguration/squelch";

/// Events per second in the governed namespace.
const RATE: u32 = 10;

#[tokio::test]
async fn an_enforcer_that_adds_expressions_is_not_fought() -> Result<()> {
    beside_the_enforcer(Duration::from_secs(20)).await
}

#[tokio::test]
#[ignore = "ten minutes; run by `just test-nothing-lost`"]
async fn an_enforcer_that_adds_expressions_is_not_fought_for_ten_minutes() -> Result<()> {
    beside_the_enforcer(Duration::from_secs(600)).await
}

async fn beside_the_enforcer(time: Duration) -> Result<()> {
    let test = begin("enforcer").await?;
    let platform = test.neighbour().await?;
    test.cluster.kubectl.run(&["label", "namespace", &platform.namespace, "control-plane=true"]).await?;
    let squelch = test.squelch().await?;
    let enforcer = OtherWriter::admissions_enforcer(&test.cluster).await?;
    let before = applies(&test.cluster).await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let excluded = Policy::named(test.client(), &platform.namespace, "policy");
    excluded.put(&platform.kubectl(), &idle_after("3s")).await?;
    excluded.says("Effective", "False", "ExcludedByPlatform", "control-plane DoesNotExist").await?;
    policy.effective().await?;

    let occurrences = i64::from(RATE) * time.as_secs() as i64;
    let emitting = test.emit(&Emission::legacy().about("pod", 1).count(occurrences).rate(RATE))?;
    let not_governed = platform.emit(&Emission::legacy().about("pod", 1).count(10).rate(RATE))?;
    let sent = emitting.finish(time * 2 + GENEROUS).await?.sent();
    not_governed.finish(GENEROUS).await?;
    policy.received(sent).await?;
    ensure!(excluded.counters().await?.received == 0, "writes of an excluded namespace were reviewed");

    let squelch_writes = applies(&test.cluster).await? - before;
    ensure!(squelch_writes <= 10, "squelch wrote {squelch_writes} times in {time:?}");
    ensure!(enforcer.writes() <= 3, "the enforcer wrote {} times in {time:?}", enforcer.writes());
    let configuration = stored(&test.cluster).await?;
    ensure!(requirements(&configuration).contains(&platform_expression()), "{configuration}");
    let restores = squelch.metrics().await?.sum("squelch_webhook_configuration_restores_total", &[]);
    ensure!(restores == 0.0, "{restores} restores");
    eprintln!("{time:?}: squelch wrote {squelch_writes} times, the enforcer {}", enforcer.writes());

    // Without its writer the expression is removed once, and the next writes do not bring it back.
    drop(enforcer);
    let alone = json!([requirements(&configuration)[0]]);
    let patch = json!([
        { "op": "replace", "path": "/webhooks/0/namespaceSelector/matchExpressions", "value": alone },
    ]);
    test.cluster.kubectl.run(&["patch", CONFIGURATION, "--type=json", "--patch", &patch.to_string()]).await?;
    excluded.effective().await?;
    ended(test, squelch).await
}

#[tokio::test]
async fn the_annotation_keeps_the_enforcer_away() -> Result<()> {
    let test = begin("opt-out").await?;
    let enforcer = OtherWriter::admissions_enforcer(&test.cluster).await?;
    let squelch = test.squelch_with(&["--webhook-annotation", "admissions.enforcer/disabled=true"]).await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let sent =
        test.emit(&Emission::legacy().about("pod", 1).count(50).rate(RATE))?.finish(GENEROUS).await?.sent();
    policy.received(sent).await?;
    ensure!(enforcer.writes() == 0, "the enforcer wrote {} times", enforcer.writes());
    ensure!(!requirements(&stored(&test.cluster).await?).contains(&platform_expression()));
    ended(test, squelch).await
}

#[tokio::test]
async fn an_expression_that_is_added_at_admission_is_kept_and_reported() -> Result<()> {
    let test = begin("autopilot").await?;
    let platform = test.neighbour().await?;
    let proxy = FaultProxy::start(&test.cluster).await?;
    let expression =
        json!({ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [platform.namespace] });
    proxy.add_at_admission(expression.clone());
    let squelch =
        test.squelch_with_options(StartOptions { proxy: Some(&proxy), ..StartOptions::default() }).await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let cluster_policy = test.cluster_policy();
    cluster_policy.put(&test.kubectl(), &json!({ "priority": -1 })).await?;
    cluster_policy.says("Effective", "True", "PartiallyEffective", &platform.namespace).await?;
    policy.effective().await?;
    let before = applies(&test.cluster).await?;
    let sent =
        test.emit(&Emission::legacy().about("pod", 1).count(50).rate(RATE))?.finish(GENEROUS).await?.sent();
    policy.received(sent).await?;
    let writes = applies(&test.cluster).await? - before;
    ensure!(writes == 0, "squelch wrote {writes} times without a change");
    let added =
        requirements(&stored(&test.cluster).await?).into_iter().filter(|it| *it == expression).count();
    ensure!(added == 1, "the expression is there {added} times");
    ended(test, squelch).await
}

#[tokio::test]
async fn argo_cd_with_self_heal_is_met_with_backoff() -> Result<()> {
    let test = begin("argo-cd").await?;
    let neighbour = test.neighbour().await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let mut rendered = stored(&test.cluster).await?;
    rendered["webhooks"][0]["timeoutSeconds"] = json!(2);
    let excluded = Policy::named(test.client(), &neighbour.namespace, "policy");
    excluded.put(&neighbour.kubectl(), &idle_after("3s")).await?;
    excluded.effective().await?;

    let before = applies(&test.cluster).await?;
    let argo_cd = OtherWriter::argo_cd(&test.cluster, rendered).await?;
    let emission = Emission::legacy().about("pod", 1).count(20 * i64::from(RATE)).rate(RATE);
    let sent = test.emit(&emission)?.finish(GENEROUS * 2).await?.sent();
    policy.received(sent).await?;
    let writes = applies(&test.cluster).await? - before;
    let metrics = squelch.metrics().await?;
    let restores =
        metrics.sum("squelch_webhook_configuration_restores_total", &[("field", "other")]) as usize;
    // At once, after 5 s, 15 s, and 35 s.
    ensure!((2..=4).contains(&restores), "{restores} restores in 20 s against {} writes", argo_cd.writes());
    // Policies of other namespaces may have come or gone.
    ensure!(writes <= restores + 3, "squelch wrote {writes} times, {restores} of them restores");
    excluded.says("Effective", "False", "ExcludedByPlatform", "kubernetes.io/metadata.name In").await?;
    eprintln!("20 s: squelch wrote {writes} times, Argo CD {}", argo_cd.writes());
    ended(test, squelch).await
}

#[tokio::test]
async fn what_a_person_adds_stays_and_what_they_change_is_restored() -> Result<()> {
    let test = begin("person").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("3s")).await?;
    let jane = test.cluster.kubectl.cluster_admin("jane");
    let before = applies(&test.cluster).await?;
    jane.run(&["annotate", CONFIGURATION, "example.com/seen=yes"]).await?;
    jane.run(&["label", CONFIGURATION, "seen=yes"]).await?;
    let add = json!([
        { "op": "add", "path": "/webhooks/0/matchConditions/-",
          "value": { "name": "not-jane", "expression": "request.userInfo.username != 'jane'" } },
    ]);
    jane.run(&["patch", CONFIGURATION, "--type=json", "--patch", &add.to_string()]).await?;
    policy.says("Effective", "True", "Effective", "not-jane").await?;
    ensure!(applies(&test.cluster).await? == before, "squelch wrote although nothing had to be restored");

    // Each of these is restored, and what was added stays.
    let kept = stored(&test.cluster).await?;
    let change = json!([{ "op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30 }]);
    jane.run(&["patch", CONFIGURATION, "--type=json", "--patch", &change.to_string()]).await?;
    restored(&test, &kept).await?;
    let mut copy = kept.clone();
    copy["webhooks"][0]["failurePolicy"] = json!("Fail");
    copy["webhooks"][0]["rules"][0]["operations"] = json!(["CREATE"]);
    copy["metadata"]["resourceVersion"] = json!("");
    jane.run_with(&["replace", "-f", "-"], copy.to_string()).await?;
    restored(&test, &kept).await?;
    policy.says("Effective", "True", "Effective", "not-jane").await?;
    ended(test, squelch).await
}

/// Begins a test without a configuration of an earlier one.
async fn begin(label: &str) -> Result<Test> {
    let test = Test::begin(label).await?;
    test.cluster.kubectl.run(&["delete", CONFIGURATION, "--ignore-not-found"]).await?;
    Ok(test)
}

/// Ends a test without leaving what the other writers have added.
async fn ended(test: Test, squelch: Squelch) -> Result<()> {
    squelch.stop().await?;
    test.cluster.kubectl.run(&["delete", CONFIGURATION]).await?;
    test.passed()
}

/// Waits until the entries are as in `kept`, apart from the namespaces of all policies and squelch's keys.
async fn restored(test: &Test, kept: &Value) -> Result<()> {
    let compared = |configuration: &Value| {
        let mut entries = configuration["webhooks"].clone();
        for entry in entries.as_array_mut().into_iter().flatten() {
            entry["namespaceSelector"].take();
            entry["clientConfig"].take();
        }
        entries
    };
    wait_for("the entries to be restored", GENEROUS, async || {
        let now = compared(&stored(&test.cluster).await.map_err(not_yet)?);
        if now == compared(kept) { Ok(()) } else { Err(now.to_string()) }
    })
    .await
}
