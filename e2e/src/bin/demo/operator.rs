//! squelch, as a process of this machine or installed by its chart: the rest of the demo does not depend on it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use e2e::accounts::SQUELCH;
use e2e::cluster::given;
use e2e::kubectl::Kubectl;
use e2e::squelch::{Admin, StartOptions};
use e2e::wait::not_yet;
use e2e::{Cluster, GENEROUS, Helm, Squelch, node, wait_for};
use kube::ResourceExt as _;
use serde_json::json;

use crate::report::say;

/// A ready squelch.
pub(crate) enum Operator {
    /// A process with the permissions of an installation.
    Process(Squelch),
    /// A release, with the port of its active pod. The pod is reachable because this machine is the node.
    Release(Helm, Admin),
}

/// How to use a squelch that keeps running.
pub(crate) struct Left {
    /// How it runs.
    pub(crate) what: String,
    /// The command that shows its log.
    pub(crate) log: String,
}

impl Operator {
    /// Starts a process; its log goes to `folder`.
    pub(crate) async fn start(cluster: &Cluster, folder: &Path) -> Result<Self> {
        say("install the CRDs and squelch's rights, start squelch (usually 3 s)");
        cluster.install().await?;
        let identity = SQUELCH.kubeconfig(cluster, folder).await?;
        let options = StartOptions { flags: &["--receipt-interval", "1s"], ..StartOptions::default() };
        Ok(Self::Process(Squelch::start("squelch", &identity, folder, options).await?))
    }

    /// Installs the chart with the image that the recipe has built.
    pub(crate) async fn install(cluster: &Cluster) -> Result<Self> {
        say("load squelch's image into the node (usually 2 s)");
        node::load_given(cluster).await?;
        let helm = node::chart(cluster).set("operator.statusInterval", "1s");
        let helm = helm.set("operator.reportInterval", "1s").set("operator.receiptInterval", "1s");
        say(&format!("{}   (usually 5 s)", helm.typed()));
        helm.install(&json!({})).await?;
        let address = wait_for("an active pod with an address", GENEROUS, async || {
            let pods = node::running_pods(cluster).await.map_err(not_yet)?;
            let active =
                pods.iter().find(|pod| pod.labels().get("squelch.dev/role").is_some_and(|it| it == "active"));
            let status = active.and_then(|pod| pod.status.as_ref());
            let address = status.and_then(|status| status.pod_ip.clone());
            address.ok_or_else(|| format!("{} pods", pods.len()))
        })
        .await?;
        let admin = Admin::at(format!("http://{address}:{}", node::HTTP_PORT))?;
        admin.get("/readyz").await.with_context(|| format!("asked {}/readyz", admin.url))?;
        Ok(Self::Release(helm, admin))
    }

    /// Its metrics.
    pub(crate) fn admin(&self) -> &Admin {
        match self {
            Self::Process(squelch) => &squelch.admin,
            Self::Release(_, admin) => admin,
        }
    }

    /// Stops it as a user would. It flushes pending occurrences first.
    pub(crate) async fn end(self) -> Result<()> {
        match self {
            Self::Process(squelch) => {
                say("stop squelch and the cluster (usually 3 s)");
                squelch.stop().await
            }
            Self::Release(helm, _) => {
                let Helm { release, namespace, .. } = &helm;
                say(&format!(
                    "helm uninstall {release} --namespace={namespace} --wait; stop the cluster (usually 15 s)"
                ));
                helm.uninstall().await.map(drop)
            }
        }
    }

    /// Keeps it running; `cluster-down` stops a process.
    pub(crate) fn leave(self, cluster: &Cluster, folder: &Path) -> Result<Left> {
        match self {
            Self::Process(squelch) => {
                let pid = squelch.leave();
                let recorded = format!("{pid} {}\n", start_time(pid)?);
                fs::write(cluster.folder.join("run/squelch.pid"), recorded)?;
                let log = folder.join("squelch.log");
                Ok(Left { what: format!("process {pid}"), log: format!("less {}", log.display()) })
            }
            Self::Release(Helm { release, namespace, .. }, _) => Ok(Left {
                what: format!("release {release} in namespace {namespace}"),
                log: format!("kubectl logs --namespace={namespace} deployment/{release}"),
            }),
        }
    }
}

/// Prints the state of a release, for a failed demo.
pub(crate) fn print_log_tails() {
    let Ok(kubeconfig) = given("KUBECONFIG") else { return };
    let kubectl = Kubectl::new(&kubeconfig).namespace(node::SQUELCH);
    eprintln!("{}", kubectl.say(&["get", "pods,events", "--output=wide"]));
    eprintln!("{}", kubectl.say(&["logs", "deployment/squelch", "--tail=20"]));
}

/// Start time of a process, which with its id identifies it, as in `e2e/cluster/process.sh`: field 22 of stat,
/// counted after the last parenthesis, because a process may have any name.
fn start_time(pid: u32) -> Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    Ok(fields.split_whitespace().nth(19).context("an unreadable /proc/PID/stat")?.to_owned())
}
