//! A policy of a test.

use anyhow::Result;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kubectl::Kubectl;
use crate::wait::{GENEROUS, told, wait_for};

/// A policy in the API server.
pub struct Policy {
    api: Api<DynamicObject>,
    /// The namespace of the test; an `EventPolicy` is in it.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it is called in the labels of metrics.
    pub label: String,
    kind: &'static str,
}

/// `status.counters`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counters {
    /// The sum of admitted to `failed_open`.
    pub received: i64,
    /// Stored as the client wrote it.
    pub admitted: i64,
    /// Folded into the stored Event of the series.
    pub compacted: i64,
    /// Folded into a summary.
    pub aggregated: i64,
    /// Dropped by the spam filter.
    pub filtered: i64,
    /// Dropped by the budget.
    pub throttled: i64,
    /// Let through undecided.
    pub failed_open: i64,
    /// Told again by a client's absolute count.
    pub recovered: i64,
}

/// A policy that folds repeats, and closes a series after this long.
pub fn idle_after(idle_timeout: &str) -> Value {
    json!({ "series": { "idleTimeout": idle_timeout } })
}

impl Counters {
    /// received = admitted + compacted + ...
    pub fn are_conserved(&self) -> bool {
        let parts = [self.admitted, self.compacted, self.aggregated, self.filtered, self.throttled];
        self.received == parts.iter().sum::<i64>() + self.failed_open
    }
}

impl Policy {
    /// The policy of this name, applied by whomever.
    pub fn named(client: Client, namespace: &str, name: &str) -> Self {
        let kind = GroupVersionKind::gvk("squelch.dev", "v1alpha1", "EventPolicy");
        let resource = ApiResource::from_gvk_with_plural(&kind, "eventpolicies");
        let api = Api::namespaced_with(client, namespace, &resource);
        let label = format!("{namespace}/{name}");
        Self { api, namespace: namespace.to_owned(), name: name.to_owned(), label, kind: "EventPolicy" }
    }

    /// The `ClusterEventPolicy` that has the name of a test's namespace, so that no two tests share one.
    pub fn cluster(client: Client, namespace: &str) -> Self {
        let kind = GroupVersionKind::gvk("squelch.dev", "v1alpha1", "ClusterEventPolicy");
        let resource = ApiResource::from_gvk_with_plural(&kind, "clustereventpolicies");
        let api = Api::all_with(client, &resource);
        let name = namespace.to_owned();
        Self { api, namespace: name.clone(), name: name.clone(), label: name, kind: "ClusterEventPolicy" }
    }

    /// Applies a policy with this `spec`, and waits until it is in force.
    ///
    /// # Errors
    /// What kubectl says, or what the policy's status says instead.
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
    /// What kubectl says, or what the policy's status says instead.
    pub async fn change(&self, kubectl: &Kubectl, spec: &Value) -> Result<()> {
        self.put(kubectl, spec).await?;
        self.effective().await
    }

    /// Applies another `spec`, whatever becomes of it.
    ///
    /// # Errors
    /// What kubectl says.
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

    /// Waits until it is in force as it stands now.
    ///
    /// # Errors
    /// What its status says instead.
    pub async fn effective(&self) -> Result<()> {
        self.effective_within(GENEROUS).await
    }

    /// Waits until it is in force as it stands now, until `deadline`.
    ///
    /// # Errors
    /// What its status says instead.
    pub async fn effective_within(&self, deadline: std::time::Duration) -> Result<()> {
        wait_for("a policy to be effective", deadline, async || {
            let policy = self.api.get(&self.name).await.map_err(told)?;
            let status = &policy.data["status"];
            let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let effective = conditions.iter().any(|c| c["type"] == "Effective" && c["status"] == "True");
            let current = status["observedGeneration"].as_i64() == policy.metadata.generation;
            if effective && current { Ok(()) } else { Err(status.to_string()) }
        })
        .await
    }

    /// Waits until it has this condition with this status, this reason, and `words` in its message.
    ///
    /// # Errors
    /// What its status says instead.
    pub async fn says(&self, condition: &str, status: &str, reason: &str, words: &str) -> Result<()> {
        wait_for(&format!("{condition}={status}, {reason}"), GENEROUS, async || {
            let policy = self.api.get(&self.name).await.map_err(told)?;
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

    /// What its status tells now.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn counters(&self) -> Result<Counters> {
        let policy = self.api.get(&self.name).await?;
        let counters = &policy.data["status"]["counters"];
        Ok(if counters.is_null() { Counters::default() } else { Counters::deserialize(counters)? })
    }

    /// `status.topDropped` now.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn top_dropped(&self) -> Result<Vec<Value>> {
        let policy = self.api.get(&self.name).await?;
        Ok(policy.data["status"]["topDropped"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until its status tells that so many occurrences were received, and takes the counters.
    ///
    /// # Errors
    /// What it tells instead; or that the counters do not add up.
    pub async fn received(&self, occurrences: i64) -> Result<Counters> {
        let what = format!("status.counters.received = {occurrences}");
        let counters = wait_for(&what, GENEROUS, async || {
            let counters = self.counters().await.map_err(told)?;
            if counters.received == occurrences { Ok(counters) } else { Err(format!("{counters:?}")) }
        })
        .await?;
        anyhow::ensure!(counters.are_conserved(), "the counters do not add up: {counters:?}");
        Ok(counters)
    }
}
