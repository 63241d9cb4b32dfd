//! A user with permission to write Events in a namespace.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::Cluster;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Timeout of a write, longer than that of the API server.
const PATIENCE: Duration = Duration::from_secs(35);

/// The answer of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// Stored.
    Stored,
    /// Refused by squelch.
    Refused,
    /// Too many requests: refused before admission.
    Shed,
    /// Any other status.
    Other(u16),
}

/// One user.
#[derive(Clone)]
pub(crate) struct Tenant {
    client: Client,
}

impl Tenant {
    /// The user of this name, without groups. Calls are not retried.
    pub(crate) async fn named(cluster: &Cluster, user: &str) -> Result<Self> {
        let read = Kubeconfig::read_from(&cluster.kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        config.auth_info.impersonate = Some(user.to_owned());
        Ok(Self { client: Client::try_from(config)? })
    }

    /// Permits these users to write Events in a namespace.
    pub(crate) async fn admit(cluster: &Cluster, namespace: &str, users: &[&str]) -> Result<()> {
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant" });
        let subjects: Vec<_> = users
            .iter()
            .map(|user| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }))
            .collect();
        let metadata = json!({ "namespace": namespace, "name": "tenant" });
        let items = [
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
                "rules": [{ "apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["*"] }] }),
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
                "roleRef": role, "subjects": subjects }),
        ];
        cluster.kubectl.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": items })).await?;
        Ok(())
    }

    /// Creates an Event of either API.
    pub(crate) async fn create(&self, namespace: &str, event: &Value) -> Result<WriteResult> {
        let request = http::Request::post(path(event["apiVersion"].as_str(), namespace, ""));
        self.send(request.header("content-type", "application/json"), event.to_string()).await
    }

    /// Changes an Event through core/v1.
    pub(crate) async fn patch(&self, namespace: &str, name: &str, change: &Value) -> Result<WriteResult> {
        let request = http::Request::patch(path(None, namespace, name));
        self.send(request.header("content-type", "application/merge-patch+json"), change.to_string()).await
    }

    /// Deletes an Event.
    pub(crate) async fn delete(&self, namespace: &str, name: &str) -> Result<WriteResult> {
        self.send(http::Request::delete(path(None, namespace, name)), String::new()).await
    }

    async fn send(&self, request: http::request::Builder, body: String) -> Result<WriteResult> {
        let request = request.body(body.into_bytes())?;
        let answered = timeout(PATIENCE, self.client.request_text(request)).await.context("no answer")?;
        match answered {
            Ok(_) => Ok(WriteResult::Stored),
            Err(kube::Error::Api(status)) if status.message.contains("squelch: ") => Ok(WriteResult::Refused),
            Err(kube::Error::Api(status)) if status.code == 429 => Ok(WriteResult::Shed),
            Err(kube::Error::Api(status)) => Ok(WriteResult::Other(status.code)),
            Err(error) => Err(error.into()),
        }
    }
}

fn path(api_version: Option<&str>, namespace: &str, name: &str) -> String {
    let group = match api_version {
        Some("events.k8s.io/v1") => "apis/events.k8s.io/v1",
        _ => "api/v1",
    };
    let slash = if name.is_empty() { "" } else { "/" };
    format!("/{group}/namespaces/{namespace}/events{slash}{name}")
}

/// An Event of core/v1 as the kubelet writes it, with the count 1.
pub(crate) fn event(namespace: &str, name: &str, pod: &str, reason: &str, message: &str) -> Value {
    let now = jiff::Timestamp::now();
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": name, "namespace": namespace },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": pod },
        "type": "Normal", "reason": reason, "message": message, "count": 1,
        "source": { "component": "kubelet", "host": "node-1" }, "reportingComponent": "kubelet",
        "reportingInstance": "node-1",
        "firstTimestamp": format!("{now:.0}"), "lastTimestamp": format!("{now:.0}"),
    })
}
