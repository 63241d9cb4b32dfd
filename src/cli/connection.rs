//! The cluster that a command reads, selected as `kubectl` selects it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

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
        let mut config = configuration(flags).await?;
        config.default_retry = false;
        let namespace = flags.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).context("cannot create a client for the API server")?;
        Ok(Self { client, namespace })
    }
}

async fn configuration(flags: &ClusterFlags) -> Result<Config> {
    let options = KubeConfigOptions { context: flags.context.clone(), ..KubeConfigOptions::default() };
    if let Some(file) = &flags.kubeconfig {
        let read = Kubeconfig::read_from(file)
            .with_context(|| format!("cannot read the kubeconfig {}", file.display()))?;
        return Config::from_custom_kubeconfig(read, &options)
            .await
            .with_context(|| format!("cannot use the kubeconfig {}", file.display()));
    }
    if flags.context.is_some() {
        return Config::from_kubeconfig(&options).await.context("cannot use the kubeconfig");
    }
    Config::infer().await.context("no cluster configured; set --kubeconfig FILE or KUBECONFIG")
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
        let error = format!("{:#}", namespace(Some("absent"), None).await.unwrap_err());
        assert!(error.contains("absent"), "{error}");
    }
}
