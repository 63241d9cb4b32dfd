//! Reaching the cluster, and asking what has to be known before anything starts.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{HeaderName, HeaderValue};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tracing::warn;

use crate::OLDEST_KUBERNETES as OLDEST;
use crate::config::RunOptions;

/// How long the API server may take to answer the first questions.
const DEADLINE: Duration = Duration::from_secs(10);

/// A connection that waits for an answer, and gets nothing for this long, is closed. The API server sends a bookmark on
/// each watch once a minute.
const SILENCE: Duration = Duration::from_secs(90);

/// The namespace where none can be told: that of deploy/rbac.yaml.
const USUAL_NAMESPACE: &str = "squelch";

/// The cluster that squelch runs for.
pub(super) struct Cluster {
    config: Config,
    /// What the API server calls its version.
    pub(super) version: String,
    /// The user under which squelch's own writes arrive at the API server.
    pub(super) own_user: String,
    /// The uid of that user, which for a pod is that of its ServiceAccount; `None` where the API server does not say.
    pub(super) own_uid: Option<String>,
    /// squelch's own namespace.
    pub(super) namespace: String,
}

/// The user under which this process writes.
struct Me {
    user: String,
    uid: Option<String>,
}

impl Cluster {
    /// The cluster that `--kubeconfig` names, else the one that this process is found in.
    ///
    /// # Errors
    /// That it cannot be reached, is too old, or knows squelch by another name than `--own-user`.
    pub(super) async fn reach(options: &RunOptions) -> Result<Self> {
        let config = configuration(options.kubeconfig.as_deref()).await?;
        let client = client(&config)?;
        let version = check_version(&client).await?;
        let Me { user, uid } = who(options.own_user.as_deref(), who_am_i(&client).await)?;
        let namespace = namespace(options.namespace.as_deref(), &user);
        Ok(Self { config, version, own_user: user, own_uid: uid, namespace })
    }

    /// Name and uid of the ServiceAccount that squelch runs under, if it is one of [`Self::namespace`].
    pub(super) fn own_account(&self) -> Option<(&str, &str)> {
        let (namespace, name) = account(&self.own_user)?;
        let uid = self.own_uid.as_deref()?;
        (namespace == self.namespace).then_some((name, uid))
    }

    /// A client with connections of its own. It does not retry by itself: every caller has rules of its own for that.
    pub(super) fn client(&self) -> Result<Client> {
        client(&self.config)
    }
}

/// A client for the cluster that `kubeconfig` names, else for the one that this process is found in.
///
/// # Errors
/// That nothing says which cluster that is.
pub(super) async fn connect(kubeconfig: Option<&Path>) -> Result<Client> {
    client(&configuration(kubeconfig).await?)
}

/// A client for that cluster as `user`: `own`, if its credentials are that user's, else one that impersonates.
pub(super) async fn connect_as(own: &Client, kubeconfig: Option<&Path>, user: &str) -> Result<Client> {
    if who_am_i(own).await?.user == user {
        return Ok(own.clone());
    }
    let mut config = configuration(kubeconfig).await?;
    config.headers.push((HeaderName::from_static("impersonate-user"), HeaderValue::from_str(user)?));
    client(&config)
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config> {
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
    // By default a connection on which the API server is silent is waited for without end.
    config.read_timeout = Some(SILENCE);
    // The time counts from the last request, not from when the connection became idle.
    config.reset_reader_on_write = true;
    Ok(config)
}

fn client(config: &Config) -> Result<Client> {
    Client::try_from(config.clone()).context("cannot set up a client for the API server")
}

/// Refuses a cluster that is too old.
async fn check_version(client: &Client) -> Result<String> {
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

/// The user under which this process writes, as the API server sees it.
async fn who_am_i(client: &Client) -> Result<Me> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let (parameters, review) = (PostParams::default(), SelfSubjectReview::default());
    let asked = reviews.create(&parameters, &review);
    let answer = tokio::time::timeout(DEADLINE, asked)
        .await
        .context("the API server did not say who squelch is; give --own-user")?
        .context("the API server does not say who squelch is; check its credentials, or give --own-user")?;
    let info = answer.status.and_then(|status| status.user_info).unwrap_or_default();
    let told = |text: Option<String>| text.filter(|text| !text.is_empty());
    let user = told(info.username).context("the API server knows no name for squelch; give --own-user")?;
    Ok(Me { user, uid: told(info.uid) })
}

/// The user to leave out of the webhook's rules: what the API server says. Under another name squelch would review
/// its own writes, count each as news, and answer it by one more. What was `given` is believed only where the API
/// server does not say.
fn who(given: Option<&str>, asked: Result<Me>) -> Result<Me> {
    match (given, asked) {
        (None, asked) => asked,
        (Some(given), Ok(me)) if me.user == given => Ok(me),
        (Some(given), Ok(Me { user, .. })) => bail!(
            "--own-user is {given}, but the API server knows squelch as {user}, and would have it review its own \
             writes: leave --own-user out, or give squelch the credentials of {given}"
        ),
        (Some(given), Err(error)) => {
            warn!(error = format!("{error:#}"), "--own-user cannot be checked; it is taken for right");
            Ok(Me { user: given.to_owned(), uid: None })
        }
    }
}

fn namespace(given: Option<&str>, own_user: &str) -> String {
    let own = given.or_else(|| account(own_user).map(|(namespace, _)| namespace));
    own.unwrap_or(USUAL_NAMESPACE).to_owned()
}

/// Namespace and name of a ServiceAccount, by its user name.
fn account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn the_api_servers_word_on_who_squelch_is_goes_before_the_flags() {
        let user = "system:serviceaccount:squelch:squelch";
        let me = || Ok(Me { user: user.to_owned(), uid: Some("u".to_owned()) });
        assert_eq!(who(None, me()).unwrap().user, user);
        assert_eq!(who(Some(user), me()).unwrap().uid.unwrap(), "u");
        let error = who(Some("someone"), me()).err().unwrap().to_string();
        assert!(
            error.contains("someone") && error.contains(user) && error.contains("leave --own-user out"),
            "{error}"
        );
        assert_eq!(who(Some("someone"), Err(anyhow!("403"))).unwrap().user, "someone");
        assert!(who(None, Err(anyhow!("403"))).is_err());
    }

    #[test]
    fn the_own_namespace_is_that_of_the_own_account() {
        assert_eq!(namespace(None, "system:serviceaccount:platform:squelch"), "platform");
        assert_eq!(namespace(None, "kubernetes-admin"), "squelch");
        assert_eq!(namespace(Some("events"), "system:serviceaccount:platform:squelch"), "events");
    }
}
