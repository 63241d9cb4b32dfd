//! Reaching the cluster, and asking what has to be known before anything starts.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

/// matchConditions of webhooks, on which squelch relies to leave its own writes out, are pruned below.
const OLDEST: (u32, u32) = (1, 30);

/// How long the API server may take to answer the first questions.
const DEADLINE: Duration = Duration::from_secs(10);

/// A client for the cluster that `kubeconfig` names, else for the one that this process is found in. It does not
/// retry by itself: every caller has rules of its own for that.
pub(super) async fn connect(kubeconfig: Option<&Path>) -> Result<Client> {
    let mut config = match kubeconfig {
        None => Config::infer().await.context(
            "cannot tell which cluster to use: outside a pod give --kubeconfig FILE or set KUBECONFIG",
        )?,
        Some(file) => {
            let read = Kubeconfig::read_from(file)
                .with_context(|| format!("cannot read the kubeconfig {}", file.display()))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("cannot use the kubeconfig {}", file.display()))?
        }
    };
    config.default_retry = false;
    Client::try_from(config).context("cannot set up a client for the API server")
}

/// Refuses a cluster that is too old.
pub(super) async fn check_version(client: &Client) -> Result<String> {
    let asked = tokio::time::timeout(DEADLINE, client.apiserver_version());
    let version = asked
        .await
        .with_context(|| format!("the API server did not answer within {} s", DEADLINE.as_secs()))?
        .context(
            "the API server cannot be reached; check its address in the kubeconfig, and that it is up",
        )?;
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok();
    if let (Some(major), Some(minor)) = (number(&version.major), number(&version.minor))
        && (major, minor) < OLDEST
    {
        bail!("Kubernetes {major}.{minor} is too old: squelch needs {}.{} or newer", OLDEST.0, OLDEST.1);
    }
    Ok(version.git_version)
}

/// Under which user name this process writes.
pub(super) async fn who_am_i(client: &Client) -> Result<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let (parameters, review) = (PostParams::default(), SelfSubjectReview::default());
    let asked = reviews.create(&parameters, &review);
    let answer = tokio::time::timeout(DEADLINE, asked)
        .await
        .context("the API server did not say who squelch is; give --own-user")?
        .context("the API server does not say who squelch is; check its credentials, or give --own-user")?;
    let user = answer.status.and_then(|status| status.user_info).and_then(|user| user.username);
    user.filter(|user| !user.is_empty()).context("the API server knows no name for squelch; give --own-user")
}
