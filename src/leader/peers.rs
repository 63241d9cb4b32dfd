//! The other replicas during a shutdown: whether one is ready to take over, and whether the Service routes to it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::pod_label::{release_selector, with_timeout};

/// The time between two reads of the Service's EndpointSlices.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The other replicas.
#[derive(Clone)]
pub struct Peers {
    pods: Api<Pod>,
    slices: Api<EndpointSlice>,
    pod: String,
    service: String,
}

impl Peers {
    /// The replicas beside `pod` in `namespace`, behind `service`.
    pub fn new(client: &Client, namespace: &str, pod: String, service: String) -> Self {
        Self {
            pods: Api::namespaced(client.clone(), namespace),
            slices: Api::namespaced(client.clone(), namespace),
            pod,
            service,
        }
    }

    /// Whether another replica is ready. False if the pods cannot be listed: the webhook is disarmed then.
    pub async fn any_ready(&self) -> bool {
        match self.ready().await {
            Ok(ready) => ready,
            Err(error) => {
                warn!(error, "cannot list the other replicas, assuming that none is ready");
                false
            }
        }
    }

    async fn ready(&self) -> Result<bool, String> {
        let own = with_timeout(self.pods.get_metadata(&self.pod)).await?;
        let selector = release_selector(&own);
        let of_release = ListParams::default().labels(selector.trim_end_matches(','));
        let pods = with_timeout(self.pods.list(&of_release)).await?;
        Ok(pods.items.iter().any(|pod| pod.name_any() != self.pod && is_ready(pod)))
    }

    /// Waits until the Service routes to another replica. Returns false if it does not within `limit`.
    pub async fn wait_until_serving(&self, limit: Duration) -> bool {
        let polling = async {
            while !self.any_serving().await {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(limit, polling).await.is_ok()
    }

    async fn any_serving(&self) -> bool {
        let of_service =
            ListParams::default().labels(&format!("kubernetes.io/service-name={}", self.service));
        let Ok(slices) = with_timeout(self.slices.list(&of_service)).await else { return false };
        let endpoints = slices.items.iter().flat_map(|slice| &slice.endpoints);
        let mut pods = endpoints.filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.as_deref());
        pods.any(|pod| pod != self.pod)
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    /// An API server with these pods of the release, `a` the own one, and these pods behind the Service.
    fn peers(pods: &[Value], behind: &[&str]) -> Peers {
        let own = pods[0].clone();
        let pods = json!({ "metadata": {}, "items": pods });
        let endpoint =
            |pod: &&str| json!({ "addresses": ["10.0.0.1"], "targetRef": { "kind": "Pod", "name": pod } });
        let endpoints: Vec<_> = behind.iter().map(endpoint).collect();
        let slice = json!({ "metadata": {}, "addressType": "IPv4", "endpoints": endpoints });
        let slices = json!({ "metadata": {}, "items": [slice] });
        let service = service_fn(move |request: Request<Body>| {
            let asked = request.uri().to_string();
            let answer = if asked.contains("/pods/a") {
                &own
            } else if asked.contains("/pods?&labelSelector=app.kubernetes.io%2Finstance%3Dr") {
                &pods
            } else {
                assert!(asked.contains("kubernetes.io%2Fservice-name%3Dsquelch"), "{asked}");
                &slices
            };
            let answer = Body::from(answer.to_string().into_bytes());
            async move { Ok::<_, kube::Error>(Response::new(answer)) }
        });
        let client = Client::new(service, "default");
        Peers::new(&client, "squelch", "a".to_owned(), "squelch".to_owned())
    }

    fn pod(name: &str, ready: &str) -> Value {
        json!({
            "metadata": { "name": name, "labels": { "app.kubernetes.io/instance": "r" } },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        })
    }

    #[tokio::test]
    async fn a_ready_pod_that_is_not_being_deleted_can_take_over() {
        let mut deleted = pod("b", "True");
        deleted["metadata"]["deletionTimestamp"] = json!("2026-11-22T06:00:00Z");
        for (other, expected) in [(pod("b", "True"), true), (pod("b", "False"), false), (deleted, false)] {
            assert_eq!(peers(&[pod("a", "True"), other.clone()], &[]).any_ready().await, expected, "{other}");
        }
        assert!(!peers(&[pod("a", "True")], &[]).any_ready().await, "the own pod does not count");
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_has_taken_over_once_the_service_routes_to_it() {
        let second = Duration::from_secs(1);
        assert!(peers(&[pod("a", "True")], &["a", "b"]).wait_until_serving(second).await);
        assert!(!peers(&[pod("a", "True")], &["a"]).wait_until_serving(second).await);
        assert!(!peers(&[pod("a", "True")], &[]).wait_until_serving(second).await);
    }
}
