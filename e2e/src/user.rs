//! A user with chosen permissions. The administrator impersonates them, so each call has that name and no group.
//! Every answer is returned unchanged.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::Cluster;
use crate::wait::{GENEROUS, not_yet, wait_for};

/// Timeout of a call, longer than the API server takes for any write.
const PATIENCE: Duration = Duration::from_secs(35);

/// Part of what the API server reports of a refusal by squelch's webhook.
pub const REFUSED: &str = "denied the request: squelch: ";

/// One user.
#[derive(Clone)]
pub struct User {
    name: String,
    client: Client,
}

/// One answer of the API server.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status; 200 for every success.
    pub code: u16,
    /// The object of a success, the message of a failure.
    pub text: String,
}

impl Answer {
    /// The API server accepted the call.
    pub fn is_success(&self) -> bool {
        self.code < 300
    }

    /// squelch refused the write, because it merged or dropped it.
    pub fn is_refused_by_squelch(&self) -> bool {
        self.text.contains(REFUSED)
    }

    /// The object, or the message, as JSON.
    ///
    /// # Errors
    /// That the call failed.
    pub fn object(&self) -> Result<Value> {
        anyhow::ensure!(self.is_success(), "{}: {}", self.code, self.text);
        Ok(serde_json::from_str(&self.text)?)
    }
}

impl User {
    /// The user of this name. Calls are made once: failures are for the test to see.
    ///
    /// # Errors
    /// If the administrator's kubeconfig is unusable.
    pub async fn named(cluster: &Cluster, name: &str) -> Result<Self> {
        Ok(Self { name: name.to_owned(), client: Client::try_from(config(cluster, name).await?)? })
    }

    /// The user of this name as a member of one group, whose rights they have.
    ///
    /// # Errors
    /// If the administrator's kubeconfig is unusable.
    pub async fn in_group(cluster: &Cluster, name: &str, group: &str) -> Result<Self> {
        let mut config = config(cluster, name).await?;
        config.auth_info.impersonate_groups = Some(vec![group.to_owned()]);
        Ok(Self { name: name.to_owned(), client: Client::try_from(config)? })
    }

    /// A user with these verbs on the Events of a namespace.
    ///
    /// # Errors
    /// What kubectl reports, or if the rights do not apply in time.
    pub async fn with_rights(cluster: &Cluster, name: &str, namespace: &str, verbs: &[&str]) -> Result<Self> {
        let user = Self::named(cluster, name).await?;
        let metadata =
            json!({ "namespace": namespace, "name": format!("events-of-{}", name.replace(':', "-")) });
        let group = "rbac.authorization.k8s.io";
        let version = "rbac.authorization.k8s.io/v1";
        let items = [
            json!({ "apiVersion": version, "kind": "Role", "metadata": metadata,
                "rules": [{ "apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": verbs }] }),
            json!({ "apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
                "roleRef": { "apiGroup": group, "kind": "Role", "name": metadata["name"] },
                "subjects": [{ "apiGroup": group, "kind": "User", "name": user.name }] }),
        ];
        cluster.kubectl.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": items })).await?;
        let kubectl = cluster.kubectl.namespace(namespace).user(name);
        let asked = ["auth", "can-i", verbs.first().copied().unwrap_or("get"), "events"];
        wait_for("the API server to know the rights", GENEROUS, async || {
            kubectl.run(&asked).await.map_err(not_yet)
        })
        .await?;
        Ok(user)
    }

    /// Creates an Event of either API in its namespace.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn create(&self, event: &Value) -> Result<Answer> {
        let request = http::Request::post(path(event, ""));
        self.call(request.header("content-type", "application/json"), event.to_string()).await
    }

    /// Writes an Event back (PUT).
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn replace(&self, event: &Value) -> Result<Answer> {
        let name = event["metadata"]["name"].as_str().context("an Event without a name")?;
        let request = http::Request::put(path(event, name));
        self.call(request.header("content-type", "application/json"), event.to_string()).await
    }

    /// Changes an Event (merge patch) through the API that `like` has, in its namespace.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn patch(&self, like: &Value, name: &str, change: &Value) -> Result<Answer> {
        let request = http::Request::patch(path(like, name));
        self.call(request.header("content-type", "application/merge-patch+json"), change.to_string()).await
    }

    /// Reads an Event through the API that `like` has, from its namespace.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn get(&self, like: &Value, name: &str) -> Result<Answer> {
        self.call(http::Request::get(path(like, name)), String::new()).await
    }

    async fn call(&self, request: http::request::Builder, body: String) -> Result<Answer> {
        let request = request.body(body.into_bytes())?;
        let answer = timeout(PATIENCE, self.client.request_text(request)).await;
        match answer.with_context(|| format!("no answer for {}", self.name))? {
            Ok(text) => Ok(Answer { code: 200, text }),
            Err(kube::Error::Api(status)) => Ok(Answer { code: status.code, text: status.message.clone() }),
            Err(error) => Err(error.into()),
        }
    }
}

/// Without retries, as this user.
async fn config(cluster: &Cluster, name: &str) -> Result<Config> {
    let read = Kubeconfig::read_from(&cluster.kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.auth_info.impersonate = Some(name.to_owned());
    Ok(config)
}

fn path(like: &Value, name: &str) -> String {
    let group = match like["apiVersion"].as_str() {
        Some("events.k8s.io/v1") => "apis/events.k8s.io/v1",
        _ => "api/v1",
    };
    let namespace = like["metadata"]["namespace"].as_str().unwrap_or_default();
    let slash = if name.is_empty() { "" } else { "/" };
    format!("/{group}/namespaces/{namespace}/events{slash}{name}")
}

/// One of the two APIs of Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// core/v1.
    Core,
    /// events.k8s.io/v1.
    New,
}

impl Version {
    /// A new Event about a Pod, as the kubelet would write it. Its occurrence was at `time`.
    pub fn event(
        self,
        namespace: &str,
        name: &str,
        pod: &str,
        message: &str,
        time: jiff::Timestamp,
    ) -> Value {
        let metadata = json!({ "name": name, "namespace": namespace });
        let regarding =
            json!({ "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": pod });
        match self {
            Self::Core => json!({
                "apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": regarding,
                "type": "Warning", "reason": "BackOff", "message": message, "count": 1,
                "source": { "component": "kubelet", "host": "node-1" }, "reportingComponent": "kubelet",
                "reportingInstance": "node-1",
                "firstTimestamp": format!("{time:.0}"), "lastTimestamp": format!("{time:.0}"),
            }),
            Self::New => json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata, "regarding": regarding,
                "type": "Warning", "reason": "BackOff", "note": message, "action": "Restarting",
                "reportingController": "example.com/kubelet", "reportingInstance": "node-1",
                "eventTime": format!("{time:.6}"),
            }),
        }
    }

    /// The fields of an Event that report `count` occurrences, the last of them at `time`.
    pub fn counted(self, count: i64, time: jiff::Timestamp) -> Value {
        match self {
            Self::Core => json!({ "count": count, "lastTimestamp": format!("{time:.0}") }),
            Self::New => json!({ "series": { "count": count, "lastObservedTime": format!("{time:.6}") } }),
        }
    }

    /// The message of an Event of this API.
    pub fn message(self, event: &Value) -> Option<&str> {
        let field = match self {
            Self::Core => "message",
            Self::New => "note",
        };
        event[field].as_str()
    }

    /// What an Event of this API reports as its count: 1 where it reports none.
    pub fn count(self, event: &Value) -> i64 {
        let count = match self {
            Self::Core => &event["count"],
            Self::New => &event["series"]["count"],
        };
        count.as_i64().unwrap_or(1).max(1)
    }
}
