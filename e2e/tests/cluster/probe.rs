//! squelch is armed only while probes show that the API server reaches the webhook, and unless a user disarms it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::emitters::{Call, RunningEmitter};
use e2e::policy::idle_after;
use e2e::proxy::{Fault, Rule};
use e2e::squelch::StartOptions;
use e2e::wait::not_yet;
use e2e::{Emission, FaultProxy, GENEROUS, Policy, STORM, Squelch, Test, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

const RATE: u32 = 50;
const NAME: &str = "mutatingwebhookconfiguration/squelch";

/// A storm that outlasts any test.
fn storm(test: &Test) -> Result<RunningEmitter> {
    test.emit(&Emission::legacy().about("pod", 2).count(100_000).rate(RATE))
}

/// Checks that no call failed: each succeeded, was suppressed by squelch, or found no Event and was followed by a
/// CREATE.
async fn none_failed(storm: &RunningEmitter) -> Result<()> {
    let seen = storm.so_far()?.calls.len();
    let calls = storm.wait_for_calls(seen + 20, STORM).await?.calls;
    let suppressed = |call: &Call| call.error.contains("denied the request: squelch: ");
    let failed = |call: &&Call| !call.succeeded() && call.status != 404 && !suppressed(call);
    let failed: Vec<&Call> = calls.iter().filter(failed).collect();
    ensure!(
        failed.is_empty(),
        "{} of {} writes failed, the first: {:?}",
        failed.len(),
        calls.len(),
        failed[0]
    );
    Ok(())
}

async fn has_break_glass(squelch: &Squelch) -> Result<bool> {
    Ok(squelch.metrics().await?.sum("squelch_break_glass", &[]) > 0.0)
}

/// The number of probes with these results.
async fn probes(squelch: &Squelch, results: &[&str]) -> Result<u64> {
    let metrics = squelch.metrics().await?;
    let of = |result: &&str| metrics.sum("squelch_probes_total", &[("result", result)]) as u64;
    Ok(results.iter().map(of).sum())
}

const FAILURES: [&str; 4] = ["timeout", "unsigned", "wrong_signature", "rejected"];

async fn configuration(test: &Test) -> Result<Value> {
    Ok(serde_json::from_str(&test.kubectl().run(&["get", NAME, "--output=json"]).await?)?)
}

fn entry<'v>(configuration: &'v Value, name: &str) -> &'v Value {
    let mut entries = configuration["webhooks"].as_array().into_iter().flatten();
    entries.find(|entry| entry["name"] == name).unwrap_or(&Value::Null)
}

fn rules(configuration: &Value, name: &str) -> usize {
    entry(configuration, name)["rules"].as_array().map_or(0, Vec::len)
}

/// The number of Events about a disarmed webhook, and the last message.
async fn disarmed(test: &Test) -> Result<(i64, String)> {
    let api: Api<Event> = Api::namespaced(test.client(), "default");
    let about = "involvedObject.kind=MutatingWebhookConfiguration,reason=Disarmed";
    let events = api.list(&ListParams::default().fields(about)).await?.items;
    let revision = |event: &&Event| -> Option<u64> { event.metadata.resource_version.as_ref()?.parse().ok() };
    let newest = events.iter().max_by_key(revision);
    let words = newest.and_then(|event| event.message.clone()).unwrap_or_default();
    Ok((events.iter().map(e2e::events::value).sum(), words))
}

async fn wait_for_disarmed_event(test: &Test, before: i64, words: &str) -> Result<()> {
    wait_for(&format!("an Event with {words} in its message"), GENEROUS, async || {
        let (count, last) = disarmed(test).await.map_err(not_yet)?;
        if count > before && last.contains(words) {
            Ok(())
        } else {
            Err(format!("{count} Events, the last: {last}"))
        }
    })
    .await
}

/// Probes that follow one without an answer, because this cluster has one address.
const FURTHER: u64 = 5;

/// During a storm: squelch becomes unreachable by a fault, is disarmed after `needed` failed probes, and recovers.
async fn fails_and_recovers(label: &str, fault: Fault, failure: &str, needed: u64) -> Result<()> {
    let test = Test::begin(label).await?;
    let proxy = FaultProxy::start(&test.cluster).await?;
    let squelch =
        test.squelch_with_options(StartOptions { proxy: Some(&proxy), ..StartOptions::default() }).await?;
    let policy = test.policy(&idle_after("10m")).await?;
    let storm = storm(&test)?;
    storm.wait_for_calls(50, STORM).await?;
    let failed_before = probes(&squelch, &FAILURES).await?;
    let hung_before = probes(&squelch, &["timeout"]).await?;
    let before = disarmed(&test).await?.0;

    let began = Instant::now();
    e2e::test::disturb();
    proxy.to_squelch.follow([Rule::new(|_| true, 100, [fault])]);
    squelch.wait_until_armed(false).await?;
    eprintln!("disarmed after {:?}", began.elapsed());
    let failures = probes(&squelch, &FAILURES).await? - failed_before;
    // The scrape itself takes time. On a busy machine a probe may wait, and two failures are enough once one hangs.
    let hung = probes(&squelch, &["timeout"]).await? > hung_before;
    let (least, most) = if hung { (2, needed + FURTHER) } else { (needed, needed + 1) };
    ensure!((least..=most).contains(&failures), "{failures} failed probes before it was disarmed");
    ensure!(
        probes(&squelch, &[failure]).await? >= 2,
        "{}",
        squelch.metrics().await?.show("squelch_probes_total")
    );
    let there = configuration(&test).await?;
    assert_eq!((rules(&there, "events.squelch.dev"), rules(&there, "probe.squelch.dev")), (0, 1));
    wait_for_disarmed_event(&test, before, "Probes do not confirm").await?;
    policy.says("Effective", "False", "WebhookNotArmed", "").await?;
    none_failed(&storm).await?;

    proxy.end_all_faults();
    squelch.wait_until_armed(true).await?;
    let asked = proxy.reviews(&test.namespace).asked;
    policy.effective().await?;
    none_failed(&storm).await?;
    ensure!(proxy.reviews(&test.namespace).asked > asked, "armed, but no review");
    drop(storm);
    squelch.stop().await?;
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_webhook_is_disarmed_until_reachable() -> Result<()> {
    fails_and_recovers("unreachable", Fault::CutBefore, "unsigned", 10).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_webhook_is_disarmed_until_it_answers() -> Result<()> {
    fails_and_recovers("hangs", Fault::Delay(Duration::from_secs(5)), "timeout", 2).await
}

/// On the direct connection, HTTP/2 on loopback, each probe closes its connection.
#[tokio::test]
async fn probes_run_with_and_without_policies() -> Result<()> {
    let test = Test::begin("probes").await?;
    let squelch = test.squelch().await?;
    let enough = async |least: u64| {
        wait_for(&format!("{least} probes"), GENEROUS, async || {
            let succeeded = probes(&squelch, &["succeeded"]).await.map_err(not_yet)?;
            if succeeded >= least { Ok(()) } else { Err(succeeded.to_string()) }
        })
        .await
    };
    enough(5).await?;
    assert_eq!(rules(&configuration(&test).await?, "probe.squelch.dev"), 1);
    test.policy(&json!({})).await?;
    enough(probes(&squelch, &["succeeded"]).await? + 3).await?;
    let metrics = squelch.metrics().await?;
    let given = metrics.sum("squelch_probes_answered_total", &[]);
    ensure!(given >= metrics.sum("squelch_probes_total", &[("result", "succeeded")]), "{given} answered");
    assert_eq!(metrics.sum("squelch_own_writes_reviewed_total", &[]), 0.0);
    // Probes are never stored.
    let stored: Api<Event> = Api::namespaced(test.client(), e2e::accounts::SQUELCH.namespace);
    let stored = stored.list(&ListParams::default().fields("reason=Probe")).await?.items;
    ensure!(stored.is_empty(), "{}", e2e::events::list(&stored));
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn an_api_server_restart_is_no_failed_probe() -> Result<()> {
    let test = Test::begin("no-word").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("10m")).await?;
    let before = disarmed(&test).await?.0;
    test.cluster.restart_apiserver(false, &[]).await?;
    let succeeded = probes(&squelch, &["succeeded"]).await?;
    wait_for("probes after the restart", GENEROUS, async || {
        let now = probes(&squelch, &["succeeded"]).await.map_err(not_yet)?;
        if now >= succeeded + 3 { Ok(()) } else { Err(format!("{now} after {succeeded}")) }
    })
    .await?;
    squelch.wait_until_armed(true).await?;
    policy.effective().await?;
    eprintln!("{}", squelch.metrics().await?.show("squelch_probes_total"));
    let (after, words) = disarmed(&test).await?;
    assert_eq!(after, before, "disarmed by a restart: {words}");
    squelch.stop_after_trouble().await?;
    test.passed()
}

#[tokio::test]
async fn edits_of_the_configuration_are_reverted() -> Result<()> {
    let test = Test::begin("edited").await?;
    let squelch = test.squelch().await?;
    test.policy(&json!({})).await?;
    let kubectl = test.cluster.kubectl.cluster_admin("jane");
    // Not the whole object: the selectors change with other tests' namespaces.
    let is_good = |there: &Value| {
        let events = entry(there, "events.squelch.dev");
        let rules = (rules(there, "events.squelch.dev"), rules(there, "probe.squelch.dev"));
        events["failurePolicy"] == "Ignore" && events["timeoutSeconds"] == 1 && rules == (1, 1)
    };
    for (patch, what) in [
        (json!([{ "op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail" }]), "failurePolicy"),
        (json!([{ "op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30 }]), "timeoutSeconds"),
        (json!([{ "op": "remove", "path": "/webhooks/0/rules" }]), "rules"),
        (json!([{ "op": "remove", "path": "/webhooks/1" }]), "the entry of the probe"),
    ] {
        let patch = patch.to_string();
        kubectl.run(&["patch", NAME, "--type=json", "--patch", &patch]).await?;
        wait_for(&format!("{what} to be restored"), GENEROUS, async || {
            let there = configuration(&test).await.map_err(not_yet)?;
            if is_good(&there) { Ok(()) } else { Err(there["webhooks"].to_string()) }
        })
        .await?;
    }
    squelch.wait_until_armed(true).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn the_annotation_disarms_while_present() -> Result<()> {
    let test = Test::begin("annotated").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&json!({})).await?;
    let before = disarmed(&test).await?.0;
    let kubectl = &test.cluster.kubectl;
    kubectl.run(&["annotate", NAME, "squelch.dev/disarm=INC-7 under investigation"]).await?;
    squelch.wait_until_armed(false).await?;
    ensure!(has_break_glass(&squelch).await?);
    assert_eq!(rules(&configuration(&test).await?, "events.squelch.dev"), 0);
    wait_for_disarmed_event(&test, before, "INC-7 under investigation").await?;
    policy.says("Effective", "False", "WebhookNotArmed", "INC-7 under investigation").await?;

    // The annotation outlives squelch.
    squelch.stop().await?;
    let squelch = test.squelch().await?;
    wait_for("probes", GENEROUS, async || {
        let succeeded = probes(&squelch, &["succeeded"]).await.map_err(not_yet)?;
        if succeeded >= 4 && has_break_glass(&squelch).await.map_err(not_yet)? {
            Ok(())
        } else {
            Err(succeeded.to_string())
        }
    })
    .await?;
    assert_eq!(rules(&configuration(&test).await?, "events.squelch.dev"), 0);

    kubectl.run(&["annotate", NAME, "squelch.dev/disarm-"]).await?;
    squelch.wait_until_armed(true).await?;
    ensure!(!has_break_glass(&squelch).await?);
    policy.effective().await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn deleting_the_configuration_disarms() -> Result<()> {
    let test = Test::begin("deleted").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&json!({})).await?;
    let copy = configuration(&test).await?;
    let before = disarmed(&test).await?.0;
    test.cluster.kubectl.run(&["delete", NAME]).await?;
    squelch.wait_until_armed(false).await?;
    ensure!(has_break_glass(&squelch).await?);
    wait_for_disarmed_event(&test, before, "deleted").await?;
    policy.says("Effective", "False", "WebhookNotArmed", "configuration was deleted").await?;
    // A new policy does not undo the deletion.
    let neighbour = test.neighbour().await?;
    let other = Policy::named(test.client(), &neighbour.namespace, "policy");
    other.put(&neighbour.kubectl(), &json!({})).await?;
    other.says("Effective", "False", "WebhookNotArmed", "").await?;
    ensure!(configuration(&test).await.is_err(), "the configuration was created again");

    // The user does.
    let mut again = copy;
    again["metadata"] = json!({ "name": "squelch" });
    test.cluster.kubectl.run_with(&["create", "-f", "-"], again.to_string()).await?;
    squelch.wait_until_armed(true).await?;
    ensure!(!has_break_glass(&squelch).await?);
    policy.effective().await?;
    other.effective().await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn the_flag_disarms_and_is_reported_as_the_reason() -> Result<()> {
    let test = Test::begin("unenforced").await?;
    let before = disarmed(&test).await?.0;
    let squelch = test.squelch_with(&["--disarm"]).await?;
    let policy = Policy::named(test.client(), &test.namespace, "policy");
    policy.put(&test.kubectl(), &json!({})).await?;
    policy.says("Effective", "False", "WebhookNotArmed", "--disarm").await?;
    wait_for_disarmed_event(&test, before, "--disarm").await?;
    wait_for("probes", GENEROUS, async || {
        let succeeded = probes(&squelch, &["succeeded"]).await.map_err(not_yet)?;
        if succeeded >= 4 { Ok(()) } else { Err(succeeded.to_string()) }
    })
    .await?;
    ensure!(has_break_glass(&squelch).await?);
    assert_eq!(rules(&configuration(&test).await?, "events.squelch.dev"), 0);
    squelch.stop().await?;

    let squelch = test.squelch().await?;
    squelch.wait_until_armed(true).await?;
    ensure!(!has_break_glass(&squelch).await?);
    policy.effective().await?;
    squelch.stop().await?;
    test.passed()
}

/// The API server garbage-collects objects of a deleted owner; a new installation has a role of the same name with
/// another uid.
#[tokio::test]
async fn the_configuration_is_deleted_with_its_owner_and_created_with_the_next() -> Result<()> {
    let test = Test::begin("owner").await?;
    let (kubectl, owner) = (test.cluster.kubectl.clone(), format!("owner-{}", test.namespace));
    let reader = format!("reads-{owner}");
    let account =
        format!("--serviceaccount={0}:{1}", e2e::accounts::SQUELCH.namespace, e2e::accounts::SQUELCH.name);
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": owner }, "rules": [] });
    kubectl.apply(&role).await?;
    let name = format!("--resource-name={owner}");
    kubectl.run(&["create", "clusterrole", &reader, "--verb=get", "--resource=clusterroles", &name]).await?;
    let of = format!("--clusterrole={reader}");
    kubectl.run(&["create", "clusterrolebinding", &reader, &of, &account]).await?;
    let uid = async || -> Result<String> {
        kubectl.run(&["get", "clusterrole", &owner, "--output=jsonpath={.metadata.uid}"]).await
    };
    let belongs_to = async |uid: &str| {
        wait_for("the configuration to belong to the role", GENEROUS, async || {
            let there = configuration(&test).await.map_err(not_yet)?;
            let owners = &there["metadata"]["ownerReferences"];
            if owners[0]["uid"] == uid { Ok(()) } else { Err(owners.to_string()) }
        })
        .await
    };

    let squelch = test.squelch_with(&["--owner-cluster-role", &owner]).await?;
    test.policy(&json!({})).await?;
    belongs_to(&uid().await?).await?;
    let old = uid().await?;
    kubectl.run_with(&["replace", "--force", "-f", "-"], role.to_string()).await?;
    let new = uid().await?;
    ensure!(old != new, "the role is the same");
    belongs_to(&new).await?;
    squelch.wait_until_armed(true).await?;
    ensure!(!has_break_glass(&squelch).await?);

    kubectl.run(&["delete", "clusterrole", &owner]).await?;
    wait_for("the configuration to be garbage-collected", GENEROUS, async || {
        match configuration(&test).await {
            Ok(there) => Err(there["metadata"].to_string()),
            Err(_) => Ok(()),
        }
    })
    .await?;
    squelch.wait_until_armed(false).await?;
    squelch.stop().await?;
    ensure!(configuration(&test).await.is_err(), "the configuration outlives its owner");
    kubectl.run(&["delete", "clusterrole,clusterrolebinding", &reader]).await?;
    test.passed()
}
