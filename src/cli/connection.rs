//! The cluster that a command reads, selected as `kubectl` selects it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use kube::Client;

use crate::kubeconfig::configuration;

/// Flags that select a cluster and a namespace.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterFlags {
    /// Kubeconfig file [default: KUBECONFIG, else ~/.kube/config, else the ServiceAccount of the pod]
    #[arg(long, env = "SQUELCH_KUBECONFIG", value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub context: Option<String>,

    /// Namespace [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE", help_heading = "Cluster")]
    pub namespace: Option<String>,
}

impl ClusterFlags {
    /// The namespace of the flag. As with kubectl, an empty one selects none.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }
}

/// A cluster that a command reads with the permissions of its user.
pub struct ClusterConnection {
    /// The client. It does not retry.
    pub client: Client,
    /// The selected namespace.
    pub namespace: String,
}

impl ClusterConnection {
    /// Creates the client. Sends no request.
    ///
    /// # Errors
    /// The kubeconfig is missing or invalid, or has no such context.
    pub async fn connect(flags: &ClusterFlags) -> Result<Self> {
        let mut config = configuration(flags.kubeconfig.as_deref(), flags.context.as_deref()).await?;
        config.default_retry = false;
        let namespace = match flags.namespace().unwrap_or(&config.default_namespace) {
            "" => "default".to_owned(),
            namespace => namespace.to_owned(),
        };
        let client = Client::try_from(config).context("cannot create a client for the API server")?;
        Ok(Self { client, namespace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {token: t}}]
contexts:
- {name: shop, context: {cluster: c, user: u, namespace: shop}}
- {name: bare, context: {cluster: c, user: u}}
- {name: empty, context: {cluster: c, user: u, namespace: ''}}
current-context: bare
";

    async fn namespace(context: Option<&str>, namespace: Option<&str>) -> Result<String> {
        let file =
            std::env::temp_dir().join(format!("kubeconfig-{}-{context:?}-{namespace:?}", std::process::id()));
        std::fs::write(&file, KUBECONFIG)?;
        let flags = ClusterFlags {
            kubeconfig: Some(file.clone()),
            context: context.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
        };
        let connected = ClusterConnection::connect(&flags).await.map(|cluster| cluster.namespace);
        std::fs::remove_file(file)?;
        connected
    }

    #[tokio::test]
    async fn context_and_namespace_are_selected_as_kubectl_does() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        assert_eq!(namespace(None, None).await.unwrap(), "default");
        assert_eq!(namespace(Some("shop"), None).await.unwrap(), "shop");
        assert_eq!(namespace(Some("shop"), Some("other")).await.unwrap(), "other");
        assert_eq!(namespace(Some("shop"), Some("")).await.unwrap(), "shop");
        assert_eq!(namespace(Some("empty"), Some("")).await.unwrap(), "default");
        let error = format!("{:#}", namespace(Some("absent"), None).await.unwrap_err());
        assert!(error.contains("absent"), "{error}");
    }
}
