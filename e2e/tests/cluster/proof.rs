//! Armed only while it is proven that the API server reaches the webhook, and as long as no person wants it otherwise.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::emitters::{Call, Emitting};
use e2e::policy::idle_after;
use e2e::proxy::{Fault, Rule};
use e2e::squelch::Way;
use e2e::wait::told;
use e2e::{Detour, Emission, GENEROUS, Policy, Squelch, Test, wait_for};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

const STORM: Duration = Duration::from_secs(120);
const RATE: u32 = 50;
const NAME: &str = "mutatingwebhookconfiguration/squelch";

/// A storm that lasts as long as any test.
fn storm(test: &Test) -> Result<Emitting> {
    test.emit(&Emission::legacy().about("pod", 2).count(100_000).rate(RATE))
}

/// No call failed: each was taken, was held back by squelch, or found no Event and was followed by a CREATE.
async fn none_failed(storm: &Emitting) -> Result<()> {
    let seen = storm.so_far()?.calls.len();
    let calls = storm.has_called(seen + 20, STORM).await?.calls;
    let held_back = |call: &Call| call.error.contains("denied the request: squelch: ");
    let failed = |call: &&Call| !call.succeeded() && call.status != 404 && !held_back(call);
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

async fn is_armed(squelch: &Squelch, armed: bool) -> Result<()> {
    wait_for(&format!("squelch_armed to be {}", u8::from(armed)), GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(told)?;
        let is = metrics.sum("squelch_armed", &[]) > 0.0;
        if is == armed { Ok(()) } else { Err(metrics.show("squelch_proofs_total")) }
    })
    .await
}

async fn breaks_glass(squelch: &Squelch) -> Result<bool> {
    Ok(squelch.metrics().await?.sum("squelch_break_glass", &[]) > 0.0)
}

/// How many proofs ended so.
async fn proofs(squelch: &Squelch, results: &[&str]) -> Result<u64> {
    let metrics = squelch.metrics().await?;
    let of = |result: &&str| metrics.sum("squelch_proofs_total", &[("result", result)]) as u64;
    Ok(results.iter().map(of).sum())
}

const MISSES: [&str; 4] = ["no_answer", "no_mark", "wrong_mark", "refused"];

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

/// How often it was told that the webhook was disarmed, and in which words last.
async fn disarmed(test: &Test) -> Result<(i64, String)> {
    let api: Api<Event> = Api::namespaced(test.client(), "default");
    let about = "involvedObject.kind=MutatingWebhookConfiguration,reason=Disarmed";
    let events = api.list(&ListParams::default().fields(about)).await?.items;
    let revision = |event: &&Event| -> Option<u64> { event.metadata.resource_version.as_ref()?.parse().ok() };
    let newest = events.iter().max_by_key(revision);
    let words = newest.and_then(|event| event.message.clone()).unwrap_or_default();
    Ok((events.iter().map(e2e::events::value).sum(), words))
}

async fn is_told(test: &Test, before: i64, words: &str) -> Result<()> {
    wait_for(&format!("an Event that tells of {words}"), GENEROUS, async || {
        let (count, last) = disarmed(test).await.map_err(told)?;
        if count > before && last.contains(words) {
            Ok(())
        } else {
            Err(format!("{count}, the last: {last}"))
        }
    })
    .await
}

/// Beside a storm: the way to squelch goes wrong, and well again.
async fn goes_wrong(label: &str, fault: Fault, miss: &str) -> Result<()> {
    let test = Test::begin(label).await?;
    let detour = Detour::start(&test.cluster).await?;
    let squelch = test.squelch_by(Way { by: Some(&detour), ..Way::default() }).await?;
    let policy = test.policy(&idle_after("10m")).await?;
    let storm = storm(&test)?;
    storm.has_called(50, STORM).await?;
    let missed = proofs(&squelch, &MISSES).await?;
    let before = disarmed(&test).await?.0;

    let began = Instant::now();
    detour.to_squelch.follow([Rule::new(|_| true, 100, [fault])]);
    is_armed(&squelch, false).await?;
    eprintln!("disarmed after {:?}", began.elapsed());
    let misses = proofs(&squelch, &MISSES).await? - missed;
    // The scrape itself takes its time.
    ensure!((2..=3).contains(&misses), "{misses} misses before it was disarmed");
    ensure!(
        proofs(&squelch, &[miss]).await? >= 2,
        "{}",
        squelch.metrics().await?.show("squelch_proofs_total")
    );
    let there = configuration(&test).await?;
    assert_eq!((rules(&there, "events.squelch.dev"), rules(&there, "probe.squelch.dev")), (0, 1));
    is_told(&test, before, "not proven").await?;
    policy.says("Effective", "Unknown", "WebhookNotArmed", "").await?;
    none_failed(&storm).await?;

    detour.end_all_faults();
    is_armed(&squelch, true).await?;
    let asked = detour.reviews(&test.namespace).asked;
    policy.effective().await?;
    none_failed(&storm).await?;
    ensure!(detour.reviews(&test.namespace).asked > asked, "armed, and asked about nothing");
    drop(storm);
    squelch.stop().await?;
    test.passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_api_server_cannot_reach_is_disarmed_until_it_can() -> Result<()> {
    goes_wrong("unreachable", Fault::CutBefore, "no_mark").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hangs_is_disarmed_until_it_answers() -> Result<()> {
    goes_wrong("hangs", Fault::Delay(Duration::from_secs(5)), "no_answer").await
}

/// Through the real way, HTTP/2 on loopback, on which each proof's connection is told to go.
#[tokio::test]
async fn proofs_go_on_whether_there_is_a_policy_or_not() -> Result<()> {
    let test = Test::begin("proofs").await?;
    let squelch = test.squelch().await?;
    let enough = async |least: u64| {
        wait_for(&format!("{least} proofs"), GENEROUS, async || {
            let proven = proofs(&squelch, &["proven"]).await.map_err(told)?;
            if proven >= least { Ok(()) } else { Err(proven.to_string()) }
        })
        .await
    };
    enough(5).await?;
    assert_eq!(rules(&configuration(&test).await?, "probe.squelch.dev"), 1);
    test.policy(&json!({})).await?;
    enough(proofs(&squelch, &["proven"]).await? + 3).await?;
    let metrics = squelch.metrics().await?;
    let given = metrics.sum("squelch_proofs_given_total", &[]);
    ensure!(given >= metrics.sum("squelch_proofs_total", &[("result", "proven")]), "{given} given");
    assert_eq!(metrics.sum("squelch_own_writes_reviewed_total", &[]), 0.0);
    // They are never stored.
    let stored: Api<Event> = Api::namespaced(test.client(), e2e::accounts::SQUELCH.namespace);
    let stored = stored.list(&ListParams::default().fields("reason=Probe")).await?.items;
    ensure!(stored.is_empty(), "{}", e2e::events::list(&stored));
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn a_restart_of_the_api_server_is_no_miss() -> Result<()> {
    let test = Test::begin("no-word").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&idle_after("10m")).await?;
    let before = disarmed(&test).await?.0;
    test.cluster.restart_apiserver(false, &[]).await?;
    let proven = proofs(&squelch, &["proven"]).await?;
    wait_for("proofs after the restart", GENEROUS, async || {
        let now = proofs(&squelch, &["proven"]).await.map_err(told)?;
        if now >= proven + 3 { Ok(()) } else { Err(format!("{now} after {proven}")) }
    })
    .await?;
    is_armed(&squelch, true).await?;
    policy.effective().await?;
    eprintln!("{}", squelch.metrics().await?.show("squelch_proofs_total"));
    let (after, words) = disarmed(&test).await?;
    assert_eq!(after, before, "disarmed by a restart: {words}");
    squelch.stop_after_trouble().await?;
    test.passed()
}

#[tokio::test]
async fn what_somebody_edits_is_put_back() -> Result<()> {
    let test = Test::begin("edited").await?;
    let squelch = test.squelch().await?;
    test.policy(&json!({})).await?;
    let kubectl = test.cluster.kubectl.person("jane");
    // Not the whole: namespaces of other tests may go meanwhile.
    let is_good = |there: &Value| {
        let events = entry(there, "events.squelch.dev");
        let rules = (rules(there, "events.squelch.dev"), rules(there, "probe.squelch.dev"));
        events["failurePolicy"] == "Ignore" && events["timeoutSeconds"] == 1 && rules == (1, 1)
    };
    for (patch, what) in [
        (json!([{ "op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail" }]), "failurePolicy"),
        (json!([{ "op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30 }]), "timeoutSeconds"),
        (json!([{ "op": "remove", "path": "/webhooks/0/rules" }]), "rules"),
        (json!([{ "op": "remove", "path": "/webhooks/1" }]), "the entry of the proof"),
    ] {
        let patch = patch.to_string();
        kubectl.run(&["patch", NAME, "--type=json", "--patch", &patch]).await?;
        wait_for(&format!("{what} to be put back"), GENEROUS, async || {
            let there = configuration(&test).await.map_err(told)?;
            if is_good(&there) { Ok(()) } else { Err(there["webhooks"].to_string()) }
        })
        .await?;
    }
    is_armed(&squelch, true).await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn the_annotation_disarms_as_long_as_it_is_there() -> Result<()> {
    let test = Test::begin("annotated").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&json!({})).await?;
    let before = disarmed(&test).await?.0;
    let kubectl = &test.cluster.kubectl;
    kubectl.run(&["annotate", NAME, "squelch.dev/disarm=INC-7 while we look"]).await?;
    is_armed(&squelch, false).await?;
    ensure!(breaks_glass(&squelch).await?);
    assert_eq!(rules(&configuration(&test).await?, "events.squelch.dev"), 0);
    is_told(&test, before, "INC-7 while we look").await?;
    policy.says("Effective", "Unknown", "WebhookNotArmed", "INC-7 while we look").await?;

    // It outlives squelch.
    squelch.stop().await?;
    let squelch = test.squelch().await?;
    wait_for("proofs", GENEROUS, async || {
        let proven = proofs(&squelch, &["proven"]).await.map_err(told)?;
        if proven >= 4 && breaks_glass(&squelch).await.map_err(told)? {
            Ok(())
        } else {
            Err(proven.to_string())
        }
    })
    .await?;
    assert_eq!(rules(&configuration(&test).await?, "events.squelch.dev"), 0);

    kubectl.run(&["annotate", NAME, "squelch.dev/disarm-"]).await?;
    is_armed(&squelch, true).await?;
    ensure!(!breaks_glass(&squelch).await?);
    policy.effective().await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn who_deletes_the_configuration_has_disarmed() -> Result<()> {
    let test = Test::begin("deleted").await?;
    let squelch = test.squelch().await?;
    let policy = test.policy(&json!({})).await?;
    let copy = configuration(&test).await?;
    let before = disarmed(&test).await?.0;
    test.cluster.kubectl.run(&["delete", NAME]).await?;
    is_armed(&squelch, false).await?;
    ensure!(breaks_glass(&squelch).await?);
    is_told(&test, before, "deleted").await?;
    policy.says("Effective", "Unknown", "WebhookNotArmed", "deleted the configuration").await?;
    // Another policy does not undo what a person did.
    let neighbour = test.neighbour().await?;
    let other = Policy::named(test.client(), &neighbour.namespace, "policy");
    other.put(&neighbour.kubectl(), &json!({})).await?;
    other.says("Effective", "Unknown", "WebhookNotArmed", "").await?;
    ensure!(configuration(&test).await.is_err(), "it is there again");

    // The person does.
    let mut again = copy;
    again["metadata"] = json!({ "name": "squelch" });
    test.cluster.kubectl.run_with(&["create", "-f", "-"], again.to_string()).await?;
    is_armed(&squelch, true).await?;
    ensure!(!breaks_glass(&squelch).await?);
    policy.effective().await?;
    other.effective().await?;
    squelch.stop().await?;
    test.passed()
}

#[tokio::test]
async fn the_flag_disarms_as_long_as_it_is_given_and_is_told_as_the_reason() -> Result<()> {
    let test = Test::begin("unenforced").await?;
    let before = disarmed(&test).await?.0;
    let squelch = test.squelch_with(&["--enforce=false"]).await?;
    let policy = Policy::named(test.client(), &test.namespace, "policy");
    policy.put(&test.kubectl(), &json!({})).await?;
    policy.says("Effective", "Unknown", "WebhookNotArmed", "--enforce=false").await?;
    is_told(&test, before, "--enforce=false").await?;
    wait_for("proofs", GENEROUS, async || {
        let proven = proofs(&squelch, &["proven"]).await.map_err(told)?;
        if proven >= 4 { Ok(()) } else { Err(proven.to_string()) }
    })
    .await?;
    ensure!(breaks_glass(&squelch).await?);
    assert_eq!(rules(&configuration(&test).await?, "events.squelch.dev"), 0);
    squelch.stop().await?;

    let squelch = test.squelch().await?;
    is_armed(&squelch, true).await?;
    ensure!(!breaks_glass(&squelch).await?);
    policy.effective().await?;
    squelch.stop().await?;
    test.passed()
}

/// The API server collects what belongs to an owner that is gone; whoever installs squelch anew has a role of the
/// same name with another uid.
#[tokio::test]
async fn it_ends_with_the_role_that_it_belongs_to_and_begins_with_the_next() -> Result<()> {
    let test = Test::begin("owner").await?;
    let (kubectl, owner) = (test.cluster.kubectl.clone(), format!("owner-{}", test.namespace));
    let looks = format!("looks-at-{owner}");
    let account =
        format!("--serviceaccount={0}:{1}", e2e::accounts::SQUELCH.namespace, e2e::accounts::SQUELCH.name);
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": owner }, "rules": [] });
    kubectl.apply(&role).await?;
    let name = format!("--resource-name={owner}");
    kubectl.run(&["create", "clusterrole", &looks, "--verb=get", "--resource=clusterroles", &name]).await?;
    let of = format!("--clusterrole={looks}");
    kubectl.run(&["create", "clusterrolebinding", &looks, &of, &account]).await?;
    let uid = async || -> Result<String> {
        kubectl.run(&["get", "clusterrole", &owner, "--output=jsonpath={.metadata.uid}"]).await
    };
    let belongs_to = async |uid: &str| {
        wait_for("the configuration to belong to the role", GENEROUS, async || {
            let there = configuration(&test).await.map_err(told)?;
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
    is_armed(&squelch, true).await?;
    ensure!(!breaks_glass(&squelch).await?);

    kubectl.run(&["delete", "clusterrole", &owner]).await?;
    wait_for("the configuration to be collected", GENEROUS, async || match configuration(&test).await {
        Ok(there) => Err(there["metadata"].to_string()),
        Err(_) => Ok(()),
    })
    .await?;
    is_armed(&squelch, false).await?;
    squelch.stop().await?;
    ensure!(configuration(&test).await.is_err(), "it outlives what it belongs to");
    kubectl.run(&["delete", "clusterrole,clusterrolebinding", &looks]).await?;
    test.passed()
}
