//! `squelch uninstall`: shuts the operator down before its permissions are deleted, and deletes its webhook
//! configuration and Secret.

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use squelch_engine::Moment;
use tracing::{info, warn};

use crate::arming::CONFIGURATION;
use crate::clock;
use crate::config::{Target, UninstallOptions};

use super::cluster;

/// The deadline of one call.
const CALL: Duration = Duration::from_secs(5);
/// The pause before a failed call is repeated, and between two reads of the pods.
const PAUSE: Duration = Duration::from_millis(500);
/// The interval of the log line of a wait.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// The time for the deletions, after the wait for the pods.
const LAST_CALLS: Duration = Duration::from_secs(10);

/// Scales the operator to 0, waits until its pods have terminated, and deletes the webhook configuration and the
/// Secret.
///
/// # Errors
/// What could not be done in time, and what to do. The webhook configuration is deleted in any case.
pub async fn uninstall(options: &UninstallOptions) -> Result<()> {
    let client = cluster::connect(options.target.kubeconfig.as_deref()).await?;
    Uninstall { client, options }.run().await
}

struct Uninstall<'a> {
    client: Client,
    options: &'a UninstallOptions,
}

impl Uninstall<'_> {
    async fn run(&self) -> Result<()> {
        let ended = self.end_operator(clock::now().plus(self.options.timeout)).await;
        // In any case: no Event write may wait for a webhook that is gone.
        let deadline = clock::now().plus(LAST_CALLS);
        let configuration: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        delete(&configuration, CONFIGURATION, deadline).await?;
        let secrets: Api<Secret> =
            Api::namespaced(self.client.clone(), &self.options.target.install_namespace);
        delete(&secrets, &self.options.secret, deadline).await?;
        ended?;
        info!("operator stopped, webhook configuration and Secret deleted");
        Ok(())
    }

    /// Scales the operator to 0. At SIGTERM its pods flush, remove the rules and write the statuses.
    async fn end_operator(&self, deadline: Moment) -> Result<()> {
        let Target { install_namespace: namespace, deployment, .. } = &self.options.target;
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
        let scaled = retry("scale the operator to 0", deadline, async || {
            match deployments.patch_scale(deployment, &PatchParams::default(), &none).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                scale => scale.map(Some),
            }
        });
        let Some(scale) = scaled.await? else {
            warn!(%namespace, %deployment, "Deployment not found, no operator to stop");
            return Ok(());
        };
        // An empty selector would match every pod of the namespace.
        let selector =
            scale.status.and_then(|status| status.selector).filter(|selector| !selector.is_empty());
        let selector =
            selector.with_context(|| format!("the scale of Deployment {deployment} has no pod selector"))?;
        info!(%namespace, %deployment, "scaled to 0, waiting for its pods to flush and terminate");
        self.until_gone(&selector, deadline).await
    }

    /// Waits until no pod runs.
    async fn until_gone(&self, selector: &str, deadline: Moment) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.options.target.install_namespace);
        let of_operator = ListParams::default().labels(selector);
        let mut logged = clock::now();
        loop {
            let left = retry("list the operator's pods", deadline, async || pods.list(&of_operator).await);
            let left: Vec<_> =
                left.await?.items.iter().filter(|pod| runs(pod)).map(ResourceExt::name_any).collect();
            if left.is_empty() {
                return Ok(());
            }
            let now = clock::now();
            if now >= deadline {
                bail!(
                    "the pods {} did not terminate within {:?}, and their pending occurrences may be lost; see their log \
                     with `kubectl logs`, or raise --timeout",
                    left.join(", "),
                    self.options.timeout
                );
            }
            if now.since(logged) >= LOG_INTERVAL {
                logged = now;
                info!(pods = left.join(", "), "waiting for pods to flush and terminate");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Whether the pod still runs. A terminated pod may stay listed because of a finalizer, such as that of a Job.
fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

async fn delete<K>(api: &Api<K>, name: &str, deadline: Moment) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let kind = K::kind(&());
    let deleted = retry(format!("delete {kind} {name}"), deadline, async || {
        match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            deleted => deleted.map(|_| true),
        }
    });
    if deleted.await? {
        info!(%kind, name, "deleted");
    }
    Ok(())
}

/// Repeats a call until it is answered, refused for good, or the deadline is over.
async fn retry<T>(
    what: impl Display,
    deadline: Moment,
    call: impl AsyncFn() -> kube::Result<T>,
) -> Result<T> {
    loop {
        let error = match tokio::time::timeout(CALL, call()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if is_final(&error) => {
                return Err(error).with_context(|| format!("cannot {what}"));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", CALL.as_secs()),
        };
        if clock::now() >= deadline {
            bail!("cannot {what}: {error}");
        }
        warn!(error, operation = %what, "call failed, retrying");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether a retry would get the same answer.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && !matches!(status.code, 408 | 409 | 429))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::Value;
    use tower::service_fn;

    use super::*;

    /// The requests to the API server.
    type Asked = Arc<Mutex<Vec<String>>>;

    /// An API server that answers with `answer`, which gets the request and the number of equal ones before.
    fn api_server(
        answer: impl Fn(&str, usize) -> (u16, Value) + Clone + Send + Sync + 'static,
    ) -> (Client, Asked) {
        let asked = Asked::default();
        let log = asked.clone();
        let service = service_fn(move |request: Request<Body>| {
            let line = format!("{} {}", request.method(), request.uri().path());
            let mut log = log.lock().unwrap();
            let before = log.iter().filter(|earlier| **earlier == line).count();
            let (status, body) = answer(&line, before);
            log.push(line);
            async move {
                let body = Body::from(serde_json::to_vec(&body).unwrap());
                Ok::<_, kube::Error>(Response::builder().status(status).body(body).unwrap())
            }
        });
        (Client::new(service, "squelch"), asked)
    }

    fn options() -> UninstallOptions {
        UninstallOptions {
            target: Target { kubeconfig: None, install_namespace: "ns".into(), deployment: "squelch".into() },
            secret: crate::SECRET.into(),
            timeout: Duration::from_secs(60),
        }
    }

    fn pods(names: &[&str]) -> Value {
        let pod = |name| json!({ "metadata": { "name": name }, "status": { "phase": "Running" } });
        json!({ "metadata": {}, "items": names.iter().map(pod).collect::<Vec<_>>() })
    }

    const SCALE: &str = "PATCH /apis/apps/v1/namespaces/ns/deployments/squelch/scale";
    const LIST: &str = "GET /api/v1/namespaces/ns/pods";
    const WEBHOOK: &str =
        "DELETE /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/squelch";
    const SECRET: &str = "DELETE /api/v1/namespaces/ns/secrets/squelch-webhook";

    fn scale() -> Value {
        json!({ "metadata": {}, "spec": { "replicas": 0 }, "status": { "replicas": 1, "selector": "a=b" } })
    }

    fn failure(code: u16) -> (u16, Value) {
        (
            code,
            json!({ "kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": "no" }),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn the_webhook_and_the_secret_are_deleted_after_the_pods_terminated() {
        let (client, asked) = api_server(|line, before| match (line, before) {
            (SCALE, 0) => failure(500),
            (SCALE, _) => (200, scale()),
            (LIST, 0..3) => (200, pods(&["squelch-1"])),
            (LIST, _) => (200, pods(&[])),
            (WEBHOOK, _) => (200, json!({ "kind": "Status", "status": "Success" })),
            _ => failure(404),
        });
        Uninstall { client, options: &options() }.run().await.unwrap();
        let order = [SCALE, SCALE, LIST, LIST, LIST, LIST, WEBHOOK, SECRET];
        assert_eq!(*asked.lock().unwrap(), order);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_does_not_terminate_is_named_and_the_webhook_is_deleted_anyway() {
        let (client, asked) = api_server(|line, _| match line {
            SCALE => (200, scale()),
            LIST => (200, pods(&["squelch-1"])),
            _ => failure(404),
        });
        let error = Uninstall { client, options: &options() }.run().await.unwrap_err().to_string();
        assert!(error.contains("squelch-1") && error.contains("--timeout"), "{error}");
        assert!(asked.lock().unwrap().iter().any(|line| line == WEBHOOK));
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_deployment_is_not_waited_for() {
        let (client, asked) = api_server(|_, _| failure(404));
        Uninstall { client, options: &options() }.run().await.unwrap();
        assert_eq!(*asked.lock().unwrap(), [SCALE, WEBHOOK, SECRET]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_permission_is_reported_at_once() {
        let (client, _) = api_server(|line, _| if line == SCALE { failure(403) } else { failure(404) });
        let error = format!("{:#}", Uninstall { client, options: &options() }.run().await.unwrap_err());
        assert!(error.contains("scale the operator to 0"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_api_server_ends_the_uninstall_in_time() {
        let (client, _) = api_server(|_, _| failure(503));
        let began = clock::now();
        Uninstall { client, options: &options() }.run().await.unwrap_err();
        assert!(clock::now().since(began) < options().timeout + LAST_CALLS + 2 * PAUSE);
    }
}
