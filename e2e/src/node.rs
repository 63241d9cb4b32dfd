//! The cluster that has a node: squelch as a pod of the image that its users get.

use std::cell::Cell;
use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::cluster::{checkout, given, script};
use crate::emitters::Emitting;
use crate::metrics::Samples;
use crate::process::tail;
use crate::test::make_namespace;
use crate::wait::{GENEROUS, told, wait_for};
use crate::{Cluster, Emission, Helm, Storm, Writer, accounts};

/// squelch's image, without its tag, as the recipe has named it.
pub const IMAGE: &str = "squelch.dev/squelch";
/// The tag.
pub const TAG: &str = "test";
/// Where squelch is installed, and what its release and its Deployment are called.
pub const SQUELCH: &str = "squelch";
/// Its pods' plain HTTP port.
pub const HTTP_PORT: u16 = 8080;

/// The image of e2e/cluster/pod, which every such cluster has.
const POD_IMAGE: &str = "squelch.dev/test-pod:1";

/// A pod is started in a second or two; a busy machine takes longer.
const ROLLOUT: Duration = Duration::from_secs(120);

/// Lines that a failed test shows of each log.
const SHOWN: usize = 40;

/// One test on the node, alone: there is one squelch.
pub struct Node {
    /// The cluster.
    pub cluster: Cluster,
    /// A namespace of the test's own, for Events and pods.
    pub namespace: String,
    folder: PathBuf,
    emitter: PathBuf,
    passed: Cell<bool>,
    _turn: File,
}

impl Node {
    /// Makes ready for a test whose namespace `label` begins: squelch's image is there, squelch is not.
    ///
    /// # Errors
    /// That there is no cluster with a node, or what it answers.
    pub async fn begin(label: &str) -> Result<Self> {
        let cluster = Cluster::connect().await?;
        let turn = File::create(cluster.folder.join("e2e.lock"))?;
        let turn = tokio::task::spawn_blocking(move || turn.lock().map(|()| turn)).await??;
        load_given(&cluster).await?;
        accounts::install_emitter(&cluster).await?;
        let namespace = make_namespace(&cluster.client, label).await?;
        let folder = env::temp_dir().join(format!("squelch-e2e-{namespace}"));
        std::fs::create_dir_all(&folder)?;
        let emitter = accounts::EMITTER.kubeconfig(&cluster, &folder).await?;
        let node = Self { cluster, namespace, folder, emitter, passed: Cell::new(false), _turn: turn };
        // What a test that failed has left.
        node.helm().uninstall().await?;
        Ok(node)
    }

    /// squelch's chart, with the image that is on the node.
    pub fn helm(&self) -> Helm {
        chart(&self.cluster)
    }

    /// Makes an OCI archive an image of the node's.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn load(&self, archive: &Path) -> Result<()> {
        load(&self.cluster, archive).await
    }

    /// Ends the API server and starts it again, with the same flags.
    ///
    /// # Errors
    /// That it does not become ready.
    pub async fn restart_apiserver(&self, kill: bool) -> Result<()> {
        self.cluster.restart_apiserver(kill, &[]).await
    }

    /// Somebody who writes Events into this test's namespace from outside the cluster.
    ///
    /// # Errors
    /// That he cannot begin.
    pub async fn writer(&self, per_second: u32) -> Result<Writer> {
        Writer::start(&self.emitter, &self.namespace, "written", per_second).await
    }

    /// The demo's storm in this test's namespace, `length` times as long (20 s).
    ///
    /// # Errors
    /// That it cannot be started.
    pub fn storm(&self, length: u32) -> Result<Storm> {
        Storm::start(&self.emitter, &self.namespace, &self.folder, length)
    }

    /// Somebody who reports into this test's namespace. `name` is of his files.
    ///
    /// # Errors
    /// That he cannot be started.
    pub fn emit(&self, name: &str, emission: &Emission) -> Result<Emitting> {
        emission.start(&format!("{}-{name}", self.namespace), &self.emitter, &self.namespace, &self.folder)
    }

    /// Waits until a Deployment is what it should be: every pod is of its newest template and ready, and no other is
    /// left.
    ///
    /// # Errors
    /// What it is instead.
    pub async fn rolled_out(&self, namespace: &str, name: &str) -> Result<()> {
        let api: Api<Deployment> = Api::namespaced(self.cluster.client.clone(), namespace);
        wait_for(&format!("the Deployment {namespace}/{name} to be rolled out"), ROLLOUT, async || {
            let deployment = api.get(name).await.map_err(told)?;
            let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
            let status = deployment.status.unwrap_or_default();
            let counts = [status.replicas, status.updated_replicas, status.available_replicas];
            let seen = status.observed_generation >= deployment.metadata.generation;
            if seen && counts.iter().all(|count| count.unwrap_or(0) == wanted) {
                Ok(())
            } else {
                Err(format!("{wanted} wanted; there, updated, available: {counts:?}"))
            }
        })
        .await
    }

    /// squelch's pods that run.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn squelch_pods(&self) -> Result<Vec<String>> {
        Ok(running_pods(&self.cluster).await?.iter().map(ResourceExt::name_any).collect())
    }

    /// A page of a pod's plain HTTP port, by way of the API server.
    ///
    /// # Errors
    /// That it does not answer with success.
    pub async fn get(&self, namespace: &str, pod: &str, port: u16, path: &str) -> Result<String> {
        Self::page(&self.cluster, namespace, pod, port, path).await
    }

    /// The same without a test.
    pub(crate) async fn page(
        cluster: &Cluster,
        namespace: &str,
        pod: &str,
        port: u16,
        path: &str,
    ) -> Result<String> {
        let url = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{path}");
        Ok(cluster.client.request_text(http::Request::get(url).body(Vec::new())?).await?)
    }

    /// A scrape of one of squelch's pods.
    ///
    /// # Errors
    /// That it does not answer.
    pub async fn metrics(&self, pod: &str) -> Result<Samples> {
        Ok(Samples::parse(&self.get(SQUELCH, pod, HTTP_PORT, "/metrics").await?))
    }

    /// Runs a pod of this test's namespace to its end; what it prints. `arguments` are those of e2e/cluster/pod.
    ///
    /// # Errors
    /// That it fails or does not end, and what it prints.
    pub async fn run_pod(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": self.namespace },
            "spec": {
                "restartPolicy": "Never",
                "securityContext": { "runAsNonRoot": true },
                "containers": [{ "name": "pod", "image": POD_IMAGE, "imagePullPolicy": "Never", "args": arguments }],
            },
        });
        self.cluster.kubectl.apply(&pod).await?;
        let api: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.namespace);
        let ended = wait_for(&format!("the pod {name} to end"), GENEROUS, async || {
            let pod = api.get(name).await.map_err(told)?;
            let phase = phase(&pod).to_owned();
            if phase == "Succeeded" || phase == "Failed" { Ok(phase) } else { Err(phase) }
        })
        .await?;
        let printed = api.logs(name, &LogParams::default()).await?;
        ensure!(ended == "Succeeded", "the pod {name} failed: {printed}");
        Ok(printed)
    }

    /// The test has shown what it is for.
    ///
    /// # Errors
    /// None; it is the last word of a test.
    pub fn passed(self) -> Result<()> {
        self.passed.set(true);
        Ok(())
    }

    /// All that there is to see of a test that failed.
    fn report(&self) {
        let kubectl = &self.cluster.kubectl;
        eprintln!("--- {}: what is there", self.namespace);
        eprintln!("{}", self.helm().say(&["history", SQUELCH]));
        let of_squelch = kubectl.namespace(SQUELCH);
        eprintln!("{}", of_squelch.say(&["get", "deployments,pods,services,events", "--output=wide"]));
        eprintln!(
            "{}",
            kubectl.namespace(&self.namespace).say(&["get", "eventpolicies,pods", "--output=wide"])
        );
        eprintln!("{}", kubectl.say(&["get", "mutatingwebhookconfigurations"]));
        for pod in of_squelch.say(&["get", "pods", "--output=name"]).lines() {
            let tail = format!("--tail={SHOWN}");
            eprintln!("--- {pod}:\n{}", of_squelch.say(&["logs", pod, "--all-containers", &tail]));
            let before = of_squelch.say(&["logs", pod, "--all-containers", "--previous", &tail]);
            if !before.contains("previous terminated container") {
                eprintln!("--- {pod}, before it was started again:\n{before}");
            }
        }
        for daemon in ["kubelet", "containerd", "kube-proxy"] {
            let log = self.cluster.folder.join(format!("logs/{daemon}.log"));
            eprintln!("--- the end of {}:\n{}", log.display(), tail(&log, 10));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.passed.get() {
            let _ = std::fs::remove_dir_all(&self.folder);
        } else {
            self.report();
        }
        self.cluster.kubectl.say(&["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}

/// squelch's chart, with the image that is on the node.
pub fn chart(cluster: &Cluster) -> Helm {
    Helm::new(&cluster.kubeconfig, checkout("charts/squelch"), SQUELCH, SQUELCH)
        .set("image.repository", IMAGE)
        .set("image.tag", TAG)
        .set("image.pullPolicy", "Never")
}

/// squelch's pods that run.
///
/// # Errors
/// What the API server answers.
pub async fn running_pods(cluster: &Cluster) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), SQUELCH);
    // Its drain has a name of its own.
    let its = ListParams::default().labels("app.kubernetes.io/name=squelch");
    let mut pods = api.list(&its).await?.items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none() && phase(pod) == "Running");
    Ok(pods)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Sees to it that the image that the recipe has built is on the node.
///
/// # Errors
/// That there is no node or no image.
pub async fn load_given(cluster: &Cluster) -> Result<()> {
    ensure!(
        env::var_os("SQUELCH_NODE_ADDRESS").is_some(),
        "this cluster has no node: `just test-node` and `just demo --node` bring one up"
    );
    load_once(cluster, &given("SQUELCH_IMAGE")?).await
}

/// The same archive once for a cluster: the file `loaded` says which was the last.
async fn load_once(cluster: &Cluster, archive: &Path) -> Result<()> {
    let file = cluster.folder.join("loaded");
    let changed = std::fs::metadata(archive).with_context(|| archive.display().to_string())?.modified()?;
    let this = format!("{} {changed:?}", archive.display());
    if std::fs::read_to_string(&file).is_ok_and(|loaded| loaded == this) {
        return Ok(());
    }
    load(cluster, archive).await?;
    Ok(std::fs::write(file, this)?)
}

/// Makes an OCI archive an image of the node's.
///
/// # Errors
/// What is wrong with it.
pub async fn load(cluster: &Cluster, archive: &Path) -> Result<()> {
    script("load", &[cluster.folder.as_os_str(), archive.as_os_str()]).await
}
