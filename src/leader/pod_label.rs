//! The pod label by which the webhook's Service selects the active replica, and the pod's address.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::election::LeaseState;
use super::lease::Lease;
use crate::FIELD_MANAGER;

/// The label that the webhook's Service selects, and its value.
const LABEL: &str = "squelch.dev/role";
const ACTIVE: &str = "active";

/// The labels that identify the pods of one release.
const RELEASE_LABELS: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/instance"];

/// Timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The time after which a failed call is retried.
const RETRY: Duration = Duration::from_millis(250);
/// How often the active replica checks the labels.
const INTERVAL: Duration = Duration::from_secs(10);

/// The label `squelch.dev/role` on this replica's pod.
pub struct PodLabel {
    pods: Api<Pod>,
    pod: String,
    /// The last error that was logged.
    failure: Option<String>,
}

impl PodLabel {
    /// The label of `pod` in `namespace`.
    pub fn new(client: Client, namespace: &str, pod: String) -> Self {
        Self { pods: Api::namespaced(client, namespace), pod, failure: None }
    }

    /// Waits until the pod's status has an address: kubelet reports it up to seconds after squelch starts, and the
    /// Service cannot route to the pod before. Returns at once if the pod cannot be read.
    pub(super) fn wait_for_address(&self) -> impl Future<Output = ()> + use<> {
        let (pods, pod) = (self.pods.clone(), self.pod.clone());
        async move {
            while let Ok(own) = with_timeout(pods.get(&pod)).await {
                if own.status.and_then(|status| status.pod_ip).is_some_and(|address| !address.is_empty()) {
                    return;
                }
                sleep(RETRY).await;
            }
        }
    }

    /// Keeps the labels correct until `stop`.
    pub(super) async fn run(
        mut self,
        lease: Lease,
        mut active: watch::Receiver<bool>,
        stop: CancellationToken,
    ) {
        let reconciling = async {
            self.remove_stale(&lease).await;
            loop {
                if active.wait_for(|active| *active).await.is_err() {
                    return;
                }
                let moved = self.move_here().await;
                let pause = if self.log(moved) { INTERVAL } else { RETRY };
                sleep(pause).await;
            }
        };
        stop.run_until_cancelled(reconciling).await;
    }

    /// Removes the label that an earlier process has left on the pod, unless a process of this pod holds the Lease.
    async fn remove_stale(&mut self, lease: &Lease) {
        loop {
            let removed = match lease.read().await {
                Ok(LeaseState::Present(found))
                    if found.holder == lease.identity().name()
                        || lease.identity().is_restart_of(&found.holder) =>
                {
                    return;
                }
                Ok(_) => self.set(&self.pod, false).await.map(drop),
                Err(error) => Err(error.into()),
            };
            if self.log(removed) {
                return;
            }
            sleep(RETRY).await;
        }
    }

    /// Labels the own pod first and then removes the label from others. If no pod had the label, the API server could
    /// not connect.
    async fn move_here(&self) -> Result<(), String> {
        let own = self.set(&self.pod, true).await?;
        let selector = release_selector(&own);
        let labelled = ListParams::default().labels(&format!("{selector}{LABEL}={ACTIVE}"));
        for pod in with_timeout(self.pods.list_metadata(&labelled)).await?.items {
            let name = pod.name_any();
            if name != self.pod {
                self.set(&name, false).await?;
                info!(pod = name, "removed the active label from another pod");
            }
        }
        Ok(())
    }

    async fn set(&self, pod: &str, active: bool) -> Result<PartialObjectMeta<Pod>, String> {
        let value = if active { json!(ACTIVE) } else { Value::Null };
        let manager = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let label = Patch::Merge(json!({ "metadata": { "labels": { LABEL: value } } }));
        with_timeout(self.pods.patch_metadata(pod, &manager, &label)).await
    }

    /// Logs a result that differs from the last one. Returns whether it is a success.
    fn log(&mut self, result: Result<(), String>) -> bool {
        match result {
            Ok(()) => {
                if self.failure.take().is_some() {
                    info!(label = LABEL, "pod labels are correct again");
                }
                true
            }
            Err(error) => {
                if self.failure.as_ref() != Some(&error) {
                    warn!(error, label = LABEL, "cannot update the pod label, retrying");
                    self.failure = Some(error);
                }
                false
            }
        }
    }
}

/// Returns the beginning of a label selector for the pods of the same release.
pub(super) fn release_selector(own: &impl ResourceExt) -> String {
    let labels = own.labels();
    let of_release =
        RELEASE_LABELS.iter().filter_map(|key| labels.get(*key).map(|value| format!("{key}={value},")));
    of_release.collect()
}

/// Makes a call with [`TIMEOUT`].
pub(super) async fn with_timeout<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match timeout(TIMEOUT, call).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}

#[cfg(test)]
mod tests;
