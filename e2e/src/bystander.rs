//! Another webhook on Events, of somebody else: a mutating one, or a validating one that refuses.

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

/// What a refusing one says.
pub const REFUSAL: &str = "example.com: tenants do not write for the kubelet";

/// The annotation that it leaves.
const MARK: &str = "example.com/seen";

/// How it behaves.
#[derive(Clone, Copy)]
pub struct Habits {
    /// It thinks for so long about each write.
    pub slow: Duration,
    /// It annotates what it sees, and so has others asked again.
    pub marks: bool,
    /// It is a validating webhook, which refuses what this user writes.
    pub refuses: Option<&'static str>,
}

/// A webhook that the API server asks about the Events of one namespace, until the end of this value.
pub struct Bystander {
    kind: &'static str,
    name: String,
    cluster: Kubectl,
    service: Arc<Service>,
    serving: JoinHandle<()>,
}

struct Service {
    habits: Habits,
    asked: AtomicUsize,
}

impl Bystander {
    /// Begins to be asked. The API server asks webhooks in the order of their names; one that wants to be is asked a
    /// second time where a later one has changed something.
    ///
    /// # Errors
    /// What kubectl says.
    pub async fn begin(test: &Test, place: &str, habits: Habits) -> Result<Self> {
        let authority = authority()?;
        let server = Server::bind(&authority).await?;
        let Cluster { kubectl, .. } = &test.cluster;
        let name = format!("{place}-{}", test.namespace);
        let kind = match habits.refuses {
            None => "MutatingWebhookConfiguration",
            Some(_) => "ValidatingWebhookConfiguration",
        };
        let mut configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name },
            "webhooks": [{
                "name": "bystander.example.com",
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
        if habits.refuses.is_none() {
            configuration["webhooks"][0]["reinvocationPolicy"] = json!("IfNeeded");
        }
        let service = Arc::new(Service { habits, asked: AtomicUsize::new(0) });
        let serving = server.serve(service.clone());
        let this = Self { kind, name, cluster: kubectl.clone(), service, serving };
        kubectl.apply(&configuration).await?;
        Ok(this)
    }

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        self.service.asked.load(Ordering::Relaxed)
    }
}

impl Answer for Service {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        let review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
        self.asked.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.habits.slow).await;
        let request = &review["request"];
        let mut response = json!({ "uid": request["uid"], "allowed": true });
        if self.habits.refuses.is_some_and(|user| request["userInfo"]["username"] == user) {
            response["allowed"] = json!(false);
            response["status"] = json!({ "code": 403, "message": REFUSAL });
        }
        let annotations = &request["object"]["metadata"]["annotations"];
        if self.habits.marks && annotations[MARK].is_null() {
            let patch = match annotations.is_null() {
                true => json!([{ "op": "add", "path": "/metadata/annotations", "value": { MARK: "yes" } }]),
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

impl Drop for Bystander {
    fn drop(&mut self) {
        self.cluster.say(&["delete", self.kind, &self.name]);
        self.serving.abort();
    }
}
