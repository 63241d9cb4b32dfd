//! The running cluster of the environment.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};

use crate::kubectl::Kubectl;
use crate::metrics::Samples;
use crate::process::output_of;
use crate::wait::{GENEROUS, not_yet, wait_for};

/// A real API server with its administrator's credentials, and the paths of the tested programs.
#[derive(Clone)]
pub struct Cluster {
    /// The folder of `e2e/cluster/cluster`.
    pub folder: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// With the administrator's identity.
    pub client: Client,
    /// With the administrator's identity.
    pub kubectl: Kubectl,
}

/// A path in an environment variable of the recipe.
///
/// # Errors
/// If the variable is not set.
pub fn given(variable: &str) -> Result<PathBuf> {
    let value = env::var_os(variable).filter(|value| !value.is_empty());
    let path = value.map(PathBuf::from);
    path.with_context(|| format!("{variable} is not set: run these tests with `just test-e2e`"))
}

/// Number of namespaces in a long test.
///
/// # Errors
/// If the recipe set none, or no number.
pub fn namespaces() -> Result<usize> {
    let variable = "SQUELCH_NAMESPACES";
    let value =
        env::var(variable).with_context(|| format!("{variable} is not set: run this test by its recipe"))?;
    value.parse().with_context(|| format!("{variable}={value}"))
}

/// A file of the checkout, by its path from the root.
pub fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Event reviews that an API server admitted without an answer.
#[derive(Clone, Copy, Debug)]
pub struct FailedReviews {
    /// Because of its timeout, which passes on a starved machine.
    pub timeouts: i64,
    /// For other reasons, such as an invalid certificate.
    pub others: i64,
}

impl FailedReviews {
    /// All of them.
    pub fn all(self) -> i64 {
        self.timeouts + self.others
    }

    /// Those that came after `before` was read.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self { timeouts: self.timeouts - before.timeouts, others: self.others - before.others }
    }
}

impl Cluster {
    /// Connects to the cluster of `KUBECONFIG` and `SQUELCH_CLUSTER_DIR`.
    ///
    /// # Errors
    /// If there is no cluster.
    pub async fn connect() -> Result<Self> {
        let folder = given("SQUELCH_CLUSTER_DIR")?;
        let kubeconfig = given("KUBECONFIG")?;
        let client = client(&kubeconfig).await?;
        client.apiserver_version().await.with_context(|| {
            format!(
                "no cluster is reachable with {}: run these tests with `just test-e2e`",
                kubeconfig.display()
            )
        })?;
        let kubectl = Kubectl::new(&kubeconfig);
        Ok(Self { folder, kubeconfig, client, kubectl })
    }

    /// The minor version of its API server, such as 37; the emulated one, if it emulates another (`--emulated-version`).
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn minor(&self) -> Result<u32> {
        let version = self.client.apiserver_version().await?;
        let minor = version.emulation_minor.unwrap_or(version.minor);
        minor.parse().with_context(|| format!("the minor version {minor}"))
    }

    /// The metrics of its API server.
    ///
    /// # Errors
    /// If the metrics cannot be read.
    pub async fn metrics(&self) -> Result<Samples> {
        metrics(&self.client).await
    }

    /// The number of Event reviews that its API server admitted without an answer since its start, by its own
    /// metrics.
    ///
    /// # Errors
    /// If the metrics cannot be read.
    pub async fn failed_webhook_calls(&self) -> Result<i64> {
        let webhook = [("name", "events.squelch.dev")];
        Ok(self.metrics().await?.sum("apiserver_admission_webhook_fail_open_count", &webhook) as i64)
    }

    /// The Event reviews that its API servers admitted without an answer, by their log, which goes on after a restart.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn failed_reviews(&self) -> Result<FailedReviews> {
        let lines = self.lines_about_reviews()?;
        let failed: Vec<_> = lines.iter().filter(|line| line.contains("failing open")).collect();
        let timeouts = failed.iter().filter(|line| line.contains("context deadline exceeded")).count() as i64;
        Ok(FailedReviews { timeouts, others: failed.len() as i64 - timeouts })
    }

    /// The lines about Event reviews in the log of its API servers.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn lines_about_reviews(&self) -> Result<Vec<String>> {
        let log = self.folder.join("logs/kube-apiserver.log");
        let log = std::fs::read_to_string(&log).with_context(|| log.display().to_string())?;
        Ok(log.lines().filter(|line| line.contains("events.squelch.dev")).map(ToOwned::to_owned).collect())
    }

    /// The URL of its API server, and the CA certificate (PEM).
    ///
    /// # Errors
    /// If the cluster's files are incomplete.
    pub fn server(&self) -> Result<(String, String)> {
        let admin = Kubeconfig::read_from(&self.kubeconfig)?;
        let cluster = admin.clusters.into_iter().next().and_then(|named| named.cluster);
        let url = cluster.and_then(|cluster| cluster.server).context("a kubeconfig without a server")?;
        let authority = self.folder.join("pki/ca.crt");
        let pem = std::fs::read_to_string(&authority).with_context(|| authority.display().to_string())?;
        Ok((url, pem))
    }

    /// The current process of a control plane component, such as etcd.
    ///
    /// # Errors
    /// If the component was not started.
    pub fn process_of(&self, component: &str) -> Result<u32> {
        let file = std::fs::read_to_string(self.folder.join(format!("run/{component}.pid")))?;
        Ok(file.split_whitespace().next().context("an empty pid file")?.parse()?)
    }

    /// Restarts the API server with additional flags. First waits until terminating namespaces are gone: a new API
    /// server serves no custom resources at first, and the namespace controller would leave policies behind.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn restart_apiserver(&self, kill: bool, flags: &[&str]) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        wait_for("namespaces to be gone that were deleted", GENEROUS, async || {
            let all = namespaces.list_metadata(&ListParams::default()).await.map_err(not_yet)?.items;
            match all.iter().find(|it| it.metadata.deletion_timestamp.is_some()) {
                None => Ok(()),
                Some(going) => Err(going.name_any()),
            }
        })
        .await?;
        let flags: Vec<_> = flags.iter().map(|flag| format!("--apiserver-flag={flag}")).collect();
        let mut arguments = vec![self.folder.as_os_str()];
        arguments.extend(flags.iter().map(OsStr::new));
        if kill {
            arguments.push(OsStr::new("--kill"));
        }
        script("restart-apiserver", &arguments).await
    }

    /// Restarts the API server, so that it calls webhooks at the addresses of pods, or at ClusterIPs.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn route_by_endpoint(&self, by_endpoint: bool) -> Result<()> {
        self.restart_apiserver(false, &[&format!("--enable-aggregator-routing={by_endpoint}")]).await
    }

    /// Restarts the API server with its original flags, if it runs with others.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn as_it_came_up(&self) -> Result<()> {
        let run = self.folder.join("run");
        let first = std::fs::read(run.join("kube-apiserver.command.up")).ok();
        if first.is_some_and(|first| std::fs::read(run.join("kube-apiserver.command")).ok() != Some(first)) {
            self.restart_apiserver(false, &[]).await?;
        }
        Ok(())
    }

    /// Applies the CRDs and squelch's RBAC objects, and waits until they are served.
    ///
    /// # Errors
    /// If kubectl fails, with its standard error.
    pub async fn install(&self) -> Result<()> {
        for files in ["crds", "deploy/rbac.yaml"] {
            let files = checkout(files).display().to_string();
            self.kubectl.run(&["apply", "--server-side", "--force-conflicts", "-f", &files]).await?;
        }
        let kinds = ["eventpolicies", "clustereventpolicies", "eventdropreports"];
        let crds = kinds.map(|kind| format!("crd/{kind}.squelch.dev"));
        self.kubectl.established(&crds.each_ref().map(String::as_str)).await
    }
}

/// Runs `e2e/cluster/cluster` with this verb.
pub(crate) async fn script(verb: &str, arguments: &[&OsStr]) -> Result<()> {
    let mut command = Command::new(checkout("e2e/cluster/cluster"));
    command.arg(verb).args(arguments);
    output_of(format!("cluster {verb}"), command, String::new()).await.map(drop)
}

/// The metrics of the API server of this client.
pub(crate) async fn metrics(client: &Client) -> Result<Samples> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = client.request_text(request).await.context("the API server's metrics")?;
    Ok(Samples::parse(&text))
}

/// A client with the credentials of a kubeconfig.
///
/// # Errors
/// If the file is unreadable or invalid.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    // Later calls in a process find it installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let read = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// A client without credentials for a server other than the API server; it trusts any certificate.
///
/// # Errors
/// If `url` is invalid.
pub fn anonymous(url: &str) -> Result<Client> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut config = Config::new(url.parse()?);
    config.accept_invalid_certs = true;
    Ok(Client::try_from(config)?)
}
