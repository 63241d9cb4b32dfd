//! The cluster with a node: squelch as a pod of its container image.

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
use crate::emitters::RunningEmitter;
use crate::metrics::Samples;
use crate::process::{Process, tail};
use crate::test::make_namespace;
use crate::wait::{GENEROUS, not_yet, wait_for};
use crate::{Cluster, Emission, Helm, Storm, Writer, accounts};

/// Name of squelch's image in the recipe, without tag.
pub const IMAGE: &str = "squelch.dev/squelch";
/// The tag.
pub const TAG: &str = "test";
/// The namespace of squelch, also the name of its release and Deployment.
pub const SQUELCH: &str = "squelch";
/// Its pods' plain HTTP port.
pub const HTTP_PORT: u16 = 8080;

/// The image of e2e/cluster/pod, which every such cluster has.
const POD_IMAGE: &str = "squelch.dev/test-pod:1";

/// Deadline of a rollout; a pod starts in a second or two on an idle machine.
const ROLLOUT: Duration = Duration::from_secs(120);

/// Log lines that a failed test prints.
const SHOWN: usize = 40;

/// A test on the node. Tests are sequential: there is one squelch.
pub struct Node {
    /// The cluster.
    pub cluster: Cluster,
    /// The test's namespace for Events and pods.
    pub namespace: String,
    folder: PathBuf,
    emitter: PathBuf,
    passed: Cell<bool>,
    _turn: File,
}

impl Node {
    /// Prepares a test: squelch's image is loaded, squelch is not installed. `label` is the prefix of the namespace.
    ///
    /// # Errors
    /// If there is no cluster with a node, or if a request fails.
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
        // Leftovers of a failed test.
        node.helm().uninstall().await?;
        Ok(node)
    }

    /// squelch's chart with the loaded image.
    pub fn helm(&self) -> Helm {
        chart(&self.cluster)
    }

    /// Loads an OCI archive into the node.
    ///
    /// # Errors
    /// If the archive is invalid.
    pub async fn load(&self, archive: &Path) -> Result<()> {
        load(&self.cluster, archive).await
    }

    /// Restarts the API server with the same flags.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn restart_apiserver(&self, kill: bool) -> Result<()> {
        self.cluster.restart_apiserver(kill, &[]).await
    }

    /// Starts a writer outside of the cluster in this test's namespace.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn writer(&self, per_second: u32) -> Result<Writer> {
        Writer::start(&self.emitter, &self.namespace, "written", per_second).await
    }

    /// Starts the demo's storm in this test's namespace, for `length` times 20 s.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn storm(&self, length: u32) -> Result<Storm> {
        Storm::start(&self.emitter, &self.namespace, &self.folder, length)
    }

    /// Starts an emitter in this test's namespace. `name` is the prefix of its files.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn emit(&self, name: &str, emission: &Emission) -> Result<RunningEmitter> {
        emission.start(&format!("{}-{name}", self.namespace), &self.emitter, &self.namespace, &self.folder)
    }

    /// Waits for the rollout of a Deployment: all pods have the newest template and are ready, and no others are
    /// left.
    ///
    /// # Errors
    /// If the deadline passes, with the last state.
    pub async fn rolled_out(&self, namespace: &str, name: &str) -> Result<()> {
        let api: Api<Deployment> = Api::namespaced(self.cluster.client.clone(), namespace);
        wait_for(&format!("the Deployment {namespace}/{name} to be rolled out"), ROLLOUT, async || {
            is_rolled_out(api.get(name).await.map_err(not_yet)?)
        })
        .await
    }

    /// The running pods of squelch.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn squelch_pods(&self) -> Result<Vec<String>> {
        Ok(running_pods(&self.cluster).await?.iter().map(ResourceExt::name_any).collect())
    }

    /// A page of a pod's plain HTTP port, through the API server's proxy.
    ///
    /// # Errors
    /// If there is no answer, or no success.
    pub async fn get(&self, namespace: &str, pod: &str, port: u16, path: &str) -> Result<String> {
        Self::page(&self.cluster, namespace, pod, port, path).await
    }

    /// Same as [`Node::get`], without a test.
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

    /// The metrics of one of squelch's pods.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn metrics(&self, pod: &str) -> Result<Samples> {
        Ok(Samples::parse(&self.get(SQUELCH, pod, HTTP_PORT, "/metrics").await?))
    }

    /// Runs a pod in this test's namespace to its end and returns its output. `arguments` are those of
    /// e2e/cluster/pod.
    ///
    /// # Errors
    /// If it fails or does not end, with its output.
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
            let pod = api.get(name).await.map_err(not_yet)?;
            let phase = phase(&pod).to_owned();
            if phase == "Succeeded" || phase == "Failed" { Ok(phase) } else { Err(phase) }
        })
        .await?;
        let printed = api.logs(name, &LogParams::default()).await?;
        ensure!(ended == "Succeeded", "the pod {name} failed: {printed}");
        Ok(printed)
    }

    /// Marks the test as passed.
    ///
    /// # Errors
    /// None; for use as the last expression of a test.
    pub fn passed(self) -> Result<()> {
        self.passed.set(true);
        Ok(())
    }

    /// Copies the logs of squelch's pods, and those of their previous containers, into the test's folder. Those of a pod
    /// that does not exist any more stay as they are.
    pub fn keep_logs(&self) {
        let of_squelch = self.cluster.kubectl.namespace(SQUELCH);
        let pods = of_squelch.run_now(&["get", "pods", "--output=name"]).unwrap_or_default();
        for pod in pods.lines().filter_map(|line| line.strip_prefix("pod/")) {
            for (file, which) in
                [(format!("{pod}.log"), &[][..]), (format!("{pod}-previous.log"), &["--previous"])]
            {
                // Most pods have no previous container.
                if let Ok(log) = of_squelch.run_now(&[&["logs", pod, "--all-containers"], which].concat()) {
                    let _ = std::fs::write(self.folder.join(file), log);
                }
            }
        }
    }

    /// Copies the logs of squelch's present pods into the test's folder until their end, or until the drop of the result.
    ///
    /// # Errors
    /// If kubectl cannot be started.
    pub fn follow_logs(&self) -> Result<Process> {
        let selector = "--selector=app.kubernetes.io/name=squelch";
        self.cluster.kubectl.namespace(SQUELCH).start(
            "squelch-pods",
            &["logs", "--follow", "--prefix", "--all-containers", selector],
            &self.folder,
        )
    }

    /// Prints the state after a failed test.
    fn report(&self) {
        let kubectl = &self.cluster.kubectl;
        eprintln!("--- {}: state", self.namespace);
        eprintln!("{}", self.helm().say(&["history", SQUELCH]));
        let of_squelch = kubectl.namespace(SQUELCH);
        eprintln!("{}", of_squelch.say(&["get", "deployments,pods,services,events", "--output=wide"]));
        eprintln!(
            "{}",
            kubectl.namespace(&self.namespace).say(&["get", "eventpolicies,pods", "--output=wide"])
        );
        eprintln!("{}", kubectl.say(&["get", "mutatingwebhookconfigurations"]));
        self.keep_logs();
        for file in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = file.path();
            if path.extension().is_some_and(|extension| extension == "log" || extension == "out") {
                eprintln!("--- the end of {}:\n{}", path.display(), tail(&path, SHOWN));
            }
        }
        for daemon in ["kubelet", "containerd", "kube-proxy"] {
            let log = self.cluster.folder.join(format!("logs/{daemon}.log"));
            eprintln!("--- the end of {}:\n{}", log.display(), tail(&log, 10));
        }
        match self.cluster.lines_about_reviews() {
            Ok(lines) => {
                let last = &lines[lines.len().saturating_sub(SHOWN)..];
                eprintln!(
                    "--- the API server, the last of {} lines about reviews:\n{}",
                    lines.len(),
                    last.join("\n")
                );
            }
            Err(error) => eprintln!("{error:#}"),
        }
    }
}

/// Whether a Deployment is rolled out, or what it lacks: all pods have the newest template and are ready, and no others are
/// left.
///
/// # Errors
/// The wanted and the actual numbers of pods.
pub fn is_rolled_out(deployment: Deployment) -> Result<(), String> {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.unwrap_or_default();
    let counts = [status.replicas, status.updated_replicas, status.available_replicas];
    let seen = status.observed_generation >= deployment.metadata.generation;
    if seen && counts.iter().all(|count| count.unwrap_or(0) == wanted) {
        Ok(())
    } else {
        Err(format!("{wanted} wanted; there, updated, available: {counts:?}"))
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

/// squelch's chart with the loaded image.
pub fn chart(cluster: &Cluster) -> Helm {
    Helm::new(&cluster.kubeconfig, checkout("charts/squelch"), SQUELCH, SQUELCH)
        .set("image.repository", IMAGE)
        .set("image.tag", TAG)
        .set("image.pullPolicy", "Never")
}

/// The running pods of squelch.
///
/// # Errors
/// The error of the API server.
pub async fn running_pods(cluster: &Cluster) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), SQUELCH);
    // The uninstall pod has another name.
    let its = ListParams::default().labels("app.kubernetes.io/name=squelch");
    let mut pods = api.list(&its).await?.items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none() && phase(pod) == "Running");
    Ok(pods)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Loads the image of the recipe into the node.
///
/// # Errors
/// If there is no node or no image.
pub async fn load_given(cluster: &Cluster) -> Result<()> {
    ensure!(
        env::var_os("SQUELCH_NODE_ADDRESS").is_some(),
        "this cluster has no node: `just test-node` and `just demo --node` bring one up"
    );
    load_once(cluster, &given("SQUELCH_IMAGE")?).await
}

/// Loads the same archive once per cluster: the file `loaded` names the last one.
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

/// Loads an OCI archive into the node.
///
/// # Errors
/// If the archive is invalid.
pub async fn load(cluster: &Cluster, archive: &Path) -> Result<()> {
    script("load", &[cluster.folder.as_os_str(), archive.as_os_str()]).await
}
