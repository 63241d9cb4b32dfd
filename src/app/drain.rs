//! `squelch drain`: has the operator end in good order before its rights are taken away, and lets go of what it left.

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
use crate::config::{DrainOptions, Place};

use super::cluster;

/// How long one call may take.
const CALL: Duration = Duration::from_secs(5);
/// A call that failed is made again after this long; pods are looked at as often.
const PAUSE: Duration = Duration::from_millis(500);
/// Who waits hears so often for whom.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// What is left to remove after the time is over gets this long.
const LAST_CALLS: Duration = Duration::from_secs(10);

/// Scales the operator to none, waits until its pods have ended, and deletes the webhook's configuration and Secret.
///
/// # Errors
/// What could not be done in time, and what to do about it. The webhook is taken away in any case.
pub async fn drain(options: &DrainOptions) -> Result<()> {
    let client = cluster::connect(options.place.kubeconfig.as_deref()).await?;
    Drain { client, options }.run().await
}

struct Drain<'a> {
    client: Client,
    options: &'a DrainOptions,
}

impl Drain<'_> {
    async fn run(&self) -> Result<()> {
        let ended = self.end_operator(clock::now().plus(self.options.timeout)).await;
        // Whatever became of the pods: from now on no Event write waits for a squelch that goes.
        let deadline = clock::now().plus(LAST_CALLS);
        let configuration: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        delete(&configuration, CONFIGURATION, deadline).await?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.options.place.namespace);
        delete(&secrets, &self.options.secret, deadline).await?;
        ended?;
        info!("squelch has let go: what it owed is paid, and no Event write is sent to it any more");
        Ok(())
    }

    /// Its pods end by themselves as they do at any SIGTERM: they pay, take the rules away and write the statuses.
    async fn end_operator(&self, deadline: Moment) -> Result<()> {
        let DrainOptions { place: Place { namespace, .. }, deployment, .. } = self.options;
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
        let scaled = persistently("scale the operator to none", deadline, async || {
            match deployments.patch_scale(deployment, &PatchParams::default(), &none).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                scale => scale.map(Some),
            }
        });
        let Some(scale) = scaled.await? else {
            warn!(%namespace, %deployment, "there is no such Deployment: nothing to end");
            return Ok(());
        };
        // Without a selector it would be every pod of the namespace.
        let selector =
            scale.status.and_then(|status| status.selector).filter(|selector| !selector.is_empty());
        let selector =
            selector.with_context(|| format!("Deployment {deployment} does not say which pods it has"))?;
        info!(%namespace, %deployment, "scaled to none; its pods pay what they owe");
        self.until_gone(&selector, deadline).await
    }

    async fn until_gone(&self, selector: &str, deadline: Moment) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.options.place.namespace);
        let of_operator = ListParams::default().labels(selector);
        let mut told = clock::now();
        loop {
            let left =
                persistently("list the operator's pods", deadline, async || pods.list(&of_operator).await);
            let left: Vec<_> =
                left.await?.items.iter().filter(|pod| runs(pod)).map(ResourceExt::name_any).collect();
            if left.is_empty() {
                return Ok(());
            }
            let now = clock::now();
            if now >= deadline {
                bail!(
                    "{} had not ended after {:?}, and what was still owed may be lost; see why with `kubectl logs`, \
                     give more time with --timeout",
                    left.join(", "),
                    self.options.timeout
                );
            }
            if now.since(told) >= TOLD_EVERY {
                told = now;
                info!(pods = left.join(", "), "waiting for what is owed to be paid");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// A pod that has ended stays listed as long as somebody else wants to see it, such as a Job.
fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

async fn delete<K>(api: &Api<K>, name: &str, deadline: Moment) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let kind = K::kind(&());
    let deleted = persistently(format!("delete {kind} {name}"), deadline, async || {
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

/// Makes a call until it is answered, or refused for good, or the time is over.
async fn persistently<T>(
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
        warn!(error, "cannot {what} yet; trying again");
        tokio::time::sleep(PAUSE).await;
    }
}

/// The API server has understood and will say the same again.
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

    /// What the API server was asked.
    type Asked = Arc<Mutex<Vec<String>>>;

    /// An API server that answers by `answer`, told the request and how many like it came before.
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

    fn options() -> DrainOptions {
        DrainOptions {
            place: Place { kubeconfig: None, namespace: "ns".into() },
            deployment: "squelch".into(),
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
    async fn it_waits_for_the_pods_and_then_removes_what_is_left() {
        let (client, asked) = api_server(|line, before| match (line, before) {
            (SCALE, 0) => failure(500),
            (SCALE, _) => (200, scale()),
            (LIST, 0..3) => (200, pods(&["squelch-1"])),
            (LIST, _) => (200, pods(&[])),
            (WEBHOOK, _) => (200, json!({ "kind": "Status", "status": "Success" })),
            _ => failure(404),
        });
        Drain { client, options: &options() }.run().await.unwrap();
        let order = [SCALE, SCALE, LIST, LIST, LIST, LIST, WEBHOOK, SECRET];
        assert_eq!(*asked.lock().unwrap(), order);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_does_not_end_is_named_and_the_webhook_goes_all_the_same() {
        let (client, asked) = api_server(|line, _| match line {
            SCALE => (200, scale()),
            LIST => (200, pods(&["squelch-1"])),
            _ => failure(404),
        });
        let error = Drain { client, options: &options() }.run().await.unwrap_err().to_string();
        assert!(error.contains("squelch-1") && error.contains("--timeout"), "{error}");
        assert!(asked.lock().unwrap().iter().any(|line| line == WEBHOOK));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_deployment_there_is_nothing_to_wait_for() {
        let (client, asked) = api_server(|_, _| failure(404));
        Drain { client, options: &options() }.run().await.unwrap();
        assert_eq!(*asked.lock().unwrap(), [SCALE, WEBHOOK, SECRET]);
    }

    #[tokio::test(start_paused = true)]
    async fn missing_rights_are_told_at_once() {
        let (client, _) = api_server(|line, _| if line == SCALE { failure(403) } else { failure(404) });
        let error = format!("{:#}", Drain { client, options: &options() }.run().await.unwrap_err());
        assert!(error.contains("scale the operator to none"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_stays_away_ends_it_in_time() {
        let (client, _) = api_server(|_, _| failure(503));
        let began = clock::now();
        Drain { client, options: &options() }.run().await.unwrap_err();
        assert!(clock::now().since(began) < options().timeout + LAST_CALLS + 2 * PAUSE);
    }
}
