//! The pod label by which the webhook's Service finds the active replica, and the address that it leads to.

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

use super::election::Found;
use super::lease::Lease;
use crate::FIELD_MANAGER;

/// The label that the webhook's Service selects, and its value.
const LABEL: &str = "squelch.dev/role";
const ACTIVE: &str = "active";

/// The labels by which the pods of one release are told from others.
const OF_RELEASE: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/instance"];

/// A call without an answer after this long is made again.
const DEADLINE: Duration = Duration::from_secs(2);
/// After so long.
const PAUSE: Duration = Duration::from_millis(250);
/// How often it is seen to that nobody has changed the labels.
const EVERY: Duration = Duration::from_secs(10);

/// The label of this replica's pod.
pub struct Role {
    pods: Api<Pod>,
    pod: String,
    /// What was complained of last.
    failure: Option<String>,
}

impl Role {
    /// Of `pod` in `namespace`.
    pub fn new(client: Client, namespace: &str, pod: String) -> Self {
        Self { pods: Api::namespaced(client, namespace), pod, failure: None }
    }

    /// Waits until the cluster knows an address of the pod: its kubelet tells of it up to seconds after squelch runs, and
    /// no Service leads to it before. Where the pod cannot be read, that is not waited for.
    pub(super) fn addressed(&self) -> impl Future<Output = ()> + use<> {
        let (pods, pod) = (self.pods.clone(), self.pod.clone());
        async move {
            while let Ok(own) = called(pods.get(&pod)).await {
                if own.status.and_then(|status| status.pod_ip).is_some_and(|address| !address.is_empty()) {
                    return;
                }
                sleep(PAUSE).await;
            }
        }
    }

    /// Keeps the labels as they should be until `stop`.
    pub(super) async fn keep(
        mut self,
        lease: Lease,
        mut active: watch::Receiver<bool>,
        stop: CancellationToken,
    ) {
        let keeping = async {
            self.begin(&lease).await;
            loop {
                if active.wait_for(|active| *active).await.is_err() {
                    return;
                }
                let assumed = self.assume().await;
                let pause = if self.note(assumed) { EVERY } else { PAUSE };
                sleep(pause).await;
            }
        };
        stop.run_until_cancelled(keeping).await;
    }

    /// A label that the pod had of a former process is taken off, unless the Lease is this pod's all the same.
    async fn begin(&mut self, lease: &Lease) {
        loop {
            let laid_down = match lease.read().await {
                Ok(Found::Lease(found))
                    if found.holder == lease.me().name() || lease.me().succeeds(&found.holder) =>
                {
                    return;
                }
                Ok(_) => self.label(&self.pod, false).await.map(drop),
                Err(error) => Err(error),
            };
            if self.note(laid_down) {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    /// First the own pod, then the others: there is never a moment without one, or new connections would be refused.
    async fn assume(&self) -> Result<(), String> {
        let own = self.label(&self.pod, true).await?;
        let siblings = siblings(&own);
        let labelled = ListParams::default().labels(&format!("{siblings}{LABEL}={ACTIVE}"));
        for pod in called(self.pods.list_metadata(&labelled)).await?.items {
            let name = pod.name_any();
            if name != self.pod {
                self.label(&name, false).await?;
                info!(pod = name, "another pod is the active one no more");
            }
        }
        Ok(())
    }

    async fn label(&self, pod: &str, active: bool) -> Result<PartialObjectMeta<Pod>, String> {
        let value = if active { json!(ACTIVE) } else { Value::Null };
        let manager = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let label = Patch::Merge(json!({ "metadata": { "labels": { LABEL: value } } }));
        called(self.pods.patch_metadata(pod, &manager, &label)).await
    }

    /// Tells what is new; true if all is well.
    fn note(&mut self, done: Result<(), String>) -> bool {
        match done {
            Ok(()) => {
                if self.failure.take().is_some() {
                    info!("the label {LABEL} is where it should be");
                }
                true
            }
            Err(error) => {
                if self.failure.as_ref() != Some(&error) {
                    warn!(error, "the label {LABEL} could not be changed; trying again");
                    self.failure = Some(error);
                }
                false
            }
        }
    }
}

/// The beginning of a selector of the pods of the same release.
pub(super) fn siblings(own: &impl ResourceExt) -> String {
    let labels = own.labels();
    let of_release =
        OF_RELEASE.iter().filter_map(|key| labels.get(*key).map(|value| format!("{key}={value},")));
    of_release.collect()
}

/// Within the deadline.
pub(super) async fn called<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match timeout(DEADLINE, call).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
    }
}

#[cfg(test)]
mod tests;
