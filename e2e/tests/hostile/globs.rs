//! The worst that the author of policies can write: globs that the API server accepts and that take long to match.

use anyhow::Result;
use e2e::wait::told;
use e2e::{GENEROUS, wait_for};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Api;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use squelch::api::EventPolicy;

use crate::floods::{HANDS, MINUTE, flooded};
use crate::script::pods;
use crate::tenancy::Tenancy;
use crate::tenant::event;

const POLICIES: usize = 1_000;
/// Of one namespace that many are in force at most.
const IN_FORCE: f64 = 64.0;
/// As many bytes as a glob looks at, and more.
const LONG: usize = 1_024;

/// A glob that almost matches a text of this letter in as many ways as it can.
fn almost(wildcards: usize) -> String {
    format!("{}y", "*x".repeat(wildcards))
}

/// Every list as long as it may be, of the worst globs; the last of each matches, so that the next list is read too.
/// The policy matches no Event.
fn worst(wildcards: usize) -> Value {
    let slow = almost(wildcards);
    let list = |entries: usize, last: &str| {
        let mut list = vec![json!(slow); entries];
        list.push(json!(last));
        list
    };
    json!({ "priority": 100, "match": {
        "types": list(15, "*"), "reasons": list(31, "*"), "reportingComponents": list(31, "*"),
        "users": list(31, "*"), "regarding": vec![json!({ "name": slow }); 16],
    }})
}

/// As many wildcards in each glob as the API server accepts here: it refuses them by length, by number or by cost.
async fn most_wildcards(api: &Api<DynamicObject>, resource: &ApiResource) -> Result<usize> {
    for wildcards in [125, 63, 31, 15, 8] {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let policy = DynamicObject::new("worst", resource).data(json!({ "spec": worst(wildcards) }));
        match api.create(&dry, &policy).await {
            Ok(_) => return Ok(wildcards),
            Err(kube::Error::Api(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("the API server accepts none of these policies")
}

/// A thousand such policies in the hostile namespace, which a flood of Events goes to that all of them have to be asked
/// about. The neighbour is slowed no more than by the same flood to a webhook that only allows.
pub(crate) async fn worst_policies() -> Result<String> {
    let tenancy = Tenancy::begin("globs").await?;
    let resource = ApiResource::erase::<EventPolicy>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(tenancy.test.client(), &tenancy.test.namespace, &resource);
    let wildcards = most_wildcards(&api, &resource).await?;
    let make = |number: usize| {
        let policy = DynamicObject::new(&format!("worst-{number:04}"), &resource)
            .data(json!({ "spec": worst(wildcards) }));
        let api = api.clone();
        async move { api.create(&PostParams::default(), &policy).await }
    };
    let made = stream::iter((0..POLICIES).map(make)).buffer_unordered(8);
    made.try_for_each(|_| async { Ok(()) }).await?;
    wait_for("as many of them to be accepted as squelch enforces", GENEROUS, async || {
        let metrics = tenancy.squelch.metrics().await.map_err(told)?;
        let accepted = metrics.sum("squelch_policies", &[("condition", "Accepted")]);
        if accepted >= IN_FORCE { Ok(()) } else { Err(format!("{accepted} are")) }
    })
    .await?;
    let long = "x".repeat(LONG);
    let said = flooded(tenancy, HANDS, MINUTE, u64::MAX, |namespace, number| {
        let mut event =
            event(namespace, &format!("m.{number}"), &pods((number % 4) as usize)[1], &long, &long);
        event["source"]["component"] = long.as_str().into();
        event["reportingComponent"] = long.as_str().into();
        event
    })
    .await?;
    Ok(format!("{POLICIES} policies, {wildcards} wildcards in each of their globs; {said}"))
}
