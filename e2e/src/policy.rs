//! A policy of a test.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use anyhow::{Context, Result};
use kube::api::{DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::checkout;
use crate::kubectl::Kubectl;
use crate::wait::{GENEROUS, not_yet, wait_for};

/// A policy in the API server.
pub struct Policy {
    api: Api<DynamicObject>,
    /// The namespace of the test, and of an `EventPolicy`.
    pub namespace: String,
    /// Its name.
    pub name: String,
    kind: &'static str,
}

/// The policy in a file of the checkout, such as `examples/policies/rollout.yaml`.
///
/// # Errors
/// If the file does not exist or is invalid.
pub fn in_file(file: &str) -> Result<Value> {
    let text = std::fs::read_to_string(checkout(file)).with_context(|| file.to_owned())?;
    serde_saphyr::from_str(&text).with_context(|| file.to_owned())
}

/// `status.counters`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counters {
    /// The sum of admitted to `failed_open`.
    pub received: i64,
    /// Stored as the client wrote it.
    pub admitted: i64,
    /// Merged into the stored Event of the series.
    pub compacted: i64,
    /// Merged into a summary.
    pub aggregated: i64,
    /// Dropped by the spam filter.
    pub filtered: i64,
    /// Dropped by the budget.
    pub throttled: i64,
    /// Dropped because they match `mute`.
    pub muted: i64,
    /// Admitted without a decision.
    pub failed_open: i64,
    /// Reported again by a client's absolute count.
    pub recovered: i64,
    /// Warnings among the dropped ones.
    pub dropped_warnings: i64,
}

/// A policy that compacts repeats, and closes a series after this time.
pub fn idle_after(idle_timeout: &str) -> Value {
    json!({ "series": { "idleTimeout": idle_timeout } })
}

/// A policy that compacts repeats, neither aggregates nor filters, and closes a series after 3 s; with `more` fields.
pub fn series_alone(more: &Value) -> Value {
    let mut spec = idle_after("3s");
    for stage in ["aggregation", "spamFilter"] {
        spec[stage] = json!({ "mode": "Disabled" });
    }
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    spec
}

impl AddAssign for Counters {
    fn add_assign(&mut self, more: Self) {
        let Self { received, admitted, compacted, aggregated, filtered, throttled, muted, .. } = more;
        self.received += received;
        self.admitted += admitted;
        self.compacted += compacted;
        self.aggregated += aggregated;
        self.filtered += filtered;
        self.throttled += throttled;
        self.muted += muted;
        self.failed_open += more.failed_open;
        self.recovered += more.recovered;
        self.dropped_warnings += more.dropped_warnings;
    }
}

impl Counters {
    /// Those in the status of a policy; 0 without a status.
    ///
    /// # Errors
    /// If they are no counters.
    pub fn in_status(policy: &DynamicObject) -> Result<Self> {
        let counters = &policy.data["status"]["counters"];
        Ok(if counters.is_null() { Self::default() } else { Self::deserialize(counters)? })
    }

    /// Whether received = admitted + compacted + ...
    pub fn are_conserved(&self) -> bool {
        self.received == self.by_disposition().iter().map(|(_, occurrences)| occurrences).sum::<i64>()
    }

    /// The dispositions as in the metrics, with their occurrences.
    pub fn by_disposition(&self) -> [(&'static str, i64); 7] {
        [
            ("admitted", self.admitted),
            ("compacted", self.compacted),
            ("aggregated", self.aggregated),
            ("filtered", self.filtered),
            ("throttled", self.throttled),
            ("muted", self.muted),
            ("failed_open", self.failed_open),
        ]
    }

    /// The dispositions with occurrences, of those that `include` returns true for.
    pub fn included(&self, include: impl Fn(&str) -> bool) -> BTreeMap<String, i64> {
        self.by_disposition()
            .into_iter()
            .filter(|(disposition, occurrences)| *occurrences > 0 && include(disposition))
            .map(|(disposition, occurrences)| (disposition.to_owned(), occurrences))
            .collect()
    }

    /// Dropped in any way: no stored Event counts them.
    pub fn dropped(&self) -> i64 {
        self.filtered + self.throttled + self.muted
    }
}

impl Policy {
    /// The labels of its metrics in a namespace.
    pub fn labels<'a>(&'a self, namespace: &'a str) -> [(&'a str, &'a str); 3] {
        [("event_namespace", namespace), ("policy_kind", self.kind), ("policy", &self.name)]
    }

    /// The policy of this name, applied elsewhere.
    pub fn named(client: Client, namespace: &str, name: &str) -> Self {
        let kind = GroupVersionKind::gvk("squelch.dev", "v1alpha1", "EventPolicy");
        let resource = ApiResource::from_gvk_with_plural(&kind, "eventpolicies");
        let api = Api::namespaced_with(client, namespace, &resource);
        Self { api, namespace: namespace.to_owned(), name: name.to_owned(), kind: "EventPolicy" }
    }

    /// The `ClusterEventPolicy` named after a test's namespace, so that tests do not share one.
    pub fn cluster(client: Client, namespace: &str) -> Self {
        let kind = GroupVersionKind::gvk("squelch.dev", "v1alpha1", "ClusterEventPolicy");
        let resource = ApiResource::from_gvk_with_plural(&kind, "clustereventpolicies");
        let api = Api::all_with(client, &resource);
        let name = namespace.to_owned();
        Self { api, namespace: name.clone(), name: name.clone(), kind: "ClusterEventPolicy" }
    }

    /// Applies a policy with this `spec`, and waits until it is in force.
    ///
    /// # Errors
    /// If kubectl fails, or if the deadline passes, with the last status.
    pub async fn apply(
        client: Client,
        kubectl: &Kubectl,
        namespace: &str,
        name: &str,
        spec: &Value,
    ) -> Result<Self> {
        let policy = Self::named(client, namespace, name);
        policy.change(kubectl, spec).await?;
        Ok(policy)
    }

    /// Applies another `spec`, and waits until it is in force.
    ///
    /// # Errors
    /// If kubectl fails, or if the deadline passes, with the last status.
    pub async fn change(&self, kubectl: &Kubectl, spec: &Value) -> Result<()> {
        self.put(kubectl, spec).await?;
        self.effective().await
    }

    /// Applies another `spec` without waiting.
    ///
    /// # Errors
    /// If kubectl fails, with its standard error.
    pub async fn put(&self, kubectl: &Kubectl, spec: &Value) -> Result<()> {
        let mut object = json!({
            "apiVersion": "squelch.dev/v1alpha1", "kind": self.kind, "metadata": { "name": self.name },
            "spec": spec,
        });
        if self.kind == "EventPolicy" {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
        kubectl.apply(&object).await.map(drop)
    }

    /// Deletes it.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn delete(&self) -> Result<()> {
        self.api.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until its current generation is in force.
    ///
    /// # Errors
    /// If the deadline passes, with the last status.
    pub async fn effective(&self) -> Result<()> {
        self.effective_within(GENEROUS).await
    }

    /// Waits until its current generation is in force, at most until `deadline`.
    ///
    /// # Errors
    /// If the deadline passes, with the last status.
    pub async fn effective_within(&self, deadline: std::time::Duration) -> Result<()> {
        wait_for("a policy to be effective", deadline, async || {
            let policy = self.api.get(&self.name).await.map_err(not_yet)?;
            let status = &policy.data["status"];
            let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let effective = conditions.iter().any(|c| c["type"] == "Effective" && c["status"] == "True");
            let current = status["observedGeneration"].as_i64() == policy.metadata.generation;
            if effective && current { Ok(()) } else { Err(status.to_string()) }
        })
        .await
    }

    /// Waits until it has this condition with this status and reason, and `words` in its message.
    ///
    /// # Errors
    /// If the deadline passes, with the last status.
    pub async fn says(&self, condition: &str, status: &str, reason: &str, words: &str) -> Result<()> {
        wait_for(&format!("{condition}={status}, {reason}"), GENEROUS, async || {
            let policy = self.api.get(&self.name).await.map_err(not_yet)?;
            let conditions = &policy.data["status"]["conditions"];
            let says = |said: &Value| {
                let message = said["message"].as_str().unwrap_or_default();
                said["type"] == condition
                    && said["status"] == status
                    && said["reason"] == reason
                    && message.contains(words)
            };
            let said = conditions.as_array().is_some_and(|conditions| conditions.iter().any(says));
            if said { Ok(()) } else { Err(conditions.to_string()) }
        })
        .await
    }

    /// The current counters of its status.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn counters(&self) -> Result<Counters> {
        let policy = self.api.get(&self.name).await?;
        Counters::in_status(&policy)
    }

    /// `status.topDropped` now.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn top_dropped(&self) -> Result<Vec<Value>> {
        let policy = self.api.get(&self.name).await?;
        Ok(policy.data["status"]["topDropped"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until its status has this many received occurrences, and returns the counters.
    ///
    /// # Errors
    /// If the deadline passes, or if the counters do not add up.
    pub async fn received(&self, occurrences: i64) -> Result<Counters> {
        let what = format!("status.counters.received = {occurrences}");
        let counters = wait_for(&what, GENEROUS, async || {
            let counters = self.counters().await.map_err(not_yet)?;
            if counters.received == occurrences { Ok(counters) } else { Err(format!("{counters:?}")) }
        })
        .await?;
        anyhow::ensure!(counters.are_conserved(), "the counters do not add up: {counters:?}");
        Ok(counters)
    }
}
