//! Connects to the cluster, and reads what has to be known before anything starts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::{HeaderName, HeaderValue};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::{Api, Client, Config};
use tracing::warn;

use crate::OLDEST_KUBERNETES as OLDEST;
use crate::arming::{ApiServerClients, Probing};
use crate::config::RunOptions;
use crate::kubeconfig;
use crate::tls::AcceptedTokens;

/// The deadline of the first calls.
const DEADLINE: Duration = Duration::from_secs(10);

/// A connection that waits for an answer is closed after this long without one. The API server sends a bookmark on
/// each watch once a minute.
const SILENCE: Duration = Duration::from_secs(90);

/// The default namespace: that of deploy/rbac.yaml.
const USUAL_NAMESPACE: &str = "squelch";

/// The cluster that squelch runs for.
pub(super) struct Cluster {
    config: Config,
    /// The version of the API server.
    pub(super) version: String,
    /// The user of squelch's own writes, as the API server knows it.
    pub(super) own_user: String,
    /// The uid of that user, for a pod the uid of its ServiceAccount; `None` if the API server does not return one.
    pub(super) own_uid: Option<String>,
    /// squelch's own namespace.
    pub(super) namespace: String,
}

/// The user of this process.
struct Me {
    user: String,
    uid: Option<String>,
}

impl Cluster {
    /// Connects to the cluster of `--kubeconfig`, else to that of the environment.
    ///
    /// # Errors
    /// The cluster is unavailable or too old, or `--own-user` is not the user of this process.
    pub(super) async fn reach(options: &RunOptions) -> Result<Self> {
        let config = configuration(options.kubeconfig.as_deref()).await?;
        let client = client(&config)?;
        let version = check_version(&client).await?;
        let Me { user, uid } = own_user(options.own_user.as_deref(), who_am_i(&client).await)?;
        let namespace = namespace(options.install_namespace.as_deref(), &user);
        Ok(Self { config, version, own_user: user, own_uid: uid, namespace })
    }

    /// Name and uid of squelch's ServiceAccount, if it belongs to [`Self::namespace`].
    pub(super) fn own_account(&self) -> Option<(&str, &str)> {
        let (namespace, name) = account(&self.own_user)?;
        let uid = self.own_uid.as_deref()?;
        (namespace == self.namespace).then_some((name, uid))
    }

    /// Returns how to send probes through each API server. `tokens` verify the signatures.
    pub(super) fn probing(&self, tokens: Arc<AcceptedTokens>) -> Result<Probing> {
        let clients = ApiServerClients::new(self.config.clone());
        let clients = clients.context("cannot create a client for the API server")?;
        Ok(Probing { clients, namespace: self.namespace.clone(), tokens })
    }

    /// Returns a client with connections of its own. It does not retry: each caller does that by its own rules.
    pub(super) fn client(&self) -> Result<Client> {
        client(&self.config)
    }
}

/// Returns a client for the cluster of `kubeconfig`, else for that of the environment.
///
/// # Errors
/// No cluster is configured.
pub(super) async fn connect(kubeconfig: Option<&Path>) -> Result<Client> {
    client(&configuration(kubeconfig).await?)
}

/// Returns clients for that cluster as `user`. They impersonate it unless `own` has that user.
pub(super) async fn connect_as(
    own: &Client,
    kubeconfig: Option<&Path>,
    user: &str,
) -> Result<(Client, ApiServerClients)> {
    let mut config = configuration(kubeconfig).await?;
    if who_am_i(own).await?.user != user {
        config.headers.push((HeaderName::from_static("impersonate-user"), HeaderValue::from_str(user)?));
    }
    let api_servers =
        ApiServerClients::new(config.clone()).context("cannot create clients for the API servers")?;
    Ok((client(&config)?, api_servers))
}

async fn configuration(file: Option<&Path>) -> Result<Config> {
    let mut config = kubeconfig::configuration(file, None).await?;
    config.default_retry = false;
    // By default there is no timeout on a silent connection.
    config.read_timeout = Some(SILENCE);
    // The time counts from the last request, not from when the connection became idle.
    config.reset_reader_on_write = true;
    Ok(config)
}

fn client(config: &Config) -> Result<Client> {
    Client::try_from(config.clone()).context("cannot create a client for the API server")
}

/// Returns an error if the cluster is too old.
async fn check_version(client: &Client) -> Result<String> {
    let asked = tokio::time::timeout(DEADLINE, client.apiserver_version());
    let version = asked
        .await
        .with_context(|| format!("the API server did not answer within {} s", DEADLINE.as_secs()))?
        .context("the API server cannot be reached; check that it runs, and its address in the kubeconfig")?;
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok();
    if let (Some(major), Some(minor)) = (number(&version.major), number(&version.minor))
        && (major, minor) < OLDEST
    {
        bail!("Kubernetes {major}.{minor} is not supported; upgrade to {}.{} or newer", OLDEST.0, OLDEST.1);
    }
    Ok(version.git_version)
}

/// Returns the user of this process, as the API server knows it.
async fn who_am_i(client: &Client) -> Result<Me> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let (parameters, review) = (PostParams::default(), SelfSubjectReview::default());
    let asked = reviews.create(&parameters, &review);
    let answer = tokio::time::timeout(DEADLINE, asked)
        .await
        .context("the API server did not return the user of squelch in time; set --own-user")?
        .context(
            "the API server does not return the user of squelch; check the credentials, or set --own-user",
        )?;
    let info = answer.status.and_then(|status| status.user_info).unwrap_or_default();
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    let user = non_empty(info.username).context("the API server returned no user name; set --own-user")?;
    Ok(Me { user, uid: non_empty(info.uid) })
}

/// Returns the user that the webhook's rules exclude. Under another name squelch would review its own writes, and
/// answer each with another write. So `--own-user` is used only if the API server does not return the user.
fn own_user(given: Option<&str>, asked: Result<Me>) -> Result<Me> {
    match (given, asked) {
        (None, asked) => asked,
        (Some(given), Ok(me)) if me.user == given => Ok(me),
        (Some(given), Ok(Me { user, .. })) => bail!(
            "--own-user is {given}, but the API server knows squelch as {user}; remove --own-user, or use the \
             credentials of {given}"
        ),
        (Some(given), Err(error)) => {
            warn!(error = format!("{error:#}"), "cannot verify --own-user, using it as given");
            Ok(Me { user: given.to_owned(), uid: None })
        }
    }
}

fn namespace(given: Option<&str>, own_user: &str) -> String {
    let own = given.or_else(|| account(own_user).map(|(namespace, _)| namespace));
    own.unwrap_or(USUAL_NAMESPACE).to_owned()
}

/// Splits the user name of a ServiceAccount into namespace and name.
fn account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn the_user_of_the_api_server_overrides_the_flag() {
        let user = "system:serviceaccount:squelch:squelch";
        let me = || Ok(Me { user: user.to_owned(), uid: Some("u".to_owned()) });
        assert_eq!(own_user(None, me()).unwrap().user, user);
        assert_eq!(own_user(Some(user), me()).unwrap().uid.unwrap(), "u");
        let error = own_user(Some("someone"), me()).err().unwrap().to_string();
        assert!(
            error.contains("someone") && error.contains(user) && error.contains("remove --own-user"),
            "{error}"
        );
        assert_eq!(own_user(Some("someone"), Err(anyhow!("403"))).unwrap().user, "someone");
        assert!(own_user(None, Err(anyhow!("403"))).is_err());
    }

    #[test]
    fn the_own_namespace_is_that_of_the_own_account() {
        assert_eq!(namespace(None, "system:serviceaccount:platform:squelch"), "platform");
        assert_eq!(namespace(None, "kubernetes-admin"), "squelch");
        assert_eq!(namespace(Some("events"), "system:serviceaccount:platform:squelch"), "events");
    }
}
