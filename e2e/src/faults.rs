//! Faults of squelch's pods and of the control plane on the node. Each fault ends on drop.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::cluster::client;
use crate::node::{SQUELCH, running_pods};
use crate::process::{Process, run, send, tail, words_of};
use crate::test;
use crate::wait::{GENEROUS, not_yet, wait_for};
use crate::{Cluster, Node};

/// The iptables chain of the dropped packets. Stopping the node removes chains with this prefix.
const CHAIN: &str = "CNI-FAULT";

/// squelch's pod with the label of the active replica.
///
/// # Errors
/// That there is none, or more than one.
pub async fn active(cluster: &Cluster) -> Result<Pod> {
    let mut pods = running_pods(cluster).await?;
    pods.retain(|pod| pod.labels().get("squelch.dev/role").is_some_and(|role| role == "active"));
    let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    ensure!(pods.len() == 1, "active are {names:?}");
    pods.pop().context("there is one")
}

/// The process of squelch in a pod.
///
/// # Errors
/// If it does not run.
pub fn process(pod: &Pod) -> Result<u32> {
    let group = format!("pod{}", pod.uid().context("a pod without a uid")?);
    let is_it = |folder: &Path| {
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        // The sandbox has its program under the same name.
        read("cgroup").contains(&group) && read("cmdline").starts_with("/squelch\0run\0")
    };
    let folders = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
    let found =
        folders.filter(|folder| is_it(folder)).find_map(|folder| folder.file_name()?.to_str()?.parse().ok());
    found.with_context(|| format!("squelch does not run in {}", pod.name_any()))
}

/// Runs ctr on the node's containerd.
///
/// # Errors
/// If the command fails, with its standard error.
pub fn containerd(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let socket = cluster.folder.join("node/run/containerd/containerd.sock");
    let mut command = Command::new("ctr");
    command.arg("--address").arg(socket).args(["--namespace", "k8s.io"]).args(arguments);
    run(&format!("ctr {arguments:?}"), command)
}

/// A stopped process. It continues on drop.
pub struct Frozen(u32);

impl Frozen {
    /// Stops the process (SIGSTOP).
    ///
    /// # Errors
    /// If the process does not exist.
    pub fn new(pid: u32) -> Result<Self> {
        test::disturb();
        send(pid, "STOP")?;
        Ok(Self(pid))
    }

    /// Stops a component of the control plane, such as etcd.
    ///
    /// # Errors
    /// If it does not run.
    pub fn component(cluster: &Cluster, name: &str) -> Result<Self> {
        Self::new(cluster.process_of(name)?)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // It may have exited.
        let _ = send(self.0, "CONT");
    }
}

/// An etcd whose commits are delayed. The delay ends on drop.
pub struct SlowCommits(Process);

impl SlowCommits {
    /// Delays each fdatasync of the write-ahead log. A write waits for the one that runs and for its own, a read for those
    /// that run meanwhile. The cluster must have been started with `--real-fsync`.
    ///
    /// # Errors
    /// If strace cannot be started, or if etcd's log cannot be found.
    pub fn start(cluster: &Cluster, delay: Duration, folder: &Path) -> Result<Self> {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-p", &cluster.process_of("etcd")?.to_string(), "-e", "trace=fdatasync"]);
        command.args(["-e", &format!("inject=fdatasync:delay_exit={}", delay.as_micros())]);
        let logs = cluster.folder.join("etcd/member/wal");
        let paths = std::fs::read_dir(&logs).with_context(|| logs.display().to_string())?;
        let mut paths = paths.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
        ensure!(!paths.is_empty(), "no log in {}", logs.display());
        for path in paths {
            command.arg("-P").arg(path);
        }
        Ok(Self(Process::start("strace", &mut command, folder)?))
    }

    /// Ends the delay.
    ///
    /// # Errors
    /// If strace has ended before, with its output.
    pub async fn end(mut self) -> Result<()> {
        // strace detaches from etcd, and then ends by the signal.
        self.0.terminate().with_context(|| tail(&self.0.log, 10))?;
        wait_for("strace to end", GENEROUS, async || {
            self.0.ended().map_err(not_yet)?.map(drop).ok_or_else(|| "it still runs".to_owned())
        })
        .await
    }
}

/// A pod whose packets are dropped, until the drop of this value.
pub struct BlackHole;

impl BlackHole {
    /// Drops the packets to this pod.
    ///
    /// # Errors
    /// If iptables fails.
    pub fn new(pod: &Pod) -> Result<Self> {
        let status = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let address = status.context("a pod without an address")?;
        let this = Self;
        for rule in [
            &["-N", CHAIN][..],
            &["-A", CHAIN, "-d", address, "-j", "DROP"],
            &["-I", "OUTPUT", "-j", CHAIN],
            &["-I", "FORWARD", "-j", CHAIN],
        ] {
            let mut command = Command::new("iptables");
            command.arg("-w").args(rule);
            run(&format!("iptables {rule:?}"), command)?;
        }
        Ok(this)
    }
}

impl Drop for BlackHole {
    fn drop(&mut self) {
        for rule in [
            &["-D", "OUTPUT", "-j", CHAIN][..],
            &["-D", "FORWARD", "-j", CHAIN],
            &["-F", CHAIN],
            &["-X", CHAIN],
        ] {
            let mut command = Command::new("iptables");
            command.arg("-w").args(rule);
            words_of(command);
        }
    }
}

/// Renewals of the node's Lease with the kubelet's account, ten per second.
pub struct Renewals {
    ended: Arc<AtomicBool>,
    took: Arc<Mutex<Vec<Result<Duration, String>>>>,
    task: JoinHandle<()>,
}

impl Renewals {
    /// Starts the task.
    ///
    /// # Errors
    /// If the kubelet's credentials are unusable.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let client = client(&cluster.folder.join("kubelet.kubeconfig")).await?;
        let (ended, took) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
        let (until, book) = (ended.clone(), took.clone());
        let task = tokio::spawn(async move {
            let mut ticks = interval(Duration::from_millis(100));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !until.load(Ordering::Relaxed) {
                ticks.tick().await;
                let renewed = json!({ "spec": { "renewTime": format!("{:.6}", jiff::Timestamp::now()) } });
                let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node1";
                let request =
                    http::Request::patch(path).header("content-type", "application/merge-patch+json");
                let Ok(request) = request.body(renewed.to_string().into_bytes()) else { return };
                let asked = Instant::now();
                let answer = client.request_text(request).await;
                let noted = answer.map(|_| asked.elapsed()).map_err(|error| error.to_string());
                book.lock().unwrap_or_else(PoisonError::into_inner).push(noted);
            }
        });
        Ok(Self { ended, took, task })
    }

    /// Stops and returns the 99th percentile of the latency.
    ///
    /// # Errors
    /// If a renewal failed.
    pub async fn p99(self) -> Result<Duration> {
        self.ended.store(true, Ordering::Relaxed);
        self.task.await?;
        let book = std::mem::take(&mut *self.took.lock().unwrap_or_else(PoisonError::into_inner));
        let took: Result<Vec<_>, String> = book.into_iter().collect();
        let mut took = took.map_err(anyhow::Error::msg).context("a renewal of the node's Lease failed")?;
        took.sort_unstable();
        took.get(took.len() * 99 / 100).copied().context("the node's Lease was never renewed")
    }
}

/// Polls how many replicas report to be active.
pub struct ActiveReplicaWatch {
    ended: Arc<AtomicBool>,
    task: JoinHandle<Duration>,
}

impl ActiveReplicaWatch {
    /// Starts the task.
    pub fn watch(cluster: &Cluster) -> Self {
        let (ended, cluster) = (Arc::new(AtomicBool::new(false)), cluster.clone());
        let until = ended.clone();
        let task = tokio::spawn(async move {
            let (mut longest, mut since) = (Duration::ZERO, None);
            let mut ticks = interval(Duration::from_millis(200));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !until.load(Ordering::Relaxed) {
                ticks.tick().await;
                // A replica without an answer is not counted.
                let active_replicas = active_replicas(&cluster).await.unwrap_or(0);
                let began = if active_replicas > 1 { since.or(Some(Instant::now())) } else { None };
                longest = longest.max(began.map_or(Duration::ZERO, |began: Instant| began.elapsed()));
                since = began;
            }
            longest
        });
        Self { ended, task }
    }

    /// Stops and returns the longest time with two active replicas.
    ///
    /// # Errors
    /// If the task panicked.
    pub async fn longest(self) -> Result<Duration> {
        self.ended.store(true, Ordering::Relaxed);
        Ok(self.task.await?)
    }
}

/// The number of replicas that report to be active.
async fn active_replicas(cluster: &Cluster) -> Result<usize> {
    let mut active_replicas = 0;
    for pod in running_pods(cluster).await? {
        let name = pod.name_any();
        let page = Node::page(cluster, SQUELCH, &name, crate::node::HTTP_PORT, "/metrics");
        let answered = tokio::time::timeout(Duration::from_millis(500), page).await;
        if let Ok(Ok(text)) = answered {
            active_replicas +=
                usize::from(crate::metrics::Samples::parse(&text).sum("squelch_active", &[]) > 0.0);
        }
    }
    Ok(active_replicas)
}
