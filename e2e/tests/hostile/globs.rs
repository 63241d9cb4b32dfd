//! The most expensive policies: globs that the API server accepts and that are slow to match.

use anyhow::Result;
use e2e::wait::not_yet;
use e2e::{GENEROUS, wait_for};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Api;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use squelch::api::EventPolicy;

use crate::floods::{HANDS, MINUTE, flooded};
use crate::script::pods;
use crate::tenancy::{Ending, Tenancy};
use crate::tenant::event;

const POLICIES: usize = 1_000;
/// Number of policies in force: the total weight of their `match` clauses is limited to this many.
const IN_FORCE: f64 = 1.0;
/// Length of the text, at least what a glob reads.
const LONG: usize = 1_024;

/// A glob with the maximum number of wildcards, which almost matches a text of this letter in as many ways as
/// possible.
fn almost() -> String {
    format!("{}y", "*x".repeat(squelch::api::MAX_WILDCARDS))
}

/// A `match` with the maximum weight of such globs. The last text of each list matches, so that the next list is
/// compared too. The policy matches no Event.
fn worst() -> Value {
    let list = |entries: usize, last: &str| {
        let mut list = vec![json!(almost()); entries];
        list.push(json!(last));
        list
    };
    json!({ "priority": 100, "match": [{
        "reasons": list(31, "*"), "reportingComponents": list(31, "*"),
        "users": list(10, "*"), "regarding": vec![json!({ "name": almost() }); 16],
    }]})
}

/// A thousand such policies in the hostile namespace, with a flood of Events that must be compared with all of them.
/// The neighbour is slowed no more than by the same flood to a webhook that allows everything.
pub(crate) async fn worst_policies() -> Result<String> {
    let mut tenancy = Tenancy::begin("globs").await?;
    let resource = ApiResource::erase::<EventPolicy>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(tenancy.test.client(), &tenancy.test.namespace, &resource);
    let make = |number: usize| {
        let policy =
            DynamicObject::new(&format!("worst-{number:04}"), &resource).data(json!({ "spec": worst() }));
        let api = api.clone();
        async move { api.create(&PostParams::default(), &policy).await }
    };
    let made = stream::iter((0..POLICIES).map(make)).buffer_unordered(8);
    made.try_for_each(|_| async { Ok(()) }).await?;
    tenancy.has_many_policies();
    wait_for("the maximum number of policies to be accepted", GENEROUS, async || {
        let metrics = tenancy.squelch.metrics().await.map_err(not_yet)?;
        let of = |state| metrics.sum("squelch_policies", &[("state", state)]);
        let accepted = of("effective") + of("not_effective");
        if accepted >= IN_FORCE { Ok(()) } else { Err(format!("{accepted} are")) }
    })
    .await?;
    let long = "x".repeat(LONG);
    let said = flooded(tenancy, Ending::AddsUp, HANDS, MINUTE, u64::MAX, |namespace, number| {
        let mut event =
            event(namespace, &format!("m.{number}"), &pods((number % 4) as usize)[1], &long, &long);
        event["source"]["component"] = long.as_str().into();
        event["reportingComponent"] = long.as_str().into();
        event
    })
    .await?;
    Ok(format!("{POLICIES} policies of the worst globs; {said}"))
}
