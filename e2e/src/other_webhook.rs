//! A webhook of another owner on Events: a mutating one, or a validating one that refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::kubectl::Kubectl;
use crate::proxy::server::{Answer, Body, Broken, Server, authority};
use crate::{Cluster, Test};

/// The message of a refusal.
pub const REFUSAL: &str = "example.com: tenants do not write for the kubelet";

/// The annotation that the webhook adds.
const ANNOTATION: &str = "example.com/seen";

/// The behavior of the webhook.
#[derive(Clone, Copy)]
pub struct WebhookBehavior {
    /// Delay of each answer.
    pub delay: Duration,
    /// Whether it annotates Events, which makes the API server reinvoke other webhooks.
    pub annotates: bool,
    /// Makes it a validating webhook that refuses writes of this user.
    pub refuses_user: Option<&'static str>,
}

/// A webhook for the Events of one namespace. It is unregistered on drop.
pub struct OtherWebhook {
    kind: &'static str,
    name: String,
    cluster: Kubectl,
    service: Arc<Service>,
    serving: JoinHandle<()>,
}

struct Service {
    behavior: WebhookBehavior,
    asked: AtomicUsize,
}

impl OtherWebhook {
    /// Registers the webhook. The API server calls webhooks in the order of their names. A webhook with
    /// `reinvocationPolicy: IfNeeded` is called again if a later one has changed the object.
    ///
    /// # Errors
    /// If kubectl fails, with its standard error.
    pub async fn begin(test: &Test, place: &str, behavior: WebhookBehavior) -> Result<Self> {
        let authority = authority()?;
        let server = Server::bind(&authority).await?;
        let Cluster { kubectl, .. } = &test.cluster;
        let name = format!("{place}-{}", test.namespace);
        let kind = match behavior.refuses_user {
            None => "MutatingWebhookConfiguration",
            Some(_) => "ValidatingWebhookConfiguration",
        };
        let mut configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name },
            "webhooks": [{
                "name": "other-webhook.example.com",
                "clientConfig": { "url": server.url, "caBundle": STANDARD.encode(authority.ca_pem()) },
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 10,
                "failurePolicy": "Fail",
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": test.namespace } },
                "rules": [{
                    "apiGroups": ["", "events.k8s.io"], "apiVersions": ["v1"], "resources": ["events"],
                    "operations": ["CREATE", "UPDATE"],
                }],
            }],
        });
        if behavior.refuses_user.is_none() {
            configuration["webhooks"][0]["reinvocationPolicy"] = json!("IfNeeded");
        }
        let service = Arc::new(Service { behavior, asked: AtomicUsize::new(0) });
        let serving = server.serve(service.clone());
        let this = Self { kind, name, cluster: kubectl.clone(), service, serving };
        kubectl.apply(&configuration).await?;
        Ok(this)
    }

    /// The number of calls.
    pub fn asked(&self) -> usize {
        self.service.asked.load(Ordering::Relaxed)
    }
}

impl Answer for Service {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        let review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
        self.asked.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.behavior.delay).await;
        let request = &review["request"];
        let mut response = json!({ "uid": request["uid"], "allowed": true });
        if self.behavior.refuses_user.is_some_and(|user| request["userInfo"]["username"] == user) {
            response["allowed"] = json!(false);
            response["status"] = json!({ "code": 403, "message": REFUSAL });
        }
        let annotations = &request["object"]["metadata"]["annotations"];
        if self.behavior.annotates && annotations[ANNOTATION].is_null() {
            let patch = match annotations.is_null() {
                true => {
                    json!([{ "op": "add", "path": "/metadata/annotations", "value": { ANNOTATION: "yes" } }])
                }
                false => {
                    json!([{ "op": "add", "path": "/metadata/annotations/example.com~1seen", "value": "yes" }])
                }
            };
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(patch.to_string()));
        }
        let answer =
            json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
        let body = Full::new(Bytes::from(answer.to_string())).map_err(|never| match never {});
        Ok(Response::new(body.boxed_unsync()))
    }
}

impl Drop for OtherWebhook {
    fn drop(&mut self) {
        self.cluster.say(&["delete", self.kind, &self.name]);
        self.serving.abort();
    }
}
