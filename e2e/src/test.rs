//! A test: its own namespace, a folder for the output of its processes, and a report if it fails.

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::api_servers::ApiServer;
use crate::emitters::RunningEmitter;
use crate::events;
use crate::kubectl::Kubectl;
use crate::other_emitters::{OtherEmitter, RunningOtherEmitter};
use crate::process::tail;
use crate::squelch::StartOptions;
use crate::wait::{GENEROUS, not_yet, wait_for};
use crate::{Cluster, Emission, Policy, Prometheus, Squelch, Writer, Writes, accounts};

/// What a failed test prints if writes passed undecided because processes got no processor: `hack/e2e-lane` repeats it.
const STALLED: &str = "the machine was too slow for this test";

/// Whether the running test has stopped or killed a process, or delayed reviews.
static DISTURBED: AtomicBool = AtomicBool::new(false);

/// Records that the running test has stopped or killed a process, or delayed reviews: then undecided writes are no sign of a
/// slow machine.
pub fn disturb() {
    DISTURBED.store(true, Ordering::Relaxed);
}

/// Lines of each log and of each emitter's output that a failed test prints.
const SHOWN: [(&str, usize); 2] = [("log", 40), ("out", 5)];

/// The environment of a test.
pub struct Test {
    /// The cluster that it runs on.
    pub cluster: Cluster,
    /// Its namespace.
    pub namespace: String,
    folder: PathBuf,
    /// Folder with the kubeconfigs of squelch's and of the emitters' ServiceAccounts.
    squelch: PathBuf,
    emitter: PathBuf,
    started: Cell<usize>,
    passed: Rc<Cell<bool>>,
    /// The API server's count at the start.
    failed_webhook_calls: i64,
    /// Reviews without an answer in time, at the start.
    timeouts: i64,
    /// Tests are sequential: there is one webhook configuration.
    turn: Rc<File>,
}

impl Test {
    /// Prepares a test; `label` is the prefix of its namespace.
    ///
    /// # Errors
    /// If there is no cluster, or if a request fails.
    pub async fn begin(label: &str) -> Result<Self> {
        let cluster = Cluster::connect().await?;
        let turn = File::create(cluster.folder.join("e2e.lock"))?;
        let turn = tokio::task::spawn_blocking(move || turn.lock().map(|()| turn)).await??;
        cluster.install().await?;
        accounts::install_emitter(&cluster).await?;
        DISTURBED.store(false, Ordering::Relaxed);
        Self::within(cluster, label, Rc::default(), Rc::new(turn)).await
    }

    /// The same test with a second namespace, which is deleted with the first.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn neighbour(&self) -> Result<Self> {
        Self::within(self.cluster.clone(), "neighbour", self.passed.clone(), self.turn.clone()).await
    }

    /// The same test with a namespace for a part of it that passes or fails by itself.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn part(&self) -> Result<Self> {
        Self::within(self.cluster.clone(), "part", Rc::default(), self.turn.clone()).await
    }

    async fn within(cluster: Cluster, label: &str, passed: Rc<Cell<bool>>, turn: Rc<File>) -> Result<Self> {
        let namespace = make_namespace(&cluster.client, label).await?;
        let folder = std::env::temp_dir().join(format!("squelch-e2e-{namespace}"));
        std::fs::create_dir_all(&folder)?;
        let squelch = accounts::SQUELCH.kubeconfig(&cluster, &folder).await?;
        let emitter = accounts::EMITTER.kubeconfig(&cluster, &folder).await?;
        let failed_webhook_calls = cluster.failed_webhook_calls().await?;
        let timeouts = cluster.failed_reviews().map_or(0, |failed| failed.timeouts);
        let started = Cell::new(0);
        Ok(Self {
            cluster,
            namespace,
            folder,
            squelch,
            emitter,
            started,
            passed,
            failed_webhook_calls,
            timeouts,
            turn,
        })
    }

    /// The folder of its files. It is removed if the test passes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A client with the administrator's identity.
    pub fn client(&self) -> Client {
        self.cluster.client.clone()
    }

    /// kubectl in this namespace, with the administrator's identity.
    pub fn kubectl(&self) -> Kubectl {
        self.cluster.kubectl.namespace(&self.namespace)
    }

    /// A client with the emitters' identity.
    ///
    /// # Errors
    /// If its kubeconfig is unusable.
    pub async fn emitter_client(&self) -> Result<Client> {
        crate::cluster::client(&self.emitter).await
    }

    /// A kubeconfig for squelch with another server.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn kubeconfig_of(&self, server: &str) -> Result<String> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(&self.squelch)?)?;
        config["clusters"][0]["cluster"]["server"] = server.into();
        let path = self.folder.join("other.kubeconfig").display().to_string();
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Starts squelch with its own ServiceAccount.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn squelch(&self) -> Result<Squelch> {
        self.squelch_with_options(StartOptions::default()).await
    }

    /// Same as [`Self::squelch`], with these flags.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn squelch_with(&self, flags: &[&str]) -> Result<Squelch> {
        self.squelch_with_options(StartOptions { flags, ..StartOptions::default() }).await
    }

    /// Same as [`Self::squelch`], with these options.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn squelch_with_options(&self, options: StartOptions<'_>) -> Result<Squelch> {
        Squelch::start(&self.numbered("squelch"), &self.squelch, &self.folder, options).await
    }

    /// Same as [`Self::squelch_with_options`], with this kubeconfig.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn squelch_at(&self, kubeconfig: &str, options: StartOptions<'_>) -> Result<Squelch> {
        Squelch::start(&self.numbered("squelch"), Path::new(kubeconfig), &self.folder, options).await
    }

    /// The kubeconfig of squelch's own ServiceAccount.
    pub fn squelch_kubeconfig(&self) -> String {
        self.squelch.display().to_string()
    }

    /// Applies a policy to this namespace, and waits until it is in force.
    ///
    /// # Errors
    /// If the deadline passes, with the last status.
    pub async fn policy(&self, spec: &Value) -> Result<Policy> {
        Policy::apply(self.client(), &self.kubectl(), &self.namespace, "policy", spec).await
    }

    /// This test's own `ClusterEventPolicy`; deleted with the test.
    pub fn cluster_policy(&self) -> Policy {
        Policy::cluster(self.client(), &self.namespace)
    }

    /// Counts the writes of this namespace's Events from now on.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn writes(&self) -> Result<Writes> {
        Writes::watch(self.client(), &self.namespace).await
    }

    /// Starts an emitter in this namespace.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn emit(&self, emission: &Emission) -> Result<RunningEmitter> {
        emission.start(&self.numbered("emitter"), &self.emitter, &self.namespace, &self.folder)
    }

    /// Starts an emitter of another library in this namespace, about an object of this name and uid.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn emit_other(&self, emitter: &OtherEmitter, object: (&str, &str)) -> Result<RunningOtherEmitter> {
        emitter.start(&self.numbered("emitter"), &self.emitter, &self.namespace, object, &self.folder)
    }

    /// Starts an independent writer in this namespace with this many writes per second.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub async fn writer(&self, per_second: u32) -> Result<Writer> {
        Writer::start(&self.emitter, &self.namespace, "writer", per_second).await
    }

    /// Same, with all writes through one of several API servers.
    ///
    /// # Errors
    /// If the kubeconfig cannot be written.
    pub async fn writer_through(&self, server: &ApiServer, per_second: u32) -> Result<Writer> {
        let kubeconfig = server.kubeconfig(&self.emitter)?;
        Writer::start(&kubeconfig, &self.namespace, &server.component, per_second).await
    }

    /// Starts a Prometheus that scrapes this squelch.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn prometheus(&self, squelch: &Squelch) -> Result<Prometheus> {
        Prometheus::start(&self.numbered("prometheus"), &squelch.admin.url, &self.folder).await
    }

    /// The stored Events about an object, or about all, except squelch's Events about policies.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn events(&self, object: Option<&str>) -> Result<Vec<Event>> {
        let mut stored = events::of_others(&self.client(), &self.namespace).await?;
        stored.retain(|event| object.is_none_or(|object| events::object(event) == object));
        Ok(stored)
    }

    /// Waits until exactly one Event about an object is stored and has the count `value`.
    ///
    /// # Errors
    /// If the deadline passes, with the stored Events.
    pub async fn one_event(&self, object: &str, value: i64) -> Result<Event> {
        wait_for(&format!("one Event about {object} with the count {value}"), GENEROUS, async || {
            let mut stored = self.events(Some(object)).await.map_err(not_yet)?;
            match stored.pop() {
                Some(event) if stored.is_empty() && events::value(&event) == value => Ok(event),
                Some(event) => Err(events::list(&[stored, vec![event]].concat())),
                None => Err("none".to_owned()),
            }
        })
        .await
    }

    /// Calls of squelch's webhook that failed since the start of the test, for example by a timeout. The writes passed.
    ///
    /// # Errors
    /// If the metrics cannot be read.
    pub async fn failed_webhook_calls(&self) -> Result<i64> {
        Ok(self.cluster.failed_webhook_calls().await? - self.failed_webhook_calls)
    }

    /// Marks the test as passed.
    ///
    /// # Errors
    /// None; for use as the last expression of a test.
    pub fn passed(self) -> Result<()> {
        self.passed.set(true);
        Ok(())
    }

    /// A name that is unique in this test.
    fn numbered(&self, what: &str) -> String {
        let number = self.started.get() + 1;
        self.started.set(number);
        format!("{number}-{what}")
    }

    /// Prints [`STALLED`] with its evidence, if there is any.
    fn report_stalls(&self) {
        let timeouts = self.cluster.failed_reviews().map_or(0, |failed| failed.timeouts) - self.timeouts;
        let stalls: usize = self.files().iter().map(|file| mentions(file, "process stalled")).sum();
        if (timeouts > 0 || stalls > 0) && !DISTURBED.load(Ordering::Relaxed) {
            eprintln!("{STALLED}: squelch stalled {stalls} times, {timeouts} reviews had no answer in time");
        }
    }

    /// Prints the state after a failed test.
    fn report(&self) {
        eprintln!("--- {}: state", self.namespace);
        eprintln!(
            "{}",
            self.kubectl().say(&["get", "clustereventpolicies,eventpolicies,events", "--output=wide"])
        );
        for path in self.files() {
            let lines = SHOWN.iter().find(|(extension, _)| path.extension().is_some_and(|e| e == *extension));
            if let Some((_, lines)) = lines {
                eprintln!("--- the end of {}:\n{}", path.display(), tail(&path, *lines));
            }
        }
    }

    /// The files in its folder, in order.
    fn files(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = files.map(|file| file.path()).collect();
        files.sort();
        files
    }
}

/// The number of lines of a file with this text; 0 if it cannot be read.
fn mentions(file: &Path, text: &str) -> usize {
    std::fs::read_to_string(file).map_or(0, |lines| lines.lines().filter(|line| line.contains(text)).count())
}

impl Drop for Test {
    fn drop(&mut self) {
        if self.passed.get() {
            let _ = std::fs::remove_dir_all(&self.folder);
        } else {
            self.report();
            self.report_stalls();
        }
        let kubectl = &self.cluster.kubectl;
        kubectl.say(&["delete", "clustereventpolicy", &self.namespace, "--ignore-not-found"]);
        kubectl.say(&["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}

/// Creates a namespace with the name prefix `label`.
///
/// # Errors
/// The error of the API server.
pub async fn make_namespace(client: &Client, label: &str) -> Result<String> {
    let metadata = ObjectMeta { generate_name: Some(format!("{label}-")), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let made = Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    made.metadata.name.context("a namespace without a name")
}
