//! Users of the tests: squelch, the emitters and cluster users have separate identities.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::Cluster;

/// A ServiceAccount.
#[derive(Clone, Copy)]
pub struct Account {
    /// Its namespace.
    pub namespace: &'static str,
    /// Its name.
    pub name: &'static str,
}

/// squelch's own ServiceAccount (deploy/rbac.yaml).
pub const SQUELCH: Account = Account { namespace: "squelch", name: "squelch" };

/// The ServiceAccount of every emitter.
pub const EMITTER: Account = Account { namespace: "emitters", name: "emitter" };

/// Lifetime of a token: a day, because a cluster may be kept.
const TOKEN_SECONDS: i64 = 24 * 3600;

impl Account {
    /// The user name in the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Grants it these rules in all namespaces, by a ClusterRole and a ClusterRoleBinding named `role`.
    ///
    /// # Errors
    /// If kubectl fails, with its standard error.
    pub async fn allow(&self, cluster: &Cluster, role: &str, rules: &Value) -> Result<()> {
        let group = "rbac.authorization.k8s.io";
        let version = format!("{group}/v1");
        apply(
            cluster,
            &[
                json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": role },
                    "rules": rules }),
                json!({ "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": role },
                    "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
                    "subjects": [{ "kind": "ServiceAccount", "namespace": self.namespace, "name": self.name }] }),
            ],
        )
        .await
    }

    /// Writes a kubeconfig with a new token of this ServiceAccount into `folder`. It has no credentials of the
    /// administrator.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn kubeconfig(&self, cluster: &Cluster, folder: &Path) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), self.namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(self.name, &PostParams::default(), &request).await?;
        let token = answer.status.context("a token request without an answer")?.token;
        let admin = Kubeconfig::read_from(&cluster.kubeconfig)?;
        let server = admin.clusters.first().context("the administrator's kubeconfig has no cluster")?;
        let text = serde_json::to_string(&json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [server],
            "users": [{ "name": self.name, "user": { "token": token } }],
            "contexts": [{ "name": "c", "context": { "cluster": server.name, "user": self.name } }],
            "current-context": "c",
        }))?;
        let path = folder.join(format!("{}.kubeconfig", self.name));
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

/// Creates the emitters' ServiceAccount, with permissions on Events of both APIs in all namespaces.
///
/// # Errors
/// If kubectl fails, with its standard error.
pub async fn install_emitter(cluster: &Cluster) -> Result<()> {
    let Account { namespace, name } = EMITTER;
    apply(
        cluster,
        &[
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": { "namespace": namespace, "name": name } }),
        ],
    )
    .await?;
    let rules = json!([{ "apiGroups": ["", "events.k8s.io"], "resources": ["events"],
        "verbs": ["get", "create", "update", "patch"] }]);
    EMITTER.allow(cluster, "e2e-emitter", &rules).await
}

async fn apply(cluster: &Cluster, items: &[Value]) -> Result<()> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    cluster.kubectl.run_with(&["apply", "--server-side", "-f", "-"], list.to_string()).await?;
    Ok(())
}
