//! Two thousand policies: status writes stay within `--status-qps`, and a scrape stays small.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::wait::not_yet;
use e2e::{Emission, GENEROUS, Squelch, Test, wait_for};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use squelch::api::EventPolicy;

const POLICIES: usize = 2_000;
/// Policies per namespace: at most 64 are in force there.
const OF_NAMESPACE: usize = 50;
/// Number of reasons of the emitters, each governed by its own policy.
const REASONS: usize = 10;
/// The default of `--status-qps`.
const QPS: f64 = 5.0;

/// Status writes that the API server has answered.
async fn status_writes(test: &Test) -> Result<f64> {
    let metrics = test.cluster.metrics().await?;
    let labels = [("resource", "eventpolicies"), ("subresource", "status"), ("verb", "APPLY")];
    Ok(metrics.sum("apiserver_request_total", &labels))
}

/// Creates `number` policies with these specs: in the test's own namespace first, then in others of this test.
pub(crate) async fn make_policies(
    test: &Test,
    number: usize,
    spec: impl Fn(usize) -> Value,
) -> Result<Vec<Api<DynamicObject>>> {
    let resource = ApiResource::erase::<EventPolicy>(&());
    let namespaces: Api<Namespace> = Api::all(test.client());
    let mut policies = Vec::new();
    for at in 0..number.div_ceil(OF_NAMESPACE) {
        let name = match at {
            0 => test.namespace.clone(),
            more => format!("{}-{more}", test.namespace),
        };
        if at > 0 {
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(name.clone());
            namespaces.create(&PostParams::default(), &namespace).await?;
        }
        policies.push(Api::namespaced_with(test.client(), &name, &resource));
    }
    let make = |at: usize| {
        let api: Api<DynamicObject> = policies[at / OF_NAMESPACE].clone();
        let policy = DynamicObject::new(&format!("p{at:04}"), &resource).data(json!({ "spec": spec(at) }));
        async move { api.create(&PostParams::default(), &policy).await }
    };
    let made = futures::stream::iter((0..number).map(make)).buffer_unordered(16);
    made.try_for_each(|_| async { Ok(()) }).await?;
    Ok(policies)
}

/// Deletes the policies and their namespaces: otherwise squelch would write all final statuses.
pub(crate) async fn delete(test: &Test, squelch: &Squelch, policies: &[Api<DynamicObject>]) -> Result<()> {
    for of_namespace in policies {
        of_namespace.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    }
    wait_for("every policy to be deleted", GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(not_yet)?;
        match metrics.sum("squelch_policies", &[]) {
            0.0 => Ok(()),
            left => Err(format!("{left} are left")),
        }
    })
    .await?;
    for number in 1..policies.len() {
        let name = format!("{}-{number}", test.namespace);
        test.kubectl().say(&["delete", "namespace", &name, "--wait=false"]);
    }
    Ok(())
}

#[tokio::test]
async fn two_thousand_policies_take_at_most_five_status_writes_per_second() -> Result<()> {
    let test = Test::begin("many").await?;
    let match_reason = |number: usize| json!({ "match": [{ "reasons": [format!("Reason{number}")] }] });
    let policies = make_policies(&test, POLICIES, match_reason).await?;
    let (before, began) = (status_writes(&test).await?, Instant::now());
    let squelch = test.squelch().await?;
    wait_for("every policy to be compiled, and the webhook to be called", GENEROUS, async || {
        let metrics = squelch.metrics().await.map_err(not_yet)?;
        let of = |state| metrics.sum("squelch_policies", &[("kind", "EventPolicy"), ("state", state)]);
        let understood = of("effective") + of("not_effective");
        let armed = metrics.is_armed();
        if understood >= POLICIES as f64 && armed { Ok(()) } else { Err(format!("{understood}, {armed}")) }
    })
    .await?;

    // Every status has a change, those of the busy policies continuously.
    let mut storms = Vec::new();
    for number in 0..REASONS {
        let reason = format!("Reason{number}");
        let storm = Emission::creates_core().about(&reason.to_lowercase(), 1).reason(&reason);
        storms.push(test.emit(&storm.count(100).rate(10))?);
    }
    let mut sent = 0;
    for storm in storms {
        sent += storm.finish(Duration::from_secs(120)).await?.sent();
    }
    let metrics = squelch.metrics().await?;
    let received = metrics.sum("squelch_occurrences_total", &[("event_namespace", &test.namespace)]);
    let of_others = metrics.sum("squelch_occurrences_total", &[("event_namespace", "_other")]);
    assert_eq!((received + of_others) as i64, sent);
    let samples = squelch.get("/metrics").await?.lines().filter(|line| !line.starts_with('#')).count();
    ensure!(samples < 5_500, "{samples} samples in a scrape");

    let (written, seconds) = (status_writes(&test).await? - before, began.elapsed().as_secs_f64());
    ensure!(written >= 10.0, "{written} status writes in {seconds} s");
    ensure!(written <= QPS * seconds + 1.0, "{written} status writes in {seconds} s");
    eprintln!("{written} status writes in {seconds:.0} s for {POLICIES} policies");
    delete(&test, &squelch, &policies).await?;
    squelch.stop().await?;
    test.passed()
}
